"""Task: how one benchmark's input becomes a query, and what its answer is.

Users may write their own: a task file defines `TASKS`, a tuple of `Task`, and imports nothing but kbq. kbq's own are
in `tasks/`.
"""

import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Literal, get_args

from kbq.errors import KbqError
from kbq.kilt.adapters import Adapter, Fits
from kbq.storage.files import own
from kbq.text.letters import clean_text

AnswerKind = Literal["phrase", "title", "none"]


@dataclass(frozen=True, slots=True)
class Task:
    """One data set.

    `answer`: the best phrase, the title of its page, or none where answers are not spans. `metrics`: KILT's columns,
    `ranked` the one that the leaderboard sorts by. `lines`: of the official files, by split. Pages are
    retrieved, as all of KILT's provenance is of pages.
    """

    name: str
    adapt: Adapter
    answer: AnswerKind
    metrics: tuple[str, ...]
    ranked: str
    lines: Mapping[str, int] = field(default_factory=dict)
    part: str = ""  # in the names of the official files, after the split
    note: str = ""  # what a user should know about its predictions

    def __post_init__(self) -> None:
        texts = {"name": self.name, "ranked": self.ranked, "part": self.part, "note": self.note}
        wrong = {what: "a text" for what, value in texts.items() if not isinstance(value, str)}
        if not callable(self.adapt):
            wrong["adapt"] = "a function of a text and a test of whether it fits"
        if not isinstance(self.metrics, tuple | list) or not all(isinstance(one, str) for one in self.metrics):
            wrong["metrics"] = "a tuple of texts"
        if not isinstance(self.lines, Mapping) or not all(type(count) is int for count in self.lines.values()):
            wrong["lines"] = "a dict of numbers by split"
        for what, wanted in wrong.items():
            raise KbqError(f"task {self.name!r:.40}: {what} is {getattr(self, what)!r:.40}, must be {wanted}")
        if self.answer not in get_args(AnswerKind):
            raise KbqError(
                f"task {self.name}: answer is {self.answer!r}, must be one of {', '.join(get_args(AnswerKind))}"
            )

    @classmethod
    def load(cls, name: "str | PathLike[str] | Task") -> "Task":
        """Return a known task, a family, or the task in a file: `trex`, `my_task.py`, or `my_tasks.py:name` of several.

        A family, such as `slot_filling`, is for data of one's own: like its first task, but without official files.

        Raises:
            KbqError: there is no such task or file, or the file defines none.

        >>> Task.load("nq").ranked
        'KILT-em'
        """
        if isinstance(name, Task):
            return name
        if not isinstance(name, str | PathLike):
            raise KbqError(f"task is {name!r:.60}: give its name, a task file, or a Task")
        name = str(name)
        path, _, wanted = name.rpartition(":") if name.rpartition(":")[0].endswith(".py") else (name, "", "")
        if not path.endswith(".py"):
            tasks = known_tasks() | _families()
            if name not in tasks:
                near = get_close_matches(name.lower(), tasks, 1)
                advice = f"is {near[0]} meant? Else " if near else ""
                raise KbqError(
                    f"task {name!r} is unknown: {advice}choose one of {', '.join(tasks)}, or give the path of a task "
                    "file",
                    is_usage=True,
                )
            return tasks[name]
        tasks = {task.name: task for task in _tasks_of(Path(path))}
        if not wanted and len(tasks) == 1:
            return next(iter(tasks.values()))
        if wanted not in tasks:
            raise KbqError(f"{path} defines {', '.join(tasks)}: write {path}:NAME for one of them")
        return tasks[wanted]

    @property
    def columns(self) -> tuple[str, ...]:
        """KILT's columns, the one that the leaderboard sorts by first."""
        return tuple(dict.fromkeys((self.ranked, *self.metrics)))

    @property
    def answer_metric(self) -> str:
        """The score of a right answer: EM where the leaderboard sorts by that, else accuracy."""
        return "em" if self.ranked == "KILT-em" else "accuracy"

    def official_file(self, split: str) -> str:
        """Return the name of KILT's own file of a split, "" where there is none.

        >>> Task("nq", str, "phrase", (), "", {"test": 1444}).official_file("test")
        'nq-test_without_answers-kilt.jsonl'
        """
        hidden = "_without_answers" if split == "test" else ""
        return f"{self.name}-{split}{self.part}{hidden}-kilt.jsonl" if split in self.lines else ""

    def query_of(self, text: str, fits: Fits, place: str) -> str:
        """Return the query for a record's input, in NFC. Raises KbqError if the task's own code fails or gives no text.

        `fits`: whether the encoder reads a text whole. `place`: file and line of the record, for the message.
        """
        try:
            query: object = self.adapt(clean_text(text), fits)
        except Exception as error:  # a user's task may fail in any way
            raise KbqError(f"task {self.name} fails at {place}: {type(error).__name__}: {error}") from error
        if not isinstance(query, str):
            raise KbqError(f"task {self.name} makes {query!r:.40} of {place}: its adapter must return a text")
        return query


def known_tasks() -> dict[str, Task]:
    """Return all tasks of `tasks/`, by name."""
    found = [task for path in sorted(own("tasks").glob("*.py")) for task in _tasks_of(path)]
    return {task.name: task for task in found}


def _families() -> dict[str, Task]:
    files = sorted(own("tasks").glob("*.py"))
    return {path.stem: replace(_tasks_of(path)[0], name=path.stem, lines={}) for path in files}


def _tasks_of(path: Path) -> tuple[Task, ...]:
    module = _loaded(path)
    tasks = getattr(module, "TASKS", ())
    if not isinstance(tasks, tuple | list) or not tasks or not all(isinstance(task, Task) for task in tasks):
        raise KbqError(f"{path} defines no tasks: it needs TASKS = (Task(…),)")
    names = [task.name for task in tasks]
    if len(set(names)) < len(names):
        raise KbqError(f"{path} defines {', '.join(names)}: give each task its own name")
    return tuple(tasks)


def _loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"kbq.tasks.{path.stem}", path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise KbqError(f"task file {path} does not exist")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses look their module up there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a user's file may fail in any way
        del sys.modules[spec.name]
        if isinstance(error, KbqError):
            raise KbqError(f"task file {path}: {error}") from None
        raise KbqError(f"task file {path} fails: {type(error).__name__}: {error}") from error
    return module
