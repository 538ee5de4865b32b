"""The KILT commands on the command line: what they print, write and exit with."""

import csv
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from command_line import Run

from kbq.corpus.pages import Page
from kbq.kilt.evaluation import evaluate

Write: TypeAlias = Callable[..., Path]


def record(
    number: int, answer: str, *pages: object, text: str = "", **more: object
) -> dict[str, Any]:
    items: list[dict[str, object]] = [{"wikipedia_id": page} for page in pages]
    if text:
        items[0] |= {"text": text, "title": "T"}
    return {"id": str(number), "output": [{"answer": answer, "provenance": items}], **more}


@pytest.fixture
def gold(write: Write) -> Path:
    """Four queries, two for each of two relations; the answer is x<id> on page <id>."""
    inputs = ["a [SEP] r", "b [SEP] r", "c [SEP] s", "d [SEP] s"]
    return write(
        "gold.jsonl",
        *(record(n, f"x{n}", n, input=text, meta={"fold": n % 2}) for n, text in enumerate(inputs)),
    )


@pytest.fixture
def guess(write: Write) -> Path:
    """Right answer and page, right answer only, right page only, nothing."""
    return write(
        "guess.jsonl",
        record(0, "x0", 0, 5, 6, 7, 8, text="says x0"),
        record(1, "x1", 9, 1, 6, 7, 8),
        record(2, "no", 2, 5, 6, 7, 8),
        record(3, "no", 5, 6, 7, 8, 9),
    )


def test_evaluate_prints_json_in_the_official_layout_and_nothing_else(
    run: Run, guess: Path, gold: Path
) -> None:
    done = run("evaluate", guess, gold, "--ks", "1,2", "--json")
    assert (done.status, done.err) == (0, "")
    assert list(done.json) == ["semantics", "deviations", "downstream", "retrieval"]
    assert done.json["downstream"]["kilt"] == {
        "KILT-accuracy": 0.25,
        "KILT-em": 0.25,
        "KILT-f1": 0.25,
        "KILT-rougel": 0.999999995 / 4,
    }
    assert done.json["downstream"]["retrieval"] == {"Rprec": 0.5, "recall@5": 0.75}
    assert done.json["retrieval"]["recall@2"] == 0.75
    assert done.json["retrieval"]["answer_in_context@1"] == 0.25


def test_evaluate_prints_tables_with_the_ranked_column_of_the_task_first(
    run: Run, guess: Path, gold: Path
) -> None:
    out = run("evaluate", guess, gold, "--task", "trex", "--ci", "--by", "relation").out
    scores = [
        line.split(" | ")[1:3] for line in out.splitlines() if line.startswith("| downstream")
    ]
    assert [name for name, _ in scores] == [
        "KILT-accuracy",
        "accuracy",
        "f1",
        "KILT-f1",
        "Rprec",
        "recall@5",
    ]
    assert scores[0] == ["KILT-accuracy", "25.00"]
    assert out.startswith("semantics: kilt-2664322; deviations: none\n")
    assert "| r | 2 | 50.00 | 100.00 |" in out
    assert run("evaluate", guess, gold, "--task", "nq").out.count("KILT-accuracy") == 0


def test_evaluate_adds_what_is_asked_for(run: Run, guess: Path, gold: Path, tmp_path: Path) -> None:
    items = tmp_path / "items.jsonl"
    options = ["--ci", "--by", "meta.fold", "--compare", gold, "--per-item", items]
    page = run("evaluate", guess, gold, "--json", *options).json
    assert page["deviations"] == []
    assert list(page["downstream"]["kilt"]) == [
        "KILT-accuracy",
        "KILT-em",
        "KILT-f1",
        "KILT-rougel",
    ]
    assert page["ci"]["downstream"]["KILT-accuracy"] == [0.0, 0.75]
    assert [(group["group"], group["means"][0]) for group in page["by"]["groups"]] == [
        ("0", 0.5),
        ("1", 0.0),
    ]
    assert [(row["name"], row["gain"]) for row in page["compare"]] == [("0", 0.5), ("1", 1.0)]
    lines = [json.loads(line) for line in items.read_text("utf-8").splitlines()]
    assert [line["downstream"]["accuracy"] for line in lines] == [1.0, 1.0, 0.0, 0.0]
    assert [line["retrieval"]["precision@1"] for line in lines] == [1.0, 0.0, 1.0, 0.0]
    assert lines[3]["group"] == "1"


