"""Application: help by topic and in whole clauses, and the new spelling of what was called otherwise before."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from typer.core import TyperGroup

if TYPE_CHECKING:
    from collections.abc import Sequence

RENAMED = {"--second-look": "--rerank"}  # options: what was typed, and what it is called now, for one version


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


def new_spelling(typed: Sequence[str]) -> str:
    """Say what options are called now that are typed by their old names; empty where there are none.

    >>> new_spelling(["query", "Marie Curie [SEP] spouse", "--second-look=3"])
    '--second-look is called --rerank now'
    """
    old = dict.fromkeys(word.split("=", 1)[0] for word in typed)
    return "; ".join(f"{option} is called {RENAMED[option]} now" for option in old if option in RENAMED)
