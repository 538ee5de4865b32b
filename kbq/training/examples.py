"""Examples: reading-comprehension files become passages with their queries.

Formats: SQuAD JSON, Natural Questions with QED annotations (JSON lines), and JSON lines of one passage each:
`{"title", "context", "group", "questions": [{"question", "answers": [{"text", "answer_start"}]}]}`; `group` is
optional and names what near-by negatives share (an article, a relation). An answer may be a text alone, and answers may
be `{"text": [...], "answer_start": [...]}`, as in data sets of the Hugging Face hub.
"""

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from kbq.errors import TrainingError
from kbq.model.queries import QueryTokenizer
from kbq.storage.lines import WHOLE, Line, parse_json_lines, read_lines, whole_text
from kbq.storage.records import parsed_json
from kbq.text.letters import clean_text
from kbq.text.sentences import whole_words

SQUAD = re.compile(r'^\s*\{\s*"data"\s*:|"data"\s*:\s*\[')  # the key of its articles
Files = str | Path | Sequence[str | Path]  # one or several


@dataclass(frozen=True, slots=True)
class TrainingQuery:
    """A query and its answers."""

    id: str
    text: str
    places: tuple[tuple[int, int], ...]  # of the answers, at least one: characters [start, end) of the passage
    answers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Passage:
    """A paragraph with the queries that it answers."""

    title: str
    text: str
    queries: tuple[TrainingQuery, ...]
    group: str


def readable(passages: Sequence[Passage], query_tokenizer: QueryTokenizer) -> list[tuple[int, TrainingQuery]]:
    """Return the queries that an encoder can read, each with the number of its passage."""
    return [
        (number, query)
        for number, passage in enumerate(passages)
        for query in passage.queries
        if query_tokenizer.accepts(query.text)
    ]


@dataclass(frozen=True, slots=True)
class Repairs:
    """Counts of answers that are where the file says, elsewhere in the passage, or not in it."""

    right: int = 0
    moved: int = 0
    lost: int = 0
    doubtful: int = 0  # left out: the file calls the place a guess, or names none and the text occurs several times
    placed: int = 0  # the file names no place: it is that of the text


def as_paths(files: Files) -> list[Path]:
    """Return one path or several as a list."""
    return [Path(files)] if isinstance(files, str | Path) else [Path(file) for file in files]


def read_examples(files: Files, doubtful: bool = False) -> tuple[list[Passage], Repairs]:
    """Read the passages of all files.

    An answer that is not at its place moves to the nearest occurrence of its text, or is left out without one. An
    answer without a place gets the place of its text, if that occurs once. `doubtful`: keep answers whose place the
    file marks as `start_inferred`, or does not name.

    Raises TrainingError if a file has an unknown format, or no passage has a query.
    """
    passages: list[Passage] = []
    repairs, paths = Counter[str](), as_paths(files)
    for path in paths:
        try:
            for title, context, group, questions in _raw_passages(path):
                text = clean_text(context)
                queries = [_query(question, answers, text, doubtful, repairs) for question, answers in questions]
                if answered := tuple(query for query in queries if query):
                    passages.append(Passage(clean_text(title), text, answered, group))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise TrainingError(
                f"{path} is neither SQuAD JSON, QED nor JSON lines of passages with questions: "
                f"{type(error).__name__} {error}"
            ) from None
    if not passages:
        raise TrainingError(f"{', '.join(map(str, paths))}: no passage has a question with an answer in it")
    return passages, Repairs(**repairs)


Placed = tuple[str, int | None]  # an answer, and where it begins, if the file says so
RawQuestion = tuple[dict[str, Any], list[Placed]]
RawPassage = tuple[str, str, str, list[RawQuestion]]  # title, text, group, questions


