"""Task: define how the input of a benchmark's record becomes a query for a kind of answer.

A task file defines `TASKS`, a tuple of `Task`, and imports nothing but kbq. kbq's own are in
`tasks/`. An adapter takes an input and a test of whether the encoder reads a text whole, and cuts
only a text that it does not.
"""

import importlib.util
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Literal, get_args

from kbq.errors import KbqError
from kbq.storage.paths import resource_path
from kbq.text.normal_forms import clean_text
from kbq.text.queries import mention_in, slot_of

Fits = Callable[[str], bool]
Adapter = Callable[[str, Fits], str]
# Words with the blanks between them and the mention; in scripts without blanks, as many characters
# as a word may have.
WORDS_BEFORE = re.compile(r"\S{1,30}\s*")
WORDS_AFTER = re.compile(r"\s*\S{1,30}")

OTHER_NAMES = {"zsre": "structured_zeroshot"}  # names that the papers use
AnswerKind = Literal["phrase", "title", "none"]


def question(text: str, fits: Fits) -> str:
    """Return a question, or as much of its beginning as the encoder reads.

    >>> question("who wrote Emma?", lambda text: True)
    'who wrote Emma?'
    """
    if fits(text):
        return text
    return beginning(text, fits)


def slot(text: str, fits: Fits) -> str:
    """Return `subject [SEP] relation` as it is: the encoder reads the separator."""
    return text


def slot_with(templates: Mapping[str, str]) -> Adapter:
    """Return an adapter that puts slots into natural language, by a template for each relation.

    Raises:
        KbqError: the templates are not texts.

    >>> slot_with({"author": "who wrote {subject}"})("Emma [SEP] author", lambda text: True)
    'who wrote Emma'
    """
    if not isinstance(templates, Mapping) or not all(
        isinstance(one, str) for one in templates.values()
    ):
        raise KbqError(
            f"slot_with is given {templates!r:.60}: give a dict of templates by relation"
        )

    def adapt(text: str, fits: Fits) -> str:
        subject, relation = slot_of(text) or ("", "")
        template = templates.get(relation)
        if template is None:
            return text
        return template.format(subject=subject)

    return adapt


def mention(text: str, fits: Fits) -> str:
    """Return a marked mention with as much context around it, evenly, as the encoder reads.

    >>> mention("far away [START_ENT] Nile [END_ENT] flows north", lambda text: len(text.split()) <= 5)
    'away [START_ENT] Nile [END_ENT] flows'
    """
    if fits(text):
        return text
    marked = mention_in(text)
    if marked is None:
        return beginning(text, fits)
    before = WORDS_BEFORE.findall(text[: marked.start()])
    # Stripped first: each final blank would be tried with all others.
    after = WORDS_AFTER.findall(text[marked.end() :].rstrip())

    def around(words: int) -> str:
        return "".join(
            [*before[len(before) - min(words, len(before)) :], marked.group(), *after[:words]]
        )

    most = around(_most(around, max(len(before), len(after)), fits))
    if fits(most):
        return most
    return (
        f"[START_ENT] {beginning(marked[1], lambda part: fits(f'[START_ENT] {part} [END_ENT]'))} "
        "[END_ENT]"
    )


def dialogue(text: str, fits: Fits) -> str:
    r"""Return the last turns of a dialogue (one per line) that the encoder reads whole.

    >>> dialogue("Hello.\nI like cats.\nWho owns one?", lambda text: len(text.split()) <= 6)
    'I like cats. Who owns one?'
    """
    turns = [turn.strip() for turn in text.split("\n") if turn.strip()] or [""]

    def last(count: int) -> str:
        return " ".join(turns[len(turns) - count :])

    most = _most(last, len(turns), fits)
    if most:
        return last(most)
    return beginning(turns[-1], fits)


def beginning(text: str, fits: Fits) -> str:
    """Return as many of the first words as the encoder reads, or the first characters of the first
    word.

    >>> beginning("who owns one?", lambda text: len(text) <= 9)
    'who owns'
    >>> beginning("居里夫人出生在哪里", lambda text: len(text) <= 4)
    '居里夫人'
    """
    words = text.split()
    whole = " ".join(words[: _most(lambda count: " ".join(words[:count]), len(words), fits)])
    if whole or not words:
        return whole
    return words[0][: _most(lambda count: words[0][:count], len(words[0]), fits)]


def _most(cut: Callable[[int], str], largest: int, fits: Fits) -> int:
    """Return the largest number whose text fits, or 0."""
    fitting = 0
    failing = largest + 1
    while failing - fitting > 1:
        middle = (fitting + failing) // 2
        if fits(cut(middle)):
            fitting = middle
        else:
            failing = middle
    return fitting


