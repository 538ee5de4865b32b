"""Decisions on the server: appended, shared by all who look, read by `kbq fill`; what is none is
refused.
"""

import json
import resource
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from browsing import expect, wait_until

from kbq.kb import KnowledgeBase
from kbq.serve.decisions import DecisionsFile
from kbq.tables.deciding import read_decisions
from kbq.tables.outputs import BROWSER

from .conftest import Running, Serve
from .test_page import LIST
from .test_process import address_of, command

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
    assert exchanged(keeping, since=second["next"]) == {
        "decisions": [],
        "next": second["next"],
        "more": False,
    }
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
    for since in (10_000_000, 2**53):  # of a longer file
        assert exchanged(keeping, since=since)["decisions"][0] == kept


def test_a_long_line_of_before_keeps_nobody_from_what_follows(
    keeping: Running, tmp_path: Path
) -> None:
    (tmp_path / "kept").mkdir()
    long = json.dumps(LINE | {"page_id": "x" * 1_800_000}) + "\n"
    (tmp_path / "kept" / "sample.decisions.jsonl").write_text(long)
    answer = exchanged(keeping, LINE | {"value": "Kraków"})
    values = [one["value"] for one in answer["decisions"]]
    while answer["more"]:
        answer = exchanged(keeping, since=answer["next"])
        values += [one["value"] for one in answer["decisions"]]
    assert values == ["Warsaw", "Kraków"]


def test_a_decision_that_is_sent_twice_is_kept_once(keeping: Running) -> None:
    first = exchanged(
        keeping, LINE | {"id": "a"}, LINE | {"id": "b", "value": "Kraków"}, LINE | {"id": "a"}
    )
    assert [one["id"] for one in first["decisions"]] == ["a", "b"]
    assert exchanged(keeping, LINE | {"id": "b"}, LINE | {"id": "c"})["decisions"][2:] == [
        {name: value for name, value in LINE.items() if name not in ("x", "page_id")} | {"id": "c"}
    ]


