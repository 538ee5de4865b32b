"""EM and F1 by character: CMRC's rule, written out plainly here, agrees on random texts and on
DRCD.
"""

import json
import lzma
import random
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kbq.kilt.evaluation import evaluate
from kbq.text.answer_scores import scores_by_character

ZH = Path(__file__).parents[3] / "shared" / "data" / "zh"
SIGNS = [*"-:_*^/\\~`+=，。：？！“”；’《》", "……", *"·、「」（）－～『』"]


def plain_tokens(text: str) -> list[str]:
    """Walk through the letters as CMRC's evaluation does."""
    found, word = [], ""
    for letter in text.lower().strip():
        if letter in SIGNS:
            continue
        if "\u4e00" <= letter <= "\u9fa5":
            found += [*re.findall(r"\w+|[^\w\s]", word), letter]
            word = ""
        else:
            word += letter
    return found + re.findall(r"\w+|[^\w\s]", word)


def plain_scores(answer: str, golds: list[str]) -> tuple[float, float]:
    guess, best, same = plain_tokens(answer), 0.0, 0.0
    for gold in map(plain_tokens, golds):
        longest = max(
            (n for n in range(len(guess) + 1) for i in range(len(guess)) for j in range(len(gold))
             if guess[i : i + n] == gold[j : j + n] and len(gold[j : j + n]) == n),
            default=0,
        )  # fmt: skip
        if longest:
            precision, recall = longest / len(guess), longest / len(gold)
            best = max(best, 2 * precision * recall / (precision + recall))
        same = max(same, float("".join(gold) == "".join(guess)))
    return same, best


def test_random_texts_score_as_by_the_plain_rule() -> None:
    rng = random.Random(5)
    for _ in range(400):
        texts = [
            "".join(rng.choices("韩国公司的年Nexon12，。 《》", k=rng.randint(1, 9))).strip()
            or "国"
            for _ in range(3)
        ]
        texts = [re.sub(r"\s+", "", text) for text in texts]
        em, f1 = scores_by_character(texts[0], texts[1:])
        expected = plain_scores(texts[0], texts[1:])
        assert em == expected[0], texts
        assert f1 == pytest.approx(expected[1]), texts


def test_the_evaluation_adds_them_beside_the_official_scores() -> None:
    gold: list[dict[str, Any]] = [
        {"id": "1", "input": "?", "output": [{"answer": "韩国Nexon"}]},
        {"id": 2, "output": [{"answer": "Emma"}]},
    ]
    guess: list[dict[str, Any]] = [
        {"id": "1", "output": [{"answer": "韩国Nexon公司"}]},
        {"id": 2, "output": [{"answer": "Emma"}]},
    ]
    evaluation = evaluate(guess, gold)
    assert (evaluation["em"], evaluation["f1"]) == (0.5, 0.5)
    assert evaluation.to_dict()["by character"] == {"queries": 1, "em": 0.0, "f1": 0.75}
    assert "by character" not in evaluate(guess[1:], gold[1:]).to_dict()


@pytest.mark.skipif(not ZH.exists(), reason="needs DRCD beside the checkout")
def test_answers_of_drcd_score_as_by_the_plain_rule() -> None:
    with lzma.open(ZH / "drcd-dev.json.xz", "rt", encoding="utf-8") as stream:
        articles = json.load(stream)["data"]
    answers = [
        question["answers"][0]["text"]
        for article in articles[:6]
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ][:150]
    for one, other in pairwise(answers):
        found = scores_by_character(one + other, [other])
        assert found == pytest.approx(plain_scores(one + other, [other])), (one, other)
