"""Reader: chances are normalised in each paragraph, phrases are exact, and the best of overlapping
ones stays.
"""

import json
import math
import pickle
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from kbq.answers import Answer
from kbq.corpus.pages import Page
from kbq.dump.manifest import read_manifest
from kbq.errors import ModelError, QueryError
from kbq.kb import KnowledgeBase
from kbq.maintain.options import TERMS
from kbq.model.model import Model
from kbq.model.tokenizer import tokenize
from kbq.reading.reader import Reader
from kbq.search.options import BM25_WEIGHT, SPARTA_WEIGHT, Backend
from kbq.words.impacts import index_sparta
from kbq.words.sparta import SpartaConfig, SpartaModel

TEXTS = [
    "Marie Curie was born in Warsaw. She left the city.",
    "The river of Paris, a long river.",
    "",
]


@pytest.fixture(scope="module")
def reader(qa_checkpoint: Path) -> Reader:
    return Reader.open(str(qa_checkpoint), "cpu")


def paragraphs(*texts: str) -> list[Answer]:
    return [
        Answer(text, 1.0, f"P{n}", "Page", n, 0, len(text), text, (0, len(text)))
        for n, text in enumerate(texts)
    ]


def by_definition(
    reader: Reader, query: str, texts: list[str]
) -> dict[tuple[int, int, int], float]:
    """Of (paragraph, first and last token): log of the start's softmax times the end's, in the
    paragraph.
    """
    logits = []
    for text in texts:
        question, own = (
            reader.tokenizer(part, add_special_tokens=False)["input_ids"] for part in (query, text)
        )
        cls, sep = reader.tokenizer.cls_token_id, reader.tokenizer.sep_token_id
        ids = [cls, *question, sep, *own, sep]
        segments = [0] * (len(question) + 2) + [1] * (len(own) + 1)
        with torch.no_grad():
            said = reader.network(
                input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([segments])
            )
        place = slice(len(question) + 2, -1)
        logits.append(torch.stack([said.start_logits[0, place], said.end_logits[0, place]]).numpy())
    return {
        (number, first, last): float(
            scores[0, first] + scores[1, last] - np.logaddexp.reduce(scores, axis=1).sum()
        )
        for number, scores in enumerate(logits)
        for first in range(scores.shape[1])
        for last in range(first, scores.shape[1])
    }


def test_scores_are_chances_in_each_paragraph(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "kbq.reading.reader.autocast", lambda device: torch.autocast("cpu", enabled=False)
    )
    hits = reader.read("place of birth", paragraphs(*TEXTS))
    expected = by_definition(reader, "place of birth", TEXTS[:2])
    assert hits[0].score == pytest.approx(max(expected.values()), abs=1e-4)
    number, first, last = max(expected, key=expected.__getitem__)
    (tokens,) = tokenize(reader.tokenizer, [TEXTS[number]])
    phrase = hits[0]
    assert (phrase.page_id, phrase.start, phrase.end) == (
        f"P{number}",
        tokens.starts[first],
        tokens.ends[last],
    )
    for hit in hits:
        assert hit.text == hit.context[hit.start : hit.end] != ""
    assert all(one.score >= other.score for one, other in pairwise(hits))


def test_no_two_phrases_overlap(reader: Reader) -> None:
    hits = reader.read("who", paragraphs(*TEXTS, "Warszawa or Wrocław"))  # words of several pieces
    assert {hit.page_id for hit in hits} == {"P0", "P1", "P3"}
    for page in ("P0", "P1", "P3"):
        taken = sorted((hit.start, hit.end) for hit in hits if hit.page_id == page)
        assert len(taken) > 1
        assert all(end <= start for (_, end), (start, _) in pairwise(taken))


def test_a_list_marker_is_no_answer(reader: Reader) -> None:
    (plain, marked) = (
        reader.read("who", paragraphs(marker + "Paris was the city"))
        for marker in ("", "BULLET::::- ")
    )
    assert [hit.text for hit in marked] == [hit.text for hit in plain]
    assert [hit.start - 12 for hit in marked] == [hit.start for hit in plain]
    assert all(hit.context[hit.start : hit.end] == hit.text for hit in marked)


def test_a_paragraph_longer_than_the_window_is_read_whole(reader: Reader) -> None:
    text = "the river of Paris " * 40
    last = max(hit.end for hit in reader.read("who", paragraphs(text)))
    assert last == len(text) - 1


def test_a_question_leaves_room_for_a_token_of_the_passage(reader: Reader) -> None:
    """A window also ends in a separator: 62 tokens of a question and one of the passage fill 64."""
    assert [len(window.ids) for window in reader.windows([5] * 62, [6])] == [64]
    for tokens in (63, 64):
        with pytest.raises(
            QueryError, match=f"a question has {tokens} tokens, .* reads 64: shorten it"
        ):
            reader.windows([5] * tokens, [6])


@pytest.mark.parametrize("texts", [[], [""], ["", ""]])
def test_nothing_to_read_gives_no_answer(texts: list[str], reader: Reader) -> None:
    assert reader.read("who", paragraphs(*texts)) == []


