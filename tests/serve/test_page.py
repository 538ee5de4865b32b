"""The page in a browser: people ask, read the evidence, fill tables, and no text of a corpus is
ever run.
"""

import json
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import PATIENCE, expect, reload, wait_until

from kbq.corpus.pages import Page
from kbq.kb import KnowledgeBase
from kbq.tables.deciding import read_decisions
from kbq.tables.outputs import XSD, export
from kbq.tables.tables import read_table

from .conftest import Running, running

pytestmark = pytest.mark.usefixtures("modest")

EVIL = "<script>document.title='bad'</script><img src=x onerror=\"document.title='bad'\">"
AXE = Path(
    os.environ.get(
        "AXE_CORE", Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"
    )
)
LIST = "try { sessionStorage.setItem('kbq view', 'list') } catch {}"  # claims, and not the table
SUBJECTS = "Marie Curie\nIsaac Newton\nZork Blah"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service whose corpus would run scripts."""
    folder = tmp_path_factory.mktemp("kbs") / "hostile"
    metadata: dict[str, object] = {"url": "javascript:document.title='bad'", EVIL: EVIL}
    texts = [f"{EVIL} was born in {EVIL}.", "👩‍🔬 Zoë was born in Zürich."]
    KnowledgeBase.build([Page("a/../b?c#d", EVIL, texts, metadata=metadata)], folder, device="cpu")
    with running({"hostile": folder}) as service:
        yield service


@pytest.fixture
def tab(browser: Any) -> Iterator[Any]:
    """A tab; nothing may be said on its console, nor asked of another host."""
    context = browser.new_context(accept_downloads=True)
    context.add_init_script(LIST)
    opened = context.new_page()
    said: list[str] = []
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.on(
        "request",
        lambda request: said.append(request.url) if "127.0.0.1" not in request.url else None,
    )
    yield opened
    assert said == []
    context.close()


@pytest.fixture
def bare_tab(browser: Any) -> Iterator[Any]:
    """A tab without scripts."""
    context = browser.new_context(java_script_enabled=False)
    yield context.new_page()
    context.close()


@pytest.fixture
def chance(service: Running) -> str:
    """How likely Marie Curie's place of birth is right, as it is shown: CPUs differ a little."""
    (found,) = service.query("Marie Curie [SEP] place of birth", k=1)
    assert found["answers"][0]["probability"] > 0.85
    return f"{100 * found['answers'][0]['probability']:.0f} %"


@pytest.fixture
def chance_of_cell(service: Running) -> str:
    """The same in a table, whose probabilities are calibrated on tables."""
    asked = {"subjects": ["Marie Curie"], "relations": ["place of birth"]}
    cell, _ = map(json.loads, service.client.post("/v1/fill", json=asked).text.splitlines())
    (claim,) = cell["claims"]
    assert claim["probability"] > 0.85
    return f"{100 * claim['probability']:.0f} %"


@pytest.mark.parametrize("kind", ["tab", "bare_tab"])
def test_a_question_is_answered_with_its_evidence(
    service: Running, chance: str, kind: str, request: pytest.FixtureRequest
) -> None:
    tab: Any = request.getfixturevalue(kind)
    tab.goto(service.address)
    tab.get_by_label("Subject, or a question").fill("Marie Curie")
    tab.get_by_label("Relation").fill("place of birth")
    tab.get_by_role("button", name="Ask").click()
    first = tab.locator(".answer.first")
    expect(first.locator(".phrase")).to_have_text("Warsaw")
    expect(first.locator("mark")).to_have_text("Warsaw")
    expect(first.locator(".chance")).to_have_text(chance)
    expect(tab).to_have_url(
        f"{service.address}/?subject=Marie+Curie&relation=place+of+birth&kb=sample"
    )
    first.get_by_role("link", name="Marie Curie").click()
    expect(tab.locator("h1")).to_have_text("Marie Curie")
    expect(tab.locator("mark#here")).to_have_text("Warsaw")


def test_titles_are_suggested(tab: Any, service: Running) -> None:
    tab.goto(service.address)
    tab.get_by_label("Subject, or a question").press_sequentially("marie")
    suggested = tab.locator("#titles option")
    expect(suggested).to_have_count(1)  # there were more for the first letters
    expect(suggested).to_have_attribute("value", "Marie Curie")


