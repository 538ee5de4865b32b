"""Labels: tell right phrases of a search from wrong ones.

A text is right if it equals an answer after KILT's normalisation. Source: arXiv 2012.12624, Eq. 11;
arXiv 2109.08133, Eq. 5.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, product
from typing import Literal

import numpy as np

from kbq.array_types import Bools, Floats, Rows
from kbq.asking.searcher import Searcher
from kbq.dump.shards import Shard
from kbq.errors import QueryError, TrainingError
from kbq.index.base import ranges
from kbq.index.factory import open_cells
from kbq.kilt.records import Gold, GoldOutput
from kbq.kilt.task import Task
from kbq.search.search import batch_spans
from kbq.search.spans import reach
from kbq.text.answer_scores import normalise_answer
from kbq.tuning.settings import Objective
from kbq.tuning.triples import pages_of

MOST_GOLDS = 20  # occurrences of a query's answers on its gold pages
MOST_NAMESAKES = 100  # readings of an output that names its pages by titles of several pages


@dataclass(frozen=True, slots=True)
class Phrases:
    """Phrases of one query: shard, first row, last row, and the score of the search. Shapes:
    (phrases,).
    """

    shards: Rows
    starts: Rows
    ends: Rows
    scores: Floats

    def __len__(self) -> int:
        return len(self.starts)

    def places(self) -> list[tuple[int, int, int]]:
        """Return (shard, first row, last row) of each."""
        return list(
            zip(self.shards.tolist(), self.starts.tolist(), self.ends.tolist(), strict=True)
        )


def phrases_of(places: Sequence[tuple[int, int, int]]) -> Phrases:
    """Return phrases that were not searched for, without scores, from (shard, first row, last row)
    each.
    """
    columns = np.array(places, np.int64).reshape(-1, 3).T
    return Phrases(columns[0], columns[1], columns[2], np.full(len(places), np.nan, np.float32))


def retrieve(kb: Searcher, starts: Floats, ends: Floats, k: int) -> list[Phrases]:
    """Find the k best phrases for each query: a start with its best end, overlaps included. Shapes:
    (queries, dim).
    """
    found = []
    for spans_of_shards in batch_spans(kb.search_context, kb.model.in_row_units(starts, ends), k):
        shards = np.repeat(
            np.arange(len(spans_of_shards)), [len(spans.starts) for spans in spans_of_shards]
        )
        columns = zip(
            *((spans.starts, spans.ends, spans.scores) for spans in spans_of_shards), strict=True
        )
        first, last, scores = map(np.concatenate, columns)
        order = np.argsort(-scores, kind="stable")[:k]
        found.append(Phrases(shards[order], first[order], last[order], scores[order]))

    return found


def joined(found: Phrases, more: Phrases) -> Phrases:
    """Return all phrases of both, each once."""
    known = set(found.places())
    return concatenated(
        [found, phrases_of([place for place in more.places() if place not in known])]
    )


def concatenated(parts: Sequence[Phrases]) -> Phrases:
    """Return all phrases of some queries, one query after another."""
    columns = ([part.shards, part.starts, part.ends, part.scores] for part in parts)
    return Phrases(*map(np.concatenate, zip(*columns, strict=True)))


class CodedRows:
    """The vectors that the codes of an index stand for, in place of the dump's rows. Source: arXiv
    2109.08133, 6.2.

    Rows that the index leaves out, such as gold phrases below its filter, keep those of the dump.
    """

    def __init__(self, kb: Searcher) -> None:
        """Read the codes of the index that is searched. Raises TrainingError if it has none."""
        entry = kb.index
        if entry.kind not in ("compact", "tiny"):
            raise TrainingError(
                f"vectors are codes, but {kb.folder} is searched with its {entry.kind} index: "
                f"build one of codes with `kbq index vectors {kb.folder} --kind tiny`, or leave "
                "--vectors out"
            )
        self._shards = kb.shards
        self._cells = open_cells(kb.shards, entry)

    def vectors_of(self, number: int, rows: Rows) -> Floats:
        """Shapes: rows (rows,), result (rows, dim)."""
        cells = self._cells[number]
        stored = self._shards[number].vectors_of(rows)
        if cells is None:
            return stored.astype(np.float32)
        coded = cells.reconstructed(rows)
        return np.where(np.isnan(coded), stored, coded).astype(np.float32)


def vectors(
    kb: Searcher, phrases: Phrases, coded: CodedRows | None = None
) -> tuple[Floats, Floats]:
    """Return first and last token vectors: rows of the dump, or what codes stand for. Shapes:
    (phrases, dim).
    """
    starts, ends = (np.empty((len(phrases), kb.model.dim), np.float32) for _ in range(2))
    for number in np.unique(phrases.shards).tolist():
        places = np.flatnonzero(phrases.shards == number)
        vectors_of = (
            kb.shards[number].vectors_of if coded is None else partial(coded.vectors_of, number)
        )
        starts[places], ends[places] = (
            vectors_of(phrases.starts[places]),
            vectors_of(phrases.ends[places]),
        )
    return starts * kb.model.scale, ends * kb.model.scale


def penalties(kb: Searcher, phrases: Phrases) -> Floats:
    """Return the penalty that the search takes from the score of each phrase. Shape: (phrases,)."""
    tokens = np.zeros(len(phrases), np.float32)  # tokens after the first one
    for number in np.unique(phrases.shards):
        places = np.flatnonzero(phrases.shards == number)
        positions = kb.shards[number].positions
        tokens[places] = positions[phrases.ends[places]] - positions[phrases.starts[places]]
    return kb.model.config.length_penalty * tokens


@dataclass(frozen=True, slots=True)
class Labels:
    """Whether each phrase of a query is right. Shapes: (phrases,)."""

    has_answer: Bools
    on_page: Bools
    page_known: bool  # the knowledge base has a gold page

    def positive(self, objective: Objective) -> Bools:
        """Mark the phrases to prefer.

        phrase: the answer, anywhere (L_phrase). page: anything on a gold page (L_doc). kilt: the
        answer on a gold page, which is what KILT rewards; without such a phrase, anything on a gold
        page, and the answer anywhere only if the knowledge base has no gold page. Otherwise a
        common answer, whose words the filter dropped on many pages, would teach all its queries the
        one page that has it.
        """
        if objective == "phrase":
            return self.has_answer
        if objective == "page":
            return self.on_page
        both = self.has_answer & self.on_page
        if both.any():
            return both
        if self.page_known:
            return self.on_page
        return self.has_answer


Kind = Literal[
    "on_page",  # an answer is a phrase of a gold page
    "dropped",  # an answer is on a gold page, but not a phrase: the filter dropped its words
    "elsewhere",  # gold pages are in the knowledge base, but none has an answer
    "no_page",  # the knowledge base has none of the gold pages
    "unnamed",  # gold names no page: an answer counts anywhere
]


class Labeller:
    """Reads phrases and pages of a knowledge base's shards."""

    def __init__(self, shards: list[Shard], pages: Iterable[str]) -> None:
        """`pages`: ids, or titles, of all pages that will be asked for."""
        self._shards = shards
        wanted = set(pages)
        self._places: dict[str, list[tuple[int, int]]] = {page: [] for page in wanted}
        by_title: dict[str, list[tuple[int, int]]] = {}
        for number, shard in enumerate(shards):
            for page_number, page in shard.live_ids():
                title = shard.titles[page_number]
                if page in wanted:
                    self._places[page].append((number, page_number))
                if title in wanted:
                    by_title.setdefault(title, []).append((number, page_number))

        for title, places in by_title.items():
            self._places[title] = self._places[title] or places

    def page_ids(self, page: str) -> list[str]:
        """Return the ids of the pages with this id or, without one, this title."""
        return [self._shards[number].ids[page_number] for number, page_number in self._places[page]]

    def label(self, phrases: Phrases, gold: Gold) -> Labels:
        answers = {normalise_answer(answer) for answer in gold.answers} - {""}
        places = set()
        for page in pages_of(gold):
            places.update(self._places[page])
        has_answer = np.zeros(len(phrases), bool)
        on_page = np.zeros(len(phrases), bool)

        for number in np.unique(phrases.shards).tolist():
            indices = np.flatnonzero(phrases.shards == number)
            shard = self._shards[number]
            paragraphs = shard.paragraphs_of(phrases.starts[indices])
            texts = {
                paragraph: shard.texts[paragraph] for paragraph in np.unique(paragraphs).tolist()
            }
            begins = shard.starts[phrases.starts[indices]]
            stops = shard.ends[phrases.ends[indices]]
            for index, paragraph, begin, stop in zip(
                indices.tolist(), paragraphs.tolist(), begins.tolist(), stops.tolist(), strict=True
            ):
                has_answer[index] = normalise_answer(texts[paragraph][begin:stop]) in answers
                on_page[index] = (number, int(shard.paragraph_pages[paragraph])) in places

        return Labels(has_answer, on_page, bool(places))

    def find(self, gold: Gold) -> tuple[Phrases, Kind]:
        """Find the answers of a query on its gold pages, at most 20, and say whether they can be
        found.
        """
        answers = {normalise_answer(answer) for answer in gold.answers} - {""}
        places = sorted(place for page in pages_of(gold) for place in self._places[page])
        spans: list[tuple[int, int, int]] = []
        in_text = False

        for number, page_number in places:
            shard = self._shards[number]
            first, stop = np.searchsorted(shard.paragraph_pages, [page_number, page_number + 1])
            for paragraph in range(int(first), int(stop)):
                text = shard.texts[paragraph]
                normal = normalise_answer(text)
                present = {answer for answer in answers if answer in normal}
                in_text = in_text or any(f" {answer} " in f" {normal} " for answer in present)
                if present:
                    spans += [
                        (number, start, end)
                        for start, end in _occurrences(shard, paragraph, text, present)
                    ]

        otherwise: Kind = "no_page" if pages_of(gold) else "unnamed"
        kind: Kind = (
            "on_page" if spans else "dropped" if in_text else "elsewhere" if places else otherwise
        )

        return phrases_of(spans[:MOST_GOLDS]), kind


