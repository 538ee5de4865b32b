"""Review: the page works in a browser from a file, runs no text of a corpus, and gives decisions
that kbq reads.
"""

import html.parser
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from shutil import which
from typing import Any

import pytest
from browsing import expect, reload
from hypothesis import given
from hypothesis import strategies as st

from kbq.english.dates import DateValue
from kbq.tables.claims import Alternative, Claim, Source
from kbq.tables.deciding import read_decisions
from kbq.tables.outputs import described, write_review
from kbq.tables.relations import Relation
from kbq.tables.tables import read_table
from kbq.text.normal_forms import normalised
from kbq.tuning.triples import read_triples

SOURCE = Source("1.0", "m0del", "kb-d1gest", "kbq fill people.csv", "2026-11-24T12:00:00Z")
BIRTH = Claim(
    subject="Marie Curie", relation="date of birth", value="7 November 1867", probability=0.93, accepted=True,
    page_id="S1", title="Marie Curie", paragraph=2, start=122, end=137, sentence="👩‍🔬 She, born 7 November 1867.",
    sentence_start=108, normal=DateValue("1867-11-07", 11), says_the_same=3, metadata={"url": "https://example.org/c"},
    alternatives=(Alternative("1867", 0.4, "S2", "Pierre Curie", 1, 7, 11, "In 1867.", 4),),
)  # fmt: skip
EVIL = "</script><script>document.title='bad'</script><img src=x onerror=\"document.title='bad'\">"


def saying(value: str, **more: Any) -> Claim:
    bare: dict[str, Any] = {"normal": None, "alternatives": (), "says_the_same": 1, "metadata": {}}
    place = {"value": value, "sentence": value, "start": 108, "end": 108 + len(value)}
    return replace(BIRTH, **(bare | place | more))


CLAIMS = [
    BIRTH,
    saying("Warsaw", relation="place of birth", probability=0.71),
    saying(EVIL, subject=EVIL, relation=EVIL, title=EVIL, page_id=EVIL, probability=None, accepted=False,
           metadata={"url": "javascript:document.title='bad'"}, alternatives=(Alternative(EVIL, None, EVIL, EVIL),)),
    saying("Paris", subject="Pierre Curie", relation="place of birth", probability=0.2, accepted=False),
]  # fmt: skip


