"""Prediction: KILT lines from a knowledge base that can be checked by eye."""

import json
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kbq.answers import Answer, BuiltKind, Result
from kbq.asking.plan import SearchFacts
from kbq.errors import KbqError, QueryError
from kbq.kilt.prediction import PredictionOutcome, Predictor
from kbq.kilt.task import Task, question, slot_with
from kbq.search.options import Backend, SearchOptions
from kbq.search.search import BATCH
from kbq.storage.reading import file_digest
from kbq.storage.writing import writing_alone
from kbq.text.queries import Query

TASK = Task("mine", question, "phrase", ("em",), "em")
BROKEN = Task("broken", slot_with({"r": "who {object}"}), "phrase", ("em",), "em")
TITLES = Task("linked", question, "title", ("accuracy",), "accuracy")
PAGES_ONLY = Task("labels", question, "none", ("accuracy",), "accuracy")


class Reader:
    """Reads five words."""

    def is_short_enough(self, text: str) -> bool:
        return len(text.split()) <= 5

    def ids_of(self, text: str) -> list[int]:
        if text == "nothing":
            raise QueryError(f"the query {text!r} is empty")
        return [1]


class StrictReader(Reader):
    """Reads nothing."""

    def ids_of(self, text: str) -> list[int]:
        raise QueryError("too long for the reader")


class FakeBase:
    """Finds page 1, 2, 3 … for every query; its answers say which query and page. Dies after some
    searches.
    """

    batch_size = BATCH

    def __init__(
        self, folder: Path, index: BuiltKind, dies_after: int = 99, pages: int = 3
    ) -> None:
        (folder / "manifest.json").write_text(f'{{"pages": {pages}}}')
        self.folder = folder
        self.index, self.query_encoder, self.pages_digest = index, "f", ""
        self.dies_after, self.pages = dies_after, pages

    def writes_answers(self, options: SearchOptions) -> bool:
        return False

    def untuned_relations(self, queries: Iterable[str]) -> list[str]:
        return sorted({query.rpartition(" [SEP] ")[2] for query in queries if "[SEP]" in query})

    def query_tokenizers(self, options: SearchOptions) -> list[Reader]:
        return [Reader() if options.reader is None else StrictReader()]

    def check(
        self, options: SearchOptions, texts: Sequence[str] = (), places: Sequence[str] = ()
    ) -> list[Query]:
        return list(map(Query.of, texts))

    def facts(self, options: SearchOptions) -> SearchFacts:
        backend: Backend = "dense" if options.backend == "auto" else options.backend
        weights = options.bm25_weight or 8.0, 4.0
        contents = file_digest(self.folder / "manifest.json")
        return SearchFacts(
            contents,
            self.pages_digest,
            self.index,
            self.query_encoder,
            backend,
            weights,
            reader=None,
            reranker=None,
        )

    def search(self, texts: Sequence[str], options: SearchOptions) -> list[list[Answer]]:
        assert options.unit == "page"
        self.dies_after -= 1
        if self.dies_after < 0:
            raise KeyboardInterrupt
        if options.backend == "bm25":
            texts = [f"words of {text}" for text in texts]
        return [
            [self.hit(text, page) for page in range(1, min(options.k, self.pages) + 1)]
            for text in texts
        ]

    def results(
        self, queries: Sequence[Query], options: SearchOptions, spell: bool = False
    ) -> Iterator[Result]:
        texts = [query.text for query in queries]
        for text, answers in zip(texts, self.search(texts, options), strict=True):
            yield Result(text, answers, options.min_probability, (), True)

    def hit(self, text: str, page: int) -> Answer:
        answer = f"{text} {page}"
        place = (str(page), f"Page {page}", 4, 6, 6 + len(answer))
        return Answer(answer, 1 / page, *place, f"It is {answer}.", (0, 9))


Predict = Callable[..., PredictionOutcome]