def test_a_relation_without_a_subject_keeps_the_form_and_says_so(
    bare_tab: Any, service: Running
) -> None:
    bare_tab.goto(f"{service.address}/?subject=+&relation=spouse")
    expect(bare_tab.get_by_role("alert")).to_have_text("Write a subject.")
    expect(bare_tab.get_by_label("Relation")).to_have_value("spouse")
    expect(bare_tab.locator("body")).not_to_contain_text("[SEP]")
    expect(bare_tab.locator("footer")).not_to_contain_text("vectors")


def test_no_answer_is_said(tab: Any, service: Running) -> None:
    tab.goto(f"{service.address}/?q=Zork+Blah+[SEP]+record+label")
    expect(tab.locator(".doubt")).to_have_text(re.compile(r"^\s*The text may not say it\."))
    expect(tab.locator(".first")).to_have_count(0)
    expect(tab.locator("main")).to_contain_text("No page has the word Zork")


def fill(tab: Any, service: Running) -> None:
    tab.goto(f"{service.address}/table")
    tab.get_by_label("Subjects, one a line").fill(SUBJECTS)
    tab.get_by_text("place of birth", exact=True).click()
    tab.get_by_label("Others").fill("date_of_birth")
    tab.get_by_role("button", name="Fill", exact=True).click()
    wait_for_cells(tab, "3 of 6 cells filled", 6)


ANSWERED: dict[str, bytes] = {}  # what the service has answered to a table, which takes seconds


def fill_again(tab: Any, service: Running) -> None:
    """The same with the answer that the service has given before, where the review is at stake."""

    def answer(route: Any) -> None:
        asked = f"{service.address} {route.request.post_data}"
        if asked not in ANSWERED:
            ANSWERED[asked] = route.fetch(timeout=PATIENCE).body()
        route.fulfill(body=ANSWERED[asked], content_type="application/x-ndjson")

    tab.route("**/v1/fill", answer)
    fill(tab, service)


def wait_for_cells(tab: Any, said: str, count: int) -> None:
    """Until all cells have come, and their claims are drawn, which is a bit later."""
    tab.get_by_text(said).wait_for()
    expect(tab.locator("#done")).to_contain_text(f" of {count} reviewed")


def listed(tab: Any) -> Any:
    """The values of the list."""
    return tab.locator("#rows .value")


def saved(tab: Any, name: str, tmp_path: Path) -> Path:
    """The file behind a button."""
    with tab.expect_download() as download:
        tab.get_by_role("button", name=name, exact=True).click()
    path = tmp_path / str(download.value.suggested_filename)
    download.value.save_as(path)
    return path


def test_a_table_is_filled_reviewed_and_downloaded(
    tab: Any, service: Running, chance_of_cell: str, tmp_path: Path
) -> None:
    fill(tab, service)
    subjects = tab.locator("#rows .subject").evaluate_all(
        "all => all.map(one => one.firstChild.textContent)"
    )
    assert subjects == [name for name in SUBJECTS.split("\n") for _ in range(2)]
    expect(listed(tab).first).to_have_text("Warsaw")
    expect(tab.locator("#rows .level.sure").first).to_have_text(chance_of_cell)
    expect(tab.locator("#rows .left-empty")).to_have_count(3)
    tab.get_by_role("button", name="Warsaw", exact=True).click()
    evidence = tab.get_by_role("region", name="Evidence")
    expect(evidence.locator("blockquote mark")).to_have_text("Warsaw")
    expect(evidence.locator("li").first).to_have_text(re.compile("^Paris"))
    evidence.get_by_role("button", name="Reject").click()
    expect(tab.locator("#rows .struck")).to_have_text(["Warsaw"])
    tab.locator("#rows .left-empty .value button").first.click()
    guess = evidence.locator("h2").text_content()
    evidence.get_by_role("button", name="Accept").click()
    header, marie, newton, zork = saved(tab, "CSV", tmp_path).read_text("utf-8").splitlines()
    assert (header, marie) == (
        "subject,place of birth,date_of_birth",
        "Marie Curie,,7 November 1867",
    )
    assert (newton, zork) == (f"Isaac Newton,Woolsthorpe,{guess}", "Zork Blah,,")
    tab.get_by_label("dates as").check()
    assert (
        saved(tab, "CSV", tmp_path).read_text("utf-8").splitlines()[1] == "Marie Curie,,1867-11-07"
    )
    table = read_table(saved(tab, "XLSX", tmp_path))
    assert table.rows[0] == {
        "subject": "Marie Curie",
        "place of birth": None,
        "date_of_birth": "1867-11-07",
    }
    triples = saved(tab, "RDF", tmp_path).read_text("utf-8").splitlines()
    assert len(triples) == 3
    birth = "<http://www.wikidata.org/prop/direct/P569>"
    assert triples[0] == f'<urn:kbq:thing:Marie%20Curie> {birth} "1867-11-07"^^<{XSD}date> .'


