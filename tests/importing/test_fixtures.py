"""Fixtures: what the unmodified official code wrote and answered, where an environment variable
names the folder.

It has folders like public/ (checkpoint, corpus, dump, reference) and, with a tuned checkpoint
alone, public-query/.
"""

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kbq.importing.checkpoint import import_checkpoint
from kbq.importing.dump import import_dump
from kbq.importing.index import import_index
from kbq.kb import KnowledgeBase

NAMED = os.environ.get("KBQ_OFFICIAL_FIXTURES", "")
ROOT = Path(NAMED)
FOLDERS = sorted(path.parent for path in ROOT.glob("*/reference")) if NAMED else []
DUMPS = [folder for folder in FOLDERS if (folder / "dump").is_dir()]
INDEXES = [
    path.parent for folder in DUMPS for path in sorted(folder.glob("dump/start/*/index.faiss"))
]
Place = tuple[str, int, int]

pytestmark = [
    pytest.mark.skipif(
        not FOLDERS,
        reason="KBQ_OFFICIAL_FIXTURES names no folder with what the official code wrote",
    ),
    pytest.mark.slow,
]
pytest.importorskip("h5py")
pytest.importorskip("faiss")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def dump_of(folder: Path) -> Path:
    """The fixture with the dump that a tuned checkpoint belongs to."""
    return (
        folder
        if folder in DUMPS
        else max((one for one in DUMPS if folder.name.startswith(one.name)), key=str)
    )


@cache
def questions(folder: Path) -> dict[str, str]:
    """The text of each query by its id."""
    data = json.loads((dump_of(folder) / "corpus" / "questions.json").read_text())["data"]
    return {one["id"]: one["question"] for one in data}


@cache
def contexts(folder: Path) -> dict[str, str]:
    """The text of each document."""
    from kbq.importing.dump import dump_files, opened

    texts: dict[str, str] = {}
    for path in dump_files(folder / "dump"):
        with opened(path) as file:
            texts |= {number: str(file[number].attrs["context"]) for number in file}
    return texts


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Imports a checkpoint, once."""

    @cache
    def imported(folder: Path) -> Path:
        out = tmp_path_factory.mktemp("model") / "model"
        vocabulary = dump_of(folder) / "checkpoint"
        return import_checkpoint(folder / "checkpoint", out, vocabulary=vocabulary).folder

    return imported


@pytest.fixture(scope="module")
def kb(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Imports a dump, or an index of one, once."""

    @cache
    def imported(folder: Path, index: str = "") -> Path:
        out = tmp_path_factory.mktemp("kb") / "kb"
        if index:
            import_index(folder / "dump", out, model(folder), index, bm25=False, device="cpu")
        else:
            import_dump(folder / "dump", out, model(folder), bm25=False, device="cpu")
        return out

    return imported


def place(folder: Path, answer: Any) -> Place:
    """Document, and first and last character within it."""
    before = contexts(folder)[answer.page_id].split(" [PAR] ")[: answer.paragraph]
    begin = sum(len(text) + len(" [PAR] ") for text in before)
    return answer.page_id, begin + answer.start, begin + answer.end


def overlaps(one: Place, other: Place) -> bool:
    return one[0] == other[0] and one[1] < other[2] and other[1] < one[2]


def compare(kb: KnowledgeBase, folder: Path, reference: Path) -> None:
    """First answers are equal, scores within 1e-4; a reference answer is missing only where it
    overlaps a better one.

    Answers beyond the reference's ten come in where overlaps were left out, and score no more than
    its last one.
    """
    for query in json.loads(reference.read_text())["queries"]:
        expected = {
            (str(one["doc_idx"]), one["start_pos"], one["end_pos"]): one
            for one in query["exact_same_paragraph"]
        }
        answers = kb.query(questions(folder)[query["id"]], 10, backend="dense")
        found = {place(dump_of(folder), answer): answer.score for answer in answers}
        first = next(iter(expected))
        assert next(iter(found)) == first, query["id"]
        assert answers[0].text == expected[first]["answer"]
        last = query["exact_same_paragraph"][-1]["score"]
        for where, one in expected.items():
            if where in found:
                assert found[where] == pytest.approx(one["score"], abs=1e-4)
            else:
                assert any(
                    overlaps(where, other) and found[other] > one["score"] - 1e-4 for other in found
                )
        assert all(score <= last + 1e-4 for other, score in found.items() if other not in expected)