def test_evaluate_prints_the_last_table_as_csv(run: Run, guess: Path, gold: Path) -> None:
    rows = list(csv.DictReader(run("evaluate", guess, gold, "--csv").out.splitlines()))
    assert rows[0] == {"evaluation": "downstream", "score": "KILT-accuracy", "mean": "0.25"}
    rows = list(
        csv.DictReader(run("evaluate", guess, gold, "--csv", "--compare", gold).out.splitlines())
    )
    assert (rows[0]["score"], rows[0]["gain"]) == ("KILT-accuracy", "0.75")


def test_evaluate_scores_probabilities(run: Run, gold: Path, write: Write, tmp_path: Path) -> None:
    records = [record(n, f"x{n % 3}", n, 5, 6, 7, 8) for n in range(4)]
    for number, one in enumerate(records):
        one["output"][0]["meta"] = {"probability": 0.9 - number / 10}
    guess = write("sure.jsonl", *records)
    done = run("evaluate", guess, gold, "--calibration")
    assert (done.status, done.err) == (
        0,
        "only 4 answers: of fewer than 30 hardly anything can be promised\n",
    )
    assert "\n**calibration**\n\n| right by | score | n | value | 95 % from | to |\n" in done.out
    rows = list(
        csv.DictReader(run("evaluate", guess, gold, "--calibration", "--csv").out.splitlines())
    )
    assert (rows[2]["score"], rows[2]["value"], rows[2]["n"]) == ("AUROC", "1.0", "4")
    page = run("evaluate", guess, gold, "--calibration", "--json").json
    assert [one["right_by"] for one in page["calibration"]["scores"]] == [
        "accuracy",
        "KILT-accuracy",
    ]
    del records[2]["output"][0]["meta"]
    refused = run("evaluate", write("unsure.jsonl", *records), gold, "--calibration")
    assert (refused.status, refused.out) == (1, "")
    assert (
        "unsure.jsonl:3:2: has an answer without a probability (output[0].meta.probability)"
        in refused.err
    )


def test_records_that_spoil_an_evaluation_are_at_fault(run: Run, write: Write) -> None:
    gold = write("g", *(record(n, f"x{n}", n, input="") for n in range(4)))
    pages = [{"provenance": [{"wikipedia_id": n}]} for n in range(4)]
    guess = write(
        "p", *({"id": n, "output": [pages[n] | ({"answer": "x"} if n else {})]} for n in range(4))
    )
    done = run("evaluate", guess, gold)
    assert (done.status, done.err) == (
        1,
        f"error: the downstream evaluation of {guess} against {gold} is not possible: "
        f"{guess}:1:0: has no answer in its output\n",
    )
    assert "| retrieval | Rprec | 100.00 |" in done.out
    as_json = run("evaluate", guess, gold, "--json")
    assert (as_json.status, as_json.json["retrieval"]["Rprec"]) == (1, 1.0)
    assert as_json.json["problems"] == {"downstream": [f"{guess}:1:0: has no answer in its output"]}


def test_predictions_of_some_queries_may_all_lack_answers(run: Run, write: Write) -> None:
    gold = write("g", *(record(n, f"x{n}", n, input="") for n in range(4)))
    pages = write(
        "p", *({"id": n, "output": [{"provenance": [{"wikipedia_id": n}]}]} for n in range(2))
    )
    assert run("evaluate", pages, gold, "--missing", "zero").status == 0