@pytest.mark.parametrize(
    ("place", "value", "written"),
    [
        (0, "Vienna", "<urn:kbq:thing:Vienna>"),
        (0, "Nowhere", '"Nowhere"'),
        (1, "6 November 1867", f'"1867-11-06"^^<{XSD}date>'),
        (1, "a \u2028 br\u0085eak", '"a br eak"'),
    ],
)
def test_what_is_typed_is_in_the_files_as_the_command_writes_it(
    place: int,
    value: str,
    written: str,
    tab: Any,
    service: Running,
    sample: KnowledgeBase,
    tmp_path: Path,
) -> None:
    fill_again(tab, service)
    tab.locator("#rows .value button").nth(place).click()
    tab.get_by_label("Correct to").fill(value)
    tab.keyboard.press("Enter")
    if place == 1 and not any(map(str.isdigit, value)):
        tab.keyboard.press("Enter")  # the page asks once whether this is a date
    triples = saved(tab, "RDF", tmp_path).read_text("utf-8").splitlines()
    assert any(
        triple.startswith("<urn:kbq:thing:Marie%20Curie>") and f"{written} ." in triple
        for triple in triples
    )
    expect(tab.locator("#said")).to_have_text("")
    decisions, claims = saved(tab, "Decisions", tmp_path), tmp_path / "filled.claims.jsonl"
    assert [json.loads(line)["value"] for line in decisions.read_text("utf-8").splitlines()][
        -1
    ].split()[0] in value
    table = [{"subject": name} for name in SUBJECTS.split("\n")]
    asked = ["place of birth", "date_of_birth"]
    sample.fill(table, asked, decisions=decisions, out=tmp_path / "filled.csv")
    export(claims, "rdf", tmp_path / "command.nt")
    assert sorted((tmp_path / "command.nt").read_text("utf-8").splitlines()) == sorted(triples)


def test_a_table_by_keyboard_alone(tab: Any, service: Running) -> None:
    fill_again(tab, service)
    tab.get_by_role("button", name="Warsaw", exact=True).focus()
    tab.keyboard.press("r")
    chosen = "document.activeElement.innerText + ' ' + document.activeElement.className"
    # A decision goes on to the next value.
    assert tab.evaluate(chosen).startswith("7 November 1867")
    tab.keyboard.press("k")
    assert tab.evaluate(chosen) == "Warsaw struck"
    tab.keyboard.press("a")
    assert tab.locator("#rows [aria-pressed=true]").evaluate_all(
        "all => all.map(one => one.ariaLabel)"
    ) == ["Accept Warsaw"]
    tab.keyboard.press("Escape")
    expect(tab.locator("#evidence")).to_be_hidden()
    tab.keyboard.press("j")
    expect(tab.locator("#evidence")).to_be_visible()
    tab.keyboard.press("/")
    tab.keyboard.type("woolsthorpe")
    expect(listed(tab)).to_have_text(["Woolsthorpe"])
    tab.keyboard.press("Escape")
    for key in "ua":  # what was done last is undone wherever it is
        tab.keyboard.press(key)
    expect(tab.locator("#done")).to_have_text(
        "2 of 6 reviewed: 1 accepted, 1 rejected, 0 corrected"
    )


