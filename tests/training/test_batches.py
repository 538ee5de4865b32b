"""Batches: every passage once, the limit respected, the gold tokens where the answers stand."""

import math
import random
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kbq.model.model import Model
from kbq.model.tokenizer import Window, token_span, tokenize
from kbq.training.batches import (
    Negative,
    Passage,
    PreparedPassage,
    TrainingQuery,
    batches,
    collate,
    each_query_alone,
    passages_digest,
    prepare,
)
from kbq.training.encoders import EncoderRun
from kbq.training.settings import TrainingSettings

TEXT = (
    "Marie Curie was born in Zug, in the city of Zug by the river, in the river, of the city of "
    "Warsaw in Paris."
)


def passage(group: str, *lengths: int, negatives: int = 0) -> PreparedPassage:
    """A passage whose windows have these lengths; the last ones are those of a hard negative."""
    cut = tuple(Window([1] * length, [0] * length, 1, length - 2, 0) for length in lengths)
    own, others = cut[: len(cut) - negatives], cut[len(cut) - negatives :]
    of_query = tuple((0, window) for window in others)
    return PreparedPassage(own, sum(lengths), ((1,),), (0,), (((0, 0),),), group, of_query)


def query(text: str, *answers: str) -> TrainingQuery:
    places = tuple((TEXT.index(answer), TEXT.index(answer) + len(answer)) for answer in answers)
    return TrainingQuery("", text, places, answers)


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.lists(st.integers(5, 60), min_size=1, max_size=3)),
        max_size=40,
    ),
    st.integers(60, 400),
    st.integers(0, 5),
)
def test_an_epoch_holds_every_passage_once_within_the_limit(
    shape: list[tuple[str, list[int]]], max_tokens: int, seed: int
) -> None:
    passages = [passage(group, *lengths, negatives=seed % len(lengths)) for group, lengths in shape]
    made = list(batches(passages, max_tokens, random.Random(seed)))
    assert sorted(index for members in made for index in members) == list(range(len(passages)))
    for members in made:
        lengths = [length for index in members for length in shape[index][1]]
        assert len(members) == 1 or len(lengths) * max(lengths) <= max_tokens


def test_the_seed_decides() -> None:
    passages = [passage(str(number % 5), 10 + number) for number in range(40)]
    one, same, other = (list(batches(passages, 200, random.Random(seed))) for seed in (1, 1, 2))
    assert one == same != other


