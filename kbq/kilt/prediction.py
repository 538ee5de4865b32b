"""Prediction: answer KILT inputs as prediction lines, in order; a killed run resumes.

OUT.run.json records the task, the knowledge base, the options and the versions that made OUT. A run
resumes only if they are the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import jsonlines

import kbq
from kbq.answers import Answer, counted, is_likely
from kbq.dump.manifest import read_manifest
from kbq.errors import KbqError, QueryError
from kbq.kilt.open_questions import questions_by_id, read_questions
from kbq.kilt.records import RELEVANCE
from kbq.kilt.task import Task
from kbq.search.options import SearchOptions, Unit
from kbq.storage.lines import read_lines
from kbq.storage.paths import as_iterable, as_path, pipe_name, run_file
from kbq.storage.reading import file_digest
from kbq.storage.records import json_bytes, parsed_json
from kbq.storage.reports import unheard
from kbq.storage.resumed_results import resumed
from kbq.storage.writing import whole_lines
from kbq.text.queries import Query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kbq.answers import Result
    from kbq.asking.plan import SearchFacts
    from kbq.model.queries import ReadsQueries

    Records = str | Path | Iterable[Mapping[str, Any]]  # a KILT file, or records

ADVICE = "choose another --out, or delete it; --index resumes what another index has begun"


@dataclass(frozen=True, slots=True)
class AdaptedQuery:
    """A record's id and input, and the query that is asked instead."""

    id: str
    input: str
    query: Query


@dataclass(frozen=True, slots=True)
class PredictionOutcome:
    """Counts of the lines of the file."""

    lines: int
    kept: int  # written by an earlier run
    without_pages: int  # queries among the others that have no pages
    untuned_relations: tuple[str, ...] = ()  # relations that the query encoder was not tuned on


class Askable(Protocol):
    """The part of a `Searcher` that KILT predictions need."""

    folder: Path

    @property
    def batch_size(self) -> int:
        """How many queries to ask at a time."""

    def check(
        self, options: SearchOptions, texts: Sequence[str] = (), places: Sequence[str] = ()
    ) -> Sequence[Query]:
        """Return the queries that texts are. Raises QueryError if options do not fit, or texts
        cannot be asked.
        """

    def results(
        self, queries: Sequence[Query], options: SearchOptions, spell: bool = False
    ) -> Iterator[Result]:
        """Yield the result of each query that `check` has let pass."""

    def query_tokenizers(self, options: SearchOptions) -> Sequence[ReadsQueries]:
        """Return the tokenizers of all networks that will read a query."""

    def facts(self, options: SearchOptions) -> SearchFacts:
        """Return what decides the answers."""

    def writes_answers(self, options: SearchOptions) -> bool:
        """Whether the reader writes answers instead of finding phrases."""

    def untuned_relations(self, texts: Iterable[str]) -> list[str]:
        """Return the relations of queries that the query encoder was not tuned on."""


