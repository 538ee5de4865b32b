"""The commands: `kbq fill` and `kbq evaluate-table`, as they are typed."""

import json
import re
from pathlib import Path

import pytest
from command_line import Run

TABLE = "name,place of birth\nMarie Curie,\nZork Blah,\n"


pytestmark = pytest.mark.usefixtures("sample")  # built, so that no command tells of it


@pytest.fixture
def run(run: Run, tmp_path: Path) -> Run:
    """Runs the command line in a folder with a table."""
    (tmp_path / "t.csv").write_text(TABLE, "utf-8")
    return run


NOTED = (
    "no --kb is given, so the bundled sample is used\n"
    "'place of birth' is P19, of type page, 'record label' is P264, of type page, "
    "as `kbq relations` prints; a file relations.toml may say otherwise\n"
)
FILL = ("fill", "t.csv", "--subject", "name", "--relations", "place of birth", "record label")


def test_a_table_is_filled_and_scored(run: Run) -> None:
    status, out, noted = run(*FILL, "--out", "f.csv")
    assert (status, noted) == (0, NOTED)
    first, birth, label = out.splitlines()
    assert first == "f.csv: 1 of 4 cells of 2 rows filled (25 %)"
    assert re.fullmatch(
        r"  place of birth: 1 filled, \d\d % likely on average; 1 left empty", birth
    )
    assert label == "  record label: 0 filled; 2 left empty"
    assert Path("f.csv").read_text("utf-8") == (
        "name,place of birth,record label\nMarie Curie,Warsaw,\nZork Blah,,\n"
    )
    status, out, _ = run(*FILL, "--out", "f.csv", "--json")
    assert (status, json.loads(out)) == (0, {
        "rows": 2, "cells": 4, "queries": 4, "asked": 0, "filled": 1, "markers": 0, "formulas": 0,
        "unasked": [], "taught": {}, "out": "f.csv", "claims": "f.claims.jsonl", "relations": {
            "place of birth": {"filled": 1, "empty": 1, "probability": pytest.approx(0.9, abs=0.1)},
            "record label": {"filled": 0, "empty": 2, "probability": None},
        },
    })  # fmt: skip
    Path("gold.csv").write_text("name,place of birth\nMarie Curie,Warsaw\n")
    status, out, _ = run(
        "evaluate-table", "f.claims.jsonl", "gold.csv", "--subject", "name", "--json"
    )
    assert json.loads(out)["all"]["f1"] == 1.0
    assert run("evaluate-table", "f.csv", "gold.csv", "--subject", "name", "--csv")[1].splitlines()[
        -1
    ] == ("mean of relations,1,1.0,1.0,1.0,1.0,1.0,1.0,1.0")


def test_the_column_of_subjects_is_found(run: Run) -> None:
    said = "the subjects are taken from the column 'name': --subject names another one"
    Path("t.csv").write_text("nr,name,place of birth\n1,Marie Curie,\n2,Zork Blah,Paris\n", "utf-8")
    words = ("fill", "t.csv", "--relations", "place of birth", "--out", "f.csv")
    _, out, noted = run(*words)
    assert (out.splitlines()[0], said in noted.splitlines()) == (
        "f.csv: 1 of 1 cell of 2 rows filled (100 %)", True,
    )  # fmt: skip
    Path("gold.csv").write_text("nr,name,place of birth\n1,Marie Curie,Warsaw\n", "utf-8")
    status, out, noted = run(
        "evaluate-table", "f.csv", "gold.csv", "--relation", "place of birth", "--json"
    )
    assert (status, json.loads(out)["all"]["f1"], noted) == (0, 1.0, f"{said}\n")
    status, out, noted = run("evaluate-table", "gold.csv", "f.csv")
    assert (status, out) == (2, "")
    assert noted == (
        "error: f.csv was filled by kbq, gold.csv was not: the filled table comes first, gold second\n"
    )
    Path("t.csv").write_text("name,subject\nMarie Curie,Zork Blah\n", "utf-8")
    _, out, noted = run(*words[:-1], "g.csv")
    assert (out, "subjects" in noted) == ("g.csv: 0 of 1 cell of 1 row filled (0 %)\n", False)


