"""Open questions: read question sets of open-domain question answering as KILT records.

| set | a file is |
|---|---|
| KILT, BEIR | lines of records, which stay as they are |
| the papers' own | one object `{"data": [{"id", "question", "answers": [...]}]}` |
| SQuAD | the same with `{"title", "paragraphs": [{"qas": [...]}]}` |
| DrQA: CuratedTREC, WebQuestions | lines `{"question", "answer": [...]}` |
| DPR | an array of `{"question", "answers": [...]}` |
| MRQA | a line `{"header": …}`, then lines `{"context", "qas": [{"qid", "question", "answers"}]}` |
| TriviaQA | one object `{"Data": [{"QuestionId", "Question", "Answer": {"Value", "Aliases"}}]}` |

A question without an id gets its number in the file, from 1.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from kbq.errors import KbqError, QueryError
from kbq.storage.lines import BadLine, Line, parse_json_lines, read_lines, refuse, whole_text
from kbq.storage.records import parsed_json

# How a file begins that is one object, and how one that has questions in lines or in an array.
DOCUMENT = re.compile(r'\s*\{[^{\[]*"[dD]ata"\s*:\s*\[')
QUESTIONS = re.compile(
    r'\s*\[?\s*\{(\s*"header"\s*:|(?![^\n]*"input"\s*:)[^\n]*"(question|qas)"\s*:)'
)
HEAD = 400  # characters that tell the format
# keys, of which a question has one each.
ID = ("id", "qid", "QuestionId")
TEXT = ("question", "Question")
ANSWERS = ("answers", "answer", "Answer")


def has_open_questions(path: Path) -> bool:
    """Return whether a file is one of these question sets, and not KILT's or BEIR's."""
    if not path.is_file():
        return False
    try:
        head, _ = _begun(read_lines(str(path), QueryError))
    except QueryError:  # an XLSX file, or a table that is not UTF-8
        return False
    return bool(DOCUMENT.match(head) or QUESTIONS.match(head))


def read_questions(
    source: str, error: type[KbqError] = QueryError, on_bad_line: BadLine = refuse
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the KILT record of each question with its line or, in one object, its number."""
    head, lines = _begun(read_lines(source, error, on_bad_line))
    items: Iterable[tuple[int, dict[str, Any]]]
    if DOCUMENT.match(head):
        items = enumerate(_in_document(whole_text(lines, source, error, "\n"), source, error), 1)
    else:
        items = parse_json_lines(lines, source, error, on_bad_line)

    count = 0
    for number, item in items:
        try:
            questions = list(_questions(item))
        except (TypeError, KeyError) as problem:
            on_bad_line(error(f"{source}:{number}: has no list of questions ({problem!r:.60})"))
            continue
        for question in questions:
            count += 1
            try:
                yield number, _kilt_record(question, count)
            except (TypeError, AttributeError, KeyError) as problem:
                on_bad_line(
                    error(f"{source}:{number}: is no question with its answers ({problem!r:.60})")
                )


def _begun(lines: Iterator[Line]) -> tuple[str, Iterator[Line]]:
    """Return the beginning of a file, and all its lines."""
    begun: list[Line] = []
    head = ""
    for line in lines:
        begun.append(line)
        head += line[1].strip() + " "
        if len(head) > HEAD:
            break
    return head, chain(begun, lines)


def _in_document(text: str, source: str, error: type[KbqError]) -> list[dict[str, Any]]:
    """Return the questions in a JSON document. Raises the error if it has none."""
    try:
        document = parsed_json(text)
    except ValueError as problem:
        raise error(f"{source}: is not JSON ({problem}): download it again") from None
    items = document.get("data", document.get("Data"))
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise error(f'{source}: "data" must be a list of questions {{"id", "question", "answers"}}')
    return items


def _questions(item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the questions of a line of a file, or of an article of SQuAD."""
    if "header" in item:
        return
    if "paragraphs" in item:
        for paragraph in item["paragraphs"]:
            yield from paragraph["qas"]
    elif "qas" in item:
        yield from item["qas"]
    else:
        yield item


def _kilt_record(question: dict[str, Any], count: int) -> dict[str, Any]:
    """Return a question of another data set as a record of KILT."""
    text = next((question[key] for key in TEXT if key in question), None)
    if "input" in question or text is None:
        return question
    identity = next((question[key] for key in ID if key in question), count)
    given: Any = next((question[key] for key in ANSWERS if key in question), [])
    return {
        "id": str(identity),
        "input": text,
        "output": [{"answer": answer} for answer in _texts(given)],
    }


def _texts(answers: Any) -> list[str]:
    """Return the answers in any of the forms that data sets give them."""
    if isinstance(answers, str):
        return [answers]
    if isinstance(answers, Mapping):  # TriviaQA; data sets of the Hugging Face hub
        return (
            list(answers["text"]) if "text" in answers else [answers["Value"], *answers["Aliases"]]
        )
    texts = []
    for answer in answers:
        if isinstance(answer, str):
            texts.append(answer)
        else:
            texts.append(answer["text"])
    return list(dict.fromkeys(texts))


def questions_by_id(path: Path) -> dict[str, str]:
    """Read the texts of questions by id, for KILT's TriviaQA, which leaves them out."""
    texts = {
        str(record["id"]): str(record["input"])
        for _, record in read_questions(str(path))
        if "input" in record
    }
    if not texts:
        raise QueryError(
            f"{path} holds no question: give TriviaQA's own file, such as unfiltered-web-dev.json"
        )
    return texts
