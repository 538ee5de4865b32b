"""Prediction: KILT inputs become KILT prediction lines, in order, resumable after a kill at any moment.

Beside OUT stands OUT.run.json: the task, the knowledge base, the options and the versions that made it. A run goes on
only where they are the same.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import jsonlines

import kbq
from kbq.answers import Answer
from kbq.dump.manifest import MANIFEST
from kbq.encoding.queries import QueryTokenizer
from kbq.errors import KbqError, QueryError
from kbq.kb import KnowledgeBase
from kbq.kilt.task import Task
from kbq.reading.reader import Answering, RetrieverReader
from kbq.searching.search import BATCH
from kbq.system.files import file_digest, run_file, write_json, writing_alone, writing_to
from kbq.system.lines import read_json_lines


@dataclass(frozen=True, slots=True)
class Query:
    """What the query encoder reads: `subject [SEP] relation`, a question, a marked mention."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class ProvenanceItem:
    """A place that supports an answer: one item of a KILT provenance list."""

    page_id: str
    title: str
    paragraph: int
    start: int
    end: int
    text: str | None = None  # the paragraph, where it was asked for


@dataclass(frozen=True, slots=True)
class Prediction:
    """The answer to a query and its pages, best first."""

    id: str
    input: str
    answer: str | None  # None: the task has no answer that is a span, only provenance counts
    provenance: tuple[ProvenanceItem, ...]


@dataclass(frozen=True, slots=True)
class PredictionSettings:
    """What decides the predictions besides task, inputs and knowledge base."""

    top_pages: int = 20
    with_text: bool = False  # write each page's paragraph too: large, but readable by a reader model
    answering: Answering = field(default_factory=Answering)


@dataclass(frozen=True, slots=True)
class PredictionOutcome:
    """How many lines the file has, how many of them an earlier run wrote, and how many of the others name no page."""

    lines: int
    kept: int
    without_pages: int
    untuned_relations: tuple[str, ...] = ()  # asked for, but not among those the query encoder was tuned on


def predict_file(
    task: Task,
    inputs: Path,
    kb: KnowledgeBase,
    out: Path,
    settings: PredictionSettings,
    report: Callable[[int, int], None],
) -> PredictionOutcome:
    """Predict every record of a KILT file; with a reader, answers are what it reads in the paragraphs found.

    Raises:
        KbqError: inputs that are no KILT records (all problems at once), or `out` is of another run, or another process
            writes it.
    """
    answering = settings.answering.over(kb)
    queries = read_inputs(task, inputs, answering.query_tokenizers)
    _same_run(out, _description(task, inputs, queries, kb, settings))
    without_pages = 0
    with (
        writing_to(out, KbqError, goes_on=True),
        out.open("a", encoding="utf-8", errors="backslashreplace", newline="\n") as file,
        writing_alone(out),
    ):
        done = _finished_lines(out, [query.id for query, _ in queries])
        report(done, len(queries))
        lines = jsonlines.Writer(file, dumps=partial(json.dumps, ensure_ascii=False), flush=True)
        for first in range(done, len(queries), BATCH):
            batch = queries[first : first + BATCH]
            for prediction in predict(task, batch, answering, settings):
                without_pages += not prediction.provenance
                lines.write(kilt_line(prediction))
            report(first + len(batch), len(queries))
    untuned = kb.model.config.untuned_relations(text for _, text in queries)
    return PredictionOutcome(len(queries), done, without_pages, tuple(untuned))


def predict(
    task: Task,
    queries: Sequence[tuple[Query, str]],
    kb: KnowledgeBase | RetrieverReader,
    settings: PredictionSettings,
) -> Iterator[Prediction]:
    """Predictions for adapted queries, each given with its record's own input."""
    texts = [query.text for query, _ in queries]
    hits = kb.search(texts, settings.top_pages, "page", settings.answering.backend, settings.answering.weights)
    for (query, text), pages in zip(queries, hits, strict=True):
        answer = None
        if task.answer != "none":
            answer = "" if not pages else pages[0].text if task.answer == "phrase" else pages[0].title
        provenance = tuple(_provenance_item(hit, settings.with_text) for hit in pages)
        yield Prediction(query.id, text, answer, provenance)


def kilt_line(prediction: Prediction) -> dict[str, Any]:
    """A prediction as the leaderboard reads it."""
    provenance = []
    for item in prediction.provenance:
        fields: dict[str, Any] = {
            "wikipedia_id": item.page_id,
            "title": item.title,
            "start_paragraph_id": item.paragraph,
            "end_paragraph_id": item.paragraph,
            "start_character": item.start,
            "end_character": item.end,
        }
        provenance.append(fields if item.text is None else fields | {"text": item.text})
    output: dict[str, Any] = {} if prediction.answer is None else {"answer": prediction.answer}
    return {"id": prediction.id, "input": prediction.input, "output": [output | {"provenance": provenance}]}