def test_values_are_corrected_and_decisions_and_cells_stay(
    tab: Any, service: Running, tmp_path: Path
) -> None:
    asked: list[str] = []
    tab.on(
        "request",
        lambda request: asked.append(request.url) if request.url.endswith("/v1/fill") else None,
    )
    fill_again(tab, service)
    tab.locator("#rows .value button").first.click()
    tab.keyboard.press("c")
    tab.keyboard.type(EVIL)
    tab.keyboard.press("Enter")
    tab.keyboard.press("n")  # the date of birth
    corrected = [f"Warsaw {EVIL}", "7 November 1867 left empty"]
    for place, text in enumerate(corrected):
        expect(listed(tab).nth(place)).to_have_text(text)
    expect(tab.locator("#done")).to_have_text(
        "2 of 6 reviewed: 0 accepted, 0 rejected, 2 corrected"
    )
    assert len(asked) == 1
    reload(tab, asked.clear)
    wait_for_cells(tab, "3 of 6 cells filled", 6)
    assert (asked, tab.locator("#asking").get_attribute("open")) == ([], None)
    for place, text in enumerate(corrected):
        expect(listed(tab).nth(place)).to_have_text(text)
    tab.locator("#facets").get_by_role("button", name="Corrected 2").click()
    expect(listed(tab)).to_have_text(corrected)
    found = read_decisions(saved(tab, "Decisions", tmp_path))
    assert [[(one.value, one.choice) for one in values.values()] for values in found.values()] == [
        [("Warsaw", "reject"), (EVIL, "accept")],
        [("", "accept")],
    ]
    assert (
        saved(tab, "CSV", tmp_path)
        .read_text("utf-8")
        .splitlines()[1]
        .startswith('Marie Curie,"<script>')
    )
    for _ in range(2):
        tab.get_by_role(
            "button", name="Undo"
        ).click()  # also what was done before the page was loaded
    expect(tab.locator("#done")).to_have_text(
        "0 of 6 reviewed: 0 accepted, 0 rejected, 0 corrected"
    )
    expect(tab.get_by_role("button", name="Undo")).to_be_disabled()


def test_keys_decide_on_the_row_that_was_clicked_wherever_it_was_clicked(
    tab: Any, service: Running, tmp_path: Path
) -> None:
    fill_again(tab, service)
    tab.get_by_role("button", name="Warsaw", exact=True).click()
    tab.locator("#rows tr").nth(2).locator(".relation").click()  # Newton's place of birth
    assert tab.locator("#rows tr.chosen .subject").inner_text().split("\n")[0] == "Isaac Newton"
    expect(tab.locator("#evidence .over")).to_have_text("Isaac Newton — place of birth")
    tab.keyboard.press("c")
    tab.keyboard.type("Grantham")
    tab.keyboard.press("Enter")
    tab.locator("#rows tr").nth(1).locator(".probability").click()
    tab.keyboard.press("r")
    lines = [
        json.loads(line)
        for line in saved(tab, "Decisions", tmp_path).read_text("utf-8").splitlines()
    ]
    assert [(one["subject"], one["relation"], one["value"], one["decision"]) for one in lines] == [
        ("Isaac Newton", "place of birth", "Woolsthorpe", "reject"),
        ("Isaac Newton", "place of birth", "Grantham", "accept"),
        ("Marie Curie", "date_of_birth", "7 November 1867", "reject"),
    ]


def test_what_is_no_date_is_asked_about_once(tab: Any, service: Running) -> None:
    fill_again(tab, service)
    tab.get_by_role("button", name="7 November 1867", exact=True).click()
    typed = tab.get_by_label("Correct to")
    typed.fill("botanist")
    typed.press("Enter")
    expect(tab.get_by_role("alert")).to_have_text(
        "“botanist” is no date. Save again to keep it all the same."
    )
    expect(tab.locator("#done")).to_contain_text("0 of 6 reviewed")
    typed.press("Enter")
    expect(listed(tab).nth(1)).to_have_text("7 November 1867 botanist")
    tab.get_by_role("button", name="7 November 1867", exact=True).click()
    typed.fill("8 November 1867")
    typed.press("Enter")
    expect(listed(tab).nth(1)).to_have_text("7 November 1867 8 November 1867")
    tab.get_by_role("button", name="Warsaw", exact=True).click()
    typed.fill("botanist")  # may be a page
    typed.press("Enter")
    expect(listed(tab).first).to_have_text("Warsaw botanist")