class Scripts(html.parser.HTMLParser):
    """The elements of a page, and the text of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)

    def handle_data(self, data: str) -> None:
        if self.names[-1:] == ["script"] and data.strip():
            self.scripts.append(data)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    write_review(tmp_path / "facts.html", CLAIMS, SOURCE)
    return tmp_path / "facts.html"


def test_claims_are_data_and_nothing_is_loaded(page: Path, tmp_path: Path) -> None:
    text = page.read_text("utf-8")
    write_review(tmp_path / "empty.html", [], SOURCE)
    with_claims, without = Scripts(text), Scripts((tmp_path / "empty.html").read_text("utf-8"))
    assert with_claims.names == without.names  # whatever a claim says, it makes no element
    data, script = with_claims.scripts
    assert json.loads(data)["claims"] == [
        {"id": claim.digest} | json.loads(json.dumps(claim.to_dict())) for claim in CLAIMS
    ]
    assert [len(views) for views in json.loads(data)["views"]] == [2, 1, 2, 1]
    assert script == without.scripts[1]
    assert not re.search(r"src=|https?://", text.replace(data, "").replace(script, ""))
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|fetch|import\(", script
    )


@given(st.text(st.characters(exclude_categories=())))
def test_every_text_is_found_in_the_data(text: str) -> None:
    data = described([saying("x", subject=text)], SOURCE)
    assert not set(data) & set("<>&\u2028\u2029")
    assert json.loads(data)["claims"][0]["subject"] == text


def test_the_script_is_javascript(page: Path, tmp_path: Path) -> None:
    node = which("node")
    if not node:
        pytest.skip("node is not installed")
    (tmp_path / "script.js").write_text(Scripts(page.read_text("utf-8")).scripts[1], "utf-8")
    checked = subprocess.run(
        [node, "--check", tmp_path / "script.js"], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")


# In a browser

LIST = "try { sessionStorage.setItem('kbq view', 'list') } catch {}"  # claims, and not the table


@pytest.fixture
def opened(browser: Any, page: Path) -> Iterator[Any]:
    """The page in a browser without network; it must say nothing on the console."""
    context = browser.new_context(offline=True, accept_downloads=True)
    context.add_init_script(LIST)
    tab = context.new_page()
    said: list[str] = []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.goto(page.as_uri())
    wait_for_claims(tab, 4)
    yield tab
    assert (said, tab.title()) == ([], "kbq review")
    context.close()


def wait_for_claims(tab: Any, count: int | str) -> None:
    """Until they are drawn, which is soon after a page is loaded; what people do is drawn at once."""
    expect(tab.locator("#done")).to_contain_text(f" of {count} reviewed")


def values(tab: Any) -> list[str]:
    return list(tab.locator("#rows .value button").all_text_contents())


def test_a_value_shows_its_evidence(opened: Any) -> None:
    opened.get_by_role("button", name="7 November 1867", exact=True).click()
    evidence = opened.locator("#evidence")
    assert evidence.locator("mark").all_text_contents() == ["7 November 1867"]
    assert evidence.locator("blockquote").text_content() == BIRTH.sentence
    assert evidence.locator("a").get_attribute("href") == "https://example.org/c"
    assert "page S1, paragraph 2" in evidence.text_content()
    assert (
        evidence.locator("abbr").get_attribute("title")
        == "page S1, paragraph 2, characters 122–137"
    )
    assert (
        "93 % · 3 places say the same · filled by kbq · date 1867-11-07" in evidence.text_content()
    )
    assert evidence.locator("li").all_text_contents() == ["1867 40 % · Pierre CurieIn 1867."]


def test_no_text_is_run(opened: Any) -> None:
    opened.locator("#rows .value button").nth(2).click()
    assert opened.locator("#evidence mark").text_content() == EVIL
    assert opened.locator("#evidence a, img").count() == 0
    assert opened.locator("script").count() == 2


def test_filters_and_order(opened: Any) -> None:
    place, paris = CLAIMS[1].value, CLAIMS[3].value
    assert values(opened) == [claim.value for claim in CLAIMS]
    facets = opened.locator("#facets")
    assert facets.get_by_role("button").all_inner_texts()[:5] == [
        "Likely\n1", "Unsure\n1", "Left empty\n2", "place of birth\n2", f"{EVIL}\n1",
    ]  # fmt: skip
    facets.get_by_role("button", name="place of birth 2").click()
    assert values(opened) == [place, paris]
    facets.get_by_role("button", name="Left empty 1").click()
    assert values(opened) == [paris]
    facets.get_by_role("button", name="Unsure 1").click()
    assert values(opened) == [place, paris]
    opened.get_by_role("button", name="Show all").click()
    opened.get_by_label("Probability from").fill("0.5")
    assert values(opened) == [BIRTH.value, place]
    opened.locator("#to").fill("0.8")
    assert values(opened) == [place]
    opened.locator("#to").fill("80")  # per cent
    assert values(opened) == [place]
    opened.get_by_role("button", name="Show all").click()
    opened.get_by_label("Search").fill("PIERRE")
    assert values(opened) == [paris]
    opened.get_by_label("Search").fill("nobody")
    assert opened.locator("#rows").text_content() == "No claims match the filters."
    opened.get_by_role("button", name="Show all").click()
    opened.locator("[data-sort=probability]").click()
    assert values(opened) == [BIRTH.value, place, paris, EVIL]
    opened.locator("[data-sort=probability]").click()
    assert values(opened) == [EVIL, paris, place, BIRTH.value]
    assert opened.locator("[aria-sort]").get_attribute("aria-sort") == "ascending"


def downloaded(tab: Any, path: Path) -> list[dict[str, Any]]:
    """What is downloaded, without times and ids."""
    with tab.expect_download() as download:
        tab.get_by_role("button", name="Decisions").click()
    assert download.value.suggested_filename == "decisions.jsonl"
    download.value.save_as(path)
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    times = [line.pop("time") for line in lines]
    assert times == sorted(times)
    assert len({line.pop("id") for line in lines}) == len(lines)
    return lines


def test_decisions_by_keyboard_are_downloaded_and_read_by_kbq(opened: Any, tmp_path: Path) -> None:
    for key in "araru":  # Marie's two, then Eve's accepted, Paris rejected, which is undone
        opened.keyboard.press(key)
    assert (
        opened.locator("#done").text_content()
        == "3 of 4 reviewed: 2 accepted, 1 rejected, 0 corrected"
    )
    opened.keyboard.press("r")
    lines = downloaded(opened, tmp_path / "d.jsonl")
    assert lines == [
        {"subject": claim.subject, "relation": claim.relation, "value": claim.value, "decision": decision,
         "page_id": claim.page_id, "paragraph": 2, "start": claim.start, "end": claim.end, "object": claim.value,
         "page": claim.page_id}
        for claim, decision in zip(CLAIMS, ("accept", "reject", "accept", "reject"), strict=True)
    ]  # fmt: skip
    found = read_decisions(tmp_path / "d.jsonl")
    assert {
        cell: {value: one.choice for value, one in values.items()} for cell, values in found.items()
    } == {
        ("Marie Curie", "date of birth"): {"7 november 1867": "accept"},
        ("Marie Curie", "place of birth"): {"warsaw": "reject"},
        (EVIL, EVIL): {normalised(EVIL): "accept"},
        ("Pierre Curie", "place of birth"): {"paris": "reject"},
    }
    gold, _ = read_triples(tmp_path / "d.jsonl")
    assert gold.input == "Marie Curie [SEP] date of birth"
    assert gold.answers == {"7 November 1867"}


def test_another_value_is_accepted_typed_or_none_is(opened: Any, tmp_path: Path) -> None:
    opened.get_by_label("Your name").fill("Eve")
    opened.get_by_label("Your name").press("Escape")
    opened.keyboard.press("1")  # the alternative
    opened.keyboard.press("c")
    assert opened.evaluate("document.activeElement.closest('form').className") == "correct"
    opened.keyboard.type("War")
    suggested = opened.locator("#suggestions option")
    expect(suggested).to_have_count(1)
    expect(suggested).to_have_attribute("value", "Warsaw")
    opened.keyboard.type(f"  {EVIL}")
    opened.keyboard.press("Enter")
    opened.keyboard.press("j")
    opened.keyboard.press("n")
    assert (
        opened.locator("#done").text_content()
        == "3 of 4 reviewed: 0 accepted, 0 rejected, 3 corrected"
    )
    assert opened.locator("#rows .instead").all_text_contents() == [
        "1867",
        f"War {EVIL}",
        "left empty",
    ]
    assert [(line["value"], line["decision"], line.get("page_id"), line["reviewer"]) for line in
            downloaded(opened, tmp_path / "d.jsonl")] == [
        ("1867", "accept", "S2", "Eve"), ("Warsaw", "reject", "S1", "Eve"), (f"War {EVIL}", "accept", None, "Eve"),
        ("", "accept", None, "Eve"),
    ]  # fmt: skip
    opened.reload()
    wait_for_claims(opened, 4)
    assert (
        opened.locator("#done").text_content()
        == "3 of 4 reviewed: 0 accepted, 0 rejected, 3 corrected"
    )
    assert "accepted “1867”: Eve, " in opened.locator("#evidence").text_content()
    opened.locator("#evidence li button").click()  # once more: taken back
    assert (
        opened.locator("#done").text_content()
        == "2 of 4 reviewed: 0 accepted, 0 rejected, 2 corrected"
    )


def test_all_that_are_filled_are_accepted_and_undone_at_once_also_after_a_reload(
    opened: Any,
) -> None:
    opened.keyboard.press("r")
    opened.get_by_role("button", name="Accept the 1 filled").click()
    accepted = "2 of 4 reviewed: 1 accepted, 1 rejected, 0 corrected"
    assert opened.locator("#done").text_content() == accepted
    asked: list[str] = []

    def dismissed(dialog: Any) -> None:
        asked.append(dialog.message)
        dialog.dismiss()

    opened.on("dialog", dismissed)
    opened.get_by_role("button", name="Accept 2 guesses…").click()
    assert asked == [
        "2 values are below the threshold: kbq left their cells empty. Accept all of them?"
    ]
    assert opened.locator("#done").text_content() == accepted
    reload(opened)
    expect(opened.locator("#done")).to_have_text(accepted)
    undo = opened.get_by_role("button", name="Undo")
    undo.click()
    assert (
        opened.locator("#done").text_content()
        == "1 of 4 reviewed: 0 accepted, 1 rejected, 0 corrected"
    )
    assert undo.is_enabled()  # the rejection


def test_the_files_are_those_of_the_page_of_the_service(opened: Any, tmp_path: Path) -> None:
    opened.keyboard.press("1")

    def saved(name: str) -> Path:
        with opened.expect_download() as download:
            opened.get_by_role("button", name=name, exact=True).click()
        path = tmp_path / str(download.value.suggested_filename)
        download.value.save_as(path)
        return path

    quoted = EVIL.replace('"', '""')
    assert saved("CSV").read_text("utf-8").splitlines() == [
        f'subject,date of birth,place of birth,"{quoted}"', "Marie Curie,1867,Warsaw,", f'"{quoted}",,,',
        "Pierre Curie,,,",
    ]  # fmt: skip
    rows = read_table(saved("XLSX")).rows
    assert (len(rows), rows[0]["date of birth"], rows[1]["subject"]) == (3, "1867", EVIL)
    facts = saved("RDF").read_text("utf-8").splitlines()
    relation = "<urn:kbq:relation:place%20of%20birth>"
    assert facts[1:] == [f'<urn:kbq:thing:Marie%20Curie> {relation} "Warsaw" .']
    assert '"1867"' in facts[0]  # the alternative that was accepted


@pytest.mark.parametrize(
    ("typed", "written"),
    [
        ("1867-11-06", '"1867-11-06"^^<http://www.w3.org/2001/XMLSchema#date> .'),
        ("1999-02-31", ""),
        ("yesterday", ""),
    ],
)
def test_a_typed_day_is_a_fact_and_what_may_be_anything_is_named(
    typed: str, written: str, browser: Any, tmp_path: Path
) -> None:
    relations = [Relation("date of birth", ("date of birth",), type="date")]
    born = replace(
        BIRTH, start=108, end=108 + len(BIRTH.value), sentence=BIRTH.value, alternatives=()
    )
    write_review(tmp_path / "facts.html", [born], SOURCE, relations)
    tab = browser.new_page()
    tab.add_init_script(LIST)
    tab.goto((tmp_path / "facts.html").as_uri())
    tab.get_by_role("button", name=born.value, exact=True).click()
    tab.get_by_label("Correct to").fill(typed)
    for _ in range(2 if typed == "yesterday" else 1):  # which is no date
        tab.keyboard.press("Enter")
    with tab.expect_download() as download:
        tab.get_by_role("button", name="RDF").click()
    download.value.save_as(tmp_path / "facts.nt")
    subject = "<urn:kbq:thing:Marie%20Curie> <urn:kbq:relation:date%20of%20birth>"
    assert (tmp_path / "facts.nt").read_text("utf-8") == (
        f"{subject} {written}\n" if written else ""
    )
    assert tab.locator("#said").inner_text()[:22] == ("" if written else "1 of 1 values are not ")
    tab.close()


def test_decisions_by_mouse_stay(opened: Any) -> None:
    accept = opened.locator("#rows .yes")
    accept.nth(1).click()
    opened.locator("#evidence .no").click()  # of the same claim: it is decided anew
    accept.nth(0).click()
    accept.nth(0).click()  # taken back
    accept.nth(3).click()
    opened.reload()
    wait_for_claims(opened, 4)
    assert (
        opened.locator("#done").text_content()
        == "2 of 4 reviewed: 1 accepted, 1 rejected, 0 corrected"
    )
    pressed = opened.locator("#rows [aria-pressed=true]")
    assert pressed.evaluate_all("all => all.map(one => one.dataset.choice)") == ["reject", "accept"]
    opened.locator("#facets").get_by_role("button", name="Likely 1").click()
    opened.locator("#facets").get_by_role("button", name="Left empty 1").click()
    assert values(opened) == [CLAIMS[0].value, CLAIMS[2].value]


# The table


@pytest.fixture
def table(opened: Any) -> Any:
    """The table in that browser."""
    opened.get_by_role("button", name="Table", exact=True).click()
    return opened


def cells(tab: Any) -> list[str]:
    """What the cells that can be decided are called."""
    return [text.rstrip("✓✗∅") for text in tab.locator("#cells .cell").all_text_contents()]


def test_the_table_is_seen_as_it_is(table: Any) -> None:
    assert table.locator("#sheet thead th").all_inner_texts() == [
        "subject",
        "date of birth",
        "place of birth",
        EVIL,
    ]
    assert table.locator("#cells th").all_inner_texts() == ["Marie Curie", EVIL, "Pierre Curie"]
    assert cells(table) == [
        "date of birth, 7 November 1867, 93 %", "place of birth, Warsaw, 71 %", f"{EVIL}, left empty, guess {EVIL}",
        "place of birth, left empty, guess Paris, 20 %",
    ]  # fmt: skip
    colours = table.locator("#cells .cell").evaluate_all(
        "all => all.map(one => getComputedStyle(one).backgroundColor)"
    )
    assert len(set(colours[:2])) == 2
    assert colours[2] == colours[3] == "rgba(0, 0, 0, 0)"  # open
    assert table.locator("#claims").is_hidden()
    table.get_by_role("button", name="Claims").click()
    assert (values(table), table.locator("#sheet").is_hidden()) == (
        [one.value for one in CLAIMS],
        True,
    )


def test_keys_decide_on_the_cell_that_was_chosen(table: Any, tmp_path: Path) -> None:
    table.get_by_role("button", name="guess Paris").click()
    assert table.locator("#evidence .over").inner_text() == "Pierre Curie — place of birth"
    assert table.locator("#cells tr.chosen th").inner_text() == "Pierre Curie"
    table.keyboard.press("r")
    table.get_by_role("button", name="place of birth, Warsaw").click()
    table.keyboard.press("ArrowLeft")
    assert table.locator("#evidence h2").inner_text() == "7 November 1867"
    assert (
        table.evaluate("document.activeElement.textContent")
        == "date of birth, 7 November 1867, 93 %"
    )
    table.keyboard.press("a")  # which goes on to the next
    table.keyboard.press("1")
    assert table.locator("#evidence h2").inner_text() == "Warsaw"
    table.keyboard.press("ArrowDown")
    table.keyboard.press("c")
    table.keyboard.type("Lyon")
    table.keyboard.press("Enter")
    assert [(line["subject"], line["value"], line["decision"]) for line in downloaded(table, tmp_path / "d.jsonl")] == [
        ("Marie Curie", "7 November 1867", "accept"), ("Pierre Curie", "Paris", "reject"),
        ("Pierre Curie", "Lyon", "accept"),
    ]  # fmt: skip
    assert cells(table)[0] == "date of birth, 7 November 1867, accepted"
    assert cells(table)[3] == "place of birth, Lyon, corrected"


def test_rows_are_found_sorted_and_selected(table: Any) -> None:
    facets, names = table.locator("#facets"), table.locator("#cells th")
    facets.get_by_role("button", name="Unsure 1").click()
    assert names.all_inner_texts() == ["Marie Curie"]
    assert [label for label in cells(table) if "date" in label] == [
        "date of birth, 7 November 1867, 93 %"
    ]
    assert table.locator("#cells .faded").count() == 1
    table.locator("#cells .faded").click()  # does not fit, but keys act on it all the same
    table.keyboard.press("a")
    assert cells(table)[0] == "date of birth, 7 November 1867, accepted"
    table.get_by_role("button", name="Show all").click()
    table.locator("#sheet thead .subject button").click()
    assert names.all_inner_texts() == [EVIL, "Marie Curie", "Pierre Curie"]
    table.locator("#sheet thead .subject button").click()
    assert names.all_inner_texts() == ["Pierre Curie", "Marie Curie", EVIL]
    table.get_by_label("Select Marie Curie").check()
    assert table.locator("#selected").inner_text() == "1 row selected"
    table.get_by_role("button", name="Reject the 1 filled").click()
    assert "place of birth, Warsaw, rejected" in cells(table)
    table.get_by_label("Select all rows that are shown").check()
    assert table.locator("#selected").inner_text() == "3 rows selected"
    table.get_by_role("button", name="Select none").click()
    assert table.locator("#selection").is_hidden()


def test_the_past_is_seen_and_taken_back(table: Any) -> None:
    table.get_by_label("Your name").fill("Eve")
    table.get_by_label("Your name").press("Escape")
    for key in "arh":
        table.keyboard.press(key)
    past = table.locator("#past li")
    assert past.locator(".what").all_inner_texts() == [
        "rejected “Warsaw”",
        "accepted “7 November 1867”",
    ]
    assert all(text.startswith("Eve · ") for text in past.locator("small").all_inner_texts())
    past.nth(1).get_by_role("button", name="Take back").click()
    assert past.locator(".what").all_inner_texts() == [
        "took back “7 November 1867”",
        "rejected “Warsaw”",
    ]
    assert cells(table)[0] == "date of birth, 7 November 1867, 93 %"
    table.get_by_role("button", name="Undo").click()
    assert cells(table)[0] == "date of birth, 7 November 1867, accepted"
    table.get_by_role("button", name="History").click()
    past.nth(1).locator(".to").click()
    assert table.locator("#evidence .over").inner_text() == "Marie Curie — place of birth"


def cpu_seconds(tab: Any, act: Callable[[], None]) -> float:
    """The CPU seconds that the page's main thread takes for an act, which no other process can make
    longer.
    """
    protocol = tab.context.new_cdp_session(tab)
    protocol.send("Performance.enable", {"timeDomain": "threadTicks"})

    def seconds() -> float:
        metrics = protocol.send("Performance.getMetrics")["metrics"]
        return float(
            next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")
        )

    before = seconds()
    act()
    tab.evaluate("() => new Promise(drawn => requestAnimationFrame(() => setTimeout(drawn)))")
    return seconds() - before


def test_a_table_of_5000_rows(browser: Any, tmp_path: Path) -> None:
    claims = []
    for number in range(5000):
        chance = {"probability": number % 100 / 100, "accepted": number % 100 >= 50}
        claims += [
            saying("Rome", subject=f"Person {number}", relation=name, **chance)
            for name in ("born in", "died in")
        ]
    write_review(tmp_path / "large.html", claims, SOURCE)
    tab = browser.new_page()
    tab.goto((tmp_path / "large.html").as_uri())
    wait_for_claims(tab, "10,000")
    assert tab.locator("#place").text_content() == "1–100 of 5,000"
    assert tab.locator("#cells tr").count() == 100
    tab.get_by_role("button", name="Next", exact=True).click()
    assert tab.locator("#cells th").first.inner_text() == "Person 100"
    tab.keyboard.press("a")
    assert tab.locator("#facets .swatch").all_inner_texts() == [
        "Likely",
        "Unsure",
        "Left empty",
        "Accepted",
    ]
    tab.get_by_label("Search").fill("person 4999")
    assert tab.locator("#cells th").all_inner_texts() == ["Person 4999"]
    tab.get_by_role("button", name="Show all").click()
    for name, first in (
        ("subject", "Person 0"),
        ("subject", "Person 4999"),
        ("died in", "Person 0"),
    ):
        assert cpu_seconds(tab, tab.locator("#sheet thead").get_by_text(name).click) < 1
        assert tab.locator("#cells th").first.inner_text() == first
    tab.get_by_label("Select all rows that are shown").check()
    tab.get_by_role("button", name="Accept the 5,000 filled").click()
    assert tab.locator("#done").inner_text().startswith("5,001 of 10,000 reviewed: 5,001 accepted")
    tab.get_by_role("button", name="Undo").click()
    assert tab.locator("#done").inner_text().startswith("1 of 10,000 reviewed")
    tab.close()


def test_two_tabs_keep_the_decisions_of_both(browser: Any, page: Path) -> None:
    context = browser.new_context(offline=True)
    one, other = context.new_page(), context.new_page()
    for tab in (one, other):
        tab.goto(page.as_uri())
        wait_for_claims(tab, 4)
    one.keyboard.press("a")
    other.keyboard.press("j")
    other.keyboard.press("r")
    for tab in (one, other):
        tab.get_by_text("2 of 4 reviewed: 1 accepted, 1 rejected, 0 corrected").wait_for()
    context.close()


def test_keys_in_a_field_are_letters(opened: Any) -> None:
    opened.keyboard.press("/")
    opened.keyboard.type("arj")
    assert opened.get_by_label("Search").input_value() == "arj"
    assert (
        opened.locator("#done").text_content()
        == "0 of 4 reviewed: 0 accepted, 0 rejected, 0 corrected"
    )


def test_a_browser_that_keeps_nothing_says_so(browser: Any, page: Path) -> None:
    tab = browser.new_page()
    tab.add_init_script(
        "Object.defineProperty(window, 'localStorage', {get() { throw new Error('denied') }})"
    )
    tab.goto(page.as_uri())
    wait_for_claims(tab, 4)
    tab.keyboard.press("a")
    tab.locator("#done.warning").wait_for()
    assert (
        tab.locator("#done")
        .text_content()
        .startswith("This browser keeps no decisions: download them")
    )
    tab.close()


def test_the_policy_of_the_page_forbids_other_scripts_and_all_requests(
    browser: Any, page: Path
) -> None:
    tab = browser.new_page()
    said: list[str] = []
    tab.on("console", lambda message: said.append(message.text))
    tab.goto(page.as_uri())
    tab.evaluate(
        """() => new Promise(done => {
            const made = document.createElement("script"), image = new Image();
            made.textContent = "document.title = 'bad'";
            document.body.append(made);
            image.onerror = done;
            image.src = "https://example.org/seen.png";
        })"""
    )
    assert tab.title() == "kbq review"
    script, request, *more = [" ".join(text.split()[:3]) for text in said]
    assert (script, request, more) == ("Executing inline script", "Loading the image", [])
    tab.close()


@pytest.mark.parametrize("width", [1400, 800, 360])
def test_every_width_fits(opened: Any, width: int) -> None:
    opened.set_viewport_size({"width": width, "height": 800})
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    for _ in range(3):
        opened.keyboard.press("j")
    row, panel = (
        opened.locator("tr.chosen").bounding_box(),
        opened.locator("#evidence").bounding_box(),
    )
    assert row["y"] + row["height"] <= (800 if width == 1400 else panel["y"] + 1)


def test_ten_thousand_claims_are_reviewed(browser: Any, tmp_path: Path) -> None:
    write_review(
        tmp_path / "many.html",
        (saying(f"value {n}", subject=f"subject {n}") for n in range(10_000)),
        SOURCE,
    )
    tab = browser.new_page()
    tab.add_init_script(LIST)
    tab.goto((tmp_path / "many.html").as_uri())
    wait_for_claims(tab, "10,000")
    assert tab.locator("#counts").text_content() == "10,000 claims about 10,000 subjects"
    assert tab.locator("#place").text_content() == "1–100 of 10,000"
    tab.evaluate(
        """for (let n = 0; n < 20; n++) document.dispatchEvent(new KeyboardEvent("keydown", {key: n % 2 ? "r" : "a"}));
        document.querySelector("[data-sort=value]").click();"""
    )
    assert (
        tab.locator("#done").text_content()
        == "20 of 10,000 reviewed: 10 accepted, 10 rejected, 0 corrected"
    )
    assert values(tab)[:3] == ["value 0", "value 1", "value 2"]
    tab.get_by_role("button", name="Next").click()
    assert tab.locator("#place").text_content() == "101–200 of 10,000"
    for _ in range(2):
        tab.keyboard.press("k")
    assert tab.locator("#place").text_content() == "1–100 of 10,000"
    tab.close()