def test_a_knowledge_base_is_read(qa_checkpoint: Path, kb: KnowledgeBase) -> None:
    phrases = kb.query("the river of Paris", 3, reader=qa_checkpoint, depth=4)
    retrieved = {
        (hit.page_id, hit.paragraph) for hit in kb.query(["the river of Paris"], 4, "paragraph")[0]
    }
    assert len(phrases) == 3
    assert {(hit.page_id, hit.paragraph) for hit in phrases} <= retrieved
    pages = kb.query("the river of Paris", 9, "page", reader=qa_checkpoint, depth=4)
    assert len({hit.page_id for hit in pages}) == len(pages) == len({page for page, _ in retrieved})
    assert pages[0] == phrases[0]
    with pytest.raises(QueryError, match="a reader finds no sentence: ask for phrases"):
        kb.query("river", 1, "sentence", reader=qa_checkpoint)
    with pytest.raises(QueryError, match="k is 0, must be at least 1"):
        kb.query("river", 0, reader=qa_checkpoint)


@pytest.mark.parametrize("backend", ["dense", "hybrid", "auto", "bm25", "sparta"])
def test_what_the_search_says_is_added(
    backend: Backend,
    reader: Reader,
    qa_checkpoint: Path,
    checkpoint: Path,
    pages: list[Page],
    new_model: Callable[..., Model],
    tmp_path: Path,
) -> None:
    model = new_model()
    model.config = replace(model.config, lexical_factor=0.5)
    KnowledgeBase.build(pages, tmp_path / "kb", model)
    SpartaModel.new(str(checkpoint), SpartaConfig()).save(tmp_path / "sparta")
    index_sparta(tmp_path / "kb", tmp_path / "sparta", TERMS, "cpu")
    kb = KnowledgeBase(tmp_path / "kb", read_manifest(tmp_path / "kb"), model)
    query = "the river of Paris"
    retrieved = kb.query([query], 4, "paragraph", backend)[0]
    assert retrieved[0].score > retrieved[-1].score
    points = {"bm25": BM25_WEIGHT, "sparta": SPARTA_WEIGHT}.get(backend, 1 / 0.5)
    alone = {place_of(hit): hit.score for hit in reader.read(query, retrieved)}
    how: dict[str, Any] = {"backend": backend, "reader": qa_checkpoint, "depth": 4}
    found = kb.query(query, 99, **how, retrieval_weight=0.25)
    lacks = {paragraph_of(hit): points * (retrieved[0].score - hit.score) for hit in retrieved}
    assert len(found) == len(alone)
    for hit in found:
        assert hit.score == pytest.approx(
            alone[place_of(hit)] - 0.25 * lacks[paragraph_of(hit)], abs=1e-3
        )
    assert all(one.score >= other.score for one, other in pairwise(found))
    heard = kb.query(query, 1, **how, retrieval_weight=1e6)
    assert paragraph_of(heard[0]) == paragraph_of(retrieved[0])


def paragraph_of(hit: Answer) -> tuple[str, int]:
    return hit.page_id, hit.paragraph


def place_of(hit: Answer) -> tuple[str, int, int, int]:
    return *paragraph_of(hit), hit.start, hit.end


def test_an_encoder_that_cannot_answer_is_refused(qa_checkpoint: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(qa_checkpoint, tmp_path / "m")
    transformers.AutoModel.from_pretrained(qa_checkpoint).save_pretrained(folder)
    with pytest.raises(
        ModelError, match=r"is not a question-answering checkpoint .*the first is qa_outputs\.bias"
    ):
        Reader.open(str(folder))
    with pytest.raises(ModelError, match="is not a checkpoint that transformers can read"):
        Reader.open(str(tmp_path / "nothing"))


class Program:
    """When a pickle of it is loaded, it runs."""

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (Path("it-ran"),)


@pytest.mark.parametrize("content", [pickle.dumps(Program()), pickle.dumps([1])[:-1], b"x", b"PK"])
def test_what_is_no_weights_is_refused_and_does_not_run(
    content: bytes, qa_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = shutil.copytree(qa_checkpoint, tmp_path / "m")
    (folder / "model.safetensors").unlink()
    for path in (folder / "pytorch_model.bin", tmp_path / "file.pkl"):
        path.write_bytes(content + bytes(20_000))  # as many as the network has numbers
    for source, message in (
        (
            folder,
            "the weights of .*m are damaged, or hold more than tensors: use a checkpoint with "
            "safetensors",
        ),
        (tmp_path / "file.pkl", "is not a checkpoint that transformers can read: "),
    ):
        with pytest.raises(ModelError, match=message) as refusal:
            Reader.open(str(source), "cpu")
        assert str(refusal.value).count("\n") == 0
        assert "weights_only" not in str(refusal.value)
    assert not (tmp_path / "it-ran").exists()


def test_a_checkpoint_with_weights_that_cannot_be_used_is_refused(
    qa_checkpoint: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(qa_checkpoint, tmp_path / "m")
    weights = load_file(folder / "model.safetensors")
    bias = {"qa_outputs.bias": torch.tensor([0, math.inf])}
    save_file(weights | bias, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(
        ModelError, match=r"checkpoint .*m is damaged: its weight qa_outputs\.bias holds NaN or"
    ):
        Reader.open(str(folder), "cpu")
    # Of another task.
    pooler = {
        "bert.pooler.dense.bias": torch.zeros(16),
        "cls.predictions.bias": torch.zeros(4),
    }
    save_file(weights | pooler, folder / "model.safetensors", {"format": "pt"})
    assert Reader.open(str(folder), "cpu").length == 64
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 1}))
    with pytest.raises(
        ModelError, match=r"m has 16 weights that its config has no layer for, the first is bert\.e"
    ):
        Reader.open(str(folder), "cpu")