def test_what_the_second_system_lacks_is_said_too(run: Run, write: Write) -> None:
    gold = write("g", *(record(n, f"x{n}", n, input="") for n in range(4)))
    first, second = (
        write(name, *(record(n, f"x{n}", n) for n in range(size)))
        for name, size in (("p", 4), ("q", 3))
    )
    done = run(
        "evaluate",
        first,
        gold,
        "--compare",
        second,
        "--missing",
        "zero",
        "--by",
        "meta.none",
        "--json",
    )
    assert done.status == 1  # no query has that
    done = run("evaluate", first, gold, "--compare", second, "--missing", "zero")
    assert done.status == 0
    assert "4 gold records, 3 predictions" in done.err
    refused = run("evaluate", first, gold, "--compare", second)
    assert f"has no prediction in {second} (with --missing=zero they count as wrong)" in refused.err


def test_several_systems_are_compared_at_once(run: Run, write: Write) -> None:
    gold = write("g", *(record(n, f"x{n}", n, input="") for n in range(8)))
    none, half, all = (
        write(name, *(record(n, f"x{n}" if n < right else "no", n) for n in range(8)))
        for name, right in (("none", 0), ("half", 4), ("all", 8))
    )
    rows = run("evaluate", none, gold, "--compare", half, "--compare", all, "--json").json[
        "compare"
    ]
    found = {
        (Path(row["system"]).name, row["name"]): (row["gain"], row["low"] > 0, row["high"] <= 1)
        for row in rows
    }
    assert found["half", "accuracy"] == (0.5, True, True)
    assert found["all", "accuracy"] == (1.0, True, True)
    evaluation = evaluate(none, gold, compare=[str(half), str(all)])
    assert (
        "| system | score | n | none | that system | gain | 95 % from | to | p | p (Holm) |"
        in str(evaluation)
    )


def test_a_comparison_of_groups_names_its_score(run: Run, write: Write) -> None:
    gold = write("g", *(record(n, f"x{n}", n, input="a [SEP] author") for n in range(3)))
    guess = write("p", *(record(n, f"x{n}", n) for n in range(3)))
    done = run("evaluate", guess, gold, "--compare", guess, "--by", "relation", "--task", "trex")
    assert (
        "**KILT-accuracy, second against first, paired permutation test**\n\n| group |" in done.out
    )
    page = run("evaluate", guess, gold, "--compare", guess, "--by", "relation", "--json").json
    assert [(row["score"], row["name"]) for row in page["compare"]] == [("KILT-accuracy", "author")]


def test_items_hold_what_was_scored(run: Run, write: Write, tmp_path: Path) -> None:
    gold = write("g", record(1, "x", 1, input=""))
    run("evaluate", write("p", record(1, "x", 1)), gold, "--per-item", tmp_path / "items")
    item = json.loads((tmp_path / "items").read_text())
    assert sorted(item["downstream"]) == [
        "KILT-accuracy", "KILT-em", "KILT-f1", "KILT-rougel", "Rprec", "accuracy", "em", "f1", "recall@5", "rougel"
    ]  # fmt: skip


def test_a_task_says_when_an_answer_is_no_error(run: Run, write: Write) -> None:
    gold = write("g", record(1, "The Nile", 1, input=""))
    guess = write("p", record(1, "nile", 1))
    assert run("errors", guess, gold, "--json").json["counts"] == {"answer-form": 1}
    assert run("errors", guess, gold, "--task", "nq", "--json").json["counts"] == {"right": 1}
    nothing, the = write("n", record(1, "", 1)), write("t", record(1, "the", 1, input=""))
    assert run("errors", nothing, the, "--task", "nq", "--json").json["counts"] == {
        "page-right-answer-wrong": 1
    }


