"""Doors: Python, the command, the page, the API, a model's tools and OpenRefine fill the same cells
alike.
"""

import csv
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from browsing import expect
from command_line import Run

from kbq.corpus.pages import Page
from kbq.corpus.readers import read_corpus
from kbq.kb import KnowledgeBase

from .conftest import Running, running
from .test_tools import called, in_memory

Values = list[str]  # of each subject and relation, in order; "": the cell is empty
PATIENCE = 300  # seconds: machines may be busy
TAILOR = "Josef Madersperger"
SUBJECTS = [
    TAILOR, "Marie Curie", "Isaac Newton", "Ada Lovelace", "Charles Darwin", "Zaha Hadid", "Kilimanjaro",
    "Emil Zátopek", "Frida Kahlo", "Zork Blah",
]  # fmt: skip
RELATIONS = ["place of birth", "place of death", "date of birth", "date of death", "spouse"]
# He was not born there, as far as it says.
TEXT = "Josef Madersperger, a tailor, died in Vienna on 2 October 1850."


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service with some pages of the sample, and one that says of two relations what only one of
    them can have.
    """
    sample = Path(__file__).parents[2] / "kbq" / "sample" / "articles.jsonl"
    pages = [page for page in read_corpus(sample) if page.title in SUBJECTS]
    folder = tmp_path_factory.mktemp("kbs") / "small"
    KnowledgeBase.build([*pages, Page("T1", TAILOR, [TEXT])], folder, device="cpu")
    with running({"small": folder}) as service:
        service.client.timeout = PATIENCE
        yield service


@pytest.fixture(scope="module")
def filled(small: Running) -> Values:
    """What Python fills in."""
    with KnowledgeBase.open(folder_of(small), device="cpu") as kb:
        table = kb.fill([{"subject": name} for name in SUBJECTS], RELATIONS)
    return [str(row.get(relation) or "") for row in table.rows for relation in RELATIONS]


def folder_of(service: Running) -> Path:
    (one,) = service.services.kbs
    return one.kb.folder


def test_the_rules_of_a_row_decide(filled: Values) -> None:
    assert (len(filled), 10 <= sum(map(bool, filled)) <= 45) == (50, True)
    assert filled[:2] == ["", "Vienna"]


def test_the_command(small: Running, filled: Values, tmp_path: Path, run: Run) -> None:
    (tmp_path / "t.csv").write_text("\n".join(["subject", *SUBJECTS]), "utf-8")
    assert (
        run(
            "fill", "t.csv", "--kb", folder_of(small), "--relations", *RELATIONS, "--out", "out.csv"
        ).status
        == 0
    )
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        assert [row[relation] for row in csv.DictReader(file) for relation in RELATIONS] == filled


def test_the_api(small: Running, filled: Values) -> None:
    body = {"subjects": SUBJECTS, "relations": RELATIONS}
    *cells, last = [
        json.loads(line) for line in small.client.post("/v1/fill", json=body).text.splitlines()
    ]
    assert [(cell["subject"], cell["relation"]) for cell in cells] == [
        (s, r) for s in SUBJECTS for r in RELATIONS
    ]
    streamed = [
        "".join(claim["value"] for claim in cell["claims"] if claim["accepted"]) for cell in cells
    ]
    assert streamed == filled  # whatever is streamed is final
    assert [row.get(relation) or "" for row in last["rows"] for relation in RELATIONS] == filled


def test_the_page(browser: Any, small: Running, filled: Values, tmp_path: Path) -> None:
    tab = browser.new_page()
    tab.goto(f"{small.address}/table")
    tab.get_by_label("Subjects, one a line").fill("\n".join(SUBJECTS))
    tab.get_by_label("Others").fill(", ".join(RELATIONS))
    tab.get_by_role("button", name="Fill").click()
    tab.get_by_text(f"{sum(map(bool, filled))} of 50 cells filled").wait_for()
    cells = tab.locator("#cells .cell").filter(has_not_text="left empty")
    expect(cells.locator(".text")).to_have_text(list(filter(None, filled)))
    with tab.expect_download() as download:
        tab.get_by_role("button", name="CSV").click()
    download.value.save_as(tmp_path / "page.csv")
    with (tmp_path / "page.csv").open(encoding="utf-8", newline="") as file:
        assert [row[relation] for row in csv.DictReader(file) for relation in RELATIONS] == filled
    tab.close()


def test_a_models_tools(small: Running, filled: Values) -> None:
    (served,) = small.services.kbs
    asked = {"subjects": SUBJECTS, "relations": RELATIONS}
    with ThreadPoolExecutor(1) as pool:  # a browser has the event loop of this thread
        found = pool.submit(
            in_memory, served, lambda client: called(client, "fill_table", **asked)
        ).result()
    values = [row["cells"][relation] for row in found["rows"] for relation in RELATIONS]
    assert [value["value"] if value else "" for value in values] == filled


def test_openrefine(small: Running, filled: Values) -> None:
    titles = {
        one["title"]: one["id"] for one in small.client.get("/v1/titles?limit=50").json()["titles"]
    }
    known = [name for name in SUBJECTS if name in titles]
    assert len(known) > 5
    extend = {
        "ids": [titles[name] for name in known],
        "properties": [{"id": name} for name in RELATIONS],
    }
    rows = small.client.post("/reconcile", data={"extend": json.dumps(extend)}).json()["rows"]
    cells = [rows[titles[name]][relation] for name in known for relation in RELATIONS]
    values = [
        "".join(cell.get("str") or cell.get("name") or cell.get("date") or "" for cell in one)
        for one in cells
    ]
    expected = [filled[SUBJECTS.index(name) * 5 + place] for name in known for place in range(5)]
    assert list(map(bool, values)) == list(map(bool, expected))