def set_aside(passages: list[Passage], dev: str | Path | None, seed: int) -> tuple[list[Passage], list[Passage]]:
    """Return passages to train on and passages to score on: the dev file's, or a twentieth that is not trained on.

    Raises TrainingError if nothing would be left to train on.
    """
    if dev is not None:
        return passages, read_examples(dev, doubtful=True)[0]
    shuffled = random.Random(seed).sample(passages, len(passages))
    texts = {passage.text for passage in shuffled[: max(1, len(passages) // 20)]}
    rest = [passage for passage in shuffled if passage.text not in texts]
    if not rest:
        raise TrainingError("one passage is not enough to train and to score: give more, or a --dev file")
    return rest, [passage for passage in shuffled if passage.text in texts]


def _raw_passages(path: Path) -> Iterator[RawPassage]:
    source = str(path)
    lines = read_lines(source, TrainingError)
    first = next((line for line in lines if line[1].strip()), (0, ""))
    if first[1].strip() == "{" or SQUAD.search(first[1][:200]):
        yield from _squad(parsed_json(whole_text(chain([first], lines), source, WHOLE, TrainingError, "\n")))
        return
    yield from _merged(_lines(chain([first], lines), source))


def _lines(lines: Iterable[Line], source: str) -> Iterator[RawPassage]:
    for number, fields in parse_json_lines(lines, source, TrainingError):
        try:
            yield _qed(fields) if "paragraph_text" in fields else _plain(fields)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else f"is not such a passage ({error})"
            raise TrainingError(
                f"{source}:{number}: {what}, there are {', '.join(fields)}: write "
                '{"title", "context", "questions": [{"question", "answers": [{"text", "answer_start"}]}]}'
            ) from None


def _squad(dump: Any) -> Iterator[RawPassage]:
    for article in dump["data"]:
        title = article.get("title", "").replace("_", " ")
        for paragraph in article["paragraphs"]:
            yield title, paragraph["context"], title, _with_answers(paragraph["qas"])


def _qed(line: Any) -> RawPassage:
    answers: list[Placed] = [(line["paragraph_text"][start:end], start) for start, end in line["answer_spans"]]
    question = {"id": str(line["example_id"]), "question": line["question_text"]}
    return line["title_text"], line["paragraph_text"], line["title_text"], [(question, answers)]


def _plain(line: Any) -> RawPassage:
    questions = line.get("questions", [line])
    title = line.get("title", "")
    return title, line["context"], line.get("group", title), _with_answers(questions)


def _with_answers(questions: Any) -> list[RawQuestion]:
    return [(question | {"question": question["question"]}, _placed(question["answers"])) for question in questions]


def _placed(answers: Any) -> list[Placed]:
    if isinstance(answers, dict):
        texts, starts = answers["text"], answers.get("answer_start")
        pairs = list(zip(texts, starts or [None] * len(texts), strict=True))
    else:
        pairs = [(a, None) if isinstance(a, str) else (a["text"], a.get("answer_start")) for a in answers]
    return [(clean_text(text), None if start is None else int(start)) for text, start in pairs]


def _merged(passages: Iterator[RawPassage]) -> Iterator[RawPassage]:
    """Make one passage of lines with the same title and text, wherever they are in the file."""
    merged: dict[tuple[str, str], RawPassage] = {}
    for title, text, group, questions in passages:
        merged.setdefault((title, text), (title, text, group, []))[3].extend(questions)
    yield from merged.values()


def _query(
    question: dict[str, Any], expected_answers: Sequence[Placed], text: str, doubtful: bool, repairs: Counter[str]
) -> TrainingQuery | None:
    """Return the query with the answers that are in the text, None if there is none; count the `repairs`."""
    if question.get("start_inferred") and not doubtful:
        repairs["doubtful"] += 1
        return None
    places: dict[tuple[int, int], None] = {}  # each once
    answers = []
    for wanted, expected in expected_answers:
        occurrences = whole_words(text, wanted) if expected is None and wanted.strip() else []
        place = next(iter(occurrences), None) if expected is None else _place(text, wanted, expected)
        if place is None or (len(occurrences) > 1 and not doubtful):
            repairs["lost" if place is None else "doubtful"] += 1
            continue
        repairs["placed" if expected is None else "right" if place == expected else "moved"] += 1
        answers.append(wanted)
        places[place, place + len(wanted)] = None
    if not places:
        return None
    query_text = clean_text(question["question"])
    return TrainingQuery(str(question.get("id", "")), query_text, tuple(places), tuple(answers))


def _place(text: str, wanted: str, expected: int) -> int | None:
    """Return the occurrence of `wanted` nearest to the expected place."""
    if not wanted.strip():
        return None
    if expected >= 0 and text.startswith(wanted, expected):
        return expected
    before, after = text.rfind(wanted, 0, max(expected, 0) + len(wanted)), text.find(wanted, max(expected, 0))
    places = [place for place in (before, after) if place >= 0]
    return min(places, key=lambda place: abs(place - expected)) if places else None
