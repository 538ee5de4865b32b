"""Mutations: a damaged file of a knowledge base or a model gives the same answers, or one sentence
that names it.

`KBQ_MUTATIONS=2000` makes as many of these trials.
"""

import os
import pickle
import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kbq.corpus.pages import Page
from kbq.dump.manifest import read_manifest, write_manifest
from kbq.errors import KbqError
from kbq.kb import KnowledgeBase
from kbq.maintain.verify import verify
from kbq.model.model import Model
from kbq.model.model_folder import DEFAULT_MODEL
from kbq.reading.probability import CALIBRATION, FEATURES, Calibration, chances_of
from kbq.storage import seals
from kbq.tables.outputs import export
from kbq.text.queries import Query

QUERIES = ["the river", "Marie Curie [SEP] place of birth", "was born in Paris"]
TRIALS = int(os.environ.get("KBQ_MUTATIONS", "60"))


def flip(content: bytearray, chance: random.Random) -> None:
    place = chance.randrange(len(content))
    content[place] ^= 1 << chance.randrange(8)


def another_byte(content: bytearray, chance: random.Random) -> None:
    content[chance.randrange(len(content))] = chance.choice(b'0123456789"{}[],aZ\x00\xff')


def zeros(content: bytearray, chance: random.Random) -> None:
    begin = chance.randrange(len(content))
    stop = min(len(content), begin + chance.choice((4, 64, 4096)))
    content[begin:stop] = bytes(stop - begin)