@pytest.mark.parametrize(
    "torn", [b'{"subject": "torn by a ki' + b"x" * 1_800_000, b"\0" * 5000, b"\0\n{}\n"]
)
def test_a_torn_tail_is_cut_off_said_and_kept_beside(
    torn: bytes, serve: Serve, kb_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "sample.decisions.jsonl"
    whole = json.dumps(LINE).encode() + b"\n"
    path.write_bytes(whole + torn)
    keeping = serve({"sample": kb_folder}, decisions=tmp_path)
    assert path.read_bytes() == whole
    assert (tmp_path / "sample.decisions.jsonl.torn").read_bytes() == torn + b"\n"
    said = (
        "sample.decisions.jsonl ended in a torn line, which is in sample.decisions.jsonl.torn now"
    )
    assert said in caplog.text
    path.write_bytes(whole + torn)  # while it runs: another service was killed
    assert len(exchanged(keeping, LINE | {"value": "Kraków"}, since=len(whole))["decisions"]) == 1
    # A place within a line.
    assert exchanged(keeping, since=7)["decisions"] == exchanged(keeping)["decisions"]
    assert [*read_decisions(path)[("Marie Curie", "born")]] == ["warsaw", "krakow"]


def test_ids_are_known_whoever_wrote_them_and_forgotten_with_their_file(tmp_path: Path) -> None:
    path = tmp_path / "sample.decisions.jsonl"
    mine, other = DecisionsFile(path), DecisionsFile(path)  # two services
    lines = [json.dumps(LINE | {"id": name}).encode() + b"\n" for name in "abcd"]
    mine.exchanged(lines[:2], 0)
    other.exchanged(lines[1:3], 0)
    assert [one["id"] for one in mine.exchanged([*lines, lines[3]], 0).decisions] == [
        "a",
        "b",
        "c",
        "d",
    ]
    assert path.read_bytes() == b"".join(lines)
    path.write_bytes(b"".join(lines[1:]))  # somebody removes a line
    assert [one["id"] for one in mine.exchanged(lines, 0).decisions] == ["b", "c", "d", "a"]
    path.unlink()
    path.write_bytes(lines[3])
    assert [one["id"] for one in other.exchanged(lines[2:], 0).decisions] == ["d", "c"]


def test_a_decision_beside_a_hundred_thousand_costs_little(tmp_path: Path) -> None:
    path = tmp_path / "sample.decisions.jsonl"
    lines = [
        json.dumps(LINE | {"id": f"{number:036}"}).encode() + b"\n" for number in range(100_000)
    ]
    path.write_bytes(b"".join(lines))
    file = DecisionsFile(path)
    file.repair()
    begun = time.process_time()
    tracemalloc.start()
    answer = file.exchanged([lines[50_000], json.dumps(LINE | {"id": "new"}).encode() + b"\n"], 0)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (len(answer.decisions) > 1000, answer.more) == (True, True)
    assert (
        path.stat().st_size
        == len(lines) * len(lines[0]) + len(json.dumps(LINE | {"id": "new"})) + 1
    )
    assert most < 20_000_000  # it was 476 MB
    assert time.process_time() - begun < 2  # seconds; it was 4.1, without counting the memory


@pytest.mark.parametrize("kind", ["a folder", "a link", "a second name"])
def test_a_file_that_cannot_be_opened_keeps_nobody_from_asking(
    kind: str, serve: Serve, kb_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "sample.decisions.jsonl"
    other = tmp_path / "other"
    other.touch()
    if kind == "a folder":
        path.mkdir()
    elif kind == "a link":
        path.symlink_to(other)
    else:
        path.hardlink_to(other)
    keeping = serve({"sample": kb_folder}, decisions=tmp_path)
    assert f"decisions are not kept: {path} " in caplog.text
    assert len(keeping.query("the river")) == 1
    answer = keeping.client.post("/v1/decisions", json={"decisions": [LINE]})
    assert answer.status_code == 507
    assert str(tmp_path) not in answer.json()["detail"]


@pytest.mark.slow
def test_a_torn_file_on_a_full_disk_keeps_nobody_from_asking(
    kb_folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "tiny.decisions.jsonl"
    torn = json.dumps(LINE).encode() + b"\n" + b"\0" * 5000
    path.write_bytes(torn)
    words = (f"tiny={kb_folder}", "--port", "0", "--json", "--decisions", str(tmp_path))
    limited = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (3000, -1))  # noqa: E731 - a disk that is full
    with (
        command(*words, preexec_fn=limited) as process,
        httpx2.Client(base_url=address_of(process), timeout=300) as client,
    ):
        assert client.post("/v1/query", json={"queries": ["the river"]}).status_code == 200
        assert client.post("/v1/decisions", json={"decisions": [LINE]}).status_code == 507
        process.terminate()
        _, said = process.communicate(timeout=300)
    assert process.returncode == 0
    assert "Traceback" not in said
    assert "decisions are not kept: " in said
    assert path.read_bytes() == torn


@pytest.mark.slow
def test_whatever_was_answered_200_survives_a_full_disk_and_kills(
    kb_folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "tiny.decisions.jsonl"
    words = (f"tiny={kb_folder}", "--port", "0", "--json", "--decisions", str(tmp_path))
    kept: list[str] = []

    def send(client: httpx2.Client, count: int) -> int:
        ids = [f"{len(kept)}-{number}" for number in range(count)]
        decisions = [LINE | {"id": one, "subject": one, "page_id": "p" * 4000} for one in ids]
        answer = client.post(
            "/v1/decisions",
            json={"decisions": decisions, "since": path.stat().st_size * path.exists()},
        )
        kept.extend(ids if answer.status_code == 200 else [])
        return answer.status_code

    path.touch()
    limited = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, -1))  # noqa: E731 - a disk that is full
    with (
        command(*words, preexec_fn=limited) as process,
        httpx2.Client(base_url=address_of(process), timeout=300) as client,
    ):
        statuses = [send(client, 10) for _ in range(8)]
        assert (statuses, send(client, 1)) == ([200] * 3 + [507] * 5, 200)  # there is space for one
        assert path.stat().st_size <= 300_000
        assert len(read_decisions(path)) == len(kept)
    for seconds in (0.0, 0.01, 0.05):
        with (
            command(*words) as process,
            httpx2.Client(base_url=address_of(process), timeout=300) as client,
        ):
            assert send(client, 3) == 200
            timer = threading.Timer(seconds, process.kill)
            timer.start()
            with suppress(httpx2.TransportError):
                while True:
                    send(client, 200)
            timer.join()
    with command(*words) as process:  # which looks at the end of the file
        address_of(process)
    subjects = {subject for subject, _ in read_decisions(path)}
    assert subjects.issuperset(kept)


def test_what_many_send_at_once_is_all_there(keeping: Running, tmp_path: Path) -> None:
    lines = [
        [LINE | {"subject": f"{person} {number}"} for number in range(100)] for person in range(10)
    ]
    with ThreadPoolExecutor(10) as pool:
        list(
            pool.map(
                lambda mine: [
                    exchanged(keeping, *mine[first : first + 10]) for first in range(0, 100, 10)
                ],
                lines,
            )
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
        (
            {"decisions": [LINE | {"value": "x" * 10_000}]},
            422,
            "decisions[0] has a text of 10,000 characters",
        ),
        ({"decisions": [LINE] * 501}, 422, "decisions: "),
        (
            {"decisions": [LINE | {"page_id": "x" * 4097}]},
            422,
            "decisions[0] has a page_id that is too long",
        ),
        (
            {"decisions": [LINE | {"end": 10**400}]},
            422,
            "decisions[0] has a end that is too long, or no number",
        ),
        ({"decisions": [LINE | {"id": "x" * 65}]}, 422, "decisions[0] has a text of "),
        ({"since": -1}, 422, "since: "),
        ({"since": 2**70}, 422, "since: "),
        ({"kb": "../x"}, 404, "there is no knowledge base '../x': choose from sample"),
    ],
)
def test_what_is_none_is_refused_and_nothing_kept(
    body: dict[str, Any], status: int, said: str, keeping: Running, tmp_path: Path
) -> None:
    answer = keeping.client.post("/v1/decisions", json=body)
    assert (answer.status_code, answer.json()["detail"][: len(said)]) == (status, said)
    assert not (tmp_path / "kept").exists()