def test_a_kind_that_refuses_its_input_is_null_with_its_problems(
    run: Run, guess: Path, write: Write
) -> None:
    gold = write("g", *(record(n, f"x{n}", n, input="") for n in range(4)))
    pages = write(
        "p", *({"id": n, "output": [{"provenance": [{"wikipedia_id": n}]}]} for n in range(4))
    )
    done = run("evaluate", pages, gold, "--json", "--calibration")
    assert (done.status, done.json["downstream"], done.json["calibration"]) == (0, None, None)
    assert done.json["retrieval"]["Rprec"] == 1.0
    assert done.json["problems"] == {
        "downstream": [f"{pages}:{n + 1}:{n}: has no answer in its output" for n in range(4)]
    }
    assert "the downstream evaluation of" in run("evaluate", pages, gold).err


def test_files_that_neither_evaluation_takes_exit_with_1(
    run: Run, guess: Path, gold: Path, write: Write
) -> None:
    fewer = write("fewer", record(0, "x0", 0))
    done = run("evaluate", fewer, gold, "--json")
    assert (done.status, done.json["downstream"], done.json["retrieval"]) == (1, None, None)
    advice = "nor have 2 other records; with --missing=zero they count as wrong"
    lacking = f"{gold}:2:1: has no prediction in {fewer} ({advice})"
    assert done.json["problems"]["retrieval"] == [lacking]
    assert done.err.count(lacking) == 1
    assert run("evaluate", fewer, gold).out == ""
    assert (
        run("evaluate", fewer, gold, "--missing", "zero", "--json").json["downstream"]["kilt"][
            "KILT-em"
        ]
        == 0.25
    )
    assert run("evaluate", guess, gold, "--by", "nothing").status == 2
    nowhere = run("evaluate", guess, gold, "--by", "meta.nowhere")
    assert (nowhere.status, nowhere.out) == (1, "")
    assert f"--by meta.nowhere: no query of {gold} has that" in nowhere.err
    assert run("evaluate", guess.with_name("nowhere"), gold).status == 1


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("evaluate", ["--ks", "1,two"]),
        ("evaluate", ["--ks", "5,0"]),
        ("passages", ["--ks", "5,0"]),
        ("evaluate", ["--missing", "nothing"]),
        ("evaluate", ["--luck"]),
        ("passages", ["--ks", ""]),
        ("merge", []),
    ],
)
def test_wrong_usage_exits_with_2(
    run: Run, guess: Path, gold: Path, command: str, words: list[str]
) -> None:
    done = run(command, guess, gold, *words)
    assert (done.status, done.out) == (2, "")


def test_trec_files(run: Run, guess: Path, gold: Path, tmp_path: Path) -> None:
    listed, qrels = tmp_path / "run", tmp_path / "qrels"
    assert run("evaluate", guess, gold, "--trec-run", listed, "--trec-qrels", qrels).status == 0
    assert listed.read_text("utf-8").splitlines()[0] == "0 Q0 0 1 1 kbq"
    assert qrels.read_text("utf-8").splitlines()[3] == "3 0 3 1"


def test_validate_lists_every_error_and_each_kind_of_warning(
    run: Run, guess: Path, gold: Path, write: Write
) -> None:
    good = run("validate", guess, "--inputs", gold)
    assert (good.status, good.out.splitlines()[-1]) == (
        0,
        f"{guess}: 4 records, 0 errors, 1 warning",
    )
    bad = write(
        "bad.jsonl",
        record(0, "x ", "Q1"),
        record(1, "", "Q1"),
        {"id": 2, "output": []},
        '{"id": 3, "outp',
    )
    done = run("validate", bad, "--inputs", gold, "--task", "trex")
    assert done.status == 1
    errors = [line for line in done.out.splitlines() if line.startswith("error: ")]
    assert [line.removeprefix(f"error: {bad}") for line in errors] == [
        ':1:0: wikipedia_id is not an integer ("Q1")',
        ':2:1: wikipedia_id is not an integer ("Q1")',
        ":3:2: not exactly one output (0 outputs)",
        ":4: is not JSON (Unterminated string starting at, column 11)",
        f": no prediction for an input (3, line 4 of {gold})",
    ]
    assert f"warning: {bad}:1:0: fewer than 5 distinct pages (1), and 1 more" in done.out
    page = run("validate", bad, "--json").json
    assert (page["records"], len(page["errors"]), page["counts"]["empty answer"]) == (3, 2, 1)


