"""Dumps: a knowledge base of one answers as brute force does; runs that are killed; files that do
not fit.
"""

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from killed import Killed

from kbq.dump import resumable_build
from kbq.errors import CorpusError, KbqError, KnowledgeBaseError, ModelError
from kbq.importing.dump import import_dump
from kbq.kb import KnowledgeBase
from kbq.maintain.verify import verify

h5py = pytest.importorskip("h5py")
FIRST = "phrase/0-1.hdf5"


@pytest.fixture(scope="module")
def kb(official: Any, tmp_path_factory: pytest.TempPathFactory) -> KnowledgeBase:
    folder = tmp_path_factory.mktemp("dump") / "kb"
    import_dump(official.dump, folder, official.checkpoint, device="cpu")
    return KnowledgeBase.open(folder, device="cpu")


@pytest.fixture
def changed(copied: Any) -> Callable[[Callable[[Any], object]], Any]:
    """Changes the first file of a dump."""

    def change(by: Callable[[Any], object]) -> Any:
        with h5py.File(copied.dump / FIRST, "r+") as file:
            by(file)
        return copied

    return change


def test_it_holds_what_the_dump_holds(kb: KnowledgeBase, official: Any) -> None:
    counts = kb.counts
    assert counts.pages == len(official.texts) == 5
    assert (
        counts.paragraphs == sum(text.context.count("[PAR]") + 1 for text in official.texts) == 11
    )
    assert counts.tokens == sum(len(text.starts) for text in official.texts)
    assert counts.rows == sum(len(text.kept) for text in official.texts)
    shard = kb.searcher.shards[0]
    assert list(shard.ids) == ["0", "10", "2", "1000", "1001"]
    assert list(shard.titles) == [text.title for text in official.texts]
    assert (shard.vectors == np.concatenate([text.rows for text in official.texts])).all()
    logits = np.concatenate([text.logits[text.kept].max(axis=1) for text in official.texts])
    assert np.abs(shard.logits / 8 - logits.clip(-15.9, 15.9)).max() <= 1 / 16
    assert (kb.manifest.phrases.tokens, kb.manifest.phrases.rows) == (11, 10)
    assert bool(verify(kb.folder))


def test_answers_are_those_of_brute_force(
    kb: KnowledgeBase,
    official: Any,
    queries: list[str],
    placed: Callable[..., Any],
    same: Callable[..., None],
) -> None:
    for number, answers in enumerate(kb.query(queries, 10, backend="dense")):
        same(placed(answers), official.answers(official.vectors(), number, 10))


def test_words_count_beside_vectors(kb: KnowledgeBase) -> None:
    (best,) = kb.query("Warsaw [SEP] river", 1, bm25_weight=0.0)
    (hybrid,) = kb.query("Warsaw [SEP] river", 1, bm25_weight=1.0)
    (dense,) = kb.query("Warsaw [SEP] river", 1, backend="dense")
    assert best == dense
    assert hybrid.score > dense.score


def test_a_limit_is_kept_by_fine_tuning_too(kb: KnowledgeBase, official: Any) -> None:
    from kbq.tuning.labels import retrieve

    for phrases in retrieve(kb.searcher, official.starts, official.ends, 50):
        assert (phrases.ends - phrases.starts).max() <= 9


@pytest.mark.parametrize("killed_at", [1, 2, 4])
def test_a_run_that_is_killed_resumes_with_the_same_bytes(
    killed_at: int, official: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resumable_build, "BLOCK_CHARACTERS", 300)
    monkeypatch.setattr(resumable_build, "SHARD_ROWS", 100)
    reports: list[Any] = []

    def stop(counts: Any) -> None:
        reports.append(counts)
        if len(reports) > killed_at:
            raise Killed

    import_dump(official.dump, tmp_path / "whole", official.checkpoint, device="cpu")
    with pytest.raises(Killed):
        import_dump(official.dump, tmp_path / "kb", official.checkpoint, device="cpu", report=stop)
    with pytest.raises(KnowledgeBaseError, match="is not a complete knowledge base"):
        KnowledgeBase.open(tmp_path / "kb", device="cpu")
    imported = import_dump(official.dump, tmp_path / "kb", official.checkpoint, device="cpu")
    assert len(imported.manifest.shards) == 5
    for path in (tmp_path / "whole").rglob("*"):
        if path.is_file():
            assert (
                tmp_path / "kb" / path.relative_to(tmp_path / "whole")
            ).read_bytes() == path.read_bytes()


