"""Indexes: a knowledge base of codes answers as brute force over reconstructed vectors does; what
it cannot do.
"""

import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from killed import Killed

from kbq.corpus.pages import Page
from kbq.dump import resumable_build
from kbq.errors import CorpusError, KbqError, KnowledgeBaseError, ModelError
from kbq.importing.codes import CodedShard, codes_for_gpu, open_official
from kbq.importing.index import import_index
from kbq.kb import KnowledgeBase
from kbq.maintain.merge import merge
from kbq.maintain.verify import verify
from kbq.search.search import SearchContext, search

h5py, faiss = pytest.importorskip("h5py"), pytest.importorskip("faiss")
WHOLE, FILTERED, PARTS = "start/4_flat_OPQ4", "start/4_flat_OPQ4_ft0", "start/3_flat_OPQ4_parts"
CODES = (
    "has its codes instead of vectors, so it is searched with that index only, on one machine, "
    "and nothing can be "
)


@pytest.fixture(scope="module", params=[WHOLE, FILTERED, PARTS])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def kb(name: str, official: Any, tmp_path_factory: pytest.TempPathFactory) -> KnowledgeBase:
    folder = tmp_path_factory.mktemp("index") / "kb"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(resumable_build, "BLOCK_CHARACTERS", 300)
        patched.setattr(resumable_build, "SHARD_ROWS", 300)
        import_index(official.dump, folder, official.checkpoint, name, device="cpu")
    return KnowledgeBase.open(folder, device="cpu")


@pytest.fixture
def made(official: Any, tmp_path: Path) -> Callable[..., Any]:
    """Imports an index into `tmp_path / "kb"`."""

    def make(source: Any = official, name: str = WHOLE) -> Any:
        return import_index(source.dump, tmp_path / "kb", source.checkpoint, name, device="cpu")

    return make


def test_it_holds_the_rows_of_the_index(kb: KnowledgeBase, name: str, official: Any) -> None:
    vectors = official.reconstructed(name)
    assert kb.counts.pages == 5
    assert kb.counts.rows == sum(map(len, vectors.values()))
    assert len(kb.searcher.shards) > 1
    assert kb.index.kind == "official"
    assert not list(kb.folder.rglob("vectors.npy"))
    for shard in kb.searcher.shards:
        assert isinstance(shard, CodedShard)
        rows = np.arange(len(shard))
        pages = [
            shard.ids[int(shard.paragraph_pages[paragraph])]
            for paragraph in shard.paragraphs_of(rows)
        ]
        expected = [
            vectors[page][row] for page in dict.fromkeys(pages) for row in sorted(vectors[page])
        ]
        found = shard.vectors_of(rows) / 20 - 2
        assert np.abs(found - np.array(expected)).max() < 1e-5
        queries = np.random.default_rng(0).normal(size=(3, 16))
        products = shard.vectors_of(rows).astype(np.float64) @ queries.T
        assert np.abs(shard.inner_products(rows, queries) - products).max() < 1e-3


def test_answers_are_those_of_brute_force(
    kb: KnowledgeBase,
    name: str,
    official: Any,
    queries: list[str],
    placed: Callable[..., Any],
    same: Callable[..., None],
) -> None:
    vectors = official.reconstructed(name)
    for number, answers in enumerate(kb.query(queries, 10, backend="dense")):
        expected = official.answers(vectors, number, 10)
        found = placed(answers)
        if name == FILTERED:  # rows are counted in the index, where some are left out
            assert [answer[0] for answer in found] >= [answer[0] - 1e-4 for answer in expected]
        else:
            same(found, expected)


def test_on_a_gpu_the_answers_are_those_of_the_cpu(kb: KnowledgeBase, official: Any) -> None:
    pytest.importorskip(
        "triton", reason="Triton comes with PyTorch's builds for CUDA, and is in kbq[dev]"
    )
    # In the interpreter.
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    shards, vectors = kb.searcher.shards, np.stack([official.starts[:2], official.ends[:2]], axis=1)
    (cells,) = codes_for_gpu(shards, kb.index).on_gpus([device])
    on_cpu, on_gpu = open_official(shards, kb.index), open_official(shards, kb.index, cells)
    expected = search(SearchContext(shards, on_cpu), vectors, 5, "phrase")
    assert search(SearchContext(shards, on_gpu), vectors, 5, "phrase") == expected
    assert [len(hits) for hits in expected] == [5, 5]