@pytest.fixture
def predict(tmp_path: Path) -> Predict:
    """Predicts tmp_path/in into tmp_path/out.jsonl."""

    def run(
        task: Task = TASK,
        top_pages: int = 20,
        with_text: bool = False,
        backend: Backend = "auto",
        bm25_weight: float | None = None,
        index: BuiltKind = "exact",
        encoder: str = "f",
        some_pages: str = "",
        **fake: int,
    ) -> PredictionOutcome:
        answering = FakeBase(tmp_path, index, **fake)
        answering.query_encoder, answering.pages_digest = encoder, some_pages
        options = SearchOptions(top_pages, "page", backend, bm25_weight)
        predictor = Predictor(task, answering, options, with_text)
        return predictor.predict_file(tmp_path / "in", tmp_path / "out.jsonl", lambda *_: None)

    return run


def write_inputs(folder: Path, *records: object) -> None:
    (folder / "in").write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")


def lines(folder: Path) -> list[Any]:
    return [json.loads(line) for line in (folder / "out.jsonl").read_text("utf-8").splitlines()]


def many(count: int) -> list[dict[str, object]]:
    return [{"id": number, "input": f"q{number}"} for number in range(count)]


@pytest.mark.parametrize(
    "changed",
    [
        Task("mine", lambda text, fits: f"about {text}", "phrase", ("em",), "em"),
        Task("mine", question, "title", ("em",), "em"),
    ],
)
def test_a_task_that_was_edited_is_another_task(
    changed: Task, tmp_path: Path, predict: Predict
) -> None:
    write_inputs(tmp_path, *many(3))
    predict()
    assert predict().kept == 3
    with pytest.raises(
        KbqError, match=r"was made by a run that differs in (answer|queries) \(see out"
    ):
        predict(changed)


def test_what_a_reader_cannot_read_is_said_before_it_reads(tmp_path: Path) -> None:
    write_inputs(tmp_path, *many(2))
    options = SearchOptions(20, "page", reader="strict")
    kb = FakeBase(tmp_path, "exact")
    with pytest.raises(QueryError, match="has 2 records that cannot be asked"):
        Predictor(TASK, kb, options).predict_file(
            tmp_path / "in", tmp_path / "out", lambda *_: None
        )
    assert not (tmp_path / "out").exists()


def test_a_line_has_the_answer_and_distinct_pages_the_answers_page_first(
    tmp_path: Path, predict: Predict
) -> None:
    write_inputs(tmp_path, {"id": " 7", "input": "who", "meta": {}, "output": [{"answer": "gold"}]})
    assert predict(top_pages=2) == PredictionOutcome(lines=1, kept=0, without_pages=0)
    place = {
        "start_paragraph_id": 4,
        "end_paragraph_id": 4,
        "start_character": 6,
        "end_character": 11,
    }
    pages = [
        {"wikipedia_id": str(page), "title": f"Page {page}", "score": 1 / page, **place}
        for page in (1, 2)
    ]
    assert lines(tmp_path) == [
        {"id": "7", "input": "who", "output": [{"answer": "who 1", "provenance": pages}]},
    ]


def test_relations_that_were_not_tuned_on_are_named(tmp_path: Path, predict: Predict) -> None:
    write_inputs(tmp_path, {"id": 1, "input": "a [SEP] b"}, {"id": 2, "input": "c"})
    assert predict().untuned_relations == ("b",)


def test_texts_come_where_they_are_wanted(tmp_path: Path, predict: Predict) -> None:
    write_inputs(tmp_path, *many(1))
    predict(top_pages=1, with_text=True)
    assert lines(tmp_path)[0]["output"][0]["provenance"][0]["text"] == "It is q0 1."


def test_the_backend_is_asked(tmp_path: Path, predict: Predict) -> None:
    write_inputs(tmp_path, *many(1))
    predict(backend="bm25")
    assert lines(tmp_path)[0]["output"][0]["answer"] == "words of q0 1"


