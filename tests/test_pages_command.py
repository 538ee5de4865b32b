"""`kbq pages`: the pages of a knowledge base are listed, also by their metadata."""

from pathlib import Path
from typing import Any

import pytest
from command_line import Run

from kbq.corpus.pages import Page, has_value
from kbq.kb import KnowledgeBase

METADATA: list[dict[str, Any]] = [
    {"language": "de", "year": 1900, "file": "a"},
    {"language": "en", "year": 1900, "file": "b", "tags": ["x", "y", "x"]},
    {},
    {"language": "de", "year": 1901, "file": "c", "tags": ["y"], "old": True},
]


@pytest.mark.parametrize(
    ("value", "text", "has"),
    [("a", "a", True), (["a", "b"], "b", True), (1900, "1900", True), (True, "true", True), (False, "true", False),
     ("", "", True), (None, "", False), (None, "None", False), ({"a": 1}, "{'a': 1}", False), ([["x"]], "x", False)],
)  # fmt: skip
def test_a_field_has_a_value_as_it_is_written(value: object, text: str, has: bool) -> None:
    assert has_value({"field": value}, "field", text) is has


@pytest.fixture(scope="module")
def kb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kbs") / "kb"
    pages = [
        Page(f"p{n}", f"Title {n}", ["A text."], metadata=fields)
        for n, fields in enumerate(METADATA)
    ]
    KnowledgeBase.build(pages, folder, device="cpu", bm25=False)
    return folder


@pytest.mark.parametrize(
    ("options", "printed"),
    [
        (["--where", "language=de"], "p0\tTitle 0\np3\tTitle 3\n"),
        (["--where", "language=de", "--where", "year=1901"], "p3\tTitle 3\n"),
        (["--where", "language=de", "--limit", "1"], "p0\tTitle 0\n"),
        (["title 3", "--where", "tags=y"], "p3\tTitle 3\n"),
        (["--where", "language=fr"], ""),
        (["--where", "file=="], ""),
    ],
)
def test_pages_are_listed_by_their_metadata(
    kb: Path, options: list[str], printed: str, run: Run
) -> None:
    assert run("pages", kb, *options)[:2] == (0, printed)


def test_an_unknown_field_is_named_with_those_there_are(kb: Path, run: Run) -> None:
    told = run("pages", kb, "--where", "nix=1")
    said = "no page has metadata 'nix': the fields are language, year, file, tags, old"
    assert (told.status, said in " ".join(told.err.split())) == (2, True)