def test_passages_of_one_group_stay_together_in_fours() -> None:
    passages = [passage(str(number // 4), 10) for number in range(40)]
    for members in batches(passages, 120, random.Random(0)):
        groups = [index // 4 for index in members]
        assert all(groups.count(group) == 4 for group in groups)


def test_there_is_little_padding() -> None:
    source = random.Random(0)
    passages = [passage(str(number % 50), source.randint(20, 200)) for number in range(400)]
    filled = padded = 0
    for members in batches(passages, 2000, random.Random(0)):
        lengths = [passages[index].tokens for index in members]
        filled, padded = filled + sum(lengths), padded + len(lengths) * max(lengths)
    assert filled / padded > 0.75


def test_prepare(model: Model) -> None:
    queries = [
        query("Where?", "Zug"),
        query("city " * 40, "Zug"),
        query("Who?", "Curie"),
        query("Why?", "Paris"),
    ]
    passages = [
        Passage("Marie", TEXT, tuple(queries), "g"),
        Passage("T", TEXT, (query("river " * 40, "Zug"),), "g"),
    ]
    (prepared,), unusable = prepare(
        model.query_tokenizer, model.config.window, passages, max_queries=3
    )
    assert unusable == (2, 1)
    assert model.tokenizer.convert_ids_to_tokens(prepared.queries[0])[0] == "[CLS]"
    assert len(prepared.queries) == len(prepared.answers) == len(prepared.golds) == 2
    assert prepared.answers[0] != prepared.answers[1]
    assert prepared.tokens == sum(len(window.ids) for window in prepared.windows)


def test_a_passage_without_a_word_is_left_out(model: Model) -> None:
    empty = Passage("T", "\u200b", (TrainingQuery("", "Where?", ((0, 1),), ("\u200b",)),), "g")
    prepared, unusable = prepare(model.query_tokenizer, model.config.window, [empty], max_queries=3)
    assert (prepared, unusable) == ([], (1, 0))


def test_equal_answers_have_equal_numbers(model: Model) -> None:
    passages = [
        Passage(str(number), TEXT, (query("Where?", answer),), "g")
        for number, answer in enumerate(("Zug", "Paris", "Zug"))
    ]
    prepared, _ = prepare(model.query_tokenizer, model.config.window, passages, max_queries=3)
    numbers = [one.answers[0] for one in prepared]
    assert numbers[0] == numbers[2] != numbers[1]


@pytest.mark.parametrize(
    ("answer", "span"),
    [
        ("Marie", (0, 0)),
        ("Marie Curie", (0, 1)),
        ("Zug", (5, 7)),
        ("Zu", (5, 7)),
        ("g,", (5, 8)),
        ("Paris", (27, 27)),
    ],
)
def test_token_span(answer: str, span: tuple[int, int], model: Model) -> None:
    (tokens,) = tokenize(model.tokenizer, [TEXT])
    start = TEXT.index(answer)
    found = token_span(tokens, start, start + len(answer))
    assert TEXT[tokens.starts[found[0]] : tokens.ends[found[1]]].find(answer) >= 0
    if span[0] < 20:
        assert found == span


def test_collate_marks_the_tokens_of_the_answers(model: Model) -> None:
    asked = (query("Where?", "Zug", "Paris"), query("Who?", "Curie"))
    passages = [
        Passage("Marie", TEXT, asked, "g"),
        Passage("the", "in Paris", (TrainingQuery("", "Where?", ((3, 8),), ("Paris",)),), "g"),
    ]
    prepared, _ = prepare(model.query_tokenizer, model.config.window, passages, max_queries=5)
    assert len(prepared[0].windows) == 2
    batch = collate(model, prepared)
    ids = batch.windows[0].flatten().tolist()
    assert batch.passage_of_query.tolist() == [0, 0, 1]
    owned = [
        [ids[i] for i, owner in enumerate(batch.passage_of_token.tolist()) if owner == n]
        for n in (0, 1)
    ]
    for mine, text in zip(owned, (TEXT, "in Paris"), strict=True):
        assert mine == tokenize(model.tokenizer, [text])[0].ids
    for row, starts, ends in (
        (0, ["Z", "Paris"], ["##g", "Paris"]),
        (1, ["Curie"], ["Curie"]),
        (2, ["Paris"], ["Paris"]),
    ):
        for gold, pieces in ((batch.gold_starts, starts), (batch.gold_ends, ends)):
            places = gold[row].nonzero().flatten().tolist()
            assert model.tokenizer.convert_ids_to_tokens([ids[place] for place in places]) == pieces
            assert {int(batch.passage_of_token[place]) for place in places} == {row // 2}
    assert batch.windows[1].sum() == sum(one.tokens for one in prepared)
    assert len(set(batch.answer_of_query.tolist())) == 3


def test_every_owned_token_has_one_place(model: Model) -> None:
    prepared, _ = prepare(
        model.query_tokenizer,
        model.config.window,
        [Passage("Marie", TEXT, (query("Who?", "Curie"),), "g")],
        5,
    )
    cut = prepared[0].windows
    assert all(one.position + one.count == other.position for one, other in pairwise(cut))


def test_a_query_alone_keeps_its_own_hard_negatives(model: Model) -> None:
    text, others = "Marie was born in Paris.", (Negative("Curie", "the river"),)
    queries = (query_of("Marie [SEP] birth", text, "Marie"), query_of("in?", text, "Paris", others))
    prepared, _ = prepare(
        model.query_tokenizer, model.config.window, [Passage("Marie", text, queries, "g")], 9
    )
    first, second = each_query_alone(prepared)
    assert (first.negatives, [number for number, _ in second.negatives]) == ((), [0])
    assert second.negatives[0][1] == prepared[0].negatives[0][1]
    assert (first.queries + second.queries, first.golds + second.golds) == (
        prepared[0].queries,
        prepared[0].golds,
    )


def test_hard_negatives_join_the_negatives_of_their_query_alone(model: Model) -> None:
    """The loss is -log of the gold token's share among the tokens of passage and negative, in
    float64.
    """
    text, others = (
        "Marie was born in Paris.",
        (Negative("Curie", "the river"), Negative("", "the city")),
    )
    first, second = (
        query_of("born in?", text, "Paris", others),
        query_of("Marie [SEP] birth", text, "Marie"),
    )
    given = [
        Passage("Marie", text, (one, second), "g") for one in (first, replace(first, negatives=()))
    ]
    (passage, without), _ = prepare(model.query_tokenizer, model.config.window, given, 9)
    assert [number for number, _ in passage.negatives] == [0]
    assert passages_digest([passage]) != passages_digest([without])
    batch = collate(model, [without, passage])
    assert sorted(set(batch.query_of_token.tolist())) == [-1, 2]
    ids = batch.windows[0].flatten()[batch.query_of_token == 2].tolist()
    assert model.tokenizer.convert_ids_to_tokens(ids) == ["the", "river"]
    assert (batch.passage_of_token[batch.query_of_token == 2] == -1).all()
    run = EncoderRun(model, [without, passage], TrainingSettings(batch_tokens=4096))
    with torch.no_grad():
        losses, _ = run.losses([0, 1])
        vectors, _ = model.phrases(*batch.windows)
        queries = model.queries(*batch.queries)
    flat = vectors.flatten(0, 1).double()
    by_hand = []
    for side, gold in zip(queries, (batch.gold_starts, batch.gold_ends), strict=True):
        for row, products in enumerate((side.double() @ flat.T).tolist()):
            owner = int(batch.passage_of_query[row])
            tokens = zip(
                products,
                batch.passage_of_token.tolist(),
                batch.query_of_token.tolist(),
                strict=True,
            )
            counted = [score for score, own, query in tokens if own == owner or query == row]
            right = [
                score
                for score, is_gold in zip(products, gold[row].tolist(), strict=True)
                if is_gold
            ]
            by_hand.append(
                math.log(math.fsum(map(math.exp, counted)) / math.fsum(map(math.exp, right)))
            )
    assert float(losses["single"]) == pytest.approx(sum(by_hand) / len(by_hand), abs=1e-4)


def query_of(
    text: str, passage: str, answer: str, negatives: tuple[Negative, ...] = ()
) -> TrainingQuery:
    start = passage.index(answer)
    return TrainingQuery("", text, ((start, start + len(answer)),), (answer,), negatives)
