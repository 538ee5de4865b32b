"""Documents: the page of a PDF is drawn beside a claim, and nothing but PDFs of the knowledge base
is given away.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import expect
from pdfs import column, pdf

from kbq.corpus.pages import Page
from kbq.kb import KnowledgeBase

from .conftest import Running, running

pytest.importorskip("pypdfium2", reason="PDF needs it")

TEXT = "Ada was born in London."
PLACE: dict[str, Any] = {"page": "a/ada.pdf#page=2", "paragraph": 0, "start": 16, "end": 22}


@pytest.fixture(scope="module")
def folder(judging_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A knowledge base whose documents lie beside it."""
    folder = tmp_path_factory.mktemp("kbs") / "ada"
    ids = ("a/ada.pdf#page=2", "a/ada.pdf#page=9", "torn.pdf#page=1", "none.pdf#page=1", "ada.html")
    outside = ("../secret.pdf#page=1", "/etc/secret.pdf#page=1", "link.pdf#page=1")
    KnowledgeBase.build(
        [Page(one, "Ada", [TEXT]) for one in (*ids, *outside)], folder, judging_model, device="cpu"
    )
    documents = folder.with_name("ada.documents")
    (documents / "a").mkdir(parents=True)
    (documents / "a" / "ada.pdf").write_bytes(pdf(column(["Nothing."]), column([TEXT])))
    (documents / "torn.pdf").write_bytes(b"%PDF-1.4 torn")
    (documents / "ada.html").write_text(f"<p>{TEXT}", "utf-8")
    folder.with_name("secret.pdf").write_bytes(pdf(column(["A secret."])))
    (documents / "link.pdf").symlink_to(folder.with_name("secret.pdf"))
    return folder


@pytest.fixture(scope="module")
def with_documents(folder: Path) -> Iterator[Running]:
    with running({"ada": folder}) as service:
        yield service


def test_the_page_of_a_pdf_is_drawn(with_documents: Running) -> None:
    whole, part = (
        with_documents.client.get("/document", params=PLACE | {"part": part})
        for part in (False, True)
    )
    assert (whole.status_code, whole.headers["content-type"]) == (200, "image/png")
    assert [one.content[16:24].hex() for one in (whole, part)] == [
        "000004b000000640",
        "0000029400000168",
    ]


@pytest.mark.parametrize(
    ("page_id", "status", "said"),
    [
        ("a/ada.pdf#page=9", 422, "it has no page 9 but 2 pages"),
        ("torn.pdf#page=1", 422, "it cannot be drawn"),
        ("none.pdf#page=1", 404, "its PDF is not beside the knowledge base"),
        ("ada.html", 404, "its PDF is not beside the knowledge base"),
        ("../secret.pdf#page=1", 404, "its PDF is not beside"),
        ("/etc/secret.pdf#page=1", 404, "its PDF is not beside"),
        ("link.pdf#page=1", 404, "its PDF is not beside"),  # to a file outside
        ("unknown.pdf#page=1", 404, "ada has no page"),
    ],
)
def test_what_cannot_be_drawn_is_said(
    with_documents: Running, page_id: str, status: int, said: str
) -> None:
    answer = with_documents.client.get("/document", params=PLACE | {"page": page_id})
    assert answer.status_code == status
    assert said in answer.json()["detail"]
    assert str(with_documents.services.kbs.named().kb.folder.parent) not in answer.text


def test_the_document_is_beside_the_claim(browser: Any, with_documents: Running) -> None:
    tab = browser.new_page()
    claim = {"subject": "Ada", "relation": "born", "value": "London", "probability": 0.9, "accepted": True,
             "title": "Ada", "sentence": TEXT, "sentence_start": 0, "says_the_same": 1, **PLACE}  # fmt: skip
    claim["page_id"] = claim.pop("page")
    html = claim | {"relation": "died", "page_id": "ada.html"}
    torn = claim | {"relation": "lived", "page_id": "torn.pdf#page=1"}
    cell: dict[str, Any] = {
        "subject": "Ada",
        "type": None,
        "values": "one",
        "triples": [""],
        "views": [[{"fact": ""}]],
    }
    cell |= {"rows": [0], "column": 0}
    lines = [cell | {"relation": one["relation"], "claims": [one]} for one in (claim, html, torn)]
    answer = "".join(
        f"{json.dumps(line)}\n" for line in (*lines, {"columns": [], "rows": [], "counts": {}})
    )
    tab.route(
        "**/v1/fill", lambda route: route.fulfill(body=answer, content_type="application/x-ndjson")
    )
    tab.goto(f"{with_documents.address}/table?subjects=Ada&others=born,died,lived")
    tab.get_by_text("3 of 3 cells filled").wait_for()
    document = tab.locator("#evidence .document")
    tab.get_by_role("button", name="born, London").click()
    picture = document.locator("img")
    picture.evaluate("one => one.decode()")
    assert picture.evaluate("one => [one.naturalWidth, one.naturalHeight]") == [660, 360]
    expect(tab.locator("#evidence h3")).to_have_text(["page 2 of ada.pdf"])
    for name in ("died", "lived"):  # as read, also where the PDF cannot be drawn
        tab.get_by_role("button", name=f"{name}, London").click()
        expect(document.locator("mark")).to_have_text("London")
        expect(document.locator("p")).to_have_text([TEXT])
    tab.close()