@pytest.mark.parametrize("command", ["evaluate", "errors", "passages"])
def test_predictions_come_before_gold(
    command: str, run: Run, guess: Path, gold: Path, write: Write
) -> None:
    assert "come first" not in run(command, guess, gold).err
    sure = record(0, "x0", 0)
    sure["output"][0]["meta"] = {"probability": 0.5}
    known = write("sure.jsonl", sure)
    guess.with_name("guess.jsonl.run.json").write_text("{}")
    for path in (guess, known):
        swapped = run(command, gold, path)
        assert (swapped.status, swapped.out, swapped.err) == (
            2, "",
            f"error: {path} holds predictions of kbq, {gold} does not: predictions come first, "
            "gold second\n",
        )  # fmt: skip
        assert "come first" not in run(command, path, path).err


def test_errors_counts_and_samples(run: Run, guess: Path, gold: Path) -> None:
    done = run("errors", guess, gold)
    assert "| answer-right-page-wrong | 1 | 25.00 |" in done.out
    assert (
        "answer-right-page-wrong  1\n  input        b [SEP] r\n  answer       x1\n  gold answers "
        "x1\n" in done.out
    )
    page = run("errors", guess, gold, "--json", "--kind", "page-right-answer-wrong").json
    assert page["counts"] == {
        "right": 1,
        "answer-right-page-wrong": 1,
        "page-right-answer-wrong": 1,
        "page-not-found": 1,
    }
    assert [(case["id"], case["rank"]) for case in page["cases"]] == [("2", 1)]
    assert run("errors", guess, gold, "--json", "--sample", "0").json["cases"] == []
    assert "choose from right, " in run("errors", guess, gold, "--kind", "luck").err


def test_submit(run: Run, guess: Path, gold: Path, write: Write, tmp_path: Path) -> None:
    labels, folder = (
        write("labels", *(record(n, f"l{n}", 0, 5, 6, 7, 8) for n in range(4))),
        tmp_path / "submission",
    )
    words = [
        labels,
        guess,
        "--tasks",
        "fever,trex",
        "--inputs",
        gold,
        "--inputs",
        gold,
        "--out",
        folder,
    ]
    entries = run("submit", *words, "--json").json["files"]
    assert [(entry["file"], entry["lines"], entry["metrics"][0]) for entry in entries] == [
        ("fever.jsonl", 4, "KILT-accuracy"),
        ("trex.jsonl", 4, "KILT-accuracy"),
    ]
    assert sorted(path.name for path in folder.iterdir()) == [
        "UPLOAD.md",
        "fever.jsonl",
        "submission.json",
        "trex.jsonl",
    ]
    few = "trex.jsonl: number of lines (4 lines, the official files have 5,000)"
    assert few in entries[1]["warnings"]
    assert few in (folder / "UPLOAD.md").read_text("utf-8")
    family = run("submit", guess, "--task", "slot_filling", "--out", tmp_path / "family")
    said = "warning: the leaderboard has no data set called slot_filling\n"
    assert (family.status, said in family.err) == (0, True)
    assert run("submit", labels, guess, "--tasks", "fever", "--out", folder).status == 2
    pages = write(
        "pages", *({"id": n, "output": [{"provenance": [{"wikipedia_id": n}]}]} for n in range(4))
    )
    refused = run("submit", pages, "--task", "fever", "--out", tmp_path / "other")
    # Predicted pages need another system's labels.
    assert (refused.status, "no answer" in refused.err) == (
        1,
        True,
    )


