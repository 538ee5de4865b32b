"""Build: the pages of a corpus become a knowledge base.

Pages are encoded before indexes and words; the new manifest, written last, makes the change. A kill
leaves the knowledge base as it was, and the same command resumes. Open knowledge bases stay as they
were opened.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kbq.corpus.pages import checked_pages
from kbq.corpus.readers import BadLines, read_corpus
from kbq.dump.manifest import is_knowledge_base, publish, read_manifest, refuse_strange_parts
from kbq.dump.page_directory import Pages
from kbq.dump.resumable_build import build_shards, manifest_before
from kbq.english.language_check import looks_english
from kbq.errors import CorpusError, KnowledgeBaseError
from kbq.index.cells import load_faiss
from kbq.index.factory import chosen_kind
from kbq.maintain.indexes import IndexSpec, build_indexes, kept_queries, remove_unnamed
from kbq.model.model import Model, model_of
from kbq.storage.folders import make_folders
from kbq.storage.paths import as_iterable, as_path
from kbq.storage.reports import silent, unheard
from kbq.storage.writing import writing_alone, writing_to
from kbq.words.bm25 import add_bm25
from kbq.words.impacts import index_sparta
from kbq.words.sparta import SpartaModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from kbq.corpus.pages import Page
    from kbq.dump.manifest import Manifest
    from kbq.dump.page_encoder import StartEncoders
    from kbq.dump.shard_writer import EncodedParagraphs
    from kbq.dump.shards import Counts, PhraseLimit
    from kbq.maintain.options import BuildOptions
    from kbq.storage.reports import Note, Report

WITHOUT_IMPACTS = (
    "the new pages have no learned impacts, so none are used: add them with `kbq index sparta "
    "{kb} MODEL`"
)
LOOKED_AT = 2000  # words of a corpus that tell its language
SENTENCE = 6  # words that a text has at least to count there
NOT_ENGLISH = (
    "most of this text does not look like English, for which the default model is made: expect "
    "few answers, or choose another --model"
)
_WORD = re.compile(r"[^\W\d_]+")


def build(
    corpus: str | Path | Iterable[Page],
    folder: Path,
    model: str | Path | Model | None,
    options: BuildOptions,
    *,
    start_encoders: StartEncoders | None = None,
    device: str = "auto",
    report: Callable[[Counts], None] = unheard,
    report_stage: Report = silent,
    note: Note = unheard,
) -> tuple[Manifest, Model, int]:
    """Publish a knowledge base; see `KnowledgeBase.build`. The number returned is that of the bad
    lines left out.
    """
    sparta = options.sparta
    append = options.append
    if sparta is not None:
        SpartaModel.open(as_path(sparta, "a SPARTA model"), "cpu")
        if not append and is_knowledge_base(folder):  # perhaps a kill came while impacts were added
            command = f"kbq index sparta {folder} {sparta}"
            raise KnowledgeBaseError(f"{folder} is built: add the impacts with `{command}`")

    published = read_manifest(folder) if append else None
    if published is not None:
        published.refuse_codes(folder)
    if not isinstance(model, Model):
        name = None if model is None else str(as_path(model, "a model"))
        model = (
            model_of(folder, published.model, name, device)
            if published
            else Model.open(name or "default", device)
        )

    known_ids = () if published is None else Pages.open(folder).ids()
    pages, bad_lines = read_pages(corpus, options, known_ids, note)
    pages = noting_language(pages, note)
    with writing_to(folder, KnowledgeBaseError, goes_on=True):
        # A missing faiss, and damaged queries below, are reported before hours of encoding.
        kinds = {options.index} | (
            {entry.kind for entry in published.entries} if published else set()
        )
        if kinds - {"auto", "exact"}:
            load_faiss()
        make_folders(folder)
        with writing_alone(folder):
            before = manifest_before(folder, model, append)
            refuse_strange_parts(folder)
            for entry in before.entries:
                kept_queries(folder, entry)
            shards, digest = build_shards(
                pages, model, folder, before.next_shard, report, start_encoders
            )
            after = before.with_shards(shards, digest)
            spec = IndexSpec.as_before(folder, before, chosen_kind(after, options.index))
            after = build_indexes(folder, after, model, spec, report_stage)
            manifest = publish_with_words(
                folder, after, before.bm25 if append else options.bm25, report_stage
            )

    if sparta is not None:
        index_sparta(folder, sparta, options.terms, device, report_stage)
        manifest = read_manifest(folder)
    elif published is not None and published.sparta:
        note(WITHOUT_IMPACTS.format(kb=folder))

    return manifest, model, bad_lines.count


def publish_encoded(
    pages: Iterable[Page],
    encode: Callable[[Sequence[Any]], EncodedParagraphs],
    folder: Path,
    model: Model,
    *,
    phrases: PhraseLimit,
    bm25: bool,
    report: Callable[[Counts], None],
    report_stage: Report,
    index: Callable[[Manifest], Manifest] | None = None,
) -> Manifest:
    """Publish a new knowledge base of pages that the model has encoded elsewhere; a killed run
    resumes.

    `encode` returns the paragraphs of a block of pages. `index` adds an index that was built
    elsewhere to the manifest, instead of vectors.
    """
    if is_knowledge_base(folder):
        raise KnowledgeBaseError(f"{folder} already holds a knowledge base: choose another folder")
    with writing_to(folder, KnowledgeBaseError, goes_on=True):
        make_folders(folder)
        with writing_alone(folder):
            before = replace(manifest_before(folder, model, append=False), phrases=phrases)
            refuse_strange_parts(folder)
            built = build_shards(
                pages, model, folder, 0, report, encode=encode, with_vectors=index is None
            )
            after = before.with_shards(*built)
            if index is not None:
                after = index(after)
            else:
                after = build_indexes(
                    folder, after, model, IndexSpec(chosen_kind(after, "auto")), report_stage
                )

            return publish_with_words(folder, after, bm25, report_stage)


def read_pages(
    corpus: str | Path | Iterable[Page], options: BuildOptions, known_ids: Iterable[str], note: Note
) -> tuple[Iterator[Page], BadLines]:
    """Read the pages of a file or folder, or check pages from Python, and count the bad lines."""
    bad_lines = BadLines(corpus, options.skip_bad_lines, note)
    if isinstance(corpus, str | Path):
        pages = read_corpus(
            corpus,
            options.format,
            bad_lines.add,
            known_ids,
            options.columns,
            note,
            options.documents,
        )
        return bad_lines.all_or_none(pages), bad_lines

    made = as_iterable(corpus, CorpusError, "a corpus is", "a path, or a list of pages")
    return checked_pages(made, known_ids), bad_lines


def publish_with_words(
    folder: Path, manifest: Manifest, bm25: bool, report_stage: Report
) -> Manifest:
    if bm25:
        manifest = add_bm25(folder, manifest, report_stage)
    manifest = publish(folder, manifest)
    remove_unnamed(folder, manifest)
    return manifest


def noting_language(pages: Iterable[Page], note: Note) -> Iterator[Page]:
    """Yield the same pages; note once enough text has passed, or at the end, if it does not look
    like English.
    """
    words: list[str] = []
    for page in pages:
        if len(words) < LOOKED_AT:
            words += [
                word for paragraph in page.paragraphs for word in _prose_words(paragraph.text)
            ]
            if len(words) >= LOOKED_AT:
                _note_language(words, note)
        yield page
    if len(words) < LOOKED_AT:
        _note_language(words, note)


def _prose_words(text: str) -> list[str]:
    """Return the words of a text, but of none as short as the cell of a table, which is no
    sentence.
    """
    words = _WORD.findall(text)
    if len(words) >= SENTENCE:
        return words
    return []


def _note_language(words: list[str], note: Note) -> None:
    if not looks_english(words):
        note(NOT_ENGLISH)