LONG = "\n".join(
    ["n\tname\tplace of birth", *(f"{number}{'x' * 80}\tMarie Curie\t" for number in range(100))]
)


@pytest.mark.parametrize(
    ("text", "column", "others", "count"),
    [
        ("Marie Curie", "", "spouse, @date of birth", 2),  # an order that is not that of the boxes
        ("Marie Curie", "", "doctoral advisor, place of birth", 2),
        ("n\tname\tplace of birth\n1\tMarie Curie\t\n2\tIsaac Newton\tx", "name", "spouse", 3),
        (LONG, "name", "", 1),  # too long for an address
    ],
)
def test_a_page_that_is_loaded_again_asks_nothing_again(
    text: str, column: str, others: str, count: int, tab: Any, service: Running, tmp_path: Path
) -> None:
    asked: list[str] = []
    tab.on(
        "request",
        lambda request: asked.append(request.url) if request.url.endswith("/v1/fill") else None,
    )
    tab.goto(f"{service.address}/table")
    put(tab, text)
    if column:
        tab.get_by_label("Column of subjects").select_option(column)
        tab.locator("#offered").get_by_text("place of birth", exact=True).click()
    tab.get_by_label("Others").fill(others)
    tab.get_by_role("button", name="Fill", exact=True).click()
    tab.get_by_text(f"of {count} cells filled").wait_for()
    before = saved(tab, "CSV", tmp_path).read_text("utf-8")
    assert len(asked) == 1
    for _ in range(2):
        reload(tab, asked.clear)
        tab.get_by_text(f"of {count} cells filled").wait_for()
    assert saved(tab, "CSV", tmp_path).read_text("utf-8") == before
    expect(tab.locator("#subjects")).to_have_value(text)
    assert asked == []


# Whether the browser's database has lines of this tab's table, behind the table itself.
IS_KEPT = """() => new Promise(done => {
  indexedDB.open("kbq", 1).onsuccess = ({target: {result: opened}}) => {
    const tables = opened.transaction("tables").objectStore("tables");
    const tab = sessionStorage.getItem("kbq tab");
    tables.count(IDBKeyRange.bound([tab, 1], [tab, Infinity])).onsuccess = ({target}) => {
      opened.close();
      done(target.result > 0);
    };
  };
})"""


def test_a_page_that_is_loaded_again_amid_the_answer_asks_for_the_rest(
    tab: Any, service: Running, held: threading.Event, tmp_path: Path
) -> None:
    bodies: list[Any] = []
    tab.on(
        "request",
        lambda one: bodies.append(one.post_data_json) if one.url.endswith("/v1/fill") else None,
    )
    names = [
        "Marie Curie",
        "Isaac Newton",
        "Ada Lovelace",
        *(f"Nobody {number}" for number in range(5)),
    ]
    tab.goto(f"{service.address}/table")
    put(tab, "\n".join(names))
    tab.get_by_text("place of birth", exact=True).click()
    tab.get_by_role("button", name="Fill", exact=True).click()
    tab.get_by_role("button", name="Warsaw", exact=True).wait_for()
    part = saved(tab, "CSV", tmp_path).read_text("utf-8")
    expect(tab.locator("#said")).to_have_text(
        re.compile("of 8 cells were there: more are being filled.$")
    )
    assert "Marie Curie,Warsaw" in part
    wait_until(tab, IS_KEPT)
    (first,) = bodies
    reload(tab, bodies.clear)
    held.set()
    tab.get_by_text("of 8 cells filled").wait_for()
    (second,) = bodies
    assert len(first["rows"]) == 8
    assert 0 < len(second["rows"]) < 8
    assert second["rows"] == first["rows"][-len(second["rows"]) :]
    assert len(saved(tab, "CSV", tmp_path).read_text("utf-8").splitlines()) == 9


def test_an_empty_file_is_refused_in_words(tab: Any, service: Running) -> None:
    tab.goto(f"{service.address}/table?subjects=Zork+Blah&relation=place+of+birth")
    tab.get_by_text("of 1 cells filled").wait_for()
    for name, said in (
        ("RDF", "No cell has a value yet"),
        ("Decisions", "Nothing was decided yet"),
    ):
        tab.get_by_role("button", name=name, exact=True).click()
        expect(tab.locator("#said")).to_have_text(f"{said}: there is no file.")