def test_a_check_and_a_dry_run_say_what_there_is(run: Run) -> None:
    Path("t.csv").write_text("name,place of birth\nMarie Curie,Paris\nZork Blah,x\n", "utf-8")
    assert run("fill", "t.csv", "--subject", "name", "--relations", "place of birth", "--check", "--out", "v.csv") == (
        0, "v.csv: 2 values of 2 rows: agrees: 0, also said: 1, contradicts: 0, not found: 1\n",
        NOTED.replace("'record label' is P264, of type page, ", ""),
    )  # fmt: skip
    status, out, _ = run(*FILL, "--dry-run")
    assert (status, out.partition(", about ")[0]) == (0, "2 cells of 2 rows: 2 queries")
    assert not Path("t.claims.jsonl").exists()


def test_a_table_is_printed_and_nothing_is_kept(run: Run) -> None:
    assert run(*FILL, "--out", "-") == (
        0,
        "name,place of birth,record label\nMarie Curie,Warsaw,\nZork Blah,,\n",
        NOTED,
    )
    Path("t.csv").rename("t.tsv").write_text(TABLE.replace(",", "\t"), "utf-8")
    status, out, _ = run(FILL[0], "t.tsv", *FILL[2:], "--out", "-")
    assert (status, out.splitlines()[1]) == (0, "Marie Curie\tWarsaw\t")
    assert [path.name for path in Path().iterdir()] == ["t.tsv"]


