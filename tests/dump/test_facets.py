"""Facets: what pages have in common by their metadata; `kbq pages` lists and counts by it."""

import json
from pathlib import Path
from typing import Any

import pytest

from kbq.__main__ import main
from kbq.corpus.pages import Page
from kbq.dump.facets import Facets, values_of
from kbq.errors import KbqError
from kbq.kb import KnowledgeBase

METADATA: list[dict[str, Any]] = [
    {"language": "de", "year": 1900, "file": "a"},
    {"language": "en", "year": 1900, "file": "b", "tags": ["x", "y", "x"]},
    {},
    {"language": "de", "year": 1901, "file": "c", "tags": ["y"], "old": True},
]


def test_values_have_pages_and_pages_have_values() -> None:
    facets = Facets(METADATA)
    assert facets.counts("language") == [("de", 2), ("en", 1)]
    assert facets.counts("tags") == [("y", 2), ("x", 1)]
    assert facets.counts("old") == [("true", 1)]
    chosen = facets.having(["language=de", "year=1901"])
    assert chosen is not None
    assert chosen.tolist() == [3]
    assert facets.counts("tags", chosen) == [("y", 1)]
    assert facets.having([]) is None
    assert [facets.having([one]).tolist() for one in ("language=fr", "language", "file==")] == [[], [], []]  # type: ignore[union-attr]


def test_fields_whose_values_are_of_one_page_each_do_not_sort_pages() -> None:
    assert Facets([{"kind": "a", "file": str(n), "year": n // 5} for n in range(10)]).shared() == ["kind", "year"]


@pytest.mark.parametrize(
    ("metadata", "message"),
    [(METADATA, "no page has metadata 'nix': the fields are language, year, file, tags, old"), ([{}], "has any")],
)
def test_an_unknown_field_is_named_with_those_there_are(metadata: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(KbqError, match=message):
        Facets(metadata).having(["nix=1"])


@pytest.mark.parametrize("value", ["", "x" * 201, {"a": 1}, [["x"]], None])
def test_what_is_no_short_value_is_none(value: object) -> None:
    assert values_of(value) == []


def test_pages_are_listed_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pages = [Page(f"p{n}", f"Title {n}", ["A text."], metadata=fields) for n, fields in enumerate(METADATA)]
    KnowledgeBase.build(pages, tmp_path / "kb", device="cpu", bm25=False)

    def kbq(*options: str) -> str:
        monkeypatch.setattr("sys.argv", ["kbq", "pages", str(tmp_path / "kb"), *options])
        with pytest.raises(SystemExit):
            main()
        return capsys.readouterr().out

    assert kbq("--where", "language=de") == "p0\tTitle 0\np3\tTitle 3\n"
    assert kbq("title 3", "--where", "language=de") == "p3\tTitle 3\n"
    assert kbq("--by", "language") == "2\tde\n1\ten\n"
    assert kbq("--by", "year", "--where", "language=de", "--limit", "1") == "1\t1900\n"
    assert json.loads(kbq("--by", "language", "--json")) == {
        "by": "language",
        "values": [{"value": "de", "pages": 2}, {"value": "en", "pages": 1}],
    }
