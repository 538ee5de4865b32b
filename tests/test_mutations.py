"""Mutations: a damaged file of a knowledge base or a model gives the same answers, or one sentence that names it.

`benchmarks/mutations.py` makes two thousand of these trials.
"""

import os
import pickle
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kbq.corpus.pages import Page
from kbq.errors import KbqError
from kbq.kb import KnowledgeBase
from kbq.model.model import Model
from kbq.search.verifying import verify
from kbq.storage import seals

QUERIES = ["the river", "Marie Curie [SEP] place of birth", "was born in Paris"]
TRIALS = 60


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
    """What a mutation did. `outcome`: same, refused, other (other answers), or failed (a traceback, a crash)."""

    file: str
    mutation: str
    outcome: str
    message: str = ""
    verified: bool = False  # whether `verify` names a problem


def answers(kb: KnowledgeBase) -> Any:
    found = [kb.query(QUERIES, 3), kb.query(QUERIES, 3, unit="sentence"), kb.query(QUERIES, 3, unit="page")]
    words = [kb.query(QUERIES, 3, backend="bm25"), kb.query(QUERIES, 3, backend="dense", unit="paragraph")]
    return found, words, [kb.unknown_words(text) for text in QUERIES]


def mutated(source: Path, to: Path, chance: random.Random) -> tuple[str, str]:
    """Link a folder, with one file mutated; the file and the mutation."""
    shutil.copytree(source, to, copy_function=os.link)
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
    found: tuple[str, str] = pickle.loads(told) if told else ("failed", f"it ended with status {status}")
    return found


def trial(
    source: Path, folder: Path, seed: int, ask: Callable[[Path], Any], truth: Any, read_when_opened: int
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
    kb = KnowledgeBase.build(pages, folder, model, index="compact").index_vectors("disk", recall=0.5)
    kb.delete([pages[-1].id])
    return folder


@pytest.mark.parametrize("read_when_opened", [seals.READ_WHEN_OPENED, 0], ids=["small", "as if it were large"])
@pytest.mark.parametrize("index", ["exact", "compact", "disk"])
def test_a_damaged_knowledge_base_is_whole_or_named(
    read_when_opened: int, index: Any, source: Path, model: Model, tmp_path: Path
) -> None:
    def ask(folder: Path) -> Any:
        return answers(KnowledgeBase.open(folder, index=index))

    trials = [trial(source, tmp_path / "kb", seed, ask, ask(source), read_when_opened) for seed in range(TRIALS // 6)]
    assert not [one for one in trials if one.outcome == "failed"]
    assert not [one for one in trials if one.outcome == "other" and not one.verified]
    if read_when_opened:
        assert not [one for one in trials if one.outcome == "other"]


def test_a_damaged_model_is_whole_or_named(model_folder: Path, tmp_path: Path) -> None:
    def ask(folder: Path) -> Any:
        return [side.tolist() for side in Model.open(folder, "cpu").encode_queries(QUERIES)]

    truth = ask(model_folder)
    trials = [trial(model_folder, tmp_path / "model", seed, ask, truth, 0) for seed in range(TRIALS // 6)]
    assert {one.outcome for one in trials} <= {"same", "refused"}