def test_files_that_do_not_belong_together_are_no_errors_of_the_system(
    run: Run, guess: Path, gold: Path, write: Write
) -> None:
    nothing, foreign = write("nothing"), write("foreign", record(9, "x9", 9))
    for other in (nothing, foreign):
        refused = run("errors", other, gold, "--json")
        assert (refused.status, refused.out) == (1, "")
        assert f"{other} has no prediction for any of the 4 records of {gold}" in refused.err
    for command in ("errors", "evaluate"):
        refused = run(command, guess, nothing)
        assert (refused.status, refused.out) == (1, "")
        assert f"{nothing} holds no record" in refused.err
    some = run("errors", write("some", record(0, "x0", 0), record(9, "x9", 9)), gold, "--json")
    assert (some.status, some.json["counts"]["no-prediction"]) == (0, 3)
    assert "4 gold records, 2 predictions" in some.err
    assert "1 predictions have ids that the gold file lacks: ignored" in some.err


def test_an_incomplete_file_is_one_sentence(run: Run, write: Write) -> None:
    gold, guess = (
        write("many", *(record(number, "x", number) for number in range(150))),
        write("one", record(0, "x", 0)),
    )
    refused = run("evaluate", guess, gold)
    assert (refused.status, refused.out) == (1, "")
    assert refused.err == (
        f"error: the downstream evaluation of {guess} against {gold} is not possible: {gold}:2:1: "
        f"has no prediction in {guess} (nor have 148 other records; with --missing=zero they "
        "count as wrong)\n"
    )


def test_a_hundred_problems_are_listed_and_the_rest_counted(run: Run, write: Write) -> None:
    gold = write("many", *(record(number, "x", number) for number in range(150)))
    refused = run(
        "evaluate", write("none", *({"id": number, "output": []} for number in range(150))), gold
    )
    assert refused.status == 1
    assert refused.err.count("has 0 outputs, must have exactly one") == 100 + 1
    assert "… and 200 more" in refused.err  # of both kinds


def test_passages_scores_texts_and_exports_them(
    run: Run, guess: Path, gold: Path, tmp_path: Path
) -> None:
    export = tmp_path / "readers.json"
    done = run("passages", guess, gold, "--ks", "1,5", "--export", export, "--json")
    none: dict[str, object] = {"exact": {}, "gold_first": None, "gold_mrr": None}
    means = {
        "count": 4,
        "accuracy": {"1": 0.25, "5": 0.25},
        "mrr_at_20": 0.25,
        "precision_at_20": 0.0125,
    }
    assert done.json == means | none
    contexts = json.loads(export.read_text("utf-8"))[0]["ctxs"]
    assert (contexts[0]["has_answer"], contexts[0]["text"], len(contexts)) == (True, "says x0", 5)
    assert "| top-5 accuracy | 25.00 |" in run("passages", guess, gold).out
    without = run("passages", gold, gold)
    assert (without.status, "--with-text" in without.err) == (1, True)


MY_TASK = '''"""Where things are, asked in plain words."""

from kbq.kilt.task import slot_with
from kbq.kilt.task import Task

TEMPLATES = {"place": "where was {subject}", "birth": "place of birth of {subject}"}

TASKS = (Task("places", slot_with(TEMPLATES), "phrase", ("accuracy", "f1", "KILT-accuracy"), "KILT-accuracy"),)
'''


