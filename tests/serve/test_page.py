"""The page in a browser: people ask, read the evidence, fill tables, and no text of a corpus is ever run."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbq.corpus.pages import Page
from kbq.kb import KnowledgeBase
from kbq.tables.decisions import read_decisions

from .conftest import Running, running

pytestmark = pytest.mark.usefixtures("modest")

EVIL = "<script>document.title='bad'</script><img src=x onerror=\"document.title='bad'\">"
AXE = Path(os.environ.get("AXE_CORE", Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"))
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
    opened = context.new_page()
    said: list[str] = []
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.on("request", lambda request: said.append(request.url) if "127.0.0.1" not in request.url else None)
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
    assert first.locator(".phrase").text_content() == "Warsaw"
    assert first.locator("mark").text_content() == "Warsaw"
    assert first.locator(".chance").inner_text().strip() == chance
    assert tab.url == f"{service.address}/?subject=Marie+Curie&relation=place+of+birth&kb=sample"
    first.get_by_role("link", name="Marie Curie").click()
    assert tab.locator("h1").text_content() == "Marie Curie"
    assert tab.locator("mark#here").text_content() == "Warsaw"


def test_titles_are_suggested(tab: Any, service: Running) -> None:
    tab.goto(service.address)
    tab.get_by_label("Subject, or a question").press_sequentially("marie")
    tab.locator("#titles option").wait_for(state="attached")
    assert tab.locator("#titles option").evaluate_all("all => all.map(one => one.value)") == ["Marie Curie"]


def test_a_relation_without_a_subject_keeps_the_form_and_says_so(bare_tab: Any, service: Running) -> None:
    bare_tab.goto(f"{service.address}/?subject=+&relation=spouse")
    assert bare_tab.get_by_role("alert").inner_text() == "Write a subject."
    assert bare_tab.get_by_label("Relation").input_value() == "spouse"
    assert "[SEP]" not in bare_tab.locator("body").inner_text()
    assert "vectors" not in bare_tab.locator("footer").inner_text()


def test_no_answer_is_said(tab: Any, service: Running) -> None:
    tab.goto(f"{service.address}/?q=Zork+Blah+[SEP]+record+label")
    assert tab.locator(".doubt").inner_text().startswith("The text may not say it.")
    assert tab.locator(".first").count() == 0
    assert "No page has the word Zork" in tab.locator("main").inner_text()


def fill(tab: Any, service: Running) -> None:
    tab.goto(f"{service.address}/table")
    tab.get_by_label("Subjects, one a line").fill(SUBJECTS)
    tab.get_by_text("place of birth", exact=True).click()
    tab.get_by_label("Others").fill("date_of_birth")
    tab.get_by_role("button", name="Fill").click()
    tab.get_by_text("4 of 6 cells filled").wait_for()


def test_a_table_is_filled_reviewed_and_downloaded(tab: Any, service: Running, chance: str, tmp_path: Path) -> None:
    fill(tab, service)
    assert tab.locator("#cells tbody th").all_text_contents() == SUBJECTS.split("\n")
    assert tab.locator("a.cell.sure").first.inner_text() == f"Warsaw {chance}"
    assert tab.locator("a.cell.guess").count() == 2
    tab.get_by_role("link", name=f"Warsaw, {chance}").click()
    evidence = tab.get_by_role("region", name="Evidence")
    assert evidence.locator("mark").text_content() == "Warsaw"
    assert evidence.locator("li").first.inner_text().startswith("Paris")
    evidence.get_by_role("button", name="Reject").click()
    assert tab.locator("a.cell.rejected").inner_text() == f"Warsaw {chance}"
    tab.locator("a.cell.guess").first.click()
    guess = evidence.locator("h2").text_content()
    evidence.get_by_role("button", name="Accept", exact=False).first.click()

    def saved(name: str) -> str:
        with tab.expect_download() as download:
            tab.get_by_role("button", name=name).click()
        path = tmp_path / str(download.value.suggested_filename)
        download.value.save_as(path)
        return path.read_text("utf-8")

    header, marie, newton, zork = saved("CSV").splitlines()
    assert (header, marie) == ("subject,place of birth,date_of_birth", "Marie Curie,,7 November 1867")
    assert newton.startswith("Isaac Newton,Woolsthorpe")
    assert zork == f"Zork Blah,{guess},"
    tab.get_by_label("dates as").check()
    assert saved("CSV").splitlines()[1] == "Marie Curie,,1867-11-07"
    claims = [json.loads(line) for line in saved("JSON lines").splitlines()]
    decided = [(claim["value"], claim["decision"]) for claim in claims if "decision" in claim]
    assert decided == [("Warsaw", "reject"), (guess, "accept")]
    triples = saved("N-Triples").splitlines()
    assert len(triples) == 4
    assert '<urn:kbq:thing:Marie%20Curie> <urn:kbq:relation:date_of_birth> "1867-11-07"' in triples[0]


def test_a_table_by_keyboard_alone(tab: Any, service: Running, chance: str) -> None:
    fill(tab, service)
    tab.get_by_role("link", name=f"Warsaw, {chance}").focus()
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.id") == "evidence"
    tab.keyboard.press("r")
    assert tab.get_by_role("link", name=f"Warsaw, {chance}, rejected").count() == 1
    tab.keyboard.press("k")  # a decision goes on to the next cell
    tab.keyboard.press("a")
    assert tab.get_by_role("link", name=f"Warsaw, {chance}, accepted").count() == 1
    tab.keyboard.press("k")
    tab.keyboard.press("Escape")
    assert tab.evaluate("document.activeElement.ariaLabel") == f"Warsaw, {chance}, accepted"
    assert tab.locator("#evidence").is_hidden()


def test_values_are_corrected_and_decisions_and_cells_stay(tab: Any, service: Running, tmp_path: Path) -> None:
    asked: list[str] = []
    tab.on("request", lambda request: asked.append(request.url) if request.url.endswith("/v1/fill") else None)
    fill(tab, service)
    tab.locator("#cells a.cell").first.click()
    tab.keyboard.press("c")
    tab.keyboard.type(EVIL)
    tab.keyboard.press("Enter")
    tab.keyboard.press("n")  # the date of birth
    assert tab.locator("a.cell.accepted").first.inner_text().strip() == EVIL
    tab.reload()
    tab.get_by_text("4 of 6 cells filled").wait_for()
    assert (len(asked), tab.locator("#asking").get_attribute("open")) == (1, None)
    assert tab.locator("a.cell.accepted").first.inner_text().strip() == EVIL
    assert tab.locator("a.cell.rejected").all_inner_texts()[1].startswith("7 November 1867")
    with tab.expect_download() as download:
        tab.get_by_role("button", name="Decisions").click()
    download.value.save_as(tmp_path / "d.jsonl")
    found = read_decisions(tmp_path / "d.jsonl")
    assert [[(one.value, one.choice) for one in values.values()] for values in found.values()] == [
        [("Warsaw", "reject"), (EVIL, "accept")],
        [("", "accept")],
    ]
    tab.get_by_role("button", name="Undo").click()  # also what was done before the page was loaded
    tab.get_by_role("button", name="Undo").click()
    assert tab.locator("a.cell.accepted, a.cell.rejected").count() == 0


@pytest.mark.parametrize(
    ("text", "header", "waiting"),
    [
        ("Marie  Curie\nIsaac\u00a0Newton\nMarie Curie", ["subject", "place of birth"], 2),
        (
            'name\tnote\tborn\nMarie Curie\ta "b", =1\t1867\nIsaac Newton\tx\t',
            ["name", "note", "born", "place of birth"],
            3,
        ),
    ],
)  # fmt: skip
def test_what_is_pasted_becomes_a_table(text: str, header: list[str], waiting: int, tab: Any, service: Running) -> None:
    tab.goto(f"{service.address}/table")
    tab.get_by_label("Subjects, one a line").fill(text)
    tab.get_by_text("place of birth", exact=True).click()
    tab.get_by_role("button", name="Fill").click()
    tab.get_by_text(f"of {waiting} cells filled").wait_for()
    assert tab.locator("#cells thead th").all_text_contents() == header
    with tab.expect_download() as download:
        tab.get_by_role("button", name="CSV").click()
    marie = Path(download.value.path()).read_text("utf-8").splitlines()[1]
    assert marie == ("Marie Curie,Warsaw" if len(header) == 2 else 'Marie Curie,"a ""b"", =1",1867,Warsaw')


def test_a_csv_file_is_read_and_too_many_cells_are_refused_before_they_are_drawn(tab: Any, service: Running) -> None:
    tab.goto(f"{service.address}/table")
    upload = tab.locator("#upload")
    upload.set_input_files(
        {"name": "t.csv", "mimeType": "text/csv", "buffer": b'\xef\xbb\xbfname;"b;c"\r\n"Marie\nCurie";"x ""y"""\r\n'}
    )
    pytest.importorskip("playwright.sync_api").expect(tab.locator("#subjects")).not_to_have_value("")
    assert tab.locator("#subjects").input_value() == 'name\tb;c\nMarie Curie\tx "y"'
    tab.locator("#subjects").fill("\n".join(f"s{number}" for number in range(600)))
    tab.get_by_label("Others").fill("a, b")
    tab.get_by_role("button", name="Fill").click()
    assert tab.locator("#progress").inner_text() == "The table has 1,200 cells: ask for 1,000 at most."
    assert tab.locator("#cells tr").count() == 0
    tab.locator("#subjects").fill(" ")
    tab.get_by_role("button", name="Fill").click()
    assert tab.locator("#progress").inner_text() == "Write subjects, one a line."
    assert tab.evaluate("document.activeElement.id") == "subjects"