@pytest.mark.slow
def test_a_process_that_is_killed(
    official: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resumable_build, "BLOCK_CHARACTERS", 300)
    script = """
import os, signal, sys
from kbq.dump import resumable_build
from kbq.importing.dump import import_dump
resumable_build.BLOCK_CHARACTERS = 300
def report(counts):
    if counts.pages >= 2:
        os.kill(os.getpid(), signal.SIGKILL)
import_dump(sys.argv[1], sys.argv[2], sys.argv[3], device="cpu", report=report)
"""
    command = [
        sys.executable,
        "-c",
        script,
        str(official.dump),
        str(tmp_path / "kb"),
        str(official.checkpoint),
    ]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    whole = import_dump(official.dump, tmp_path / "whole", official.checkpoint, device="cpu")
    resumed = import_dump(official.dump, tmp_path / "kb", official.checkpoint, device="cpu")
    assert [shard.seal for shard in resumed.manifest.shards] == [
        shard.seal for shard in whole.manifest.shards
    ]


def misplaced(file: Any) -> None:
    ends = file["0/word2char_end"]
    ends[3] = 10**6
    ends[7] = file["0/word2char_start"][7]


def test_tokens_that_are_not_in_the_text_are_named_and_counted(
    changed: Callable[..., Any], tmp_path: Path
) -> None:
    """They keep their rows, but no phrase opens or closes there."""
    source = changed(misplaced)
    imported = import_dump(source.dump, tmp_path / "kb", source.checkpoint, device="cpu")
    assert (imported.misfits.tokens, imported.misfits.documents) == (2, 1)
    (named,) = imported.misfits.named
    assert named.startswith("document 0: 2 of ")
    assert "the first is token 3 at characters" in named
    assert "-1,000,000 of " in named
    shard = KnowledgeBase.open(tmp_path / "kb", device="cpu").searcher.shards[0]
    kept = source.texts[0].kept
    assert [int(shard.edges[row]) for row in range(8)] == [
        0 if token in (3, 7) else 3 for token in kept[:8]
    ]


def replaced(name: str, value: Any) -> Callable[[Any], None]:
    def replace(file: Any) -> None:
        del file[name]
        file[name] = value

    return replace


def elsewhere(file: Any) -> None:
    del file["0/start"]
    file["0/start"] = h5py.ExternalLink("/etc/passwd", "/start")


def virtual(file: Any) -> None:
    shape, layout = (
        file["0/f2o_start"].shape,
        h5py.VirtualLayout(file["0/f2o_start"].shape, np.int64),
    )
    layout[:] = h5py.VirtualSource("/tmp/elsewhere.hdf5", "f2o_start", shape)
    del file["0/f2o_start"]
    file.create_virtual_dataset("0/f2o_start", layout)


def twice(file: Any) -> None:
    file.copy("0", "1000")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda file: file.__delitem__("2/start"),
            r"0-1.hdf5 is damaged \(start of document 2 is missing\): downl",
        ),
        (
            lambda file: file["0"].attrs.__delitem__("context"),
            r"damaged \(document 0 has no title or no context\)",
        ),
        (elsewhere, r"damaged \(start of document 0 is not in this file\): download it again"),
        (virtual, r"damaged \(f2o_start of document 0 is not in this file\): download it again"),
        (
            replaced("0/start", np.zeros((3, 16), np.int8)),
            r"document 0 has 3 vectors for \d+ kept tokens",
        ),
        (
            replaced("0/start", np.zeros((3, 24), np.int8)),
            r"has vectors of 24 dimensions, the model of 16: give the",
        ),
        (
            replaced("0/start", np.zeros((3, 16), np.float32)),
            r"start of document 0 holds float32 \(3, 16\)",
        ),
        (
            replaced("0/word2char_end", np.zeros(5, np.int32)),
            r"document 0: it has \d+ starts of tokens and 5 ends",
        ),
        (
            lambda file: file["0/f2o_start"].__setitem__(1, 0),
            r"document 0: its kept tokens are not in order",
        ),
        (
            lambda file: file["0/f2o_start"].__setitem__(-1, 10**6),
            r"document 0: it keeps token 1,000,000 of \d+",
        ),
        (
            lambda file: file.move("0", "zero"),
            r"the group 'zero' is not named by the number of a document",
        ),
        (
            lambda file: file["0"].attrs.__setitem__("scale", 10.0),
            r"document 0 has the scale 10, only 20 is read",
        ),
        (twice, r"document 1000 occurs twice: give a dump in which each has its number"),
    ],
)
def test_dumps_that_do_not_fit(
    change: Callable[[Any], object], message: str, changed: Callable[..., Any], tmp_path: Path
) -> None:
    source = changed(change)
    with pytest.raises(CorpusError, match=message):
        import_dump(source.dump, tmp_path / "kb", source.checkpoint, device="cpu")


