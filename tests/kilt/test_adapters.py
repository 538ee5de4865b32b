"""Adapters: what they cut, and that they cut only where they must."""

from collections.abc import Callable

import pytest

from kbq.kilt.task import Adapter, beginning, dialogue, mention, question, slot, slot_with


def words(most: int) -> Callable[[str], bool]:
    """An encoder that reads so many words."""
    return lambda text: len(text.split()) <= most


LINKED = "a b c d [START_ENT] Nile [END_ENT] e f g h"


@pytest.mark.parametrize(
    ("most", "query"),
    [
        (11, LINKED),
        (10, "b c d [START_ENT] Nile [END_ENT] e f g"),
        (7, "c d [START_ENT] Nile [END_ENT] e f"),
        (5, "d [START_ENT] Nile [END_ENT] e"),
        (4, "[START_ENT] Nile [END_ENT]"),
        (3, "[START_ENT] Nile [END_ENT]"),
    ],
)
def test_a_mention_stays_in_the_middle_of_what_is_read(most: int, query: str) -> None:
    assert mention(LINKED, words(most)) == query


@pytest.mark.parametrize(
    ("text", "most", "query"),
    [
        (
            "[START_ENT] Nile [END_ENT] e f g h",
            5,
            "[START_ENT] Nile [END_ENT] e f",
        ),  # a side may be short
        ("a b c d [START_ENT] Nile [END_ENT]", 6, "b c d [START_ENT] Nile [END_ENT]"),
        ("no mention at all", 2, "no mention"),
        ("a\n\nb [START_ENT]Nile[END_ENT] c", 3, "b [START_ENT]Nile[END_ENT] c"),
    ],
)
def test_mentions_at_an_edge_and_inputs_without_one(text: str, most: int, query: str) -> None:
    assert mention(text, words(most)) == query


def test_a_mention_in_a_script_without_blanks_keeps_context() -> None:
    before, after = "居里夫人" * 20, "的一位科学家" * 20
    found = mention(f"{before} [START_ENT] 华沙 [END_ENT] {after}", lambda text: len(text) <= 120)
    assert found == f"{before[-20:]} [START_ENT] 华沙 [END_ENT] {after[:30]}"


def test_of_a_mention_that_is_too_long_its_beginning_stays() -> None:
    assert mention("a [START_ENT] b c d e [END_ENT]", words(4)) == "[START_ENT] b c [END_ENT]"


@pytest.mark.parametrize(
    ("most", "query"),
    [
        (9, "Hello there. I like cats. Who owns one? Me."),
        (8, "I like cats. Who owns one? Me."),
        (7, "I like cats. Who owns one? Me."),
        (6, "Who owns one? Me."),
        (1, "Me."),
    ],
)
def test_a_dialogue_keeps_its_last_turns_whole(most: int, query: str) -> None:
    assert dialogue("Hello there.\nI like cats.\n\nWho owns one?\nMe.", words(most)) == query


@pytest.mark.parametrize("adapter", [question, slot, slot_with({}), mention, dialogue])
def test_nothing_stays_nothing(adapter: Adapter) -> None:
    assert adapter("", words(5)) == ""


def test_a_last_turn_that_is_too_long_keeps_its_beginning() -> None:
    assert dialogue("Hello.\none two three four", words(3)) == "one two three"


@pytest.mark.parametrize("adapter", [slot, slot_with({})])
def test_slots_stay_as_they_are(adapter: Adapter) -> None:
    assert adapter("Emma [SEP]  author", words(1)) == "Emma [SEP]  author"


def test_a_question_is_cut_only_where_it_is_too_long() -> None:
    assert question("who  wrote Emma?", words(3)) == "who  wrote Emma?"
    assert question("who wrote Emma, and when was that?", words(3)) == "who wrote Emma,"


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Emma [SEP] author", "who wrote Emma"),
        ("Emma [SEP] genre", "Emma [SEP] genre"),  # no template
        ("Emma", "Emma"),  # no relation
    ],
)
def test_templates_are_used_where_there_is_one(text: str, query: str) -> None:
    assert slot_with({"author": "who wrote {subject}"})(text, words(9)) == query


def test_beginning_of_nothing() -> None:
    assert beginning("", words(3)) == ""
