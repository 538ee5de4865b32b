"""Files of the page's tables: sheets, encodings and columns are told as they are read; exports are
the command's.
"""

import json
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from browsing import expect

from kbq.kb import KnowledgeBase
from kbq.tables.outputs import export, read_claims
from kbq.tables.tables import read_table

from .conftest import Running
from .test_page import saved

pytestmark = pytest.mark.usefixtures("modest")


def read(service: Running, name: str, content: bytes, **options: str) -> Any:
    answer = service.client.post("/table/read", params={"name": name, **options}, content=content)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.fixture
def workbook(tmp_path: Path) -> bytes:
    """Two sheets with values, and an empty one."""
    book = openpyxl.Workbook()
    book.active.title = "Notes"
    book.active.append(["text"])
    book.active.append(["see below"])
    book.create_sheet("Empty")
    people = book.create_sheet("People & co")
    for row in (["Nr", "Who", "born"], [1, "Marie Curie", None], [2, "Isaac Newton", 1643]):
        people.append(row)
    book.save(tmp_path / "book.xlsx")
    return (tmp_path / "book.xlsx").read_bytes()


def test_a_sheet_of_several_is_chosen(service: Running, workbook: bytes) -> None:
    first = read(service, "book.xlsx", workbook)
    assert (first["sheets"], first["sheet"], first["columns"]) == (
        ["Notes", "People & co"],
        "Notes",
        ["text"],
    )
    second = read(service, "book.xlsx", workbook, sheet="People & co")
    assert (second["sheet"], second["columns"]) == ("People & co", ["Nr", "Who", "born"])
    assert second["rows"] == [["1", "Marie Curie", ""], ["2", "Isaac Newton", "1643"]]
    assert second["subject"] == "Who"
    answer = service.client.post(
        "/table/read", params={"name": "b.xlsx", "sheet": "None"}, content=workbook
    )
    assert (answer.status_code, "the file has no sheet 'None'" in answer.json()["detail"]) == (
        422,
        True,
    )


def test_a_guessed_encoding_is_told(service: Running) -> None:
    found = read(service, "t.csv", "name;place\nJosé;Zürich\n".encode("cp1252"))
    assert found["rows"] == [["José", "Zürich"]]
    assert any("cp1252" in note for note in found["notes"]), found["notes"]
    assert read(service, "t.csv", b"name;place\nJose;Bern\n")["notes"] == []


@pytest.mark.parametrize(
    ("content", "subject"),
    [
        ("Nr,Name\n1,Marie Curie\n2,Isaac Newton\n", "Name"),
        ("Department,Head\nPhysics,marie curie\nPhysics,ISAAC NEWTON\n", "Head"),  # titles of pages
        (
            "url,note,who\nhttp://a.org,a long story,Zork Blah\nhttp://b.org,another one,Blah "
            "Zork\n",
            "who",
        ),
        ("a,b\nX,Y\n", "a"),
        ("id,year\n7,1990\n8,1991\n", "id"),
        ("a,b\n", "a"),
    ],
)
def test_the_column_of_subjects_is_guessed_by_content(
    content: str, subject: str, service: Running
) -> None:
    assert read(service, "t.csv", content.encode())["subject"] == subject


@pytest.mark.parametrize("to", ["rdf", "quickstatements"])
def test_an_export_of_the_page_is_that_of_the_command(
    to: Any, service: Running, sample: KnowledgeBase, tmp_path: Path
) -> None:
    relations = ["@place of birth", "@date of birth"]
    sample.fill(
        [{"subject": "Marie Curie"}, {"subject": "Ada Lovelace"}],
        relations,
        out=tmp_path / "filled.csv",
    )
    ids = tmp_path / "ids.tsv"
    ids.write_text("name\tid\nMarie Curie\tQ7186\nWarsaw\tQ270\n", "utf-8")
    export(tmp_path / "filled.claims.jsonl", to, tmp_path / "out", ids=ids)
    claims = [one for one in read_claims(tmp_path / "filled.claims.jsonl") if one.accepted]
    values = [{"relation": f"@{one.relation}", "claim": one.to_dict()} for one in claims]
    given = {"to": to, "values": values, "ids": {"Marie Curie": "Q7186", "Warsaw": "Q270"}}
    answer = service.client.post("/table/export", json=given)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    written = (tmp_path / "out").read_text("utf-8").splitlines()
    assert written
    assert found["lines"] == written
    if to == "quickstatements":
        left = (tmp_path / "out.left-out.jsonl").read_text("utf-8").splitlines()
        assert found["left_out"] == list(map(json.loads, left))
        todo = read_table(tmp_path / "out.ids-todo.tsv").rows
        assert list(found["lacking"].items()) == [(row["name"], int(row["claims"])) for row in todo]
        assert "Ada Lovelace" in found["lacking"]