@dataclass(frozen=True, slots=True)
class Predictor:
    """A task, the knowledge base to ask, and how: `k` of the options is the number of units in each
    provenance.
    """

    task: Task
    kb: Askable
    options: SearchOptions
    with_text: bool = False
    questions: Path | None = None  # holds the questions by id, if the records leave them out

    def predict(
        self, records: Records, out: Path | None, report: Callable[[int, int], None]
    ) -> PredictionOutcome | list[dict[str, Any]]:
        """Predict every record, into a file or, without `out`, as records."""
        self.kb.check(self.options)
        if self.options.min_probability and self.task.answer == "none":
            raise QueryError(
                f"{self.task.name} asks for pages alone, so --min-probability has no effect: "
                "leave it out"
            )

        if out is not None:
            read_manifest(self.kb.folder)  # it may have been removed meanwhile
            return self.predict_file(records, out, report)

        queries = self.read(records)
        predictions = list[dict[str, Any]]()
        for first in range(0, len(queries), self.kb.batch_size):
            predictions += self.predictions(queries[first : first + self.kb.batch_size])
            report(len(predictions), len(queries))

        return predictions

    def predict_file(
        self, records: Records, out: Path, report: Callable[[int, int], None]
    ) -> PredictionOutcome:
        """Predict every record into a file."""
        queries = self.read(records)
        size = self.kb.batch_size
        without_pages = 0
        description = self._description(records, queries)

        # The same records may have another name: `queries` says whether they are the same.
        with resumed(out, run_file(out), description, ADVICE, ["inputs"]) as (file, _):
            done = _finished_lines(out, file, [query.id for query in queries])
            writer = jsonlines.Writer(file, dumps=json_bytes)
            report(done, len(queries))
            for first in range(done, len(queries), size):
                for prediction in self.predictions(queries[first : first + size]):
                    without_pages += not prediction["output"][0]["provenance"]
                    writer.write(prediction)
                file.flush()
                report(min(first + size, len(queries)), len(queries))

        untuned = self.kb.untuned_relations(query.input for query in queries)
        return PredictionOutcome(len(queries), done, without_pages, tuple(untuned))

    def predictions(self, queries: Sequence[AdaptedQuery]) -> Iterator[dict[str, Any]]:
        """Yield predictions for adapted queries, as the leaderboard reads them."""
        results = self.kb.results([adapted.query for adapted in queries], self.options)
        for query, result in zip(queries, results, strict=True):
            pages = result.answers
            output = dict[str, Any]()
            if self.task.answer != "none" or self.kb.writes_answers(self.options):
                is_given = bool(pages) and is_likely(pages[0], self.options.min_probability)
                best = pages[0] if is_given else None
                output["answer"] = (
                    "" if best is None else best.title if self.task.answer == "title" else best.text
                )
                if pages and pages[0].probability is not None:
                    output["meta"] = {"probability": round(pages[0].probability, 6)}

            places = [provenance(page, self.options.chosen_unit, self.with_text) for page in pages]
            yield {
                "id": query.id,
                "input": query.input,
                "output": [output | {"provenance": places}],
            }

    def read(self, records: Records) -> list[AdaptedQuery]:
        """Adapt the query of each record to the networks that will read it.

        Raises a QueryError that names all records that have no id or input, or cannot be asked.
        """
        tokenizers = self.kb.query_tokenizers(self.options)
        path = str(records) if isinstance(records, str | Path) else "records"
        names = list[tuple[str, str]]()  # id and input of each record
        adapted = list[str]()
        problems = list[str]()
        lines = dict[str, int]()
        texts = None if self.questions is None else questions_by_id(self.questions)

        def fits(text: str) -> bool:
            return all(each.is_short_enough(text) for each in tokenizers)

        for number, record in numbered_records(
            records, lambda problem: problems.append(problem.typed)
        ):
            text, given_id = (
                record.get(name, record.get(beir))
                for name, beir in (("input", "text"), ("id", "_id"))
            )
            identity = "" if given_id is None else str(given_id).strip()
            if texts is not None:
                text = texts.get(identity)
                if text is None:
                    problems.append(
                        f"{path}:{number}: {self.questions} has no question {identity!r:.60}"
                    )
                    continue

            if not isinstance(text, str) or not identity:
                missing = "id: write KILT records"
                if not isinstance(text, str):
                    missing = "input: write KILT records, or give TriviaQA's file with --questions"
                problems.append(f"{path}:{number}: no {missing}")
                continue

            if identity in lines:
                problems.append(
                    f"{path}:{number}: id {identity} is also in line {lines[identity]}: ids are "
                    "unique"
                )

            lines.setdefault(identity, number)
            names.append((identity, text))
            adapted.append(self.task.query_of(text, fits, f"{path}:{number}"))
            try:
                for tokenizer in tokenizers:
                    tokenizer.ids_of(adapted[-1])
            except QueryError as error:
                problems.append(f"{path}:{number}: {error.typed}")

        if problems:
            raise QueryError(
                f"{path} has {counted(len(problems), 'record')} that cannot be asked", problems
            )
        if not names:
            raise QueryError(f"{path} holds no record")
        queries = self.kb.check(self.options, adapted)

        return [
            AdaptedQuery(identity, text, query)
            for (identity, text), query in zip(names, queries, strict=True)
        ]

    def _description(self, records: Records, queries: Sequence[AdaptedQuery]) -> dict[str, object]:
        """Return the facts that must not change while predictions are resumed."""
        # A task file may change, too.
        listing = "\n".join(
            f"{adapted.id}\t{adapted.input}\t{adapted.query.text}" for adapted in queries
        )
        options = self.options
        facts = self.kb.facts(options)
        asked: dict[str, object] = {
            "task": self.task.name,
            "answer": self.task.answer,
            "queries_sha256": hashlib.sha256(listing.encode("utf-8", "surrogatepass")).hexdigest()[
                :16
            ],
            "reader": None,
            "inputs": {"name": "records"},
        }
        if options.reader is not None:
            asked["reader"] = {
                "name": options.reader,
                "fingerprint": facts.reader,
                "depth": options.depth,
                "retrieval_weight": options.retrieval_weight,
            }

        if isinstance(records, str | Path):
            inputs = Path(records)
            asked["inputs"] = {"name": inputs.name, "sha256": file_digest(inputs)}

        searched: dict[str, object] = {
            "knowledge_base": {"name": self.kb.folder.name, "contents": facts.contents},
            "pages": facts.pages,
            "index": facts.index,
            "query_encoder": facts.query_encoder,
        }
        bm25, sparta = facts.weights
        search: dict[str, object] = {
            "top_pages": options.k,
            "unit": options.chosen_unit,
            "backend": facts.backend,
            "weights": {"bm25": bm25, "sparta": sparta},
            "reranker": facts.reranker,
            "min_probability": options.min_probability,
            "with_text": self.with_text,
        }

        return asked | searched | search | {"kbq": kbq.__version__}