def test_without_a_folder_browsers_keep_them(service: Running) -> None:
    answer = service.client.post("/v1/decisions", json={"decisions": [LINE]})
    assert (answer.status_code, answer.json()["detail"]) == (
        404, "decisions are not kept here: start `kbq serve --decisions FOLDER`",
    )  # fmt: skip


def test_two_people_see_what_the_other_decides(
    browser: Any, serve: Serve, sample: KnowledgeBase, tmp_path: Path
) -> None:
    keeping = serve({"sample": sample.folder}, decisions=tmp_path / "kept")
    address = f"{keeping.address}/table?subjects=Marie+Curie%0AIsaac+Newton&relation=place+of+birth"
    tabs: list[Any] = []
    for name in ("Eve", "Bob"):
        tab = browser.new_context().new_page()
        tab.add_init_script(LIST)
        tab.goto(address)
        tab.get_by_text("2 of 2 cells filled").wait_for()
        tab.get_by_label("Your name").fill(name)
        tab.get_by_label("Your name").press("Escape")
        tab.locator("#rows .value button").nth(len(tabs)).click()
        with tab.expect_response("**/v1/decisions"):
            tab.keyboard.press("r")
        tabs.append(tab)
    tabs[1].get_by_text("2 of 2 reviewed").wait_for()
    tabs[0].evaluate("dispatchEvent(new Event('focus'))")
    tabs[0].get_by_text("2 of 2 reviewed").wait_for()
    tabs[0].locator("#rows .value button").nth(1).click()
    expect(tabs[0].locator("#evidence")).to_contain_text("rejected “Woolsthorpe”: Bob")
    found = read_decisions(tmp_path / "kept" / "sample.decisions.jsonl")
    assert [(one.reviewer, one.choice) for values in found.values() for one in values.values()] == [
        ("Eve", "reject"), ("Bob", "reject"),
    ]  # fmt: skip
    for tab in tabs:
        tab.context.close()