def swap(content: bytearray, chance: random.Random) -> None:
    size = min(len(content) // 2, chance.choice((1, 8, 64)))
    first, second = sorted(chance.sample(range(max(2, len(content) // max(1, size))), 2))
    one, other = (slice(place * size, (place + 1) * size) for place in (first, second))
    if len(content[one]) == len(content[other]):
        content[one], content[other] = content[other], content[one]


def cut(content: bytearray, chance: random.Random) -> None:
    del content[chance.randrange(len(content)) :]


def longer(content: bytearray, chance: random.Random) -> None:
    content += chance.randbytes(chance.choice((1, 100)))


def in_the_header(content: bytearray, chance: random.Random) -> None:
    content[chance.randrange(min(128, len(content)))] = chance.randrange(256)


MUTATIONS: Sequence[Callable[[bytearray, random.Random], None]] = (
    flip, another_byte, zeros, swap, cut, longer, in_the_header,
)  # fmt: skip


@dataclass(frozen=True)
class Trial:
    """What a mutation did. `outcome`: same, refused, other (other answers), or failed (a traceback,
    a crash).
    """

    file: str
    mutation: str
    outcome: str
    message: str = ""
    verified: bool = False  # whether `verify` names a problem


def answers(kb: KnowledgeBase) -> Any:
    found = [
        kb.query(QUERIES, 3),
        kb.query(QUERIES, 3, unit="sentence"),
        kb.query(QUERIES, 3, unit="page"),
    ]
    words = [
        kb.query(QUERIES, 3, backend="bm25"),
        kb.query(QUERIES, 3, backend="dense", unit="paragraph"),
    ]
    return found, words, [kb.searcher.unknown_words(Query.of(text)) for text in QUERIES]


def mutated(
    source: Path, to: Path, chance: random.Random, copy: Callable[..., object] = os.link
) -> tuple[str, str]:
    """Link or copy a folder, with one file mutated; the file and the mutation."""
    shutil.copytree(source, to, copy_function=copy)
    files = sorted(path for path in to.rglob("*") if path.is_file() and path.name != "README.md")
    path, mutation = chance.choice(files), chance.choice(MUTATIONS)
    content = bytearray(path.read_bytes())
    path.unlink()
    if content and chance.random() > 0.03:
        before = bytes(content)
        mutation(content, chance)
        path.write_bytes(content)
        return str(path.relative_to(to)), mutation.__name__ if content != before else "nothing"
    return str(path.relative_to(to)), "missing"


def in_a_process(work: Callable[[], tuple[str, str]]) -> tuple[str, str]:
    """An outcome and a message; the process may crash."""
    reading, writing = os.pipe()
    process = os.fork()
    if not process:
        os.close(reading)
        try:
            outcome = work()
        except KbqError as error:
            outcome = ("failed" if "\n" in str(error) else "refused", str(error))
        except BaseException as error:
            outcome = ("failed", f"{type(error).__name__}: {error}")
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(outcome, pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    _, status = os.waitpid(process, 0)
    found: tuple[str, str] = (
        pickle.loads(told) if told else ("failed", f"it ended with status {status}")
    )
    return found


def trial(
    source: Path,
    folder: Path,
    seed: int,
    ask: Callable[[Path], Any],
    truth: Any,
    read_when_opened: int,
) -> Trial:
    """Mutate a file, and see what comes of asking and of verifying."""
    chance = random.Random(seed)
    file, mutation = mutated(source, folder, chance)

    def work() -> tuple[str, str]:
        seals.first_damage.__defaults__ = (read_when_opened,)
        return "same" if ask(folder) == truth else "other", ""

    def check() -> tuple[str, str]:
        found = verify(folder)
        return ("whole", "") if found else ("refused", found.problems[0])

    outcome, message = in_a_process(work)
    verified, told = in_a_process(check)
    shutil.rmtree(folder)
    if verified == "failed":
        outcome, message = "failed", f"verify: {told}"
    return Trial(file, mutation, outcome, message, verified == "refused")


@pytest.fixture(scope="module")
def source(model: Model, pages: list[Page], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A knowledge base with words, a compact and a disk index, and a deleted page."""
    folder = tmp_path_factory.mktemp("mutations") / "kb"
    kb = KnowledgeBase.build(pages, folder, model, index="compact").index_vectors(
        "disk", recall=0.5
    )
    kb.delete([pages[-1].page_id])
    return folder


@pytest.mark.parametrize(
    "read_when_opened", [seals.READ_WHEN_OPENED, 0], ids=["small", "as if it were large"]
)
@pytest.mark.parametrize("index", ["exact", "compact", "disk"])
def test_a_damaged_knowledge_base_is_whole_or_named(
    read_when_opened: int, index: Any, source: Path, model: Model, tmp_path: Path
) -> None:
    def ask(folder: Path) -> Any:
        return answers(KnowledgeBase.open(folder, index=index))

    trials = [
        trial(source, tmp_path / "kb", seed, ask, ask(source), read_when_opened)
        for seed in range(TRIALS // 6)
    ]
    assert not [one for one in trials if one.outcome == "failed"]
    assert not [one for one in trials if one.outcome == "other" and not one.verified]
    if read_when_opened:
        assert not [one for one in trials if one.outcome == "other"]


def test_a_damaged_model_is_whole_or_named(model_folder: Path, tmp_path: Path) -> None:
    def ask(folder: Path) -> Any:
        return [side.tolist() for side in Model.open(folder, "cpu").encode_queries(QUERIES)]

    truth = ask(model_folder)
    trials = [
        trial(model_folder, tmp_path / "model", seed, ask, truth, 0) for seed in range(TRIALS // 6)
    ]
    assert {one.outcome for one in trials} <= {"same", "refused"}


# Knowledge bases that somebody made to do harm: their seals fit

EXTREME = -1, 0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, -(2**31), -(2**63)
METADATA = (
    b"[1]",
    b"{",
    b'{"a": NaN}',
    b'{"a": 1e999}',
    b'{"a":' + b"[" * 90 + b"]" * 90 + b"}",
    b'{"a": "\\ud800"}',
    b"null",
)


def in_an_array(path: Path, chance: random.Random) -> None:
    """Give some numbers of an array a value at the edge of its type, or swap its ends."""
    array = np.load(path, mmap_mode="r+")
    flat = array.reshape(-1)
    if not flat.size:
        return
    if chance.random() < 0.2:
        flat[:] = flat[::-1].copy()
    for _ in range(chance.choice((1, 1, 3))):
        place = chance.choice((0, -1, chance.randrange(flat.size)))
        flat[place] = np.array(chance.choice(EXTREME), object).astype(np.int64).astype(flat.dtype)
    array.flush()


def in_texts(path: Path, chance: random.Random) -> None:
    """Write something else over the texts of a list, or of the metadata of pages."""
    array = np.load(path, mmap_mode="r+")
    if array.size:
        written = chance.choice((*METADATA, b"\xff", b"\x00", b"javascript:alert(1)"))[: array.size]
        begin = chance.randrange(array.size - len(written) + 1)
        array[begin : begin + len(written)] = np.frombuffer(written, np.uint8)
        array.flush()


def hostile(source: Path, to: Path, chance: random.Random) -> str:
    """A copy of a knowledge base with one list changed, and sealed again; the list."""
    shutil.copytree(source, to)
    lists = sorted(
        path
        for path in to.rglob("*")
        if path.suffix in (".npy", ".bin") and "deleted" not in path.name
    )
    path = chance.choice(lists)
    (in_texts if path.suffix == ".bin" else in_an_array)(path, chance)
    seal_again(to)
    return str(path.relative_to(to))


def seal_again(folder: Path) -> None:
    """Let all seals fit, as whoever made a knowledge base can."""
    manifest = read_manifest(folder)
    shards = tuple(
        replace(entry, seal=seals.seal_folder(folder / entry.name).digest)
        for entry in manifest.shards
    )
    of = {entry.name: entry.seal for entry in shards}
    parts = {
        part: seals.seal_folder(folder / part, of.get(part.split("/")[0], "")).digest
        for part in manifest.seals
    }
    write_manifest(folder, replace(manifest, shards=shards, seals=parts))


def hostile_trial(source: Path, folder: Path, seed: int, ask: Callable[[Path], Any]) -> Trial:
    """Change a list, and see what comes of asking."""
    file = hostile(source, folder, random.Random(seed))

    def work() -> tuple[str, str]:
        ask(folder)
        return "answered", ""

    outcome, message = in_a_process(work)
    shutil.rmtree(folder)
    return Trial(file, "sealed again", outcome, message)


@pytest.mark.parametrize("index", ["exact", "compact", "disk"])
def test_a_hostile_knowledge_base_answers_or_is_one_sentence(
    index: Any, source: Path, tmp_path: Path
) -> None:
    def ask(folder: Path) -> Any:
        return answers(KnowledgeBase.open(folder, index=index))

    trials = [hostile_trial(source, tmp_path / "kb", seed, ask) for seed in range(TRIALS // 6)]
    assert not [one for one in trials if one.outcome == "failed"]


@pytest.mark.parametrize(
    ("name", "place", "value", "said"),
    [
        ("paragraph_rows", 0, -5, "paragraph_rows is not a list of places from 0 to"),
        ("paragraph_rows", 0, 10**6, "paragraph_rows is not a list of places from 0 to"),
        ("paragraph_pages", 0, 10**6, "paragraph_pages is not a list of places from 0 to"),
        ("texts", 0, 2**62, "texts is not a list of places from 0 to"),
        ("titles", 0, -1, "titles is not a list of places from 0 to"),
        ("metadata", 0, -1, "metadata is not a list of places from 0 to"),
        ("bm25/passages", 0, -1, "its entries are not numbers of"),
        ("bm25/passages", 0, 10**6, "its entries are not numbers of"),
        ("bm25/begins", 1, 2**62, "begins is not a list of places from 0 to"),
        ("bm25/terms", 0, -1, "terms is not a list of places from 0 to"),
    ],
)
def test_lists_of_places_are_looked_at_when_they_are_opened(
    name: str, place: int, value: int, said: str, source: Path, tmp_path: Path
) -> None:
    shutil.copytree(source, tmp_path / "kb")
    array = np.load(tmp_path / "kb" / "shard-00000" / f"{name}.npy", mmap_mode="r+")
    array[place] = value
    array.flush()
    seal_again(tmp_path / "kb")
    with pytest.raises(KbqError, match=said):
        answers(KnowledgeBase.open(tmp_path / "kb"))


@pytest.mark.parametrize("written", METADATA)
def test_metadata_that_kbq_does_not_write(written: bytes, source: Path, tmp_path: Path) -> None:
    shutil.copytree(source, tmp_path / "kb")
    shard = tmp_path / "kb" / "shard-00000"
    ends = np.load(shard / "metadata.npy")
    ends[:] = len(written)
    for name, values in (
        ("metadata.npy", ends),
        ("metadata.bin", np.frombuffer(written, np.uint8)),
    ):
        np.save(shard / "array.npy", values)
        (shard / "array.npy").rename(shard / name)
    seal_again(tmp_path / "kb")
    kb = KnowledgeBase.open(tmp_path / "kb")
    with pytest.raises(
        KbqError,
        match=r"the metadata of page .* cannot be used \(.*\): restore it from a copy",
    ):
        kb.searcher.shards[0].metadata_of(0)


# What runs write beside a knowledge base


RELATIONS = ["place of birth", "country"]


def filled(kb: KnowledgeBase, folder: Path) -> bytes:
    """The bytes of a table that was filled before into the same folder."""
    rows = [{"s": "Marie"}, {"s": "Paris"}]
    kb.fill(rows, RELATIONS, folder / "out.csv", subject="s", min_probability=0)
    return (folder / "out.csv").read_bytes()


def predicted(kb: KnowledgeBase, folder: Path) -> bytes:
    """The bytes of predictions of which a part was there."""
    records = [{"id": str(number), "input": query} for number, query in enumerate(QUERIES)]
    kb.predict(records, "trex", folder / "out.jsonl")
    return (folder / "out.jsonl").read_bytes()


@pytest.fixture(scope="module")
def calibration(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a copy of the default model's calibration."""
    folder = tmp_path_factory.mktemp("calibrations")
    shutil.copy(DEFAULT_MODEL / CALIBRATION, folder)
    return folder


def tried(source: Path, tmp_path: Path, ask: Callable[[Path], Any]) -> list[Trial]:
    """Mutate a file of a folder, many times, and see what comes of it."""
    truth = ask(Path(shutil.copytree(source, tmp_path / "whole")))

    def one(seed: int) -> Trial:
        folder = tmp_path / "mutated"
        file, mutation = mutated(source, folder, random.Random(seed), shutil.copy2)
        outcome, message = in_a_process(lambda: ("same" if ask(folder) == truth else "other", ""))
        shutil.rmtree(folder)
        return Trial(file, mutation, outcome, message)

    trials = [one(seed) for seed in range(TRIALS // 6)]
    print(f"\n{Counter(trial.outcome for trial in trials)}")  # noqa: T201
    return trials


def test_a_damaged_tuned_model_is_whole_or_named(
    model_folder: Path, kb_folder: Path, tmp_path: Path
) -> None:
    Model.open(model_folder, "cpu").save_query_encoder(tmp_path / "tuned", {})

    def ask(folder: Path) -> Any:
        return KnowledgeBase.open(kb_folder, folder, device="cpu").query(QUERIES, 3)

    trials = tried(tmp_path / "tuned", tmp_path, ask)
    assert {one.outcome for one in trials} <= {"same", "refused"}, trials


def test_a_damaged_calibration_is_whole_or_named(calibration: Path, tmp_path: Path) -> None:
    def ask(folder: Path) -> Any:
        read = Calibration.read(folder / CALIBRATION)
        features = np.full((1, len(FEATURES)), 0.5)
        return chances_of(features, read.all_weights, read.intercept).tolist()

    trials = tried(calibration, tmp_path, ask)
    assert not [one for one in trials if one.outcome == "failed"]


@pytest.mark.parametrize("work", [filled, predicted])
def test_damaged_answers_of_a_run_are_asked_again_or_named(
    work: Callable[[KnowledgeBase, Path], bytes], kb: KnowledgeBase, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    work(kb, source)
    trials = tried(source, tmp_path, lambda folder: work(kb, folder))
    # Another letter in an answer cannot be noticed.
    assert not [one for one in trials if one.outcome == "failed"]


def test_damaged_claims_are_exported_or_named(kb: KnowledgeBase, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    filled(kb, source)

    def ask(folder: Path) -> Any:
        for to, name in (
            ("rdf", "o.nt"),
            ("quickstatements", "o.txt"),
            ("long", "o.csv"),
            ("review", "o.html"),
        ):
            export(folder / "out.claims.jsonl", to, folder / name)  # type: ignore[arg-type]
        return (folder / "o.csv").read_bytes()

    trials = tried(source, tmp_path, ask)
    assert not [one for one in trials if one.outcome == "failed"], trials