def test_the_page_is_walked_with_the_tabulator(tab: Any, service: Running) -> None:
    tab.goto(f"{service.address}/?q=Marie+Curie+[SEP]+spouse")
    seen = []
    for _ in range(12):
        tab.keyboard.press("Tab")
        seen.append(tab.evaluate("document.activeElement.innerText || document.activeElement.id"))
    assert seen[:6] == ["Skip to the content", "kbq\nsample", "Ask", "Fill a table", "Pages", "API"]
    assert seen[6:9] == ["subject", "relation", "Ask"]
    assert "Marie Curie" in seen


def test_an_address_that_was_shared_fills_the_table(tab: Any, service: Running, chance: str) -> None:
    tab.goto(f"{service.address}/table?subjects=Marie+Curie&relation=place+of+birth")
    tab.get_by_text("1 of 1 cells filled").wait_for()
    assert tab.locator("#cells a.cell").inner_text() == f"Warsaw {chance}"


def test_a_table_without_scripts(bare_tab: Any, service: Running, chance: str) -> None:
    bare_tab.goto(f"{service.address}/table")
    bare_tab.get_by_label("Subjects, one a line").fill(SUBJECTS)
    bare_tab.get_by_label("Others").fill("place of birth, date_of_birth")
    bare_tab.get_by_role("button", name="Fill").click()
    assert bare_tab.get_by_role("status").inner_text() == "4 of 6 cells filled."
    assert bare_tab.locator("a.cell.sure").first.inner_text() == f"Warsaw {chance}"
    bare_tab.locator("a.cell.sure").first.click()
    assert bare_tab.locator("mark").text_content() == "Warsaw"