# In browsers


@pytest.fixture
def people(
    browser: Any, serve: Serve, sample: KnowledgeBase, tmp_path: Path
) -> Iterator[Callable[..., Any]]:
    """Opens a page with two filled cells in a browser of its own, or in that of another tab."""
    keeping = serve({"sample": sample.folder}, decisions=tmp_path)
    contexts: list[Any] = []

    def opened(beside: Any = None, script: str = "") -> Any:
        context = beside.context if beside else browser.new_context()
        contexts.append(context)
        tab = context.new_page()
        tab.add_init_script(f"{LIST};{script}")
        tab.goto(
            f"{keeping.address}/table?subjects=Marie+Curie%0AIsaac+Newton&relation=place+of+birth"
        )
        tab.get_by_text("2 of 2 cells filled").wait_for()
        return tab

    yield opened
    for context in contexts:
        context.close()


def correct(tab: Any, value: str) -> None:
    """Type another value for the first cell."""
    open_first(tab)
    tab.keyboard.press("c")
    tab.keyboard.type(value)
    tab.keyboard.press("Enter")


def open_first(tab: Any) -> None:
    tab.locator("#rows .value button").first.click()


def kept_in(tmp_path: Path) -> list[tuple[str, str]]:
    """The values in the file, in its order, with what was decided on each."""
    lines = (tmp_path / "sample.decisions.jsonl").read_text("utf-8").splitlines()
    return [(line["value"], line["decision"]) for line in map(json.loads, lines)]


def when_sent(tab: Any) -> None:
    """Wait until the browser keeps no decision any more: the server has them."""
    wait_until(tab, "!Object.keys(localStorage).some(name => name.includes('decisions on'))")


def when_kept(tab: Any, tmp_path: Path, value: str) -> None:
    when_sent(tab)
    assert kept_in(tmp_path)[-1] == (value, "accept")


AHEAD = "const now = Date.now; Date.now = () => now() + 2 * 86400e3"  # milliseconds


@pytest.mark.parametrize("script", ["", AHEAD])
def test_opening_the_page_again_turns_nothing_back(
    people: Callable[..., Any], script: str, tmp_path: Path
) -> None:
    alice = people(script=script)
    correct(alice, "Alice's")
    when_kept(alice, tmp_path, "Alice's")
    bob = people()
    correct(bob, "Bob's")
    when_kept(bob, tmp_path, "Bob's")
    before = kept_in(tmp_path)
    alice.reload()
    alice.get_by_text("2 of 2 cells filled").wait_for()
    again = people(beside=alice, script=script)
    alice.close()
    for tab in (again, bob):
        tab.evaluate("dispatchEvent(new Event('focus'))")
        tab.locator(".instead", has_text="Bob's").wait_for()
        expect(tab.locator(".instead")).to_have_count(1)
    assert kept_in(tmp_path) == before
    found = read_decisions(tmp_path / "sample.decisions.jsonl")[("Marie Curie", "place of birth")]
    assert [one.value for one in found.values() if one.choice == "accept"] == ["Bob's"]


def test_decisions_of_a_browser_that_was_offline_are_sent_once(
    people: Callable[..., Any], tmp_path: Path
) -> None:
    alice, bob = people(), people()
    bob.context.set_offline(True)
    correct(bob, "Bob's")
    bob.get_by_text("this browser has: they are sent again").wait_for()
    correct(alice, "Alice's")
    when_kept(alice, tmp_path, "Alice's")
    bob.keyboard.press("a")  # of the second cell
    bob.context.set_offline(False)
    bob.evaluate("dispatchEvent(new Event('focus'))")
    when_sent(bob)
    assert [value for value, decision in kept_in(tmp_path) if decision == "accept"] == [
        "Alice's",
        "Bob's",
        "Woolsthorpe",
    ]
    before = kept_in(tmp_path)
    for tab in (alice, bob):
        tab.reload()
        tab.locator(".instead", has_text="Bob's").wait_for()
    assert kept_in(tmp_path) == before