@dataclass(frozen=True, slots=True)
class Task:
    """One data set.

    `answer` is the best phrase, the title of its page, or none if answers are not spans. `metrics`
    are KILT's columns, and `ranked` is the one that the leaderboard sorts by. `lines` has the
    lengths of the official files, by split.
    """

    name: str
    adapt: Adapter
    answer: AnswerKind
    metrics: tuple[str, ...]
    ranked: str
    lines: Mapping[str, int] = field(default_factory=dict)
    part: str = ""  # what follows the split in the names of the official files
    note: str = ""  # what a user should know about its predictions

    def __post_init__(self) -> None:
        texts = {"name": self.name, "ranked": self.ranked, "part": self.part, "note": self.note}
        wrong = {what: "a text" for what, value in texts.items() if not isinstance(value, str)}
        if not callable(self.adapt):
            wrong["adapt"] = "a function of a text and a test of whether it fits"
        if not isinstance(self.metrics, tuple | list) or not all(
            isinstance(metric, str) for metric in self.metrics
        ):
            wrong["metrics"] = "a tuple of texts"

        if not isinstance(self.lines, Mapping) or not all(
            type(count) is int for count in self.lines.values()
        ):
            wrong["lines"] = "a dict of numbers by split"

        for what, wanted in wrong.items():
            raise KbqError(
                f"task {self.name!r:.40}: {what} is {getattr(self, what)!r:.40}, must be {wanted}"
            )

        if self.answer not in get_args(AnswerKind):
            raise KbqError(
                f"task {self.name}: answer is {self.answer!r}, must be one of "
                f"{', '.join(get_args(AnswerKind))}"
            )

    @classmethod
    def load(cls, name: "str | PathLike[str] | Task") -> "Task":
        """Return a known task, a family, or the task in a file: `trex`, `my_task.py`, or
        `my_tasks.py:name` of several.

        A family, such as `slot_filling`, is like its first task, but without official files.

        Raises:
            KbqError: there is no such task or file, or the file defines none.

        >>> Task.load("nq").ranked, Task.load("zsre").name
        ('KILT-em', 'structured_zeroshot')
        """
        if isinstance(name, Task):
            return name
        if not isinstance(name, str | PathLike):
            raise KbqError(f"task is {name!r:.60}: give its name, a task file, or a Task")
        name = OTHER_NAMES.get(str(name), str(name))
        path, _, wanted = (
            name.rpartition(":") if name.rpartition(":")[0].endswith(".py") else (name, "", "")
        )
        if not path.endswith(".py"):
            files = {
                path.stem: _tasks_of(path) for path in sorted(resource_path("tasks").glob("*.py"))
            }
            tasks = known_tasks() | {
                stem: replace(found[0], name=stem, lines={}) for stem, found in files.items()
            }
            if name not in tasks:
                near = get_close_matches(name.lower(), tasks, 1)
                advice = f"is {near[0]} meant? Else " if near else ""
                raise KbqError(
                    f"task {name!r} is unknown: {advice}choose one of {', '.join(tasks)}, or give "
                    "the path of a task file",
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
        """KILT's columns, with the one that the leaderboard sorts by first."""
        return tuple(dict.fromkeys((self.ranked, *self.metrics)))

    @property
    def answer_metric(self) -> str:
        """The score that tells right answers: EM if the leaderboard sorts by it, else accuracy."""
        return "em" if self.ranked == "KILT-em" else "accuracy"

    def official_file(self, split: str) -> str:
        """Return the name of KILT's own file of a split, or an empty string.

        >>> Task("nq", str, "phrase", (), "", {"test": 1444}).official_file("test")
        'nq-test_without_answers-kilt.jsonl'
        """
        hidden = "_without_answers" if split == "test" else ""
        if split in self.lines:
            return f"{self.name}-{split}{self.part}{hidden}-kilt.jsonl"
        return ""

    def query_of(self, text: str, fits: Fits, place: str) -> str:
        """Return the query for a record's input, in NFC. Raises KbqError if the task's own code
        fails or gives no text.

        `place`: file and line of the record, for messages.
        """
        try:
            query: object = self.adapt(clean_text(text), fits)
        except Exception as error:  # a user's task may fail in any way
            raise KbqError(
                f"task {self.name} fails at {place}: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(query, str):
            raise KbqError(
                f"task {self.name} makes {query!r:.40} of {place}: its adapter must return a text"
            )
        return query


def known_tasks() -> dict[str, Task]:
    found = [
        task for path in sorted(resource_path("tasks").glob("*.py")) for task in _tasks_of(path)
    ]
    return {task.name: task for task in found}


def _tasks_of(path: Path) -> tuple[Task, ...]:
    """Return the tasks that a file defines. Raises KbqError if they have no or the same names."""
    module = _loaded(path)
    tasks = getattr(module, "TASKS", ())
    if (
        not isinstance(tasks, tuple | list)
        or not tasks
        or not all(isinstance(task, Task) for task in tasks)
    ):
        raise KbqError(f"{path} defines no tasks: it needs TASKS = (Task(…),)")

    names = [task.name for task in tasks]
    if len(set(names)) < len(names):
        raise KbqError(f"{path} defines {', '.join(names)}: give each task its own name")
    return tuple(tasks)


def _loaded(path: Path) -> ModuleType:
    """Run a task file. Raises KbqError if it fails."""
    spec = importlib.util.spec_from_file_location(f"kbq.tasks.{path.stem}", path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise KbqError(f"task file {path} does not exist")
    # Dataclasses look their module up there.
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a user's file may fail in any way
        del sys.modules[spec.name]
        if isinstance(error, KbqError):
            raise KbqError(f"task file {path}: {error.typed}") from None
        raise KbqError(f"task file {path} fails: {type(error).__name__}: {error}") from error

    return module