def test_the_answer_may_be_the_title_or_none(tmp_path: Path, predict: Predict) -> None:
    write_inputs(tmp_path, *many(1))
    predict(TITLES)
    assert lines(tmp_path)[0]["output"][0]["answer"] == "Page 1"
    (tmp_path / "out.jsonl").unlink()
    predict(PAGES_ONLY)
    assert list(lines(tmp_path)[0]["output"][0]) == ["provenance"]


@pytest.mark.parametrize("task", [TASK, TITLES])
def test_a_query_without_pages_has_an_empty_answer(
    tmp_path: Path, predict: Predict, task: Task
) -> None:
    write_inputs(tmp_path, *many(2))
    assert predict(task, pages=0).without_pages == 2
    assert lines(tmp_path)[0]["output"] == [{"answer": "", "provenance": []}]


def test_queries_are_nfc_and_the_input_stays_as_it_was(tmp_path: Path, predict: Predict) -> None:
    decomposed = unicodedata.normalize("NFD", "é")
    write_inputs(tmp_path, {"id": 1, "input": decomposed})
    predict()
    (line,) = lines(tmp_path)
    assert (line["input"], line["output"][0]["answer"]) == (decomposed, "é 1")


@pytest.mark.parametrize("cut", [0, 1, 20, -1])
def test_a_killed_run_goes_on_and_gives_the_same_file(
    tmp_path: Path, predict: Predict, cut: int
) -> None:
    count = 2 * BATCH + 3
    write_inputs(tmp_path, *many(count))
    predict()
    out = tmp_path / "out.jsonl"
    whole = out.read_bytes()
    out.unlink()
    with pytest.raises(KeyboardInterrupt):
        predict(dies_after=1)
    assert len(lines(tmp_path)) == BATCH
    half = out.read_bytes()
    # Half a last line, or none.
    out.write_bytes(half + whole[len(half) :][:cut] if cut >= 0 else half[:cut])
    assert predict() == PredictionOutcome(lines=count, kept=BATCH - (cut < 0), without_pages=0)
    assert out.read_bytes() == whole
    assert predict().kept == count


def test_one_run_at_a_time_writes_a_file(tmp_path: Path, predict: Predict) -> None:
    write_inputs(tmp_path, *many(2))
    predict()
    with (
        writing_alone(tmp_path / "out.jsonl"),
        pytest.raises(KbqError, match=r"another kbq process is writing .*out\.jsonl"),
    ):
        predict()
    assert predict().kept == 2


def files_of(folder: Path) -> dict[str, tuple[bytes, int]]:
    """The bytes of each file of predictions, and when it was written."""
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.glob("out*")}