def test_undo_brings_nothing_back_where_another_has_decided_since(
    people: Callable[..., Any], tmp_path: Path
) -> None:
    alice, bob = people(), people()
    for value in ("first", "second"):
        correct(alice, value)
        when_kept(alice, tmp_path, value)
    bob.evaluate("dispatchEvent(new Event('focus'))")
    bob.locator(".instead", has_text="second").wait_for()
    correct(bob, "Bob's")
    when_kept(bob, tmp_path, "Bob's")
    before = kept_in(tmp_path)
    alice.evaluate("dispatchEvent(new Event('focus'))")
    alice.locator(".instead", has_text="Bob's").wait_for()
    for _ in range(2):
        alice.get_by_role("button", name="Undo").click()
        alice.get_by_text("Others have decided on this since: what they decided stays.").wait_for()
    when_sent(alice)
    assert [one for one in kept_in(tmp_path)[len(before) :] if one[1] == "accept"] == []
    found = read_decisions(tmp_path / "sample.decisions.jsonl")[("Marie Curie", "place of birth")]
    assert [one.value for one in found.values() if one.choice == "accept"] == ["Bob's"]
    expect(alice.locator(".instead")).to_have_text(["Bob's"])


SEQUENCES = """seed => {
  const random = below => (seed = (seed * 48271) % 2147483647) % below;
  const log = [], done = [];
  const cells = [{subject: "a", relation: "r", many: false}, {subject: "b", relation: "r", many: true}];
  const people = ["Eve", "Bob"].map(name => {
    const one = new Decisions({keep: `${name} ${seed}`, changed: () => {}, exchange: async (sent, since) => {
      log.push(...sent);
      return {decisions: log.slice(since), next: log.length, more: false};
    }});
    one.reviewer = name;
    return one;
  });
  const synchronised = async () => {
    for (let turn = 0; turn < 4; turn++) {
      dispatchEvent(new Event("focus"));
      await new Promise(done => setTimeout(done));
    }
  };
  const state = place => Object.fromEntries(people[0].of(cells[place]).map(({value, decision}) => [value, decision]));
  return (async () => {
    await synchronised();
    for (let turn = 0; turn < 40; turn++) {
      const who = random(2), place = random(2), value = ["", "u", "v", "w"][random(4)], what = random(5);
      const before = [state(0), state(1)], first = log.length, cell = cells[place], one = people[who];
      if (what < 2) one.decide(cell, value, "accept");
      else if (what === 2) one.decide(cell, value, "reject");
      else if (what === 3) one.correct(cell, "u", value);
      const about = what === 4 ? one.undo()?.subject ?? null : cell.subject;
      await synchronised();
      done.push({who, about, isUndo: what === 4, before, after: [state(0), state(1)], made: log.length - first});
    }
    return done;
  })();
}"""


def test_undo_is_as_before_or_where_another_decided_since_adds_nothing(browser: Any) -> None:
    tab = browser.new_page()
    tab.route("http://kbq.test/", lambda route: route.fulfill(body="<p>", content_type="text/html"))
    tab.goto("http://kbq.test/")
    tab.add_script_tag(path=BROWSER / "decisions.js")
    assert sum(undone_as_before(tab.evaluate(SEQUENCES, seed)) for seed in range(1, 9)) > 8
    tab.close()


