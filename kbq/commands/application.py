"""Application: help by topic and in whole clauses, and the new spelling of what was called otherwise before."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from typer.core import TyperGroup

if TYPE_CHECKING:
    from collections.abc import Sequence

RENAMED = {  # options, by command: what was typed, and what it is now
    "train": {
        "--teacher": "`kbq train reader`",
        "--generator": "`kbq train generator`",
        "--sparse": "`kbq train sparta`",
        "--checkpoint": "--init",
    },
    "index": {
        "--bm25": "`kbq index bm25 KB`",
        "--sparta": "`kbq index sparta KB MODEL`",
        "--index": "--kind",
    },
}
VALUES = {"--backend": {"sparse": "sparta"}, "--unit": {"document": "page"}}
VALUES |= {option: {"approximate": "disk"} for option in ("--index", "--kind")}
SPLIT = {  # what was one command, and is several now
    "train": "`kbq train` is `kbq train encoders`, `reader`, `generator` or `sparta` now",
    "index": "`kbq index` is `kbq index vectors`, `bm25` or `sparta` now",
}


class Commands(TyperGroup):
    """A group of commands that shows them by topic."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands, those of one topic together."""
        topics: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            topic = getattr(command, "rich_help_panel", None)
            rows = topics.setdefault(topic if isinstance(topic, str) else "Commands", [])
            rows.append((name, command.help or ""))
        for topic, rows in topics.items():
            room = formatter.width - max(len(name) for name, _ in rows) - len("    ")
            with formatter.section(topic):
                formatter.write_dl([(name, summary(text, room)) for name, text in rows])


def summary(text: str, room: int) -> str:
    """The first sentence of a help, without its last clauses where it would take more than `room` characters.

    >>> summary("Tune the query encoder on triples; the knowledge base stays as it is. It takes minutes.", 60)
    'Tune the query encoder on triples'
    """
    sentence = re.split(r"\.(?:\s|$)", " ".join(text.split()), maxsplit=1)[0]
    part = re.match("[^:;]*", sentence)[0]  # type: ignore[index]  # behind it, commas divide lists
    ends = [*(found.start() for found in re.finditer(", ", part)), len(part), len(sentence)]
    return sentence[: max((end for end in ends if end <= room), default=ends[0])]


def new_spelling(typed: Sequence[str], problem: str = "") -> str:
    """What to type instead of old spellings in a refused command; empty where there are none.

    >>> new_spelling(["train", "squad.json", "--teacher", "--checkpoint", "m"], "No such command 'squad.json'.")
    '--teacher is `kbq train reader` now; --checkpoint is --init now'
    >>> new_spelling(["query", "sparse", "--unit=document"])
    'document is page now'
    """
    command, *words = [part for word in typed for part in word.split("=", 1)] or [""]
    is_new = bool(words) and re.search(rf"[ `]{re.escape(words[0])}`", SPLIT.get(command, "")) is not None
    hints = []
    for option, new in RENAMED.get(command, {}).items():
        if option in words and not (is_new and new.startswith("`")):
            hints.append(f"{option} is {new} now")
    for option, value in pairwise(words):
        new_value = VALUES.get(option, {}).get(value)
        if new_value:
            hints.append(f"{value} is {new_value} now")
    if problem.startswith("No such command") and command in SPLIT and not any("`kbq" in hint for hint in hints):
        hints.insert(0, SPLIT[command])
    return "; ".join(hints)
