"""Resumable build: write pages as the shards of a phrase dump in bounded memory; a killed build resumes.

Pages are encoded in blocks. After each block, everything is on the disk, and `building.json` is
replaced atomically to record it. A resumed build reads the corpus again, checks that it has not
changed, and encodes the missing blocks. They are cut in the same way and therefore give the same
bytes.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from kbq.corpus.pages import Page
from kbq.dump.manifest import (
    FORMAT,
    STATE,
    Manifest,
    is_knowledge_base,
    read_manifest,
    refuse_other_model,
)
from kbq.dump.page_encoder import StartEncoders, encode_blocks
from kbq.dump.shard_writer import EncodedParagraphs, Progress, ShardWriter, page_digest
from kbq.dump.shards import Counts, ShardEntry, shard_name
from kbq.errors import KbqError, KnowledgeBaseError
from kbq.model.model import Model
from kbq.storage.folders import make_folders, remove_empty_folder, remove_folder
from kbq.storage.machine import give_memory_back
from kbq.storage.reading import reading_from
from kbq.storage.records import read_record, write_record
from kbq.storage.writing import is_left_of, remove_file

BLOCK_CHARACTERS = 2**18  # encoded at a time; a kill loses one block at most
SHARD_ROWS = 2**22  # a shard with this many rows is closed before the next block


class OtherCorpusError(KnowledgeBaseError):
    """An unfinished build is of another corpus."""


@dataclass(frozen=True, slots=True)
class BuildState:
    """The progress of a build. `pages` and the digest `corpus` cover the part of the corpus that is
    on the disk.
    """

    model: str  # phrase fingerprint
    first_shard: int  # the first one of this build; earlier ones are published already
    pages: int = 0
    corpus: str = ""
    finished: tuple[ShardEntry, ...] = ()  # the shards of this build
    current: Progress = field(default_factory=Progress)


class _Block(NamedTuple):
    """Pages to encode together. `consumed` and `digest` cover the corpus up to the end of the
    block.
    """

    pages: list[Page]
    digests: list[bytes]  # one of each page
    consumed: int
    digest: str


def manifest_before(folder: Path, model: Model, append: bool) -> Manifest:
    """Return the manifest of the knowledge base to append to, or an empty one for an empty folder.

    Raises KnowledgeBaseError if the folder holds something else, ModelError if it was built with
    another model.
    """
    if append:
        manifest = read_manifest(folder)
        refuse_other_model(folder, manifest, model)
        return replace(manifest, model=model.source)  # the model may have moved

    if is_knowledge_base(folder):
        raise KnowledgeBaseError(
            f"{folder} already holds a knowledge base: add to it with --append, or choose another "
            "folder"
        )

    names = []
    if folder.is_dir():
        names = [path.name for path in folder.iterdir()]
    if names and not any(name == STATE or is_left_of(name, STATE) for name in names):
        raise KnowledgeBaseError(
            f"{folder} is not empty, and holds no unfinished build: choose another folder"
        )

    return Manifest(
        model.source, model.config.phrase_fingerprint, model.dim, model.config.filter_threshold
    )


def build_shards(
    pages: Iterable[Page],
    model: Model,
    folder: Path,
    first_shard: int,
    report: Callable[[Counts], None],
    start_encoders: StartEncoders | None = None,
    encode: Callable[[Sequence[Any]], EncodedParagraphs] | None = None,
    with_vectors: bool = True,
) -> tuple[list[ShardEntry], str]:
    """Write the missing shards, block by block, and return all shards of the build and a digest of
    the corpus.

    `encode` returns the paragraphs of pages that have been encoded elsewhere.
    """
    make_folders(folder)
    state = _read_state(folder, model, first_shard)
    dim = model.dim if with_vectors else None
    report(_total(state))
    write_record(folder / STATE, state, FORMAT)  # first: a folder that is not empty needs it

    try:
        writer = ShardWriter(
            folder / shard_name(first_shard + len(state.finished)), dim, state.current
        )
    except ValueError as error:
        raise KnowledgeBaseError(
            f"{folder} holds an unfinished build, which is damaged ({error}): "
            f"{_how_to_restart(folder, first_shard)}"
        ) from None

    try:
        blocks = _new_blocks(pages, state, folder)
        encoded_blocks = (
            encode_blocks(model, blocks, lambda block: block.pages, start_encoders)
            if encode is None
            else ((block, encode(block.pages)) for block in blocks)
        )
        for block, encoded in encoded_blocks:
            if writer.counts.rows >= SHARD_ROWS:
                state = replace(
                    state, finished=(*state.finished, writer.close()), current=Progress()
                )
                writer = ShardWriter(
                    folder / shard_name(first_shard + len(state.finished)), dim, state.current
                )

            writer.append(block.pages, block.digests, encoded)
            state = replace(state, pages=block.consumed, corpus=block.digest, current=writer.sync())
            write_record(folder / STATE, state, FORMAT)
            report(_total(state))
            give_memory_back()

        return [*state.finished, writer.close()], state.corpus
    except KbqError:
        # Nothing to resume, for instance after a wrong file: leave the folder as it was.
        if state.pages == 0:
            writer.abandon()
            remove_folder(folder / shard_name(first_shard))
            remove_file(folder / STATE)
            remove_empty_folder(folder)
        raise
    finally:
        writer.abandon()


def _new_blocks(pages: Iterable[Page], state: BuildState, folder: Path) -> Iterator[_Block]:
    """Yield the blocks that are not on the disk. Raises OtherCorpusError if the others come from
    another corpus.
    """
    digest = hashlib.blake2b(digest_size=16)
    consumed = 0
    for block in _blocks(pages):
        before = consumed
        consumed = consumed + len(block)
        digests = [page_digest(page) for page in block]
        digest.update(b"".join(digests))
        if before < state.pages <= consumed:  # unless this ends a block, the corpus has changed
            _refuse_other_corpus(folder, state, digest.hexdigest())
        if consumed > state.pages:
            yield _Block(block, digests, consumed, digest.hexdigest())

    if consumed < state.pages:
        _refuse_other_corpus(folder, state, digest.hexdigest())


def _blocks(pages: Iterable[Page]) -> Iterator[list[Page]]:
    """Yield pages in blocks of about BLOCK_CHARACTERS, which depend on nothing but the pages."""
    block: list[Page] = []
    size = 0
    for page in pages:
        block.append(page)
        size += sum(len(paragraph.text) for paragraph in page.paragraphs) + 100
        if size >= BLOCK_CHARACTERS:
            yield block
            block = []
            size = 0
    if block:
        yield block


def _read_state(folder: Path, model: Model, first_shard: int) -> BuildState:
    """Return how far a build has come, or a fresh state if none was stopped."""
    path = folder / STATE
    fresh = BuildState(model.config.phrase_fingerprint, first_shard)
    if not path.exists():
        return fresh
    with reading_from(path, KnowledgeBaseError, _how_to_restart(folder, first_shard)):
        state = read_record(path, BuildState, FORMAT)
    if state.first_shard != first_shard:  # a build was killed just after it was published
        return fresh
    if state.model != fresh.model:
        raise KnowledgeBaseError(
            f"{folder} holds an unfinished build with model {state.model}, not {fresh.model}: "
            f"give the same --model, or {_how_to_restart(folder, first_shard)}"
        )

    return state


def _refuse_other_corpus(folder: Path, state: BuildState, digest: str) -> None:
    if state.corpus != digest:
        raise OtherCorpusError(
            f"{folder} holds an unfinished build, and the corpus has changed since: "
            f"give the same corpus, or {_how_to_restart(folder, state.first_shard)}"
        )


def _how_to_restart(folder: Path, first_shard: int) -> str:
    what = "the folder"
    if first_shard:
        what = str(folder / STATE)
    return f"delete {what} to start over"


def _total(state: BuildState) -> Counts:
    return sum((shard.size for shard in state.finished), state.current.counts)