def undone_as_before(sequence: list[dict[str, Any]]) -> int:
    """Check what two people did to two cells in turns; how often all was as before."""
    # cell, its state before, and the turn.
    steps: dict[int, list[tuple[int, dict[str, str], int]]] = {
        0: [],
        1: [],
    }
    last = [[-1, -1], [-1, -1]]  # of each cell, the last turn of each person
    undone = 0
    for turn, one in enumerate(sequence):
        who = one["who"]
        if one["about"] is None:
            assert steps[who] == []
            continue
        place = "ab".index(one["about"])
        before, after = one["before"][place], one["after"][place]
        assert one["before"][1 - place] == one["after"][1 - place]
        if one["isUndo"]:
            of_step, state, since = steps[who].pop()
            is_alone = last[place][1 - who] < since
            undone += is_alone
            added = {
                value
                for value, choice in after.items()
                if choice == "accept" and before.get(value) != choice
            }
            assert place == of_step
            assert (after == state) if is_alone else not added
        elif one["made"]:
            steps[who].append((place, before, turn))
        if one["made"]:
            last[place][who] = turn
    return undone


def test_two_tabs_of_one_browser_decide_on_one_cell(
    people: Callable[..., Any], tmp_path: Path
) -> None:
    one = people()
    other = people(beside=one)
    one.context.set_offline(True)
    correct(one, "first")
    other.locator(".instead", has_text="first").wait_for()
    correct(other, "second")
    one.locator(".instead", has_text="second").wait_for()
    one.context.set_offline(False)
    for tab in (one, other):
        tab.evaluate("dispatchEvent(new Event('focus'))")
    when_kept(other, tmp_path, "second")
    assert len(kept_in(tmp_path)) == len(set(kept_in(tmp_path)))
    one.reload()
    one.locator(".instead", has_text="second").wait_for()


def test_a_decision_whose_answer_was_lost_is_kept_once(
    people: Callable[..., Any], tmp_path: Path
) -> None:
    tab = people()
    lost: list[Any] = []

    def lose(route: Any) -> None:
        lost.append(route.fetch())
        route.abort()

    tab.route("**/v1/decisions", lose, times=2)
    open_first(tab)
    tab.keyboard.press("r")
    tab.get_by_text("this browser has: they are sent again").wait_for()
    when_sent(tab)
    assert (len(lost), kept_in(tmp_path)) == (2, [("Warsaw", "reject")])


def test_a_browser_of_before_sends_what_the_server_lacks(
    people: Callable[..., Any], tmp_path: Path
) -> None:
    old = [
        ["Marie Curie", "place of birth", value, "accept", f"2026-11-0{day}"]
        for day, value in ((1, "A"), (2, "B"))
    ]
    lines = [
        dict(zip(("subject", "relation", "value", "decision", "time"), one, strict=True))
        for one in old
    ]
    lines[1] |= {"value": "C", "time": "2026-11-03"}
    (tmp_path / "sample.decisions.jsonl").write_text(
        "".join(f"{json.dumps(line)}\n" for line in lines)
    )
    stored = f"localStorage.setItem('kbq decisions on sample', {json.dumps(json.dumps(old))})"
    tab = people(script=f"if (!sessionStorage.old) {{ {stored}; sessionStorage.old = 1 }}")
    when_kept(tab, tmp_path, "B")
    assert [value for value, _ in kept_in(tmp_path)] == ["A", "C", "B"]
    assert tab.evaluate("Object.keys(localStorage)") == []


def test_a_decision_stays_where_the_page_is_loaded_again_amid_the_answer(
    browser: Any, serve: Serve, sample: KnowledgeBase, held: threading.Event, tmp_path: Path
) -> None:
    keeping = serve({"sample": sample.folder}, decisions=tmp_path)
    tab = browser.new_page()
    tab.add_init_script(LIST)
    subjects = "%0A".join(f"Marie+Curie{'+' * number}{number or ''}" for number in range(6))
    tab.goto(f"{keeping.address}/table?subjects={subjects}&relation=place+of+birth&relation=spouse")
    tab.locator("#rows .value button").first.wait_for()
    correct(tab, "mine")
    tab.reload()
    held.set()
    tab.locator(".instead", has_text="mine").wait_for()
    when_kept(tab, tmp_path, "mine")
    assert [one for one in kept_in(tmp_path) if one[1] == "accept"] == [("mine", "accept")]
    tab.close()