def test_another_threshold_and_one_more_column_ask_for_what_is_new(run: Run) -> None:
    run(*FILL, "--out", "f.csv")
    status, out, _ = run(*FILL, "employer", "--min-probability", "1", "--out", "f.csv")
    assert (status, out.splitlines()[0]) == (
        0, "f.csv: 0 of 6 cells of 2 rows filled (0 %); 4 of 6 answers were there",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (
            ("fill", "t.csv", "--subject", "subject", "--relations", "x", "--out", "o.csv"),
            1,
            "the table has no column 'subject' (it has 'name'",
        ),
        (
            ("evaluate-table", "t.csv", "t.csv", "--subject", "subject"),
            1,
            "t.csv has no column 'subject' (it has 'name'",
        ),
        (
            ("fill", "--relations", "x", "--out", "o.csv"),
            2,
            "give either a table or --subjects-from-kb",
        ),
        (
            ("fill", "t.csv", "--subjects-from-kb", "--out", "o.csv"),
            2,
            "give either a table or --subjects-from-kb",
        ),
        ((*FILL,), 2, "give the file to write, such as --out filled.csv"),
        ((*FILL, "--dry-run", "--out", "o.csv"), 2, "has no effect with --dry-run: leave it out"),
        (
            (*FILL, "--out", "o.csv", "--precision", "0.8"),
            1,
            "the calibration has no threshold for a precision of 0.8: choose 0.9",
        ),
        ((*FILL, "--out", "o.csv", "--precision", "90"), 2, "Invalid value for '--precision': "),
        (
            (*FILL, "--out", "o.csv", "--precision", "0.9", "--min-probability", "0.7"),
            2,
            "two thresholds: leave one",
        ),
        (
            ("fill", "no.csv", "--relations", "x", "--out", "o.csv"),
            1,
            "no.csv: cannot be read (No such file or dir",
        ),
        ((*FILL, "--out", "t.csv"), 1, "t.csv is the table itself: choose another --out"),
        ((*FILL, "--out", "-", "--force"), 2, "has no effect with --out -: leave it out"),
        ((*FILL, "--out", "-", "--json"), 2, "has no place beside a printed table: leave it out"),
        (
            ("evaluate-table", "t.csv", "t.csv", "--subject", "name"),
            1,
            "t.csv has no value to compare with",
        ),
    ],
)
def test_what_is_wrong_is_one_sentence(
    words: tuple[str, ...], status: int, said: str, run: Run
) -> None:
    code, out, err = run(*words)
    assert (code, out) == (status, "")
    assert said in " ".join(err.replace("│", " ").split())
    assert [path.name for path in Path().iterdir()] == ["t.csv"]


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("fill no.csv --relations x --out o.csv", 1, "no.csv: cannot be read (No such file"),
        ("fill . --relations x --out o.csv", 1, ". is a folder: give a file"),
        ("fill header.csv --relations x --out o.csv", 1, "header.csv has no rows: give it one"),
        ("fill t.csv --subject x --relations y --out o.csv", 1, "the table has no column 'x'"),
        ("fill t.csv --relations @peple --out o.csv", 1, "@peple"),
        ("fill t.csv --relations no.toml --out o.csv", 1, "no.toml"),
        ("fill t.csv --relations x --out o.docx", 1, "o.docx ends like no table"),
        ("fill t.csv --relations x --out o.csv --decisions t.csv", 1, "no column 'decision'"),
        ("predict t.csv --task trex --out o.jsonl", 1, "t.csv has no lines of JSON"),
        ("predict no.jsonl --task trex --out o.jsonl", 1, "no.jsonl: cannot be read"),
    ],
)
def test_wrong_inputs_are_named_before_networks_are_opened(
    words: str, status: int, said: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(kb: object) -> None:
        raise AssertionError(kb)

    monkeypatch.setattr("kbq.kb.KnowledgeBase._opened_searcher", opened)
    Path("header.csv").write_text("name,born\n")
    code, out, err = run(*words.split())
    *notes, last = err.splitlines()
    assert (code, out, said in last) == (status, "", True)
    assert notes == ["no --kb is given, so the bundled sample is used"]


def test_claims_are_exported(run: Run) -> None:
    run(*FILL, "--out", "f.csv")
    status, out, _ = run(
        "export", "f.claims.jsonl", "--to", "rdf", "--relations", "@place of birth", "--out", "f.nt"
    )
    assert (status, out) == (0, "f.nt: 1 of 4 claims accepted\n")
    assert "prop/direct/P19" in Path("f.nt").read_text("utf-8")
    status, out, err = run(
        "export", "f.claims.jsonl", "--to", "quickstatements", "--out", "f.qs", "--json"
    )
    facts = json.loads(out)
    assert (status, facts["left_out"], facts["left_out_file"], facts["lacking_file"]) == (
        0, 1, "f.qs.left-out.jsonl", "f.qs.ids-todo.tsv",
    )  # fmt: skip
    assert (
        "0 commands written, 1 claim left out: f.qs.left-out.jsonl says why; 2 names without a "
        "Q-number: see f.qs.ids-todo.tsv" in err
    )
    assert run("export", "f.claims.jsonl", "--to", "trig", "--out", "f.trig")[0] == 2


def test_notes_go_to_standard_error(run: Run) -> None:
    Path("t.csv").write_text("name,n\nMarie Curie,=1+1\nx [SEP] y,-5\n", "utf-8")
    status, out, err = run(
        "fill", "t.csv", "--subject", "name", "--relations", "plase of birth", "--out", "o.csv",
        "--json",
    )  # fmt: skip
    assert (status, json.loads(out)["cells"]) == (0, 1)
    assert "no page has the word 'plase' of 'plase of birth'" in err
    assert (
        "1 cells of the table look like formulas of a spreadsheet, and are written as they were"
        in err
    )
    assert "row 2: the query 'x [SEP] y [SEP] plase of birth' has 2 \"[SEP]\"" in err


def test_a_table_behind_the_relations_is_noticed(run: Run) -> None:
    status, _, errors = run("fill", "--relations", "place of birth", "t.csv", "--out", "f.csv")
    assert (
        status,
        "t.csv was taken as a relation, so write it before --relations" in " ".join(errors.split()),
    ) == (
        2,
        True,
    )
