"""Decisions on the server: appended, shared by all who look, read by `kbq fill`; what is none is refused."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kbq.kb import KnowledgeBase
from kbq.tables.decisions import read_decisions

from .conftest import Running, Serve

LINE = {
    "subject": "Marie Curie",
    "relation": "born",
    "value": "Warsaw",
    "decision": "accept",
    "time": "2026",
    "page_id": "S1",
    "x": 1,
}


@pytest.fixture
def keeping(serve: Serve, kb_folder: Path, tmp_path: Path) -> Running:
    return serve({"sample": kb_folder}, decisions=tmp_path / "kept")


def exchanged(service: Running, *decisions: dict[str, Any], since: int = 0) -> dict[str, Any]:
    answer = service.client.post("/v1/decisions", json={"decisions": decisions, "since": since})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_decisions_are_appended_and_read_from_a_place_on(keeping: Running, tmp_path: Path) -> None:
    first = exchanged(keeping, LINE)
    kept = {name: LINE[name] for name in ("subject", "relation", "value", "decision", "time")}
    assert first == {"decisions": [kept], "next": first["next"], "more": False}
    second = exchanged(keeping, LINE | {"value": "", "reviewer": "Eve"}, since=first["next"])
    assert second["decisions"] == [kept | {"value": "", "reviewer": "Eve"}]
    assert exchanged(keeping, since=second["next"]) == {"decisions": [], "next": second["next"], "more": False}
    path = tmp_path / "kept" / "sample.decisions.jsonl"
    assert json.loads(path.read_text().splitlines()[0]) == kept | {
        "reviewer": "", "page_id": "S1", "object": "Warsaw", "page": "S1"
    }  # fmt: skip
    with path.open("ab") as file:
        file.write(b'what somebody has written\n{"subject": "torn by a ki')
    assert exchanged(keeping, LINE | {"decision": "undo"}, since=second["next"])["decisions"] == [
        kept | {"decision": "undo"}
    ]
    path.write_bytes(path.read_bytes().replace(b"what somebody has written\n", b""))
    assert [*read_decisions(path)[("Marie Curie", "born")]] == [""]
    assert exchanged(keeping, since=10_000_000)["decisions"][0] == kept  # of a longer file


def test_a_line_of_any_length_keeps_nobody_from_what_follows(keeping: Running) -> None:
    answer = exchanged(keeping, LINE | {"page_id": "x" * 600_000})
    exchanged(keeping, LINE | {"value": "Kraków"}, since=answer["next"])
    values = [one["value"] for one in answer["decisions"]]
    while answer["more"]:
        answer = exchanged(keeping, since=answer["next"])
        values += [one["value"] for one in answer["decisions"]]
    assert values == ["Kraków"]


def test_what_many_send_at_once_is_all_there(keeping: Running, tmp_path: Path) -> None:
    lines = [[LINE | {"subject": f"{person} {number}"} for number in range(100)] for person in range(10)]
    with ThreadPoolExecutor(10) as pool:
        list(
            pool.map(lambda mine: [exchanged(keeping, *mine[first : first + 10]) for first in range(0, 100, 10)], lines)
        )
    assert len(read_decisions(tmp_path / "kept" / "sample.decisions.jsonl")) == 1000


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (
            {"decisions": [LINE, LINE | {"decision": "acept"}]},
            422,
            "decisions[1] is not a decision: write subject, relation,",
        ),
        ({"decisions": [LINE | {"value": "x" * 10_000}]}, 422, "decisions[0] has a text of 10,000 characters"),
        ({"decisions": [LINE] * 501}, 422, "decisions: "),
        ({"since": -1}, 422, "since: "),
        ({"kb": "../x"}, 404, "there is no knowledge base '../x': choose from sample"),
    ],
)
def test_what_is_none_is_refused_and_nothing_kept(
    body: dict[str, Any], status: int, said: str, keeping: Running, tmp_path: Path
) -> None:
    answer = keeping.client.post("/v1/decisions", json=body)
    assert (answer.status_code, answer.json()["detail"].startswith(said)) == (status, True)
    assert not (tmp_path / "kept").exists()


def test_without_a_folder_browsers_keep_them(service: Running) -> None:
    answer = service.client.post("/v1/decisions", json={"decisions": [LINE]})
    assert (answer.status_code, answer.json()["detail"]) == (
        404, "decisions are not kept here: start kbq serve with --decisions FOLDER",
    )  # fmt: skip


def test_two_people_see_what_the_other_decides(
    browser: Any, serve: Serve, sample: KnowledgeBase, tmp_path: Path
) -> None:
    keeping = serve({"sample": sample.folder}, decisions=tmp_path / "kept")
    address = f"{keeping.address}/table?subjects=Marie+Curie%0AIsaac+Newton&relation=place+of+birth"
    tabs: list[Any] = []
    for name in ("Eve", "Bob"):
        tab = browser.new_context().new_page()
        tab.goto(address)
        tab.get_by_text("2 of 2 cells filled").wait_for()
        tab.get_by_label("Your name").fill(name)
        tab.get_by_label("Your name").press("Escape")
        tab.locator("#cells a.cell").nth(len(tabs)).click()
        with tab.expect_response("**/v1/decisions"):
            tab.keyboard.press("r")
        tabs.append(tab)
    assert tabs[1].locator("a.cell.rejected").count() == 2
    tabs[0].evaluate("dispatchEvent(new Event('focus'))")
    tabs[0].locator("a.cell.rejected").nth(1).wait_for()
    tabs[0].locator("#cells a.cell").nth(1).click()
    assert "rejected “Woolsthorpe”: Bob" in tabs[0].locator("#evidence").inner_text()
    found = read_decisions(tmp_path / "kept" / "sample.decisions.jsonl")
    assert [(one.reviewer, one.choice) for values in found.values() for one in values.values()] == [
        ("Eve", "reject"), ("Bob", "reject"),
    ]  # fmt: skip
    for tab in tabs:
        tab.context.close()