def test_half_a_file(copied: Any, tmp_path: Path) -> None:
    path = copied.dump / FIRST
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(
        CorpusError, match=r"0-1.hdf5 is damaged \(.*truncated.*\): download it again"
    ):
        import_dump(copied.dump, tmp_path / "kb", copied.checkpoint, device="cpu")
    assert not (tmp_path / "kb").exists()


def test_there_is_no_dump(copied: Any, tmp_path: Path) -> None:
    shutil.rmtree(copied.dump / "phrase")
    with pytest.raises(
        CorpusError,
        match=r"has no phrase dump \(kbq import index reads an index without one\): give",
    ):
        import_dump(copied.dump, tmp_path / "kb", copied.checkpoint, device="cpu")
    with pytest.raises(
        CorpusError, match=r"nowhere has no phrase dump: give the folder in which phrase/ has .hdf5"
    ):
        import_dump(tmp_path / "nowhere", tmp_path / "kb", copied.checkpoint, device="cpu")


def test_without_the_logits_of_the_filter(copied: Any, tmp_path: Path) -> None:
    shutil.rmtree(copied.dump / "filter")
    import_dump(copied.dump, tmp_path / "kb", copied.checkpoint, device="cpu")
    assert not KnowledgeBase.open(tmp_path / "kb", device="cpu").searcher.shards[0].logits.any()


def test_another_model_is_refused(kb: KnowledgeBase, official: Any, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"was built with the model .*, not default"):
        KnowledgeBase.open(kb.folder, "default", device="cpu")
    with pytest.raises(
        ModelError,
        match=r"the model default was not made of a checkpoint of DensePhrases: give the",
    ):
        import_dump(official.dump, tmp_path / "kb", "default", device="cpu")
    with pytest.raises(KnowledgeBaseError, match=r"already holds a knowledge base"):
        import_dump(official.dump, kb.folder, official.checkpoint, device="cpu")


def test_a_full_disk(official: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kbq.dump.shard_writer.ShardWriter.sync", full)
    with pytest.raises(
        KnowledgeBaseError,
        match=r"cannot be written \(No space left on device\): free disk space; the",
    ):
        import_dump(official.dump, tmp_path / "kb", official.checkpoint, device="cpu")


def test_h5py_is_asked_for(official: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(KbqError, match=r"are read with h5py: install it with pip install h5py"):
        import_dump(official.dump, tmp_path / "kb", official.checkpoint, device="cpu")


def test_another_checkpoint_of_the_same_size_is_noted(copied: Any, tmp_path: Path) -> None:
    import torch

    notes: list[str] = []
    import_dump(copied.dump, tmp_path / "right", copied.checkpoint, device="cpu", note=notes.append)
    assert notes == []
    path = copied.checkpoint / "pytorch_model.bin"
    weights = torch.load(path, weights_only=True)
    name = "phrase_encoder.encoder.layer.1.attention.output.dense.weight"
    torch.save(weights | {name: weights[name].flip(0) * 9}, path)
    import_dump(copied.dump, tmp_path / "wrong", copied.checkpoint, device="cpu", note=notes.append)
    (note,) = notes
    assert note.startswith(
        "paragraph 2 of document 10 has other vectors than the model gives it (their correlation "
        "is "
    )
    assert note.endswith(
        "): is this the checkpoint that it was made with, and are all files of one dump?"
    )


def test_it_is_not_merged_with_longer_phrases(
    kb: KnowledgeBase, official: Any, tmp_path: Path
) -> None:
    from kbq.corpus.pages import Page
    from kbq.maintain.merge import merge

    KnowledgeBase.build(
        [Page("new", "Paris", "the city of Paris")],
        tmp_path / "own",
        official.checkpoint,
        device="cpu",
    )
    with pytest.raises(
        KnowledgeBaseError, match=r"at most 20 tokens in .*own, 10 in .*kb, as one was imported"
    ):
        merge(tmp_path / "merged", [kb.folder, tmp_path / "own"])


def test_pages_are_added(official: Any, tmp_path: Path) -> None:
    """They are encoded with the offset and the steps of the dump, so their scores can be compared."""
    from kbq.corpus.pages import Page

    folder = import_dump(official.dump, tmp_path / "kb", official.checkpoint, device="cpu").folder
    kb = KnowledgeBase.open(folder, device="cpu").update(
        [Page("new", "Paris", "the city of Paris")]
    )
    assert kb.counts.pages == 6
    scores = [answer.score for answer in kb.query("Paris", 300, unit="page", backend="dense")]
    assert len(scores) == 6
    assert max(scores) - min(scores) < 30