def is_harmless(tab: Any) -> bool:
    """Whether nothing of the corpus became an element, and no script has run."""
    made = tab.evaluate("document.querySelectorAll('main script, main img').length")
    return bool(tab.title() != "bad" and made == 0)


@pytest.mark.parametrize("path", ["/", "/?subject=Zo%C3%AB&relation=born&k=20", f"/?q={EVIL}", "/api"])
def test_no_text_is_run(tab: Any, hostile: Running, path: str) -> None:
    tab.goto(hostile.address + path)
    assert is_harmless(tab)


def test_no_text_of_a_page_is_run(tab: Any, hostile: Running) -> None:
    tab.goto(hostile.address)
    tab.locator(".examples a").click()
    assert (tab.locator("h1").text_content(), tab.locator("dt").text_content()) == (EVIL, EVIL)
    assert tab.get_by_role("link", name="Source").count() == 0
    assert is_harmless(tab)


def test_no_text_of_a_table_is_run(tab: Any, hostile: Running) -> None:
    tab.goto(f"{hostile.address}/table")
    tab.get_by_label("Subjects, one a line").fill(f"{EVIL}\nZoë")
    tab.get_by_label("Others").fill(EVIL)
    tab.get_by_role("button", name="Fill").click()
    tab.get_by_text("cells filled").wait_for()
    for cell in tab.locator("#cells a.cell").all():
        cell.click()
        assert tab.locator("#evidence mark").text_content() in cell.inner_text()
        assert is_harmless(tab)