@pytest.mark.parametrize(
    ("text", "header", "waiting"),
    [
        ("Marie  Curie\nIsaac\u00a0Newton\nMarie Curie", "subject,place of birth", 2),
        ('name\tnote\tborn\nMarie Curie\ta "b", =1\t\nIsaac Newton\tx\t', "name,note,born,place of birth", 2),
    ],
)  # fmt: skip
def test_what_is_pasted_becomes_a_table_and_only_named_relations_are_filled(
    text: str, header: str, waiting: int, tab: Any, service: Running, tmp_path: Path
) -> None:
    tab.goto(f"{service.address}/table")
    tab.get_by_label("Subjects, one a line").fill(text)
    tab.get_by_text("place of birth", exact=True).click()
    tab.get_by_role("button", name="Fill", exact=True).click()
    tab.get_by_text(f"{waiting} of {waiting} cells filled").wait_for()
    first, marie, *_ = saved(tab, "CSV", tmp_path).read_text("utf-8").splitlines()
    assert (first, marie) == (header, "Marie Curie,Warsaw" if waiting == 2 and "," not in text else
                              'Marie Curie,"a ""b"", =1",,Warsaw')  # fmt: skip


def test_columns_are_chosen(tab: Any, service: Running, tmp_path: Path) -> None:
    tab.goto(f"{service.address}/table")
    tab.get_by_label("Subjects, one a line").fill(
        "n\tplace of birth\tnote\twho\n1\t\t\tMarie Curie\n2\tx\t\tIsaac Newton"
    )
    tab.get_by_label("Column of subjects").select_option("who")
    tab.locator("#offered").get_by_text("place of birth", exact=True).click()
    tab.get_by_label("Others").fill("@date of birth")
    tab.get_by_role("button", name="Fill", exact=True).click()
    tab.get_by_text("2 of 3 cells filled").wait_for()
    assert saved(tab, "CSV", tmp_path).read_text("utf-8").splitlines() == [
        "n,place of birth,note,who,date of birth", "1,Warsaw,,Marie Curie,7 November 1867", "2,x,,Isaac Newton,"
    ]  # fmt: skip


CSV = 'name;"b;c"\r\nJos\u00e9;"x ""y"""\r\n'


@pytest.mark.parametrize(
    ("name", "content", "shown"),
    [
        ("t.csv", CSV.encode("utf-8-sig"), 'name\tb;c\nJosé\tx "y"'),
        ("t.csv", CSV.encode("utf-16"), 'name\tb;c\nJosé\tx "y"'),
        ("t.txt", b"name\r\nMarie Curie\r\nundefined\r\n", "Marie Curie\nundefined"),
        ("t.jsonl", b'{"name": "Newton", "born": null}\n', "name\tborn\nNewton\t"),
        ("t.xlsx", None, "name\tborn\nNewton\t"),
    ],
)  # fmt: skip
def test_a_file_is_read_as_the_command_reads_it(
    name: str, content: bytes | None, shown: str, tab: Any, service: Running, tmp_path: Path
) -> None:
    if content is None:
        openpyxl = pytest.importorskip("openpyxl")
        book = openpyxl.Workbook()
        for row in (["name", "born"], ["Newton", None]):
            book.active.append(row)
        book.active["A2"].comment = openpyxl.comments.Comment("a note", "Eve")
        book.save(tmp_path / name)
        content = (tmp_path / name).read_bytes()
    tab.goto(f"{service.address}/table")
    tab.locator("#upload").set_input_files(
        {"name": name, "mimeType": "text/csv", "buffer": content}
    )
    tab.locator("#file-name", has_text=name).wait_for()
    expect(tab.locator("#subjects")).to_have_value(shown)


def put(tab: Any, text: str) -> None:
    """Put a long text into the box of subjects at once: a browser takes a minute to type as much."""
    tab.locator("#subjects").evaluate(
        "(box, text) => { box.value = text; box.dispatchEvent(new Event('input')); }", text
    )


