"""Long answers: they are read once, in parts, whatever the number of gold answers, and score as by
the old rules.
"""

import unicodedata
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbq.commands.measure import case_lines
from kbq.commands.terminal import WHOLE, shortened
from kbq.kilt import error_kinds
from kbq.kilt.error_kinds import CONTROL, ErrorCase, bare, kind_of
from kbq.kilt.records import as_short_json
from kbq.text import answer_scores
from kbq.text.answer_scores import best_f1, common_words, normalise_answer, parts, score_answer

TEXTS = st.text(st.sampled_from("ab TheΣé\u0301.,(1230 \n\u3000-"), max_size=40)
LISTS = st.lists(TEXTS.map(str.strip).filter(bool), min_size=1, max_size=4)


def old_f1(guess: str, gold: str) -> float:
    guess_tokens, gold_tokens = guess.split(), gold.split()
    shared = (Counter(guess_tokens) & Counter(gold_tokens)).total()
    if shared == 0:
        return 0.0
    precision, recall = shared / len(guess_tokens), shared / len(gold_tokens)
    return (2 * precision * recall) / (precision + recall)


def old_rouge(guess: str, gold: str) -> float:
    guess_sentences, gold_sentences = (
        [p.split() or [""] for p in text.split(".") if p] for text in (guess, gold)
    )
    if not guess_sentences or not gold_sentences:
        return 0.0
    guess_words = {word for sentence in guess_sentences for word in sentence}
    gold_words = {word for sentence in gold_sentences for word in sentence}
    shared = set[str]().union(
        *(common_words(one, other) for one in gold_sentences for other in guess_sentences)
    )
    precision, recall = len(shared) / len(guess_words), len(shared) / len(gold_words)
    return 2.0 * ((precision * recall) / (precision + recall + 1e-8))


def old_kind(answer: str, golds: frozenset[str], has_pages: bool) -> str:
    if answer in golds:
        return "right" if has_pages else "answer-right-page-wrong"
    if answer and any(bare(answer) == bare(gold) for gold in golds):
        return "answer-form"
    return "page-right-answer-wrong" if has_pages else "page-not-found"


@pytest.mark.parametrize("part", [1, 7, 2**20])
@given(TEXTS, LISTS)
@settings(max_examples=200)
def test_scores_are_those_of_the_old_rules(part: int, answer: str, golds: list[str]) -> None:
    answer = answer.strip() or "x"
    normal = answer_scores._normal_answer(answer)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answer_scores, "LONG_PART", part)
        assert "".join(parts(answer)) == answer
        assert normalise_answer(answer) == normal
        assert score_answer(answer, golds) == (
            float(answer in golds),
            float(normal in [answer_scores._normal_answer(gold) for gold in golds]),
            max(old_f1(normal, answer_scores._normal_answer(gold)) for gold in golds),
            max(old_rouge(answer, gold) for gold in golds),
        )
        for has_pages in (False, True):
            assert kind_of(answer, frozenset(golds), has_pages) == old_kind(
                answer, frozenset(golds), has_pages
            )


@given(st.text())
def test_marks_are_removed_and_control_characters_found_as_one_by_one(text: str) -> None:
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    assert bare(text) == normalise_answer(
        "".join(letter for letter in decomposed if not unicodedata.combining(letter))
    )
    assert bool(CONTROL.search(text)) == any(
        unicodedata.category(letter) == "Cc" for letter in text
    )


def test_control_characters_are_a_category() -> None:
    every = "".join(map(chr, range(0x11_0000)))
    assert CONTROL.findall(every) == [
        letter for letter in every if unicodedata.category(letter) == "Cc"
    ]


@pytest.mark.parametrize("count", [1, 50])
def test_an_answer_is_read_once_whatever_the_number_of_gold_answers(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = "word " * 1000
    read = Counter[str]()

    def counted(function: Callable[..., object]) -> Callable[..., object]:
        def call(text: str, *others: object) -> object:
            read[function.__name__] += len(text) > 1000
            return function(text, *others)

        return call

    monkeypatch.setattr(error_kinds, "normalise_answer", counted(normalise_answer))
    golds = frozenset(f"Gold {number}" for number in range(count))
    assert kind_of(answer, golds, has_pages=False) == "page-not-found"
    assert read == {"normalise_answer": 1}  # by `bare`


def test_half_of_the_words_are_half_of_the_score() -> None:
    assert best_f1("a b", ["b c"]) == 0.5


def test_what_is_shown_of_a_long_answer_is_short() -> None:
    long = "word " * 100_000
    case = ErrorCase(
        "7",
        "page-not-found",
        long,
        long,
        (long,),
        None,
        (),
        None,
        evidence=long,
        gold_evidence=long,
    )
    assert max(map(len, case_lines(case))) < WHOLE + 30
    assert as_short_json("x" * 1000) == '"' + "x" * 36 + "..."
    assert as_short_json("x" * 38) == '"' + "x" * 38 + '"'
    assert as_short_json('"' * 30) == '"' + '\\"' * 18 + "..."


@given(st.text("ab \n", max_size=30), st.integers(2, 12))
def test_a_text_is_shortened_as_if_all_of_it_were_read(text: str, width: int) -> None:
    line = " ".join(text.split())
    assert shortened(text, width) == (line if len(line) <= width else f"{line[: width - 1]}…")