def test_a_query_has_the_same_answers_whatever_is_asked_beside_it(
    kb: KnowledgeBase, queries: list[str]
) -> None:
    assert kb.query(queries, 5) == [kb.query(query, 5) for query in queries]


def test_chosen_and_deleted_pages(kb: KnowledgeBase, queries: list[str]) -> None:
    chosen = kb.with_pages(["10", "1001"])
    for answers in chosen.query(queries, 10, backend="dense"):
        assert {answer.page_id for answer in answers} <= {"10", "1001"}
        assert len(answers) == 10


def test_words_and_units(kb: KnowledgeBase) -> None:
    assert kb.query("Warsaw [SEP] river", 3, backend="bm25")
    assert kb.query("Warsaw [SEP] river", 3, bm25_weight=1.0) != kb.query(
        "Warsaw [SEP] river", 3, backend="dense"
    )
    assert len({answer.page_id for answer in kb.query("Warsaw", 5, unit="page")}) == 5


def test_the_file_stays_where_it_is(made: Callable[..., Any], copied: Any, tmp_path: Path) -> None:
    made(copied)
    link, path = tmp_path / "kb" / "official" / "index.faiss", copied.dump / WHOLE / "index.faiss"
    assert link.samefile(path)
    assert bool(verify(tmp_path / "kb"))
    with path.open("r+b") as file:
        file.seek(-20, os.SEEK_END)
        file.write(b"changed!")
    found = verify(tmp_path / "kb", repair=True)
    assert [problem.partition(": ")[2] for problem in found.problems] == [
        f"put back the official file, or delete {tmp_path / 'kb'} and import the index again"
    ]


def test_what_needs_vectors_is_refused(
    official: Any, made: Callable[..., Any], tmp_path: Path
) -> None:
    folder = made().folder
    kb = KnowledgeBase.open(folder, device="cpu")
    other = shutil.copytree(folder, tmp_path / "other")
    page = Page("new", "title", "text")
    refused: dict[str, Callable[[], object]] = {
        "append": lambda: KnowledgeBase.build([page], folder, append=True),
        "update": lambda: kb.update([page]),
        "sync": lambda: kb.sync([page], dry_run=True),
        "compact": lambda: kb.compact(),
        "index": lambda: kb.index_vectors("compact"),
        "exact": lambda: KnowledgeBase.open(folder, index="exact"),
        "ray": lambda: KnowledgeBase.open(folder, ray="127.0.0.1:1"),
        "merge": lambda: merge(tmp_path / "merged", [folder, other]),
        "vectors": lambda: kb.searcher.shards[0].vectors,
    }
    for what, command in refused.items():
        with pytest.raises(KnowledgeBaseError, match=CODES + "added to it: import the phrase dump"):
            raise AssertionError(f"{what} was not refused: {command()}")
    left = kb.delete(["0"])
    assert left.counts.pages == 4
    assert {answer.page_id for answer in left.query("Paris", 20, backend="dense")} <= {
        "10",
        "2",
        "1000",
        "1001",
    }


def test_query_side_fine_tuning_has_the_vectors_that_are_searched(
    official: Any, made: Callable[..., Any]
) -> None:
    from kbq.tuning.labels import retrieve, vectors

    kb = KnowledgeBase.open(made().folder, device="cpu")
    (phrases, *_) = retrieve(kb.searcher, official.starts, official.ends, 20)
    starts, ends = vectors(kb.searcher, phrases)
    offset = kb.model.score_offsets(official.starts[:1], official.ends[:1])
    scores = starts @ official.starts[0] + ends @ official.ends[0]
    assert np.abs(scores - phrases.scores).max() < 1e-3
    assert offset != 0


