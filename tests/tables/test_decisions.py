"""Decisions: what is read of them, and that all of them are obeyed."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbq.errors import KbqError
from kbq.kb import KnowledgeBase
from kbq.tables.claims import Alternative, Claim
from kbq.tables.deciding import Decision, decided, disputed, obeyed, read_decisions
from kbq.tables.outputs import export
from kbq.tables.relations import Relation, Slot
from kbq.tables.values import normal_form
from kbq.tuning.triples import read_triples

LINE = {
    "subject": "Marie  Curie",
    "relation": "r",
    "value": "WARSAW",
    "decision": "reject",
    "page_id": "S1",
}


def test_the_last_decision_on_a_value_counts(write_json_lines: Callable[..., Path]) -> None:
    path = write_json_lines(
        "d.jsonl",
        LINE,
        LINE
        | {
            "value": "Paris",
            "decision": "accept",
            "reviewer": "eve",
            "time": "2026-11-26T09:00:00Z",
        },
        LINE | {"value": "warsaw.", "decision": "accept"},
        LINE | {"subject": "Eve", "decision": "accept"},
        LINE | {"subject": "Eve", "decision": "undo"},
    )
    assert read_decisions(path) == {
        ("Marie Curie", "r"): {
            "paris": Decision("Marie Curie", "r", "Paris", "accept", "eve", "2026-11-26T09:00:00Z"),
            "warsaw": Decision("Marie Curie", "r", "warsaw.", "accept"),
        }
    }


def test_a_table_is_no_file_of_decisions(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("name,born\nMarie Curie,\n" * 30)
    with pytest.raises(KbqError, match=r"t\.csv has no column 'decision'") as caught:
        read_decisions(tmp_path / "t.csv")
    assert caught.value.problems == ()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            {"decision": "maybe"},
            "is not a decision: write subject, relation, value, and decision, which is accept, "
            "reject",
        ),
        ({"value": 7}, "is not a decision"),
        ({"subject": None}, "is not a decision"),
        ({"reviewer": ["x"]}, "is not a decision"),
        ({"subject": " "}, "names no cell"),
        ({"value": "x" * 10_000}, "has a text of 10,000 characters: 4,096 at most are kept"),
    ],
)
def test_every_bad_line_is_named(
    wrong: dict[str, Any], said: str, write_json_lines: Callable[..., Path]
) -> None:
    path = write_json_lines("d.jsonl", LINE, LINE | wrong, LINE | wrong)
    with pytest.raises(KbqError, match="has 2 lines without a decision: write subject") as caught:
        read_decisions(path)
    assert [
        problem.partition("d.jsonl:")[2].split(":")[0] for problem in caught.value.problems
    ] == ["2", "3"]
    assert said in caught.value.problems[0]


def claim(value: str, accepted: bool = True, **more: Any) -> Claim:
    return Claim(
        subject="s", relation="r", value=value, probability=0.6, accepted=accepted, page_id="P", title="T", paragraph=0,
        start=0, end=len(value), sentence=value, sentence_start=0, **more,
    )  # fmt: skip


ROME = Alternative("Rome", 0.2, "P", "T")
PARIS, GUESS = claim("Paris", alternatives=(ROME,)), claim("Paris", False, alternatives=(ROME,))


@pytest.mark.parametrize(
    ("claims", "values", "choices", "expected"),
    [
        ([PARIS], "one", [("Rome", "reject")], ["Paris"]),
        ([GUESS], "one", [("PARIS", "accept")], ["Paris"]),  # below the threshold
        ([PARIS], "one", [("Bonn", "accept")], ["Bonn!"]),  # by hand
        ([], "one", [("Bonn", "accept")], ["Bonn!"]),  # nothing was found
        # Two people: the later one.
        ([PARIS], "one", [("Bonn", "accept"), ("Oslo", "accept")], ["Oslo!"]),
        ([PARIS, claim("Oslo")], "many", [("Bonn", "accept"), ("oslo", "accept")], ["Bonn!", "Oslo", "Paris"]),
        ([PARIS], "one", [("", "accept")], ["(Paris)"]),
        ([PARIS], "many", [("", "accept")], ["(Paris)"]),
        ([PARIS], "one", [("", "accept"), ("Bonn", "accept")], ["Bonn!"]),
        ([PARIS], "one", [("Bonn", "accept"), ("", "accept")], ["(Paris)"]),
        ([PARIS], "one", [("Bonn", "accept"), ("Bonn", "undo")], ["Paris"]),
    ],
)  # fmt: skip
def test_what_was_accepted_is_written(
    claims: list[Claim], values: Any, choices: list[tuple[str, Any]], expected: list[str]
) -> None:
    """`!`: by hand; in brackets: not accepted."""
    slot = Slot("s", Relation("r", ("r",), values=values))
    decisions = decided(Decision("s", "r", value, choice) for value, choice in choices).get(
        ("s", "r"), {}
    )
    found = obeyed(claims, slot, decisions, lambda text, _: normal_form(text))
    assert [
        f"{one.value}{'!' * one.by_hand}" if one.accepted else f"({one.value})" for one in found
    ] == expected


def test_a_value_by_hand_keeps_what_was_found_as_alternatives() -> None:
    decisions = decided([Decision("s", "r", "7 May 1867", "accept")])["s", "r"]
    (found,) = obeyed(
        [PARIS], Slot("s", Relation("r", ("r",))), decisions, lambda text, _: normal_form(text)
    )
    assert [other.value for other in found.alternatives] == ["Paris", "Rome"]
    assert found.normal == normal_form("7 May 1867")
    assert Claim.from_dict(found.to_dict()) == found


def test_half_a_line_at_the_end_is_left_out_and_said(tmp_path: Path) -> None:
    path = tmp_path / "kept.decisions.jsonl"
    fields = {"subject": "Marie Curie", "relation": "born", "decision": "accept"}
    first, last = (
        json.dumps(fields | {"value": value, "object": value}, ensure_ascii=False).encode()
        for value in ("A", "Łódź")
    )
    torn = [last[:end] for end in range(1, len(last))] + [b"\0" * 100, last[:20] + b"\0" * 100]
    for tail in torn:
        path.write_bytes(first + b"\n" + tail)
        said: list[str] = []
        assert [*read_decisions(path, said.append)["Marie Curie", "born"]] == ["a"]
        assert said == [f"{path}:2: the last line is unfinished, and left out"]
        assert [gold.answers for gold in read_triples(path, note=said.append)] == [frozenset({"A"})]
        assert len(said) == 2
    for whole in (last, last + b"\n", b"\n", b"  "):
        path.write_bytes(first + b"\n" + whole)
        read_decisions(path, pytest.fail)
    for number, damaged in ((1, first[:-3] + b"\n" + last), (2, first + b"\n" + last[:-3] + b"\n")):
        path.write_bytes(damaged)
        with pytest.raises(KbqError, match=f":{number}: "):
            read_decisions(path)


def test_a_table_obeys_and_says_which_decisions_change_nothing(
    write_json_lines: Callable[..., Path],
) -> None:
    kb, said = KnowledgeBase.sample(device="cpu"), list[str]()
    evil = "<img src=x onerror=alert(1)>\n=1+1"
    line = {"subject": "Marie Curie", "relation": "place of birth", "decision": "accept"}
    said_of_death = kb.query("Marie Curie [SEP] place of death", k=1)[0].text
    path = write_json_lines(
        "d.jsonl",
        line | {"value": "Rome", "reviewer": "Ada"},
        line | {"value": evil},
        line | {"relation": "employer", "value": ""},
        line | {"relation": "place of death", "value": "Warsw", "decision": "reject"},
        line | {"relation": "place of death", "value": said_of_death, "decision": "reject"},
        line | {"relation": "plase of birth", "value": "Warsaw"},
        line | {"subject": "Nobody", "value": "Rome", "decision": "reject"},
    )
    rows = [{"subject": "Marie Curie"}]
    wanted = ["place of birth", "employer", "place of death"]
    out = path.with_name("out.csv")
    table = kb.fill(rows, wanted, out, decisions=path, note=said.append)
    assert table.rows[0]["place of birth"] == "<img src=x onerror=alert(1)> =1+1"
    assert "employer" not in table.rows[0]
    assert said == [
        "'place of birth' is P19, of type page, 'employer' is P108, of type page, 'place of "
        "death' is P20, of type page, as `kbq relations` prints; a file relations.toml may say "
        "otherwise",
        "'place of birth' of 'Marie Curie': Ada accepted 'Rome', and then somebody accepted '<img "
        "src=x onerror=alert(1)> =1+1', which counts",
        "'Warsaw', accepted as 'plase of birth' of 'Marie Curie', is not written: no such cell is "
        "asked for",
        "'Rome', rejected as 'place of birth' of 'Nobody', was not found for a cell that is asked "
        "for",
        "'Warsw', rejected as 'place of death' of 'Marie Curie', was not found for a cell that is "
        "asked for",
    ]
    assert kb.fill(rows, wanted, out).counts.asked == 0  # without decisions, nothing is asked again
    kb.fill(rows, wanted, out, decisions=path)
    export(path.with_name("out.claims.jsonl"), "review", path.with_name("out.html"))
    assert '"by_hand": true' in path.with_name("out.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("reviewers", "values", "disputes"),
    [
        (("a", "b"), ("Paris", "Rome"), [("Paris", "Rome")]),
        (("", "b"), ("Paris", ""), [("Paris", "")]),
        (("a", "a"), ("Paris", "Rome"), []),  # a change of mind
        (("a", "b"), ("Paris", "paris"), []),
    ],
)
def test_people_who_accept_different_values_are_named(
    reviewers: tuple[str, str], values: tuple[str, str], disputes: list[tuple[str, str]]
) -> None:
    made = [
        Decision("s", "r", value, "accept", by) for by, value in zip(reviewers, values, strict=True)
    ]
    assert [(one.value, other.value) for one, other in disputed(decided(made), [])] == disputes
    assert disputed(decided(made), ["r"]) == []


def test_decisions_teach_and_calibrate(write_json_lines: Callable[..., Path]) -> None:
    def line(value: str, decision: str, relation: str = "born") -> dict[str, str]:
        return {
            "subject": "Marie",
            "relation": relation,
            "value": value,
            "object": value,
            "decision": decision,
        }

    path = write_json_lines(
        "d.jsonl", line("Rome", "accept"), line("Rome", "reject"), line("Paris", "accept"), line("Oslo", "accept"),
        line("Oslo", "undo"), line("", "accept", "employer"), line("x", "reject", "spouse"),
    )  # fmt: skip
    assert [(gold.input, set(gold.answers)) for gold in read_triples(path)] == [
        ("Marie [SEP] born", {"Paris"})
    ]
    assert [(gold.input, set(gold.answers)) for gold in read_triples(path, unanswered=True)] == [
        ("Marie [SEP] born", {"Paris"}),
        ("Marie [SEP] employer", set()),
    ]
    assert replace(Decision("a", "b", "c", "accept"), choice="undo").cell == ("a", "b")
