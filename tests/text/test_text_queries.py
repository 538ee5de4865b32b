"""Special tokens: the first marked mention of a text, found in one reading."""

import re

from hypothesis import given
from hypothesis import strategies as st

from kbq.kilt.task import WORDS_AFTER
from kbq.text.queries import MENTION, mention_in

MARKED = ["[START_ENT]", "[end_ent]", "[Start_Ent]", "[END_ENT]", "Nile", " ", "\n"]
PARTS = st.lists(st.sampled_from(MARKED)).map("".join)


@given(PARTS)
def test_a_mention_is_that_of_a_search_from_every_place(text: str) -> None:
    found, searched = mention_in(text), MENTION.search(text)
    assert (found and (found.span(), found[1])) == (searched and (searched.span(), searched[1]))


@given(st.text("ab \n", max_size=20))
def test_final_blanks_are_part_of_no_word(text: str) -> None:
    assert WORDS_AFTER.findall(text.rstrip()) == re.findall(r"\s*\S{1,30}", text)
