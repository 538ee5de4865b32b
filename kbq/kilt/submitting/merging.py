"""Merging: the answers of one system and the pages of another become one prediction file."""

import json
from collections.abc import Iterator
from pathlib import Path

from kbq.errors import EvaluationError
from kbq.kilt.reading.lines import read_records, refuse_replacing, write_lines
from kbq.kilt.reading.parsing import only_output
from kbq.kilt.reading.problems import Problems, UnfitError
from kbq.system.files import run_file


def merge(answers_path: Path, provenance_path: Path, out_path: Path) -> int:
    """Write a line for each answer, with the pages of the same id, and return how many there are.

    Raises:
        EvaluationError: the ids of the files differ, or a record has not exactly one answer or ranking.
    """
    refuse_replacing([out_path], [answers_path, provenance_path])
    if run_file(out_path).exists():
        raise EvaluationError(f"{out_path} was made by kbq predict: choose another --out")
    problems = Problems()
    answers = dict(read_part(answers_path, "answer", problems))
    rankings = dict(read_part(provenance_path, "provenance", problems))
    if not answers and not problems.found:
        raise EvaluationError(f"{answers_path} holds no record")
    for record_id in answers:
        if record_id not in rankings:
            problems.add(provenance_path, None, None, f"has no pages for the answer of id {record_id}")
    for record_id in rankings:
        if record_id not in answers:
            problems.add(answers_path, None, None, f"has no answer for the pages of id {record_id}")
    problems.raise_if_any(f"merging {answers_path} and {provenance_path}")
    return write_lines(out_path, (merged_line(part, rankings[key]) for key, part in answers.items()))


def read_part(path: Path, key: str, problems: Problems) -> Iterator[tuple[str, str]]:
    """Ids and, as JSON to save memory, their record reduced to id, input and the one output with the key."""
    for record_id, line, record in read_records(path, problems):
        try:
            kept = {name: record[name] for name in ("id", "input") if name in record}
            yield record_id, json.dumps({**kept, key: only_output(record, key)[key]})
        except UnfitError as error:
            problems.add(path, line, record_id, str(error))


def merged_line(answer_part: str, ranking_part: str) -> str:
    """The prediction line of an answer and a ranking."""
    record, ranking = json.loads(answer_part), json.loads(ranking_part)
    output = {"answer": record.pop("answer"), "provenance": ranking["provenance"]}
    return json.dumps({**record, "output": [output]}, ensure_ascii=False)
