"""Queries: what a text asks, found in one reading."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbq.kb import KnowledgeBase
from kbq.kilt.task import WORDS_AFTER
from kbq.text import queries
from kbq.text.normal_forms import clean_text
from kbq.text.queries import MENTION, Query, mention_in, slot_of

MARKED = ["[START_ENT]", "[end_ent]", "[Start_Ent]", "[END_ENT]", "[sep]", "Nile", " ", "\n"]
PARTS = st.lists(st.sampled_from(MARKED)).map("".join)


@given(PARTS)
def test_a_mention_is_that_of_a_search_from_every_place(text: str) -> None:
    found, searched = mention_in(text), MENTION.search(text)
    assert (found and (found.span(), found[1])) == (searched and (searched.span(), searched[1]))


@given(st.text("ab \n", max_size=20))
def test_final_blanks_are_part_of_no_word(text: str) -> None:
    assert WORDS_AFTER.findall(text.rstrip()) == re.findall(r"\s*\S{1,30}", text)


@given(PARTS.filter(lambda text: text.strip().upper() != "[SEP]"))
def test_a_query_is_the_slot_or_the_mention_of_its_text(text: str) -> None:
    query = Query.of(text)
    mention = mention_in(text)
    assert (query.subject, query.relation) == (slot_of(text) or ("", ""))
    assert query.mention == (mention and mention[1])
    assert query.name == (query.mention if mention else query.subject if query.is_slot else text)


def test_a_query_is_cleaned_and_tokenised_once_on_its_way(
    kb_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kb = KnowledgeBase.open(kb_folder, device="cpu")
    tokenizer = kb.model.query_tokenizer
    seen: list[str] = []
    ids_of = tokenizer.ids_of

    def cleaned(text: str) -> str:
        seen.append("cleaned")
        return clean_text(text)

    def tokenised(text: str) -> list[int]:
        seen.append("tokenised")
        return ids_of(text)

    monkeypatch.setattr(queries, "clean_text", cleaned)
    monkeypatch.setattr(tokenizer, "ids_of", tokenised)
    assert kb.query("Marie Curie [SEP] place of birth", 1)
    assert seen == ["cleaned", "tokenised"]