def test_what_is_typed_is_exported_without_a_reference(service: Running) -> None:
    typed = {"subject": "Marie Curie", "relation": "@date of birth", "value": "6 November 1867"}
    value = {"relation": "@date of birth", "typed": typed}
    given = {"to": "quickstatements", "values": [value], "ids": {"Marie Curie": "Q7186"}}
    answer = service.client.post("/table/export", json=given)
    assert answer.json()["lines"] == ["Q7186\tP569\t+1867-11-06T00:00:00Z/11"]


def test_a_value_that_is_no_claim_is_refused(service: Running) -> None:
    given = {"to": "rdf", "values": [{"relation": "spouse", "claim": {"value": "x"}}]}
    answer = service.client.post("/table/export", json=given)
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith("values[0] is no claim")


def test_q_numbers_are_read_as_the_command_reads_them(service: Running) -> None:
    answer = service.client.post(
        "/table/ids", params={"name": "ids.tsv"}, content=b"name\tid\nMarie Curie\tQ7186\n"
    )
    assert answer.json()["ids"]["Marie Curie"] == "Q7186"
    answer = service.client.post(
        "/table/ids", params={"name": "ids.csv"}, content=b"name,id\nMarie Curie,\n"
    )
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith("the file has no Q-number")


@pytest.fixture
def tab(browser: Any) -> Any:
    """A tab; nothing may be said on its console."""
    context = browser.new_context(accept_downloads=True)
    opened = context.new_page()
    said: list[str] = []
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    yield opened
    assert said == []
    context.close()


def test_a_sheet_becomes_quickstatements_in_a_browser(
    tab: Any, service: Running, workbook: bytes, tmp_path: Path
) -> None:
    (tmp_path / "ids.tsv").write_text("name\tid\nMarie Curie\tQ7186\nWarsaw\tQ270\n", "utf-8")
    tab.goto(f"{service.address}/table")
    tab.locator("#upload").set_input_files(
        files=[{"name": "book.xlsx", "mimeType": "", "buffer": workbook}]
    )
    tab.get_by_label("Sheet").select_option("People & co")
    tab.get_by_text("2 rows, 3 columns").wait_for()
    expect(tab.get_by_label("Column of subjects")).to_have_value("Who")
    assert tab.locator("#offered").inner_text().split() == ["Nr", "born"]
    tab.get_by_text("place of birth", exact=True).click()
    tab.get_by_role("button", name="Fill", exact=True).click()
    tab.get_by_text("2 of 2 cells filled").wait_for()
    tab.get_by_label("a table of names").set_input_files(str(tmp_path / "ids.tsv"))
    tab.get_by_text("2 names with Q-numbers, from ids.tsv.").wait_for()
    with tab.expect_download() as download:
        tab.get_by_role("button", name="QuickStatements").click()
    download.value.save_as(tmp_path / "facts.qs")
    (line,) = (tmp_path / "facts.qs").read_text("utf-8").splitlines()
    assert line.split("\t")[:3] == ["Q7186", "P19", "Q270"]
    expect(tab.locator("#wikidata-said")).to_contain_text("1 command. 1 value cannot be one")
    todo = saved(tab, "Names without a number", tmp_path).read_text("utf-8").splitlines()
    assert todo[:2] == ["name\tid\tclaims", "Isaac Newton\t\t1"]