@pytest.mark.parametrize("folder", FOLDERS, ids=name)
def test_query_vectors(folder: Path, model: Any) -> None:
    from kbq.model.model import Model

    reference = np.load(folder / "reference" / "query_vectors.npz")
    starts, ends = Model.open(model(folder), "cpu").encode_queries(list(questions(folder).values()))
    assert np.abs(starts - reference["start"]).max() < 1e-5
    assert np.abs(ends - reference["end"]).max() < 1e-5


@pytest.mark.parametrize("folder", DUMPS, ids=name)
def test_token_vectors(folder: Path, model: Any) -> None:
    from kbq.model.model import Model

    reference = np.load(folder / "reference" / "context_vectors.npz")
    phrases = Model.open(model(folder), "cpu").phrases
    for window in {key.split("_")[0] for key in reference.files}:
        ids = torch.from_numpy(reference[f"{window}_input_ids"].astype(np.int64))[None]
        with torch.inference_mode():
            vectors, logits = phrases(ids, torch.ones_like(ids), torch.ones_like(ids))
        assert np.abs(vectors[0].numpy() - reference[f"{window}_vectors"]).max() < 1e-4
        assert np.abs(logits[0, :, 0].numpy() - reference[f"{window}_filter_start"]).max() < 1e-4
        assert np.abs(logits[0, :, 1].numpy() - reference[f"{window}_filter_end"]).max() < 1e-4


@pytest.mark.parametrize("folder", FOLDERS, ids=name)
def test_answers_over_a_dump(folder: Path, model: Any, kb: Any) -> None:
    opened = KnowledgeBase.open(kb(dump_of(folder)), model(folder), device="cpu")
    compare(opened, folder, folder / "reference" / "exact.json")


@pytest.mark.parametrize("folder", DUMPS, ids=name)
def test_answers_over_an_index(folder: Path, kb: Any) -> None:
    index = min(
        (path for path in INDEXES if path.is_relative_to(folder) and "_ft" not in path.name),
        key=str,
    )
    opened = KnowledgeBase.open(kb(folder, f"start/{index.name}"), device="cpu")
    compare(opened, folder, folder / "reference" / "exact_reconstructed.json")


@pytest.mark.parametrize("index", INDEXES, ids=name)
def test_reconstructed_vectors(index: Path, kb: Any) -> None:
    folder = index.parents[2]
    reference = np.load(folder / "reference" / "reconstructed.npz")
    prefix = "ft_" if "_ft" in index.name else ""
    opened = KnowledgeBase.open(kb(folder, f"start/{index.name}"), device="cpu")
    codes = opened.searcher.shards[0].codes  # type: ignore[attr-defined]
    rows = codes.rows_of(reference[f"{prefix}id"])
    begins = np.cumsum([0, *map(len, opened.searcher.shards)])
    for row, document, vector in zip(
        rows, reference[f"{prefix}doc"], reference[f"{prefix}vector"], strict=True
    ):
        number = int(np.searchsorted(begins, row, "right")) - 1
        shard, within = opened.searcher.shards[number], np.array([row - begins[number]])
        page = int(shard.paragraph_pages[int(shard.paragraphs_of(within)[0])])
        assert shard.ids[page] == str(document)
        assert np.abs(shard.vectors_of(within)[0] / 20 - 2 - vector).max() < 1e-5


@pytest.mark.parametrize(
    "folder", [path.parent for path in ROOT.glob("*/checkpoint-1.1")] if NAMED else [], ids=name
)
def test_a_checkpoint_of_queries_alone(folder: Path, model: Any, tmp_path: Path) -> None:
    from kbq.model.model import Model

    made = import_checkpoint(
        folder / "checkpoint-1.1", tmp_path / "tuned", base=model(dump_of(folder))
    )
    reference = np.load(folder / "reference" / "query_vectors.npz")
    starts, ends = Model.open(made.folder, "cpu").encode_queries(list(questions(folder).values()))
    assert np.abs(starts - reference["start"]).max() < 1e-5
    assert np.abs(ends - reference["end"]).max() < 1e-5