def test_what_cannot_be_filled_is_said(browser: Any, service: Running) -> None:
    tab = browser.new_page()  # whose console names the refusals
    tab.goto(f"{service.address}/table")
    progress = tab.locator("#progress")
    tab.locator("#upload").set_input_files(
        {"name": "t.xlsx", "mimeType": "", "buffer": b"no spreadsheet"}
    )
    tab.get_by_text("t.xlsx cannot be read: the file").wait_for()
    put(tab, "\n".join(f"s{number}" for number in range(12_000)))
    tab.get_by_label("Others").fill("a, b")
    tab.get_by_role("button", name="Fill", exact=True).click()
    expect(progress).to_have_text(
        "The table has 24,000 cells: fill it with kbq fill, or ask for 20,000 at most.",
    )
    tab.locator("#subjects").fill("Marie Curie")
    tab.get_by_label("Others").fill("@spose")
    tab.get_by_role("button", name="Fill", exact=True).click()
    tab.get_by_text("did you mean @spouse?").wait_for()
    tab.locator("#subjects").fill(" ")
    tab.get_by_role("button", name="Fill", exact=True).click()
    expect(progress).to_have_text("Write subjects, one a line.")
    assert tab.evaluate("document.activeElement.id") == "subjects"
    tab.close()


@pytest.mark.slow
def test_a_table_of_1400_cells_is_filled_in_requests_of_rows(
    tab: Any, service: Running, tmp_path: Path
) -> None:
    bodies: list[Any] = []
    tab.on(
        "request",
        lambda one: bodies.append(one.post_data_json) if one.url.endswith("/v1/fill") else None,
    )
    tab.goto(f"{service.address}/table")
    names = [f"{number}\tMarie Curie" for number in range(1400)]  # one question, many cells
    put(tab, "\n".join(["n\tname", *names]))
    tab.get_by_label("Column of subjects").select_option("name")
    tab.get_by_text("place of birth", exact=True).click()
    tab.get_by_role("button", name="Fill", exact=True).click()
    tab.get_by_text("2 of 2 cells filled").wait_for()
    assert [len(body["rows"]) for body in bodies] == [1000, 400]
    lines = saved(tab, "CSV", tmp_path).read_text("utf-8").splitlines()
    assert lines[1:] == [f"{number},Marie Curie,Warsaw" for number in range(1400)]


def test_the_page_is_walked_with_the_tabulator(tab: Any, service: Running) -> None:
    tab.goto(f"{service.address}/?q=Marie+Curie+[SEP]+spouse")
    seen = []
    for _ in range(12):
        tab.keyboard.press("Tab")
        seen.append(tab.evaluate("document.activeElement.innerText || document.activeElement.id"))
    assert seen[:6] == ["Skip to the content", "kbq\nsample", "Ask", "Fill a table", "Pages", "API"]
    assert seen[6:9] == ["subject", "relation", "Ask"]
    assert "Marie Curie" in seen


def test_an_address_that_was_shared_fills_the_table(
    tab: Any, service: Running, chance_of_cell: str
) -> None:
    tab.goto(f"{service.address}/table?subjects=Marie+Curie&relation=place+of+birth")
    tab.get_by_text("1 of 1 cells filled").wait_for()
    expect(listed(tab)).to_have_text(["Warsaw"])
    expect(tab.locator("#rows .level")).to_have_text(chance_of_cell)


def test_a_table_without_scripts_says_that_it_needs_them(bare_tab: Any, service: Running) -> None:
    bare_tab.goto(f"{service.address}/table")
    expect(bare_tab.locator(".warning")).to_have_text(
        "Filling a table needs JavaScript; asking does not."
    )


def is_harmless(tab: Any) -> bool:
    """Whether nothing of the corpus became an element, and no script has run."""
    made = tab.evaluate("document.querySelectorAll('main script, main img').length")
    return bool(tab.title() != "bad" and made == 0)


@pytest.mark.parametrize(
    "path", ["/", "/?subject=Zo%C3%AB&relation=born&k=20", f"/?q={EVIL}", "/api"]
)
def test_no_text_is_run(tab: Any, hostile: Running, path: str) -> None:
    tab.goto(hostile.address + path)
    assert is_harmless(tab)


def test_no_text_of_a_page_is_run(tab: Any, hostile: Running) -> None:
    tab.goto(hostile.address)
    tab.locator(".examples a").click()
    expect(tab.locator("h1")).to_have_text(EVIL)
    expect(tab.locator("dt")).to_have_text(EVIL)
    expect(tab.get_by_role("link", name="Source")).to_have_count(0)
    assert is_harmless(tab)


