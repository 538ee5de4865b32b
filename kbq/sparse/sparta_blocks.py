"""Sparta blocks: a shard's sentences get their impacts some paragraphs at a time, so that a killed run goes on.

Each block is one file beside the index that they become in the end.
"""

import shutil
import zipfile
from array import array
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kbq.dump.shards import Shard
from kbq.encoding.windows import tokenize
from kbq.sparse.postings import Entries, write_postings
from kbq.sparse.sparta_model import SpartaModel, strongest_impacts
from kbq.system.files import replacing
from kbq.system.stages import Stage

PARAGRAPHS = "paragraphs"  # .npy, u32 [sentences]: the paragraph of each
BLOCK = 512  # paragraphs encoded together; a kill loses no more


def write_sentence_impacts(folder: Path, shard: Shard, model: SpartaModel, k: int, stage: Stage) -> None:
    """Write the index of a shard, from the first block that is not there.

    Args:
        k: impacts kept of each sentence, the strongest.
        stage: told after each block how many paragraphs it has.
    """
    workshop = folder.with_name(folder.name + ".blocks")
    workshop.mkdir(exist_ok=True)
    blocks = []
    for first in range(0, len(shard.texts), BLOCK):
        block = workshop / f"{first}.npz"
        stop = min(first + BLOCK, len(shard.texts))
        if not _is_whole(block):
            _write_block(block, shard, range(first, stop), model, k)
        blocks.append(block)
        stage.add(stop - first)
    entries, paragraphs = _joined(blocks)
    write_postings(folder, model.vocabulary, entries, "weights", {PARAGRAPHS: paragraphs})
    shutil.rmtree(workshop)


def _write_block(path: Path, shard: Shard, paragraphs: range, model: SpartaModel, k: int) -> None:
    """Write the impacts of some paragraphs' sentences, which are numbered from 0, in one step."""
    windows, owners = [], array("I")
    titles = tokenize(model.tokenizer, [shard.title_of(paragraph) for paragraph in paragraphs])
    for title, paragraph in zip(titles, paragraphs, strict=True):
        paragraph_windows = model.windows(title.ids, shard.texts[paragraph])
        windows += paragraph_windows
        owners.extend([paragraph] * sum(len(window.sentences) for window in paragraph_windows))
    sentences, terms, weights = array("i"), array("i"), array("f")
    for sentence, strongest, impacts in strongest_impacts(model, windows, k):
        sentences.extend([sentence] * len(strongest))
        terms.frombytes(strongest.numpy().astype(np.int32).tobytes())
        weights.frombytes(impacts.numpy().tobytes())
    with replacing(path) as partial, partial.open("wb") as file:
        np.savez(file, sentences=sentences, terms=terms, weights=weights, paragraphs=owners)


def _is_whole(path: Path) -> bool:
    try:
        with path.open("rb") as file, np.load(file) as block:
            return {"sentences", "terms", "weights", "paragraphs"} <= set(block.files)
    except (OSError, ValueError, zipfile.BadZipFile):  # it is not there, or damaged
        return False


def _joined(blocks: Sequence[Path]) -> tuple[Entries, NDArray[np.uint32]]:
    """All blocks' impacts, and the paragraph of each sentence."""
    empty = (np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.float32), np.empty(0, np.uint32))
    parts = [empty]
    before = 0
    for path in blocks:
        with np.load(path) as block:
            parts.append((block["sentences"] + np.int32(before), block["terms"], block["weights"], block["paragraphs"]))
            before += len(block["paragraphs"])
    sentences, terms, weights, paragraphs = map(np.concatenate, zip(*parts, strict=True))
    return Entries(sentences, terms, weights), paragraphs