@pytest.mark.parametrize("killed_in", ["shards", "codes"])
def test_a_run_that_is_killed_resumes_with_the_same_bytes(
    killed_in: str,
    official: Any,
    made: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resumable_build, "BLOCK_CHARACTERS", 300)

    def stop(what: Any, *_: object) -> None:
        if killed_in == "codes" or getattr(what, "pages", 0) > 2:
            raise Killed

    whole = import_index(
        official.dump, tmp_path / "whole", official.checkpoint, WHOLE, device="cpu"
    )
    reports: dict[str, Any] = {"report": stop} if killed_in == "shards" else {"report_stage": stop}
    with pytest.raises(Killed):
        import_index(
            official.dump, tmp_path / "kb", official.checkpoint, WHOLE, device="cpu", **reports
        )
    assert made().manifest == whole.manifest
    for path in (tmp_path / "whole").rglob("*"):
        if path.is_file():
            assert (
                tmp_path / "kb" / path.relative_to(tmp_path / "whole")
            ).read_bytes() == path.read_bytes()


def cut(name: str, share: float) -> Callable[[Path], None]:
    def change(dump: Path) -> None:
        path = dump / name
        path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])

    return change


def other_index(make: Callable[[np.ndarray], Any]) -> Callable[[Path], None]:
    def change(dump: Path) -> None:
        vectors = np.random.default_rng(0).normal(size=(500, 16)).astype(np.float32)
        faiss.write_index(make(vectors), str(dump / WHOLE / "index.faiss"))

    return change


def made_by(factory: str, metric: int = faiss.METRIC_INNER_PRODUCT) -> Callable[[np.ndarray], Any]:
    def make(vectors: np.ndarray) -> Any:
        index = faiss.index_factory(16, factory, metric)
        index.train(vectors)
        index.add(vectors)
        return index

    return make


def ids(change: Callable[[Any], object]) -> Callable[[Path], None]:
    def changed(dump: Path) -> None:
        with h5py.File(dump / WHOLE / "idx2id.hdf5", "r+") as file:
            change(file["0"])

    return changed


def shorter(group: Any) -> None:
    for name in ("doc", "word"):
        values = group[name][:-5]
        del group[name]
        group[name] = values


def renumbered(group: Any) -> None:
    group["doc"][:] = np.where(group["doc"][:] == 10, 99, group["doc"][:])


def higher(group: Any) -> None:
    group["word"][-1] = 10**6


IDX2ID, FAISS, METADATA = f"{WHOLE}/idx2id.hdf5", f"{WHOLE}/index.faiss", "meta_compressed.pkl"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda dump: (dump / FAISS).unlink(), r"index.faiss is missing: download it again, or name another index wi"),
        (lambda dump: (dump / IDX2ID).unlink(), r"idx2id.hdf5 is missing: download it again"),
        (lambda dump: (dump / METADATA).unlink(), r"meta_compressed.pkl is missing: download it again"),
        (cut(FAISS, 0.1), r"index.faiss is damaged \(it ends after .* bytes, in the middle of a part\): download it"),
        (cut(FAISS, 0.5), r"index.faiss is damaged \(it .* bytes.*\): download it again"),
        (cut(FAISS, 0.99), r"index.faiss is damaged \(it has .* of .* bytes\): download it again"),
        (cut(IDX2ID, 0.5), r"idx2id.hdf5 is damaged \(.*\): download it again"),
        (cut(METADATA, 0.5), r"meta_compressed.pkl is damaged \(.*\): download it again"),
        (other_index(made_by("IVF4,Flat")), r"it has 'IwFl' where an official index has 'IxPT', a transform: only OPQ"),
        (other_index(made_by("OPQ4,IVF4,SQ8")), r"it has 'IwSq' where an official index has 'IwPQ', an inverted file"),
        (other_index(made_by("OPQ4,IVF4,PQ4x4np")), r"its code bytes, bits or dimensions are .* in one place and"),
        (other_index(made_by("OPQ4,IVF4,PQ4np", faiss.METRIC_L2)), r"it has the metric 1, an official index has inner"),
        (ids(shorter), r"idx2id.hdf5 names [\d,]+ vectors, the index has [\d,]+: give the metadata and the"),
        (ids(renumbered), r"idx2id.hdf5 names 1 documents that the metadata lacks, the first is 99: give the metadata"),
        (ids(higher), r"names row 1,000,000 of document 1001, which has \d+ in .*meta_compressed.pkl: give"),
        (ids(lambda group: group["word"].__setitem__(0, 5)), r"\(the rows of document 0 are not in order\)"),
        (ids(lambda group: group["doc"].__setitem__(slice(-3, None), 0)), r"has document 0 in two places: download it"),
        (ids(lambda group: group.__delitem__("word")), r"word of document 0 is missing"),
        (ids(lambda group: group.attrs.__setitem__("offset", 7)), r"has the id \d, which .*idx2id.hdf5 lacks: down"),
    ],
)  # fmt: skip
def test_files_that_do_not_fit(
    change: Callable[[Path], object],
    message: str,
    copied: Any,
    made: Callable[..., Any],
    tmp_path: Path,
) -> None:
    change(copied.dump)
    with pytest.raises(CorpusError, match=message):
        made(copied)
    with pytest.raises(KnowledgeBaseError):
        KnowledgeBase.open(tmp_path / "kb")


