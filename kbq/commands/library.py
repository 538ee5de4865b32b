"""Commands: what `build`, `index`, `query` and `explain` do, without the command line."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kbq.answers import WORDS_ALONE, Answer, Backend, CorpusFormat, IndexKind, Unit, WantedKind, WordBackend
from kbq.corpus.pages import Page
from kbq.corpus.readers import read_corpus
from kbq.description import IndexFacts, index_facts
from kbq.dump.manifest import changing, is_knowledge_base, read_manifest, write_manifest
from kbq.dump.pages import Pages
from kbq.dump.shards import Counts
from kbq.encoding.model import Model
from kbq.encoding.queries import check_query
from kbq.errors import MOST_PROBLEMS, CorpusError, KbqError, KnowledgeBaseError, QueryError
from kbq.indexing.factory import chosen_kind
from kbq.kb import KnowledgeBase, model_of
from kbq.kilt.prediction import Query
from kbq.reading.reader import Answering, Reader, Reading
from kbq.sample_kb import Building, open_sample, quietly
from kbq.searching.hybrid import HybridWeights
from kbq.searching.indexes import IndexSpec, add_index
from kbq.searching.search import BATCH
from kbq.system.callbacks import Note, Report, silent
from kbq.system.files import folder_bytes
from kbq.system.lines import clean_text, read_lines, source_name
from kbq.words.bm25 import add_bm25, bm25_folder
from kbq.words.sparta import TERMS, add_sparta, remove_other_impacts, sparta_folder
from kbq.words.sparta_model import SpartaModel

READ_ON = 100_000  # pages that are read after the first bad line, in search of more


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """What to build, from which corpus, and how; see `kbq build --help`."""

    corpus: str
    folder: Path
    format: CorpusFormat = "auto"
    model: str | None = None  # none: the default one, or that of the knowledge base that is added to
    index: WantedKind = "auto"
    bm25: bool = True
    sparta: Path | None = None  # folder of the model whose learned impacts are added
    terms: int = TERMS
    append: bool = False
    skip_bad_lines: bool = False
    device: str = "auto"
    workers: int = 1


@dataclass(frozen=True, slots=True)
class BuildOutcome:
    """What the knowledge base holds now."""

    counts: Counts
    bytes: int
    index: str
    bad_lines: int


def build(
    request: BuildRequest, report: Callable[[Counts], None], note: Note, report_stage: Report = silent
) -> BuildOutcome:
    """Build, or append to, a knowledge base from a corpus file or folder."""
    if request.sparta is not None:
        SpartaModel.open(request.sparta, "cpu")  # a wrong folder is reported now, not after hours of building
        if not request.append and is_knowledge_base(request.folder):  # of a run killed while adding impacts, perhaps
            command = f"kbq index {request.folder} --sparta {request.sparta}"
            raise KnowledgeBaseError(f"{request.folder} is built: add the impacts with `{command}`")
    before = read_manifest(request.folder) if request.append else None
    if before is None:
        model = Model.open("default" if request.model is None else request.model, request.device)
    else:
        model = model_of(request.folder, before, request.model, request.device)
    known_ids = () if before is None else _page_ids(request.folder)
    bad_lines: list[KbqError] = []

    def skip(problem: KbqError) -> None:
        bad_lines.append(problem)
        if len(bad_lines) == MOST_PROBLEMS and not request.skip_bad_lines:
            raise _bad_lines(bad_lines, request.corpus, all_read=False)
        if request.skip_bad_lines:
            note(f"skipped: {problem}")

    pages = read_corpus(request.corpus, request.format, skip, known_ids)
    kb = KnowledgeBase.build(
        pages if request.skip_bad_lines else _all_or_none(pages, bad_lines, request.corpus),
        request.folder,
        model,
        append=request.append,
        index=request.index,
        bm25=request.bm25,
        workers=request.workers,
        report=report,
        report_stage=report_stage,
    )
    if request.sparta is not None:
        index_impacts(request.folder, request.sparta, request.terms, request.device, report_stage)
    elif before is not None and before.sparta:
        note(f"the new pages have no learned impacts, so that none answer: kbq index {request.folder} --sparta MODEL")
    return BuildOutcome(kb.counts, folder_bytes(request.folder), kb.index.kind, len(bad_lines))


def _page_ids(folder: Path) -> Iterator[str]:
    """The ids of all pages, read when the first one is needed: by then nobody else can append."""
    yield from Pages(folder).ids()


def _all_or_none(pages: Iterable[Page], problems: Sequence[KbqError], corpus: str) -> Iterator[Page]:
    """The pages up to the first bad line; from there on the corpus is only read, so that all bad lines are named.

    Raises:
        CorpusError: there are `problems`.
    """
    read_on = 0
    try:
        for page in pages:
            if not problems:
                yield page
                continue
            read_on += 1
            if read_on >= READ_ON:
                break
    except CorpusError:
        if not problems:  # else it only says that there was no good line
            raise
    if len(problems) == 1:
        raise CorpusError(str(problems[0]))
    if problems:
        raise _bad_lines(problems, corpus, all_read=read_on < READ_ON)


def _bad_lines(problems: Sequence[KbqError], corpus: str, all_read: bool) -> CorpusError:
    return CorpusError(
        f"{source_name(corpus)} has {len(problems)} bad lines{'' if all_read else ', or more'}: "
        "mend them, or leave them out with --skip-bad-lines",
        [str(problem) for problem in problems],
    )


@dataclass(frozen=True, slots=True)
class IndexRequest:
    """Which index to build for a knowledge base; see `kbq index --help`."""

    folder: Path
    kind: WantedKind = "auto"
    recall: float = 0.99
    queries: str | None = None  # a file with one per line
    model: str | None = None
    device: str = "auto"
    filter: float | None = None


def index_kind(folder: Path, wanted: WantedKind) -> IndexKind:
    """The kind of index that is built in this knowledge base where `wanted` is asked for."""
    return chosen_kind(read_manifest(folder), wanted)


def index(request: IndexRequest, report: Report = silent) -> IndexFacts:
    """Build an index over the rows that are there, unless it exists already, and let it answer from now on.

    Raises:
        QueryError: some of the queries are malformed.
        KnowledgeBaseError: the filter is no number.
    """
    if request.filter is not None and not math.isfinite(request.filter):
        raise KnowledgeBaseError(
            f"--filter is {request.filter}, must be a number: `kbq info` says the model's own", is_usage=True
        )
    queries = [] if request.queries is None else read_queries([], request.queries)
    model = model_of(request.folder, read_manifest(request.folder), request.model, request.device)
    _refuse_malformed(queries, model.query_tokenizer.ids_of)
    texts = tuple(query.text for query in queries)
    manifest = add_index(request.folder, model, IndexSpec(request.kind, request.recall, texts, request.filter), report)
    return index_facts(request.folder, manifest, manifest.index)


def index_words(folder: Path, report: Report = silent) -> int:
    """Add a BM25 index to the shards that have none; nothing is encoded. Returns the bytes of all BM25 indexes."""
    with changing(folder) as before:
        manifest = add_bm25(folder, before, report)
        write_manifest(folder, manifest)
    return sum(folder_bytes(bm25_folder(shard)) for shard in manifest.shard_folders(folder))


def index_impacts(
    folder: Path,
    sparta: Path,
    terms: int = TERMS,
    device: str = "auto",
    report: Report = silent,
) -> int:
    """Add the impacts that a SPARTA model has learned, or make them anew. Returns the bytes of all impacts.

    Args:
        sparta: folder of the model.
        terms: impacts kept of each sentence, the strongest.
    """
    with changing(folder) as before:
        manifest = add_sparta(folder, before, SpartaModel.open(sparta, device), terms, report)
        write_manifest(folder, manifest)
        remove_other_impacts(folder, manifest)
    return sum(folder_bytes(sparta_folder(shard, manifest)) for shard in manifest.shard_folders(folder))


@dataclass(frozen=True, slots=True)
class Explanation:
    """A paragraph that was found, and what each term of the query added to its score."""

    hit: Answer
    parts: Mapping[str, float]


def explain(text: str, kb: KnowledgeBase, k: int, backend: WordBackend) -> list[Explanation]:
    """Why the k best paragraphs were found for a query."""
    return [Explanation(*pair) for pair in kb.words.scores([text], backend).explained(0, k)]


def chosen_weights(kb: KnowledgeBase, backend: Backend, bm25: float | None, sparta: float | None) -> HybridWeights:
    """The weights of a hybrid search: those given, else those of the query encoder.

    Raises:
        QueryError: one is given that would be ignored.
    """
    chosen = kb.chosen(backend)
    for option, weight, is_used in (
        ("--bm25-weight", bm25, kb.words.bm25),
        ("--sparta-weight", sparta, kb.words.sparta),
    ):
        if weight is not None and (chosen != "hybrid" or not is_used):
            raise QueryError(
                f"{option} means nothing to the backend {chosen} of {kb.folder}: leave it out", is_usage=True
            )
    return HybridWeights(kb.weights.bm25 if bm25 is None else bm25, kb.weights.sparta if sparta is None else sparta)


def opened_reading(reader: str | None, depth: int, retrieval_weight: float, device: str) -> Reading | None:
    """A reader of this name, ready to read; None without one."""
    return None if reader is None else Reading(Reader.open(reader, device), depth, retrieval_weight)


@dataclass(frozen=True, slots=True)
class Wanted:
    """How many answers are wanted, what they are, and how they are found; see `kbq query --help`."""

    k: int = 5
    unit: Unit | None = None  # phrases, or paragraphs where the backend knows no phrases
    answering: Answering = field(default_factory=Answering)


def ask(queries: Sequence[Query], kb: KnowledgeBase, wanted: Wanted) -> Iterator[tuple[Query, list[Answer]]]:
    """Each query with its answers, in order.

    Raises:
        QueryError: some are longer than the encoder reads (all of them are named); then none is answered.
    """
    answering = wanted.answering
    unit = wanted.unit or (
        "phrase" if answering.reading is not None or answering.backend not in WORDS_ALONE else "paragraph"
    )
    source = answering.over(kb)
    _refuse_malformed(queries, lambda text: [tokenizer.ids_of(text) for tokenizer in source.query_tokenizers])
    for first in range(0, len(queries), BATCH):
        part = queries[first : first + BATCH]
        texts = [query.text for query in part]
        yield from zip(part, source.search(texts, wanted.k, unit, answering.backend, answering.weights), strict=True)


def open_kb(
    folder: Path | None,
    model: str | None = None,
    device: str = "auto",
    index: IndexKind | None = None,
    building: Building = quietly,
) -> KnowledgeBase:
    """A knowledge base, or the bundled sample where no folder is given; `index`: instead of the one built last."""
    if folder is not None:
        return KnowledgeBase.open(folder, model, device, index)
    return open_sample(building, model, device, index)


def read_queries(texts: Sequence[str], source: str | None) -> list[Query]:
    """The queries given directly (their id is empty) and those of a file ("file:line"); blank lines are skipped.

    Raises:
        QueryError: there is none, or some are malformed (all of them are named).
    """
    lines = [] if source is None else list(read_lines(source, QueryError))
    queries = [Query("", clean_text(text)) for text in texts]
    queries += [
        Query(f"{source_name(str(source))}:{number}", clean_text(text)) for number, text in lines if text.strip()
    ]
    if not queries and source is not None:
        raise QueryError(f"{source_name(source)} holds no query: write one per line")
    if not queries:
        raise QueryError(
            'there is no query: write kbq query "subject [SEP] relation", or give a --file with one per line'
        )
    _refuse_malformed(queries, check_query)  # what no model can read is reported before one is loaded
    return queries


def _refuse_malformed(queries: Sequence[Query], check: Callable[[str], object]) -> None:
    problems = []
    for query in queries:
        try:
            check(query.text)
        except QueryError as error:
            problems.append(f"{query.id}: {error}" if query.id else str(error))
    if len(problems) == 1:
        raise QueryError(problems[0])
    if problems:
        raise QueryError(f"{len(problems)} of {len(queries)} queries cannot be asked", problems)