def test_no_text_of_a_table_is_run(tab: Any, hostile: Running) -> None:
    tab.goto(f"{hostile.address}/table")
    tab.get_by_label("Subjects, one a line").fill(f"{EVIL}\nZoë")
    tab.get_by_label("Others").fill(EVIL)
    tab.get_by_role("button", name="Fill", exact=True).click()
    wait_for_cells(tab, "cells filled", 2)
    for value in tab.locator("#rows .value button").all():
        value.click()
        expect(value).to_contain_text(tab.locator("#evidence blockquote mark").text_content())
        assert is_harmless(tab)


def test_places_beyond_the_basic_plane_are_marked(tab: Any, hostile: Running) -> None:
    tab.goto(f"{hostile.address}/table?subjects=Zo%C3%AB&relation=place+of+birth")
    tab.get_by_text("cells filled").wait_for()
    value = tab.locator("#evidence blockquote mark").text_content()
    expect(tab.locator("#evidence blockquote")).to_have_text("👩‍🔬 Zoë was born in Zürich.")
    assert value in ("Zürich", "Zoë", "born in Zürich")


def test_pages_are_looked_through(tab: Any, service: Running) -> None:
    tab.goto(f"{service.address}/pages")
    count = tab.locator("#count")
    expect(count).to_have_text("198 pages; 1 to 50 are shown.")
    expect(tab.locator("footer")).not_to_contain_text("198")  # it is said once
    for first, last in ((51, 100), (101, 150), (151, 198)):
        tab.get_by_role("link", name="Next").click()
        expect(count).to_have_text(f"198 pages; {first} to {last} are shown.")
    tab.get_by_label("Words of the title").fill("CURIE marie")
    tab.get_by_role("button", name="Show").click()
    expect(tab.locator(".titles li")).to_have_text(["Marie Curie S001"])
    expect(count).to_have_text("1 of 198 pages has these words in the title.")
    tab.get_by_label("Words of the title").fill("zork")
    tab.get_by_role("button", name="Show").click()
    expect(count).to_have_text("None of 198 pages has these words in its title.")


@pytest.mark.parametrize(
    "path", ["/", "/?q=Marie+Curie+[SEP]+spouse", "/page/S001", "/pages", "/table", "/api"]
)
@pytest.mark.parametrize("width", [320, 800])
def test_every_width_fits(tab: Any, service: Running, path: str, width: int) -> None:
    tab.set_viewport_size({"width": width, "height": 800})
    tab.goto(service.address + path)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_pages_are_small(tab: Any, service: Running) -> None:
    sizes: list[int] = []
    tab.on("response", lambda response: sizes.append(int(response.headers["content-length"])))
    for path in ("/?q=Marie+Curie+[SEP]+spouse", "/table"):
        tab.goto(service.address + path)
    assert 10_000 < sum(sizes) < 200_000


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(browser: Any, service: Running, scheme: str) -> None:
    if not AXE.is_file():
        pytest.skip(
            "axe-core is not there: npm install --no-save axe-core, or say with AXE_CORE where "
            "axe.min.js is"
        )
    context = browser.new_context(color_scheme=scheme)
    tab = context.new_page()
    for path in (
        "/",
        "/?q=Marie+Curie+[SEP]+spouse&k=20",
        "/?q=Zork+[SEP]+label",
        "/page/S001",
        "/pages",
        "/api",
        "/none",
    ):
        tab.goto(service.address + path)
        assert axe(tab) == [], path
    fill_again(tab, service)
    tab.locator("#cells .cell").first.click()
    tab.locator(".document mark").wait_for()
    tab.get_by_label("Select Marie Curie").check()
    for key in "1rc":
        tab.keyboard.press(key)
    assert axe(tab) == []
    for name in ("History", "Claims"):
        tab.get_by_role("button", name=name, exact=True).click()
        assert axe(tab) == [], name
    context.close()


def axe(tab: Any) -> list[str]:
    """What is wrong with a page."""
    tab.evaluate(AXE.read_text("utf-8"))
    violations = tab.evaluate("axe.run().then(found => found.violations)")
    return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in violations]
