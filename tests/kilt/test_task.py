"""Tasks: kbq's own, and those that users write."""

from pathlib import Path

import pytest

from kbq.errors import KbqError
from kbq.kilt.task import Task, known_tasks

MINE = """
from kbq.kilt.task import slot_with
from kbq.kilt.task import Task

TASKS = (
    Task("mine", slot_with({"author": "who wrote {subject}?"}), "phrase", ("em", "KILT-em"), "KILT-em"),
    Task("other", slot_with({}), "title", ("accuracy",), "accuracy"),
)
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "my_tasks.py"
    path.write_text(MINE, "utf-8")
    return path


def test_official_files_have_the_names_that_kilt_gives_them() -> None:
    tasks = known_tasks()
    assert tasks["trex"].official_file("train") == "trex-train-kilt.jsonl"
    assert tasks["triviaqa"].official_file("dev") == "triviaqa-dev_id-kilt.jsonl"
    assert tasks["triviaqa"].official_file("test") == "triviaqa-test_id_without_answers-kilt.jsonl"
    assert Task.load("slot_filling").official_file("dev") == ""  # data of one's own


def test_the_eleven_data_sets_of_kilt() -> None:
    tasks = known_tasks()
    assert {
        name: (task.answer, task.ranked, task.lines.get("dev")) for name, task in tasks.items()
    } == {
        "trex": ("phrase", "KILT-accuracy", 5_000),
        "structured_zeroshot": ("phrase", "KILT-accuracy", 3_724),
        "aidayago2": ("title", "KILT-accuracy", 4_784),
        "wned": ("title", "KILT-accuracy", 3_396),
        "cweb": ("title", "KILT-accuracy", 5_599),
        "nq": ("phrase", "KILT-em", 2_837),
        "hotpotqa": ("phrase", "KILT-em", 5_600),
        "triviaqa": ("phrase", "KILT-em", 5_359),
        "eli5": ("none", "KILT-rougel", 1_507),
        "wow": ("none", "KILT-f1", 3_054),
        "fever": ("none", "KILT-accuracy", 10_444),
        "passages": ("none", "Rprec", None),
    }


@pytest.mark.parametrize("name", sorted(known_tasks()))
def test_the_ranked_score_is_among_the_metrics_and_tasks_without_answers_say_why(name: str) -> None:
    task = Task.load(name)
    assert task.ranked in task.metrics
    assert bool(task.note) == (task.answer == "none")


def test_a_right_answer_is_what_the_leaderboard_sorts_by() -> None:
    by_em = {"nq", "hotpotqa", "triviaqa"}
    assert {
        name: Task.load(name).answer_metric for name in ("trex", "fever", *by_em)
    } == dict.fromkeys(by_em, "em") | {
        "trex": "accuracy",
        "fever": "accuracy",
    }


def test_a_task_file_with_several_tasks_names_one(mine: Path) -> None:
    task = Task.load(f"{mine}:mine")
    assert (task.name, task.answer, task.lines) == ("mine", "phrase", {})
    assert task.adapt("Emma [SEP] author", lambda text: True) == "who wrote Emma?"
    with pytest.raises(KbqError, match=r"defines mine, other: write .*my_tasks\.py:NAME"):
        Task.load(str(mine))
    with pytest.raises(KbqError, match="defines mine, other"):
        Task.load(f"{mine}:third")


def test_a_task_file_with_one_task_needs_no_name(tmp_path: Path) -> None:
    path = tmp_path / "one.py"
    path.write_text(
        MINE.replace('    Task("other", slot_with({}), "title", ("accuracy",), "accuracy"),\n', ""),
        "utf-8",
    )
    assert Task.load(str(path)).name == "mine"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x = 1", "defines no tasks: it needs TASKS"),
        ("TASKS = (1,)", "defines no tasks"),
        (
            MINE.replace('"phrase"', '"frase"'),
            "broken.py: task mine: answer is 'frase', must be one of",
        ),
        ("1 / 0", "fails: ZeroDivisionError"),
        ("TASKS = (", "fails: SyntaxError"),
        (None, "does not exist"),
    ],
)
def test_a_task_file_that_is_none_is_refused(
    tmp_path: Path, content: str | None, message: str
) -> None:
    path = tmp_path / "broken.py"
    if content is not None:
        path.write_text(content, "utf-8")
    with pytest.raises(KbqError, match=message):
        Task.load(str(path))


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(
        KbqError, match=r"task 'trexx' is unknown: is trex meant\? Else choose one of .*trex"
    ):
        Task.load("trexx")


@pytest.mark.parametrize(
    ("family", "first"),
    [
        ("slot_filling", "trex"),
        ("entity_linking", "aidayago2"),
        ("question_answering", "nq"),
        ("fact_checking", "fever"),
        ("dialogue", "wow"),
    ],
)
def test_a_family_is_like_its_first_task_without_official_files(family: str, first: str) -> None:
    task, like = Task.load(family), Task.load(first)
    assert (task.name, task.lines) == (family, {})
    assert (task.answer, task.metrics, task.ranked, task.note) == (
        like.answer,
        like.metrics,
        like.ranked,
        like.note,
    )
    text = "in [START_ENT] Emma [END_ENT]"
    assert task.adapt(text, lambda text: True) == like.adapt(text, lambda text: True)


def test_families_are_no_data_sets_of_their_own_but_are_offered() -> None:
    assert "slot_filling" not in known_tasks()
    with pytest.raises(KbqError, match=r"choose one of .*trex.*slot_filling"):
        Task.load("slot-filling")


def test_a_task_file_may_define_dataclasses(tmp_path: Path) -> None:
    own = "@dataclasses.dataclass\nclass Own:\n    name: str\n"
    imports = "from __future__ import annotations\nimport dataclasses\n"
    (tmp_path / "own.py").write_text(imports + own + MINE, "utf-8")
    assert Task.load(f"{tmp_path / 'own.py'}:mine").name == "mine"


def test_half_a_surrogate_pair_is_no_character() -> None:
    assert Task.load("trex").query_of(
        "Marie \ud800 Curie [SEP] x", lambda text: True, "line 1"
    ) == ("Marie \ufffd Curie [SEP] x")


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ("5", r"defines no tasks: it needs TASKS = \(Task\(…\),\)"),
        ("None", "defines no tasks"),
        ("()", "defines no tasks"),
        ("('nq',)", "defines no tasks"),
        ("Task('one', slot, 'phrase', (), '')", "defines no tasks"),  # without the comma
        ("{'one': Task('one', slot, 'phrase', (), '')}", "defines no tasks"),
        (
            "[Task('one', slot, 'phrase', (), '')] * 2",
            "defines one, one: give each task its own name",
        ),
        ("(Task(7, slot, 'phrase', (), ''),)", "task 7: name is 7, must be a text"),
        (
            "(Task('one', None, 'phrase', (), ''),)",
            "task 'one': adapt is None, must be a function of a text",
        ),
        (
            "(Task('one', slot, 5, (), ''),)",
            "task one: answer is 5, must be one of phrase, title, none",
        ),
        (
            "(Task('one', slot, ['phrase'], (), ''),)",
            r"task one: answer is \['phrase'\], must be one of phrase",
        ),
        (
            "(Task('one', slot, 'phrase', 'em', ''),)",
            "task 'one': metrics is 'em', must be a tuple of texts",
        ),
        (
            "(Task('one', slot, 'phrase', (1,), ''),)",
            r"task 'one': metrics is \(1,\), must be a tuple of texts",
        ),
        ("(Task('one', slot, 'phrase', (), 1),)", "task 'one': ranked is 1, must be a text"),
        (
            "(Task('one', slot, 'phrase', (), '', 5),)",
            "task 'one': lines is 5, must be a dict of numbers by split",
        ),
        (
            "(Task('one', slot, 'phrase', (), '', {'dev': 'x'}),)",
            r"lines is \{'dev': 'x'\}, must be a dict of numbers",
        ),
        (
            "(Task('one', slot, 'phrase', (), '', {}, None),)",
            "task 'one': part is None, must be a text",
        ),
        (
            "(Task('one', slot, 'phrase', (), '', {}, '', 3),)",
            "task 'one': note is 3, must be a text",
        ),
        (
            "(Task('one', slot_with(5), 'phrase', (), ''),)",
            "slot_with is given 5: give a dict of templates by",
        ),
        (
            "(Task('one', slot_with({'r': 5}), 'phrase', (), ''),)",
            "slot_with is given {'r': 5}: give a dict",
        ),
        ("(Task('one'),)", r"fails: TypeError: .*missing 4 required positional arguments"),
        ("exit()", "fails: SystemExit"),
    ],
)
def test_what_is_no_task_is_said_in_one_sentence(tasks: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from kbq.kilt.task import slot, slot_with\nfrom kbq.kilt.task import Task\nTASKS = "
        f"{tasks}\n",
        "utf-8",
    )
    with pytest.raises(KbqError, match=message) as refusal:
        Task.load(str(path))
    assert str(refusal.value).count("\n") == 0


@pytest.mark.parametrize("query", [None, 5, b"who", ["who"]])
def test_an_adapter_that_gives_no_text_is_said(query: object) -> None:
    task = Task("mine", lambda text, fits: query, "phrase", (), "")  # type: ignore[arg-type, return-value]
    with pytest.raises(
        KbqError, match=r"^task mine makes .* of file:7: its adapter must return a text$"
    ):
        task.query_of("who", lambda text: True, "file:7")