def _occurrences(
    shard: Shard, paragraph: int, text: str, answers: set[str]
) -> list[tuple[int, int]]:
    """Return first and last row of every legal phrase whose text is an answer."""
    rows = shard.rows_of(paragraph)
    sizes = reach(shard, rows)
    starts = np.repeat(rows, sizes)
    ends = ranges(rows, rows + sizes)
    begins = shard.starts[starts]
    stops = shard.ends[ends]
    shortest = min(map(len, answers))
    longest = max(map(len, answers))
    lengths = stops - begins  # normalising drops articles and punctuation; lower case may be longer
    legal = shard.opens(starts) & shard.closes(ends)
    likely = np.flatnonzero(legal & (2 * lengths >= shortest) & (lengths <= 2 * longest + 8))
    right: list[tuple[int, int]] = []

    for i in likely:
        phrase = text[int(begins[i]) : int(stops[i])]
        if normalise_answer(phrase) in answers:
            right.append((int(starts[i]), int(ends[i])))

    return right


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """A query as token ids; `golds`: its answers on its gold pages."""

    ids: tuple[int, ...]
    gold: Gold
    golds: Phrases
    # The pages that it names, if the knowledge base has none of them.
    lost_pages: tuple[str, ...] = ()
    objective: Objective | None = None  # objective of its task; None: that of the settings