def test_a_size_that_says_too_much(copied: Any, made: Callable[..., Any]) -> None:
    """faiss would believe it and ask for the memory."""
    path = copied.dump / WHOLE / "index.faiss"
    content = bytearray(path.read_bytes())
    for place in range(0, 4000, 8):
        content[place : place + 8] = b"\xff" * 8
        path.write_bytes(content)
        with pytest.raises(CorpusError, match=r"index.faiss is damaged \("):
            made(copied)


def test_another_model_is_refused(official: Any, tmp_path: Path) -> None:
    with pytest.raises(
        ModelError,
        match=r"the model default was not made of a checkpoint of DensePhrases: give the",
    ):
        import_index(official.dump, tmp_path / "kb", "default", WHOLE, device="cpu")


def test_faiss_is_asked_for(made: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(KbqError, match=r"this index needs faiss"):
        made()


def test_metadata_of_another_dump_that_happens_to_fit_is_noted(
    copied: Any, chunk: Callable[..., bytes], tmp_path: Path
) -> None:
    """A text with the same words in another order."""
    notes: list[str] = []
    import_index(
        copied.dump, tmp_path / "right", copied.checkpoint, WHOLE, device="cpu", note=notes.append
    )
    assert notes == []
    path = copied.dump / METADATA
    documents = pickle.loads(path.read_bytes())
    *before, last = copied.texts[1].context.split(" [PAR] ")
    other = " [PAR] ".join([*before, " ".join(reversed(last.split(" ")))])
    documents["10"]["context"] = chunk(other.encode())
    path.write_bytes(pickle.dumps(documents, 3))
    import_index(
        copied.dump, tmp_path / "wrong", copied.checkpoint, WHOLE, device="cpu", note=notes.append
    )
    (note,) = notes
    assert note.startswith("paragraph 2 of document 10 has other vectors than the model gives it")


def test_pickles_that_are_not_needed_are_not_opened(
    copied: Any, made: Callable[..., Any], tmp_path: Path
) -> None:
    """The official code has some more, which would run code when it reads them."""

    class Malicious:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "ran",)

    content = pickle.dumps(Malicious())
    for path in (WHOLE + "/avg_vec.pkl", WHOLE + "/std_vec.pkl", "../checkpoint/training_args.bin"):
        (copied.dump / path).write_bytes(content)
    made(copied)
    assert not (tmp_path / "ran").exists()
    pickle.loads(content)
    assert (tmp_path / "ran").exists()


def test_a_file_that_has_moved_is_named(
    copied: Any, made: Callable[..., Any], tmp_path: Path
) -> None:
    made(copied)
    (tmp_path / "kb" / "official" / "index.faiss").unlink()
    with pytest.raises(
        KnowledgeBaseError, match=r"official/index.faiss is missing: import the index again with"
    ):
        KnowledgeBase.open(tmp_path / "kb", device="cpu")