def numbered_records(
    records: Records, on_bad_line: Callable[[KbqError], None]
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the records of a file, or those given, with their numbers from 1."""
    if isinstance(records, str | Path) and RELEVANCE.search(str(records)):  # queries of MS MARCO
        for number, line in read_lines(str(records), QueryError, on_bad_line):
            identity, _, text = line.partition("\t")
            yield number, {"id": identity, "input": text}
        return

    if isinstance(records, str | Path):
        yield from read_questions(str(as_path(records, "a KILT file")), QueryError, on_bad_line)
        return

    several = as_iterable(records, QueryError, "records are", "a path, or a list of records")
    for number, record in enumerate(several, start=1):
        if isinstance(record, Mapping):
            yield number, record
        else:
            on_bad_line(QueryError(f"records:{number}: is {record!r:.60}, not a KILT record"))


def refuse_other_files(records: Records) -> None:
    """Raise QueryError if a file is missing or of another kind, before a knowledge base is opened."""
    if isinstance(records, str | Path) and not pipe_name(as_path(records, "a KILT file")):
        next(numbered_records(records, unheard), None)


def provenance(found: Answer, unit: Unit, with_text: bool) -> dict[str, Any]:
    """Return what supports an answer as an item of a KILT provenance list; scores descend.

    The characters of a page are those of its phrase; its text is the paragraph of that.
    """
    start, end = (found.start, found.end) if unit == "page" else found.unit
    item = {
        "wikipedia_id": found.page_id,
        "title": found.title,
        "score": round(found.score, 4),
        "start_paragraph_id": found.paragraph,
        "end_paragraph_id": found.paragraph,
        "start_character": start,
        "end_character": end,
    }
    if not with_text:
        return item
    text = found.context
    if unit == "sentence":
        text = found.context[start:end]
    return item | {"text": text, "answer": found.text}


def _finished_lines(out: Path, file: BinaryIO, ids: Sequence[str]) -> int:
    """Count the predictions in `out`, and cut off an unfinished last line, left by a killed run."""
    count = 0
    for line in whole_lines(file):
        if count == len(ids):
            raise KbqError(
                f"{out} has more lines than there are records ({count:,}): delete it to begin anew"
            )

        try:
            identity = str(parsed_json(line.decode())["id"])
        except (ValueError, KeyError, TypeError):
            identity = ""

        if identity != ids[count]:
            raise KbqError(
                f"{out}:{count + 1} is not the prediction of {ids[count]}: lines have been "
                "changed since; put them back, or delete the file to begin anew"
            )

        count += 1

    return count
