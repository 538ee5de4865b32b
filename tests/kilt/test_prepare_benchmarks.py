"""The recipe that makes knowledge sources and queries like those of the tables from public files."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

RECIPE = Path(__file__).parents[2] / "recipes" / "prepare_benchmarks.py"


def made(folder: Path, *words: object) -> tuple[list[Any], list[Any]]:
    command = [sys.executable, str(RECIPE), *map(str, words)]
    subprocess.run(command, check=True, capture_output=True, cwd=folder)
    names = ("knowledge_source.jsonl", "queries.jsonl")
    pages, queries = (
        [json.loads(line) for line in (folder / "out" / name).read_text("utf-8").splitlines()]
        for name in names
    )
    return pages, queries


def test_squad(tmp_path: Path) -> None:
    asked = {
        "id": "q",
        "question": "Who wrote it?",
        "answers": [{"text": "Jane Austen", "answer_start": 4}] * 2,
    }
    article = {
        "title": "Emma_(novel)",
        "paragraphs": [{"context": "By Jane Austen.", "qas": [asked]}],
    }
    (tmp_path / "in.json").write_text(json.dumps({"data": [article]}, indent=1))
    pages, queries = made(tmp_path, "squad", "in.json", "out")
    assert [page["text"] for page in pages] == [["Emma (novel)", "By Jane Austen."]]
    where = {
        "wikipedia_id": "0",
        "title": "Emma (novel)",
        "start_paragraph_id": 1,
        "end_paragraph_id": 1,
    }
    outputs = [{"answer": "Jane Austen"}, {"answer": "Jane Austen", "provenance": [where]}]
    assert queries == [{"id": "q", "input": "Who wrote it?", "output": outputs}]


def test_redocred(tmp_path: Path) -> None:
    entities = [[{"name": "Emma"}], [{"name": "Austen"}, {"name": "Jane Austen"}]]
    sentences = [["Emma", "(", "1815", ")", "is", "by", "Austen", "."], ["Read", "it", "."]]
    document = {
        "title": "Emma", "sents": sentences, "vertexSet": entities, "labels": [{"h": 0, "r": "P50", "t": 1}],
    }  # fmt: skip
    (tmp_path / "in.json").write_text(json.dumps([document]))
    (tmp_path / "names.json").write_text('{"P50": "author"}')
    pages, queries = made(tmp_path, "redocred", "in.json", "out", "--relations", "names.json")
    assert pages[0]["text"] == ["Emma", "Emma (1815) is by Austen. Read it."]
    assert (queries[0]["id"], queries[0]["input"]) == (
        "redocred-dev-Emma-0-P50",
        "Emma [SEP] author",
    )
    assert [output["answer"] for output in queries[0]["output"]] == [
        "Austen",
        "Jane Austen",
        "Austen",
    ]


def test_samples_of_kilt_have_the_pages_that_answer(tmp_path: Path) -> None:
    source = [
        {"wikipedia_id": str(n), "wikipedia_title": f"T{n}", "text": [f"T{n}", "x"]}
        for n in range(200)
    ]
    queries = [
        {
            "id": str(n),
            "input": "a [SEP] r",
            "output": [{"answer": "x", "provenance": [{"wikipedia_id": str(n)}]}],
        }
        for n in range(100)
    ]
    for name, lines in (("source", source), ("queries", queries)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    few, many = (
        made(
            tmp_path,
            "kilt",
            "queries.jsonl",
            "out",
            "--source",
            "source.jsonl",
            "--queries",
            count,
            "--pages",
            0,
        )
        for count in (20, 60)
    )
    assert {page["wikipedia_id"] for page in few[0]} == {query["id"] for query in few[1]}
    assert 5 < len(few[1]) < len(many[1]) < 90
    assert {query["id"] for query in few[1]} < {query["id"] for query in many[1]}
