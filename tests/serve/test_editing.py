"""New knowledge bases: documents are dropped on the page, shown as they will be read, built, and
asked.
"""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import expect

from kbq.errors import KbqError
from kbq.kb import KnowledgeBase
from kbq.serve.editing import built_in
from kbq.serve.settings import ServeSettings
from kbq.tables.tables import read_table

from .conftest import Running, Serve, running
from .test_page import AXE, axe

pytestmark = pytest.mark.usefixtures("modest")
ADA = b"Ada Quist was a painter. She was born in Oslo on 3 May 1871, and she died in Bergen."
BEN = b"<title>Ben Hofer</title><p>Ben Hofer was a miller. He was born in Linz in 1820.</p>"
BROKEN = b"%PDF-1.4 nothing"


@pytest.fixture(scope="module")
def kbs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the new ones."""
    return tmp_path_factory.mktemp("made") / "kbs"


@pytest.fixture(scope="module")
def editing(sample: KnowledgeBase, kbs: Path) -> Iterator[Running]:
    """A service of the sample that makes others."""
    with running({"sample": sample.folder}, edit=kbs, decisions=kbs) as service:
        yield service


def post(service: Running, address: str, given: object) -> Any:
    answer = service.client.post(address, json=given)
    assert answer.status_code == 200, answer.text
    return answer.json()


def sent(service: Running, name: str, documents: dict[str, bytes]) -> str:
    """Make a knowledge base of documents, which is not built yet; return its name."""
    made: str = post(service, "/new", {"name": name})["name"]
    send(service, made, documents)
    return made


def send(service: Running, name: str, documents: dict[str, bytes]) -> None:
    wanted = post(
        service,
        f"/new/{name}/offer",
        {"files": {path: len(one) for path, one in documents.items()}},
    )
    for path in wanted["wanted"]:
        answer = service.client.post(
            f"/new/{name}/file", params={"path": path}, content=documents[path]
        )
        assert answer.status_code == 200, answer.text


def built(service: Running, name: str, wanted: str = "") -> Any:
    """Build it, and return what is said of it in the end."""
    post(service, f"/new/{name}/build", {"name": wanted or name})
    return ended(service, wanted or name)


def ended(service: Running, name: str) -> Any:
    until = time.monotonic() + 120
    while (facts := service.client.get(f"/new/{name}").json())["state"] in ("waiting", "building"):
        assert time.monotonic() < until, facts
        time.sleep(0.05)
    return facts


@pytest.mark.parametrize(
    "others",
    [
        {"host": "0.0.0.0", "keys": ("k" * 16,), "public_url": ""},
        {"host": "kbq.example", "keys": ("k" * 16,)},
        {"public_url": "https://kbq.example"},
        {"allow_origin": ("https://app.example",)},
    ],
)
def test_documents_come_from_this_machine_alone(others: dict[str, Any]) -> None:
    with pytest.raises(KbqError, match=r"this machine alone, and .* is not this machine"):
        ServeSettings(edit=Path("kbs"), **others)


def test_without_edit_there_is_no_such_page(service: Running) -> None:
    assert service.client.get("/new").status_code == 404
    assert service.client.post("/new", json={"name": "x"}).status_code == 404
    assert ">New<" not in service.client.get("/").text


def test_documents_become_a_knowledge_base_that_is_served(editing: Running, kbs: Path) -> None:
    documents = {
        "a/ada.txt": ADA,
        "ben.html": BEN,
        "film.mov": b"-",
        "old.doc": b"-",
        ".git/x": b"-",
        "bad.pdf": BROKEN,
    }
    name = sent(editing, "Our people: 2024", documents)
    assert name == "Our-people-2024"
    facts = editing.client.get(f"/new/{name}").json()
    assert (facts["state"], facts["files"], facts["bytes"]) == ("open", 3, len(ADA + BEN + BROKEN))
    assert facts["skipped"] == [
        [".mov", "is of no kind that kbq reads", 1],
        [".doc", "is of an old version of Word: save it as .docx", 1],
        ["hidden", "is hidden, or the lock of a program", 1],
    ]
    seen = editing.client.get(f"/new/{name}/preview").json()
    assert [(one["id"], one["title"]) for one in seen["documents"]] == [
        ("a/ada.txt", "ada"),
        ("ben.html", "Ben Hofer"),
    ]
    assert seen["documents"][0]["words"].startswith("Ada Quist was a painter.")
    facts = built(editing, name, "people")
    assert (facts["state"], facts["documents"], facts["pages"], facts["done"]) == ("ready", 2, 2, 3)
    ((left, why),) = facts["left_out"]
    assert left == "bad.pdf"
    assert "cannot be read" in why
    (found,) = editing.query("Ben Hofer [SEP] place of birth", kb="people", k=1)
    assert (found["answers"][0]["text"], found["answers"][0]["page_id"]) == ("Linz", "ben.html")
    assert {"sample", "people"} <= {one.name for one in editing.services.kbs}
    assert built_in(kbs)["people"] == kbs / "people"
    assert (
        editing.client.post("/new/people/file", params={"path": "c.txt"}, content=ADA).status_code
        == 409
    )
    assert editing.client.post("/new/people/discard", json={}).status_code == 409
    assert post(editing, "/new", {"name": "people"})["name"] == "people-2"


def test_500_files_of_which_half_cannot_be_read(editing: Running) -> None:
    documents = {
        f"{number:03}.txt": b"Person %d was born in Oslo." % number for number in range(250)
    }
    documents |= {f"{number:03}.pdf": BROKEN for number in range(250)}
    name = sent(editing, "half", documents)
    facts = built(editing, name)
    assert (facts["state"], facts["files"], facts["documents"], facts["left_out_count"]) == (
        "ready",
        500,
        250,
        250,
    )
    assert (facts["read"], facts["done"], facts["pages"]) == (500, 500, 250)
    assert {left for left, _ in facts["left_out"]} == {
        name for name in documents if name.endswith(".pdf")
    }
    (found,) = editing.query("Person 77 [SEP] place of birth", kb="half", k=1)
    assert found["answers"][0]["text"] == "Oslo"


def test_what_has_arrived_stays_when_the_tab_is_closed_and_the_service_ends(
    serve: Serve, sample: KnowledgeBase, tmp_path: Path
) -> None:
    folders, edit = {"sample": sample.folder}, tmp_path / "kbs"
    documents = {"ada.txt": ADA, "deep/er/ben.html": BEN}
    with running(folders, edit=edit) as first:
        name = sent(first, "half", {"ada.txt": ADA})
    (edit / "half.documents" / ".0123456789ab.tmp").write_bytes(b"torn")
    second = serve(folders, edit=edit)
    assert (
        f'href="/new?name={name}">half</a> <small>1 document</small>'
        in second.client.get("/new").text
    )
    offered = post(
        second, f"/new/{name}/offer", {"files": {path: len(one) for path, one in documents.items()}}
    )
    assert offered == {"wanted": ["deep/er/ben.html"]}
    send(second, name, documents)
    assert built(second, name)["documents"] == 2


def test_a_build_is_stopped_goes_on_and_starts_over_with_other_documents(
    editing: Running, kbs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "kbq.dump.resumable_build.BLOCK_CHARACTERS", 30
    )  # a block for each document
    name = sent(editing, "stopped", {f"{number}.txt": ADA for number in range(40)})
    post(editing, f"/new/{name}/build", {"name": name})
    while not editing.client.get(f"/new/{name}").json()["pages"]:
        time.sleep(0.01)
    post(editing, f"/new/{name}/stop", {})
    facts = ended(editing, name)
    assert facts["state"] == "open"
    assert 0 < facts["pages"] < 40
    assert (kbs / name / "building.json").exists()
    # Which is part of what was built.
    send(editing, name, {"0.txt": ADA + b" She was a teacher, too."})
    assert built(editing, name)["pages"] == 40


def test_a_build_without_any_document_that_can_be_read_fails_and_takes_more(
    editing: Running,
) -> None:
    name = sent(editing, "bad", {"bad.pdf": BROKEN, "worse.pdf": BROKEN})
    facts = built(editing, name)
    assert (facts["state"], facts["left_out_count"]) == ("failed", 2)
    assert facts["problem"] == "the folder contains no pages: check that it is the right file"
    send(editing, name, {"ada.txt": ADA})
    assert built(editing, name)["state"] == "ready"


def test_a_single_corpus_is_read_as_one(editing: Running) -> None:
    line = b'{"id": "1", "title": "Ada Quist", "text": "Ada Quist was born in Oslo."}\n'
    assert built(editing, sent(editing, "corpus", {"pages.jsonl": line}))["pages"] == 1


@pytest.mark.parametrize(
    "path",
    [
        *(
            "../a.txt",
            "/a.txt",
            "a/../../b.txt",
            "a//b.txt",
            "a/./b.txt",
            "..\\a.txt",
            "a\x00.txt",
            "a\n.txt",
            "x/" * 600,
        ),
        *("n" * 300 + ".txt", "", "a.txt/", ".hidden.txt", "film.mov"),
    ],
)
def test_no_file_leaves_its_folder(path: str, editing: Running, kbs: Path) -> None:
    name = post(editing, "/new", {"name": "x"})["name"]
    before = sorted(kbs.parent.rglob("*"))
    answer = editing.client.post(f"/new/{name}/file", params={"path": path}, content=ADA)
    assert answer.status_code == 422, answer.text
    assert sorted(kbs.parent.rglob("*")) == before


@pytest.mark.parametrize("name", ["sample", "SAMPLE", "../x", "a b", ".x", "x" * 65])
def test_a_name_that_cannot_be_is_refused(name: str, editing: Running) -> None:
    made = sent(editing, "mine", {"ada.txt": ADA})
    answer = editing.client.post(f"/new/{made}/build", json={"name": name})
    assert answer.status_code == 422
    assert re.search("already|letters, digits", answer.json()["detail"])
    assert editing.client.get(f"/new/{made}").json()["state"] == "open"


def test_pages_of_other_sites_may_send_nothing(editing: Running) -> None:
    foreign = {"Origin": "https://evil.example"}
    assert editing.client.post("/new", json={"name": "x"}, headers=foreign).status_code == 403
    assert (
        editing.client.post("/new/x/file?path=a.txt", content=b"x", headers=foreign).status_code
        == 403
    )
    assert (
        editing.client.post(
            "/new", content=b'{"name": "x"}', headers={"Content-Type": "text/plain"}
        ).status_code
        == 415
    )


def test_what_is_not_built_can_be_thrown_away(editing: Running, kbs: Path) -> None:
    name = sent(editing, "gone", {"ada.txt": ADA})
    post(editing, f"/new/{name}/discard", {})
    assert not list(kbs.glob("gone*"))
    answer = editing.client.get(f"/new/{name}")
    assert (answer.status_code, "drop its documents again" in answer.json()["detail"]) == (
        404,
        True,
    )


@pytest.fixture
def tab(browser: Any) -> Iterator[Any]:
    """A tab; nothing may be said on its console."""
    context = browser.new_context(accept_downloads=True)
    opened = context.new_page()
    said: list[str] = []
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    yield opened
    assert said == []
    context.close()


def folder_of(tmp_path: Path) -> Path:
    folder = tmp_path / "Town letters"
    (folder / "old").mkdir(parents=True)
    for name, content in {
        "ada.txt": ADA,
        "old/ben.html": BEN,
        "bad.pdf": BROKEN,
        "film.mov": b"-",
    }.items():
        (folder / name).write_bytes(content)
    return folder


def test_the_whole_way_from_a_folder_to_a_table_in_a_browser(
    tab: Any, editing: Running, tmp_path: Path
) -> None:
    tab.goto(editing.address)
    tab.get_by_role("link", name="New").click()
    tab.locator("#folder").set_input_files(str(folder_of(tmp_path)))
    tab.locator(".card h3").nth(1).wait_for()
    expect(tab.locator(".card h3")).to_have_text(["ada", "Ben Hofer"])
    expect(tab.locator("#left-out")).to_contain_text("1 file not sent")
    tab.reload()  # as if the tab had been closed
    expect(tab.get_by_label("Name of the knowledge base")).to_have_value("Town-letters")
    tab.get_by_label("Name of the knowledge base").fill("letters")
    tab.get_by_role("button", name="Build from 3 documents").click()
    tab.get_by_text("letters is ready: 2 documents, 2 pages; 1 document left out.").wait_for()
    tab.get_by_text("1 document left out, as kbq cannot read it").click()
    expect(tab.locator("#left-out li").filter(has_text="bad.pdf")).to_have_count(1)
    tab.get_by_role("link", name="Fill a table", exact=True).last.click()
    tab.get_by_label("Subjects, one a line").fill("Ben Hofer")
    tab.get_by_text("place of birth", exact=True).click()
    tab.get_by_role("button", name="Fill", exact=True).click()
    tab.get_by_text("1 of 1 cells filled").wait_for()
    with tab.expect_download() as download:
        tab.get_by_role("button", name="CSV", exact=True).click()
    download.value.save_as(tmp_path / "table.csv")
    assert read_table(tmp_path / "table.csv").rows == [
        {"subject": "Ben Hofer", "place of birth": "Linz"}
    ]


DROP = """([names, texts]) => {
  const transfer = new DataTransfer();
  names.forEach((name, place) => transfer.items.add(new File([texts[place]], name)));
  const how = {dataTransfer: transfer, bubbles: true, cancelable: true};
  document.querySelector("#drop").dispatchEvent(new DragEvent("drop", how));
}"""


def test_files_are_dropped_and_a_closed_tab_sends_the_rest_another_time(
    tab: Any, editing: Running
) -> None:
    tab.goto(f"{editing.address}/new")
    tab.evaluate(DROP, [["ada.txt"], [ADA.decode()]])
    tab.get_by_text("1 document there: drop more, or go on").wait_for()
    tab.wait_for_url("**/new?name=*")
    address = tab.url
    tab.goto("about:blank")
    asked: list[str] = []
    tab.on(
        "request", lambda request: asked.append(request.url) if "/file?" in request.url else None
    )
    tab.goto(address)
    tab.evaluate(DROP, [["ada.txt", "ben.html"], [ADA.decode(), BEN.decode()]])
    tab.get_by_text("2 documents there: drop more, or go on").wait_for()
    assert [url.partition("path=")[2] for url in asked] == ["ben.html"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(scheme: str, tab: Any, editing: Running, tmp_path: Path) -> None:
    if not AXE.is_file():
        pytest.skip(
            "axe-core is not there: npm install --no-save axe-core, or say with AXE_CORE where "
            "axe.min.js is"
        )
    tab.emulate_media(color_scheme=scheme)
    tab.goto(f"{editing.address}/new")
    assert axe(tab) == []
    tab.locator("#folder").set_input_files(str(folder_of(tmp_path)))
    tab.locator(".card h3").nth(1).wait_for()
    assert axe(tab) == []
    tab.get_by_label("Name of the knowledge base").press("Enter")
    tab.locator("#ready").wait_for()
    assert axe(tab) == []