@pytest.mark.parametrize("other", [{"backend": "bm25"}, {"top_pages": 3}, {}])
def test_a_second_run_changes_nothing_while_the_first_one_writes(
    other: dict[str, Any], tmp_path: Path, predict: Predict, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 2 * BATCH + 3
    write_inputs(tmp_path, *many(count))
    search = FakeBase.search

    def run_both(
        base: FakeBase, texts: Sequence[str], options: SearchOptions
    ) -> list[list[Answer]]:
        before = files_of(tmp_path)
        monkeypatch.setattr(FakeBase, "search", search)
        with pytest.raises(KbqError, match=r"another kbq process is writing to .*out\.jsonl"):
            predict(**other)
        assert files_of(tmp_path) == before
        monkeypatch.setattr(FakeBase, "search", run_both)
        return search(base, texts, options)

    monkeypatch.setattr(FakeBase, "search", run_both)
    with pytest.raises(KeyboardInterrupt):
        predict(dies_after=1)
    monkeypatch.setattr(FakeBase, "search", search)
    assert len(lines(tmp_path)) == BATCH
    if other:
        before = files_of(tmp_path)
        with pytest.raises(
            KbqError, match=r"was made by a run that differs in (backend|top pages) \(see"
        ):
            predict(**other)
        assert files_of(tmp_path) == before
    assert predict() == PredictionOutcome(lines=count, kept=BATCH, without_pages=0)
    assert {line["output"][0]["answer"].partition(" ")[0] for line in lines(tmp_path)} == {
        f"q{n}" for n in range(count)
    }


def describe(folder: Path, **changes: object) -> None:
    """Leaves a description as that of a run which was killed before its first prediction."""
    (folder / "out.jsonl.run.json").write_text(json.dumps({"task": "another"} | changes))


@pytest.mark.parametrize(
    "left",
    [
        lambda folder: (folder / "out.jsonl").touch(),  # killed before the description was written
        lambda folder: (folder / "out.jsonl.run.json.0123456789ab.tmp").write_text('{"ta'),
        describe,  # its predictions were deleted
        lambda folder: [
            leave(folder) for leave in (describe, lambda folder: (folder / "out.jsonl").touch())
        ],
    ],
)
def test_what_a_run_without_predictions_has_left_is_begun_anew(
    left: Callable[[Path], object], tmp_path: Path, predict: Predict
) -> None:
    write_inputs(tmp_path, *many(2))
    left(tmp_path)
    assert predict() == PredictionOutcome(lines=2, kept=0, without_pages=0)
    assert predict().kept == 2
    with pytest.raises(KbqError, match="differs in backend"):
        predict(backend="bm25")


def test_what_is_no_file_is_refused(tmp_path: Path, predict: Predict) -> None:
    write_inputs(tmp_path, *many(2))
    os.mkfifo(tmp_path / "out.jsonl")  # opening it would wait for a reader
    with pytest.raises(KbqError, match=r"out\.jsonl is not a file: give out=… the name of a file"):
        predict()
    (tmp_path / "out.jsonl").unlink()
    (tmp_path / "out.jsonl").mkdir()
    with pytest.raises(KbqError, match=r"out\.jsonl is a folder: give out=… the name of a file"):
        predict()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "manifest.json", "out.jsonl"]


def test_more_lines_than_records_are_refused(tmp_path: Path, predict: Predict) -> None:
    write_inputs(tmp_path, *many(2))
    predict()
    out = tmp_path / "out.jsonl"
    out.write_bytes(2 * out.read_bytes())
    with pytest.raises(
        KbqError,
        match=r"out\.jsonl has more lines than there are records \(2\): delete it to begin",
    ):
        predict()


@pytest.mark.parametrize(
    "change", [lambda lines: lines[1:], lambda lines: lines[::-1], lambda lines: ["x", lines[1]]]
)
def test_predictions_that_were_changed_since_are_refused(
    change: Callable[[list[str]], list[str]], tmp_path: Path, predict: Predict
) -> None:
    write_inputs(tmp_path, *many(2))
    predict()
    out = tmp_path / "out.jsonl"
    out.write_text("".join(f"{line}\n" for line in change(out.read_text().splitlines())))
    before = files_of(tmp_path)
    with pytest.raises(
        KbqError, match=r"out\.jsonl:1 is not the prediction of .*: lines have been changed since"
    ):
        predict()
    assert files_of(tmp_path) == before


def test_the_same_records_may_have_another_name(tmp_path: Path, predict: Predict) -> None:
    write_inputs(tmp_path, *many(2))
    predict()
    beside = tmp_path / "out.jsonl.run.json"
    beside.write_text(json.dumps(json.loads(beside.read_text()) | {"inputs": {"name": "in.xz"}}))
    assert predict().kept == 2


