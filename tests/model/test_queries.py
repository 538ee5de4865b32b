"""Queries: markers become real separator tokens, and every query that cannot be read is refused in
one sentence.
"""

from collections.abc import Callable

import numpy as np
import pytest

from kbq.errors import QueryError
from kbq.model.model import Model
from kbq.model.queries import QueryTokenizer


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Marie Curie [SEP] place of birth", "[CLS] Marie Curie [SEP] place of birth [SEP]"),
        ("Marie Curie [sep] place", "[CLS] Marie Curie [SEP] place [SEP]"),
        ("Curie[SEP]place", "[CLS] Curie [SEP] place [SEP]"),
        ("  the river? ", "[CLS] the river [SEP]"),
        ("the river", "[CLS] the river [SEP]"),
        ("in [START_ENT] Paris [END_ENT] was", "[CLS] in [unused1] Paris [unused2] was [SEP]"),
        ("in [start_ent] Paris [end_ent] was", "[CLS] in [unused1] Paris [unused2] was [SEP]"),
        ("居 [SEP] ב", "[CLS] 居 [SEP] ב [SEP]"),
    ],
)
def test_tokens(model: Model, text: str, tokens: str) -> None:
    ids = model.query_tokenizer.ids_of(text)
    assert model.tokenizer.convert_ids_to_tokens(ids) == tokens.split()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'the query is empty: write "subject'),
        (" \t\n", 'the query is empty: write "subject'),
        ("?", "the query"),
        ("Curie [SEP] ?", "the query"),
        ("\x00", "the query"),
        ("a [SEP] b [SEP] c", r"the query 'a \[SEP\] b \[SEP\] c' has 2 \"\[SEP\]\": write"),
        ("a [SEP] b [sep] c", 'has 2 "'),
        ("[SEP] place", r"has nothing on one side of \"\[SEP\]\""),
        ("Curie [SEP]", "has nothing on one side of"),
        ("Curie [SEP]  ", "has nothing on one side of"),
        ("[SEP]", "has nothing on one side of"),
        (
            "city " * 31,
            r"the query '(city ){11}city…?.*' has 33 tokens, the encoder reads 32: shorten it",
        ),
        ("city " * 10_000, "has 10002 tokens, the encoder reads 32: shorten it"),
        ("city " * 20_001, "city…' has 100,005 characters, at most 100,000 are read: shorten it"),
    ],
)
def test_what_cannot_be_read_is_refused(model: Model, text: str, message: str) -> None:
    with pytest.raises(QueryError, match=message) as refusal:
        model.encode_queries(["the river", text])
    assert len(str(refusal.value)) < 200


def test_the_longest_query_fits(model: Model) -> None:
    ids = model.query_tokenizer.ids_of("city " * 30)
    assert len(ids) == 32


def test_special_tokens_written_in_a_query_are_ordinary_text(model: Model) -> None:
    ids = model.query_tokenizer.ids_of("the [MASK] [CLS] [PAD] river")
    assert not {0, 2, 4} & set(ids[1:])


def test_a_marker_the_model_does_not_know_is_ordinary_text(model: Model) -> None:
    reader = QueryTokenizer(model.tokenizer, 64, {"[SEP]": "[SEP]"})
    ids = reader.ids_of("[START_ENT] Paris")
    pieces = model.tokenizer.convert_ids_to_tokens(ids)
    assert pieces[-2:] == ["Paris", "[SEP]"]
    assert "[unused1]" not in pieces
    assert len(pieces) > 4


def test_a_separator_that_an_older_model_does_not_name_is_the_real_one(model: Model) -> None:
    ids = QueryTokenizer(model.tokenizer, 64, {}).ids_of("the [SEP] river")
    assert model.tokenizer.convert_ids_to_tokens(ids) == ["[CLS]", "the", "[SEP]", "river", "[SEP]"]


def test_vectors_do_not_depend_on_batch_mates(model: Model) -> None:
    texts = ["the river", "Marie Curie [SEP] place of birth", "Paris " * 20]
    together = model.encode_queries(texts)
    for place, text in enumerate(texts):
        for side, alone in zip(together, model.encode_queries([text]), strict=True):
            assert side[place].tobytes() == alone[0].tobytes()


def test_start_and_end_vectors_differ(new_model: Callable[..., Model]) -> None:
    starts, ends = new_model().encode_queries(["the river"])
    assert starts.shape == ends.shape == (1, 16)
    assert np.abs(starts - ends).max() > 0.1


def test_no_query_has_no_vectors(model: Model) -> None:
    starts, ends = model.encode_queries([])
    assert starts.shape == ends.shape == (0, 16)