@dataclass(frozen=True, slots=True)
class Reach:
    """How many queries can be answered from the knowledge base at all."""

    queries: int = 0
    unreadable: int = 0  # too long for the encoder, or malformed: left out
    on_page: int = 0  # this and the next four: see `Kind`
    dropped: int = 0
    elsewhere: int = 0
    no_page: int = 0
    unnamed: int = 0
    # Part of the last two: every answer has a word that does not occur, so it is never found
    # (by BM25).
    nowhere: int = 0

    def __add__(self, other: "Reach") -> "Reach":
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return Reach(*map(sum, pairs))


def prepare(
    task: Task, golds: Sequence[Gold], kb: Searcher, labeller: Labeller
) -> tuple[list[PreparedQuery], Reach]:
    """Prepare all queries that the encoder reads. Raises TrainingError if there is none."""
    prepared = []
    counts = dict.fromkeys((field.name for field in dataclasses.fields(Reach)), 0)
    readable = golds_with_ids(task, golds, kb)
    counts["unreadable"] = len(golds) - len(readable)
    for gold, ids in readable:
        phrases, kind = labeller.find(gold)
        lost: tuple[str, ...] = ()
        if kind == "no_page":
            lost = tuple(sorted(pages_of(gold)))
        prepared.append(PreparedQuery(tuple(ids), gold, phrases, lost))
        counts[kind] += 1
        if kind in ("no_page", "unnamed") and gold.answers:
            counts["nowhere"] += all(kb.words.missing(answer) for answer in gold.answers)

    return prepared, Reach(**counts | {"queries": len(prepared)})


def golds_with_ids(task: Task, golds: Sequence[Gold], kb: Searcher) -> list[tuple[Gold, list[int]]]:
    """Return the records whose queries the encoder reads, with their token ids. Raises
    TrainingError without any.
    """
    tokenizer = kb.model.query_tokenizer
    readable = []
    reason = ""
    for gold in golds:
        try:
            text = task.query_of(gold.input or "", tokenizer.is_short_enough, gold.id)
            readable.append((gold, tokenizer.ids_of(text)))
        except QueryError as error:
            reason = reason or f"line {gold.line}: {error.typed}"

    if not readable:
        raise TrainingError(f"no query can be read; {reason}")
    return readable


def with_page_ids(gold: Gold, labeller: Labeller) -> Gold:
    """Replace page titles by ids, which predictions name; several pages with one title are
    alternatives.

    If the knowledge base has none of the pages, the record loses them: its answer counts anywhere,
    as in tuning.
    """
    if gold.answers and labeller.find(gold)[1] == "no_page":
        without_pages = (
            dataclasses.replace(output, pages=(), evidence=None) for output in gold.outputs
        )
        return dataclasses.replace(gold, outputs=tuple(without_pages))

    def with_ids(output: GoldOutput) -> Iterator[GoldOutput]:
        ids = [labeller.page_ids(page) or [page] for page in output.pages]
        for named in islice(product(*ids), MOST_NAMESAKES):
            pages = tuple(dict.fromkeys(named))
            if output.evidence is None:
                evidence = None
            else:
                evidence = frozenset(pages)
            yield dataclasses.replace(output, pages=pages, evidence=evidence)

    return dataclasses.replace(
        gold, outputs=tuple(variant for output in gold.outputs for variant in with_ids(output))
    )