@pytest.mark.parametrize(
    "change",
    [
        "task",
        "inputs",
        "option",
        "backend",
        "weights",
        "text",
        "encoder",
        "index",
        "knowledge base",
        "pages",
    ],
)
def test_the_file_of_another_run_is_refused(tmp_path: Path, predict: Predict, change: str) -> None:
    write_inputs(tmp_path, *many(2))
    predict()
    before = (tmp_path / "out.jsonl").read_bytes()
    if change == "inputs":
        write_inputs(tmp_path, *many(3))
    other = {
        "task": "task, answer",
        "inputs": "queries",
        "option": "top pages",
        "text": "with text",
    }
    other |= {"encoder": "query encoder"}
    message = (
        f"was made by a run that differs in {other.get(change, change)} (see out.jsonl.run.json): "
        "choose"
    )
    with pytest.raises(KbqError, match=re.escape(message)):
        predict(
            TITLES if change == "task" else TASK,
            top_pages=3 if change == "option" else 20,
            backend="hybrid" if change == "backend" else "auto",
            bm25_weight=1.0 if change == "weights" else None,
            with_text=change == "text",
            encoder="g" if change == "encoder" else "f",
            index="compact" if change == "index" else "exact",
            pages=1 if change == "knowledge base" else 3,
            some_pages="d" if change == "pages" else "",
        )
    assert (tmp_path / "out.jsonl").read_bytes() == before


def test_an_option_that_kbq_does_not_know_any_more_is_another_run(
    tmp_path: Path, predict: Predict
) -> None:
    write_inputs(tmp_path, *many(2))
    predict()
    beside = tmp_path / "out.jsonl.run.json"
    written = json.loads(beside.read_text())
    beside.write_text(json.dumps(written | {"older_option": None}))
    with pytest.raises(KbqError, match=r"differs in older option \(see"):
        predict()
    del written["index"]
    beside.write_text(json.dumps(written))
    with pytest.raises(KbqError, match=r"differs in index \(see"):
        predict()


def test_a_file_that_kbq_did_not_make_is_refused(tmp_path: Path, predict: Predict) -> None:
    write_inputs(tmp_path, *many(1))
    (tmp_path / "out.jsonl").write_text("precious\n")
    with pytest.raises(KbqError, match="was not made by kbq"):
        predict()
    assert (tmp_path / "out.jsonl").read_text() == "precious\n"


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ({"input": "q"}, ":2: no id: write KILT records"),
        ({"id": " ", "input": "q"}, ":2: no id"),
        ({"id": None, "input": "q"}, ":2: no id"),
        ({"id": 1}, ":2: no input"),
        ({"id": 1, "input": 7}, ":2: no input"),
        ({"id": "0", "input": "q"}, ":2: id 0 is also in line 1"),
        ({"id": 1, "input": "nothing"}, ":2: the query 'nothing' is empty"),
    ],
)
def test_inputs_that_cannot_be_asked_are_all_named(
    tmp_path: Path, predict: Predict, record: object, problem: str
) -> None:
    write_inputs(tmp_path, *many(1), record, {"id": 9})
    with pytest.raises(QueryError) as caught:
        predict()
    assert caught.value.problems[0].startswith(f"{tmp_path / 'in'}{problem}")
    assert len(caught.value.problems) == 2
    assert not (tmp_path / "out.jsonl").exists()


def test_a_task_that_fails_is_named_with_the_line(tmp_path: Path, predict: Predict) -> None:
    write_inputs(tmp_path, {"id": 1, "input": "a [SEP] other"}, {"id": 2, "input": "a [SEP] r"})
    with pytest.raises(KbqError, match=r"task broken fails at .*in:2: KeyError: 'object'"):
        predict(BROKEN)


def test_an_empty_input_file_is_refused(tmp_path: Path, predict: Predict) -> None:
    write_inputs(tmp_path)
    with pytest.raises(QueryError, match="holds no record"):
        predict()


@pytest.mark.parametrize("content", ["{", "junk", "[1]", "7"])
def test_a_damaged_description_is_said(content: str, tmp_path: Path, predict: Predict) -> None:
    write_inputs(tmp_path, *many(2))
    predict()
    (tmp_path / "out.jsonl.run.json").write_text(content)
    with pytest.raises(
        KbqError, match=r"out\.jsonl\.run\.json is damaged .*: choose another out=…, or delete it"
    ):
        predict()