def test_places_beyond_the_basic_plane_are_marked(tab: Any, hostile: Running) -> None:
    tab.goto(f"{hostile.address}/table?subjects=Zo%C3%AB&relation=place+of+birth")
    tab.get_by_text("cells filled").wait_for()
    tab.locator("#cells a.cell").click()
    value = tab.locator("#evidence mark").text_content()
    assert tab.locator("#evidence blockquote").text_content() == "👩‍🔬 Zoë was born in Zürich."
    assert value in ("Zürich", "Zoë", "born in Zürich")


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ("name\r\nMarie Curie\r\nundefined\r\n", "Marie Curie\nundefined"),
        ('name|born\nMarie Curie|\n"a|b"|1900', "name\tborn\nMarie Curie\t\na|b\t1900"),
        ("name,born\nNewton,", "name\tborn\nNewton\t"),
    ],
)
def test_a_csv_file_may_have_one_column_and_any_separator(content: str, shown: str, tab: Any, service: Running) -> None:
    tab.goto(f"{service.address}/table")
    tab.locator("#upload").set_input_files({"name": "t.csv", "mimeType": "text/csv", "buffer": content.encode()})
    pytest.importorskip("playwright.sync_api").expect(tab.locator("#subjects")).not_to_have_value("")
    assert tab.locator("#subjects").input_value() == shown


def test_pages_are_looked_through(tab: Any, service: Running) -> None:
    tab.goto(f"{service.address}/pages")
    count = tab.locator("#count")
    assert count.inner_text() == "1–50 of 198 pages"
    for _ in range(3):
        tab.get_by_role("link", name="Next").click()
    assert count.inner_text() == "151–198 of 198 pages"
    tab.get_by_label("Title begins with").fill("marie c")
    tab.get_by_role("button", name="Show").click()
    assert tab.locator(".titles li").all_inner_texts() == ["Marie Curie S001"]
    assert count.inner_text() == "1–1 of 1 pages"


@pytest.mark.parametrize("path", ["/", "/?q=Marie+Curie+[SEP]+spouse", "/page/S001", "/pages", "/table", "/api"])
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
    assert 10_000 < sum(sizes) < 100_000


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(browser: Any, service: Running, scheme: str) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not there: npm install --no-save axe-core, or say with AXE_CORE where axe.min.js is")
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
    fill(tab, service)
    tab.locator("#cells a.cell").first.click()
    assert axe(tab) == []
    context.close()


def axe(tab: Any) -> list[str]:
    """What is wrong with a page."""
    tab.evaluate(AXE.read_text("utf-8"))
    violations = tab.evaluate("axe.run().then(found => found.violations)")
    return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in violations]