def read_inputs(task: Task, path: Path, query_tokenizers: Sequence[QueryTokenizer]) -> list[tuple[Query, str]]:
    """Each record's adapted query and its own input.

    Args:
        query_tokenizers: of all networks that will read the queries.

    Raises:
        QueryError: records without id or input, or whose query a network cannot read: all of them are named.
        KbqError: the task's own code fails.
    """
    queries: list[tuple[Query, str]] = []
    problems: list[str] = []
    lines: dict[str, int] = {}
    for number, record in read_json_lines(str(path), QueryError, lambda problem: problems.append(str(problem))):
        text, identity = record.get("input"), "" if record.get("id") is None else str(record["id"]).strip()
        if not isinstance(text, str) or not identity:
            problems.append(f"{path}:{number}: no {'id' if isinstance(text, str) else 'input'}: write KILT records")
            continue
        if identity in lines:
            problems.append(f"{path}:{number}: id {identity} stands in line {lines[identity]} too: ids are unique")
        lines.setdefault(identity, number)
        adapted_text = task.query_of(
            text, lambda text: all(each.is_short_enough(text) for each in query_tokenizers), f"{path}:{number}"
        )
        try:
            for tokenizer in query_tokenizers:
                tokenizer.ids_of(adapted_text)
        except QueryError as error:
            problems.append(f"{path}:{number}: {error}")
        queries.append((Query(identity, adapted_text), text))
    if problems:
        raise QueryError(f"{path} has {len(problems)} records that cannot be asked", problems)
    if not queries:
        raise QueryError(f"{path} holds no record")
    return queries


def _provenance_item(hit: Answer, with_text: bool) -> ProvenanceItem:
    return ProvenanceItem(hit.page_id, hit.title, hit.paragraph, hit.start, hit.end, hit.context if with_text else None)


def _description(
    task: Task,
    inputs: Path,
    queries: Sequence[tuple[Query, str]],
    kb: KnowledgeBase,
    settings: PredictionSettings,
) -> dict[str, object]:
    listing = "\n".join(f"{query.id}\t{text}\t{query.text}" for query, text in queries)  # a task file may change, too
    reader, reading = None, settings.answering.reading
    if reading is not None:
        reader = {
            "name": reading.reader.source,
            "fingerprint": reading.reader.fingerprint(),
            "depth": reading.depth,
            "retrieval_weight": reading.retrieval_weight,
        }
    return {
        "task": task.name,
        "answer": task.answer,
        "queries_sha256": hashlib.sha256(listing.encode("utf-8", "surrogatepass")).hexdigest()[:16],
        "reader": reader,
        "inputs": {"name": inputs.name, "sha256": file_digest(inputs)},
        "knowledge_base": {"name": kb.folder.name, "manifest_sha256": file_digest(kb.folder / MANIFEST)},
        "index": kb.index.kind,
        "query_encoder": kb.model.config.query_fingerprint,
        "top_pages": settings.top_pages,
        "backend": kb.chosen(settings.answering.backend),
        "weights": asdict(settings.answering.weights or kb.weights),
        "with_text": settings.with_text,
        "kbq": kbq.__version__,
    }


def _same_run(out: Path, description: dict[str, object]) -> None:
    if out.is_dir():
        raise KbqError(f"{out} is a folder: give --out the name of a file")
    path = run_file(out)
    is_begun = out.exists() and out.stat().st_size > 0
    if is_begun and path.exists() and (other := _differences(_read_description(path), description)):
        raise KbqError(
            f"{out} was made by a run that differs in {other} (see {path.name}): choose another --out, or delete it"
        )
    if out.exists() and not path.exists():
        raise KbqError(f"{out} already exists and was not made by kbq predict: choose another --out")
    with writing_to(out.parent, KbqError, "choose another --out"):
        out.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, description)


def _read_description(path: Path) -> Mapping[str, object]:
    try:
        return dict(json.loads(path.read_text("utf-8")))
    except (ValueError, TypeError) as error:
        raise KbqError(f"{path} is damaged ({error}): delete it and the predictions beside it") from None


def _differences(written: Mapping[str, object], description: Mapping[str, object]) -> str:
    """The names of the entries that differ, in words."""
    names = {name: None for name in (*description, *written) if written.get(name, ...) != description.get(name, ...)}
    names.pop("inputs", None)  # the same records may have another name: `queries` says whether they are the same
    return ", ".join(name.removesuffix("_sha256").replace("_", " ") for name in names)


def _finished_lines(out: Path, ids: Sequence[str]) -> int:
    """How many predictions stand in `out`; an unfinished last line, left by a killed run, is cut off.

    Raises:
        KbqError: a line is not the prediction of the record in its place.
    """
    with out.open("r+b") as file:
        count = end = 0
        for line in file:
            if not line.endswith(b"\n"):
                break
            if count == len(ids):
                raise KbqError(f"{out} has more lines than there are records ({count:,}): delete it to begin anew")
            if _id_of(line) != ids[count]:
                raise KbqError(
                    f"{out}:{count + 1} is not the prediction of {ids[count]}: lines have been changed since; put them "
                    "back, or delete the file to begin anew"
                )
            count, end = count + 1, end + len(line)
        file.seek(end)
        file.truncate()
    return count


def _id_of(line: bytes) -> str | None:
    try:
        return str(json.loads(line)["id"])
    except (ValueError, KeyError, TypeError):
        return None