def test_a_users_own_task_from_predictions_to_a_submission(
    run: Run, kb_folder: Path, pages: list[Page], write: Write, tmp_path: Path
) -> None:
    task, folder = tmp_path / "my_task.py", tmp_path / "submission"
    task.write_text(MY_TASK, "utf-8")
    with_text = [page for page in pages if page.paragraphs]
    gold = write(
        "my-dev.jsonl",
        *(
            {
                "id": f"m{number}",
                "input": f"{page.title} [SEP] {'place' if number % 2 else 'birth'}",
                "output": [
                    {
                        "answer": page.paragraphs[0].text.split()[0],
                        "provenance": [{"wikipedia_id": page.page_id, "title": page.title}],
                    }
                ],
            }
            for number, page in enumerate(with_text)
        ),
    )
    out, again = tmp_path / "out.jsonl", tmp_path / "again.jsonl"
    words = ["--task", task, "--kb", kb_folder, "--device", "cpu", "--with-text"]
    assert run("predict", gold, *words, "--out", out, "--json").json["lines"] == 9
    assert run("predict", gold, *words, "--out", again).status == 0
    assert out.read_bytes() == again.read_bytes()

    checked = run("validate", out, "--inputs", gold, "--task", task, "--kb", kb_folder, "--json")
    assert (checked.status, checked.json["records"], checked.json["errors"]) == (0, 9, [])
    elsewhere = out.with_name("elsewhere.jsonl")
    elsewhere.write_text(
        out.read_text("utf-8").replace('"wikipedia_id": "P1"', '"wikipedia_id": "P99"'), "utf-8"
    )
    found = run("validate", elsewhere, "--kb", kb_folder, "--json").json
    assert {error["kind"] for error in found["errors"]} == {"page is not in the knowledge source"}

    scored = run("evaluate", out, gold, "--task", task, "--by", "relation", "--json").json
    # Nine pages have text, and all of them are ranked.
    assert scored["retrieval"]["recall@20"] == 1.0
    assert [group["count"] for group in scored["by"]["groups"]] == [5, 4]

    cases = run("errors", out, gold, "--kb", kb_folder, "--sample", "9", "--json").json["cases"]
    texts = {page.page_id: page.paragraphs[0].text for page in with_text}
    assert cases
    assert all(case["gold_evidence"] == texts[case["gold_places"][0]["page_id"]] for case in cases)
    assert all(case["answer"] in case["evidence"] for case in cases)

    assert run("passages", out, gold, "--json").json["accuracy"]["20"] > 0
    assert run("submit", out, "--task", task, "--inputs", gold, "--out", folder).status == 0
    lines = (folder / "places.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["id"] for line in lines] == [f"m{number}" for number in range(9)]
    assert "text" not in json.loads(lines[0])["output"][0]["provenance"][0]


def test_predictions_for_another_task_are_no_submission(
    run: Run, guess: Path, tmp_path: Path
) -> None:
    guess.with_name(guess.name + ".run.json").write_text('{"task": "trex"}')
    refused = run("submit", guess, "--task", "nq", "--out", tmp_path / "own")
    assert (refused.status, refused.out) == (1, "")
    assert "was predicted for the task trex (see " in refused.err
    assert not (tmp_path / "own").exists()
    # A task file of one's own.
    guess.with_name(guess.name + ".run.json").write_text('{"task": "my_trex"}')
    assert run("submit", guess, "--task", "nq", "--out", tmp_path / "own").status == 0


def test_a_submission_goes_into_a_folder_of_its_own(
    run: Run, guess: Path, gold: Path, tmp_path: Path
) -> None:
    (tmp_path / "kb").mkdir()
    (tmp_path / "kb" / "manifest.json").write_text("precious")
    refused = run("submit", guess, "--task", "slot_filling", "--out", tmp_path / "kb")
    assert (refused.status, "holds something other than an earlier submission" in refused.err) == (
        1,
        True,
    )
    assert [path.name for path in (tmp_path / "kb").iterdir()] == ["manifest.json"]
    own = tmp_path / "own"
    (own / ".part-killed").mkdir(parents=True)
    for _ in range(2):  # an earlier one is replaced
        assert run("submit", guess, "--task", "slot_filling", "--out", own).status == 0
    assert run("submit", guess, "--task", "trex", "--out", own).status == 0
    listed = json.loads((own / "submission.json").read_text("utf-8"))["files"]
    assert [entry["task"] for entry in listed] == ["slot_filling", "trex"]
    assert "slot_filling.jsonl" in (own / "UPLOAD.md").read_text("utf-8")
    (own / "slot_filling.jsonl").write_text("changed\n")
    assert run("submit", guess, "--task", "trex", "--out", own).status == 0
    listed = json.loads((own / "submission.json").read_text("utf-8"))["files"]
    assert [entry["task"] for entry in listed] == ["trex"]
    assert sorted(path.name for path in own.glob(".*")) == []


@pytest.mark.parametrize(
    "command",
    [
        "evaluate guess gold --per-item gold",
        "evaluate guess gold --trec-run guess",
        "evaluate guess gold --trec-qrels gold",
        "passages guess gold --export gold",
    ],
)
def test_what_is_read_is_not_replaced(command: str, run: Run, guess: Path, gold: Path) -> None:
    before = guess.read_bytes(), gold.read_bytes()
    words = [{"guess": str(guess), "gold": str(gold)}.get(word, word) for word in command.split()]
    refused = run(*words)
    assert (refused.status, "is one of the inputs: write to another file" in refused.err) == (
        1,
        True,
    )
    assert (guess.read_bytes(), gold.read_bytes()) == before


@pytest.mark.parametrize(
    "command",
    [
        "evaluate - gold",
        "evaluate guess -",
        "evaluate guess gold --compare -",
        "validate guess --inputs -",
        "submit guess --task trex --inputs - --out own",
    ],
)
def test_what_is_read_twice_is_no_pipe(command: str, run: Run, guess: Path, gold: Path) -> None:
    before = guess.read_bytes()
    words = [{"guess": str(guess), "gold": str(gold)}.get(word, word) for word in command.split()]
    refused = run(*words)
    assert (refused.status, "standard input can be read only once" in refused.err) == (1, True)
    assert guess.read_bytes() == before
    pipe = guess.with_name("pipe")
    os.mkfifo(pipe)
    assert f"{pipe} can be read only once" in run("evaluate", guess, pipe).err


@pytest.mark.parametrize("place", [".", "/"])
def test_a_folder_is_no_output(place: str, run: Run, guess: Path, gold: Path) -> None:
    refused = run("evaluate", guess, gold, "--per-item", place)
    assert (refused.status, "give the name of a file" in refused.err) == (1, True)
    same = ("--per-item", guess.with_name("x"), "--trec-run", guess.with_name("x"))
    assert (
        "is another output, too: write to another file" in run("evaluate", guess, gold, *same).err
    )


@pytest.mark.parametrize("command", ["evaluate", "passages"])
def test_a_missing_file_is_one_sentence(command: str, run: Run, gold: Path, tmp_path: Path) -> None:
    missing = "nothing: cannot be read (No such file or directory): check its path and permissions"
    for path, said in (
        (tmp_path / "nothing", f"{tmp_path}/{missing}"),
        (tmp_path, f"{tmp_path} is a folder: give a file"),
    ):
        refused = run(command, path, gold)
        assert (refused.status, refused.err) == (1, f"error: {said}\n")
        checked = run("validate", path)
        assert (checked.status, checked.out.splitlines()) == (
            1, [f"error: {said}", f"{path}: 0 records, 1 error, 0 warnings"],
        )  # fmt: skip


@pytest.mark.parametrize(
    "command", ["evaluate T T", "errors T T", "passages T T", "validate T", "validate T --inputs T"]
)
def test_a_table_is_no_file_of_kilt(command: str, run: Run, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("name,born\nMarie Curie,\n" * 30)
    refused = run(*(str(table) if word == "T" else word for word in command.split()))
    told = refused.out + refused.err
    said = f"{table} has no lines of JSON, as it begins with 'name,born': give lines of KILT"
    assert (refused.status, said in told, len(told.splitlines()) <= 4) == (1, True, True)


def test_nothing_predicted_is_an_error(run: Run, write: Write, tmp_path: Path) -> None:
    empty = write("empty")
    refused = run("validate", empty)
    assert (refused.status, "no record" in refused.out) == (1, True)
    assert run("submit", empty, "--task", "trex", "--out", tmp_path / "up").status == 1
