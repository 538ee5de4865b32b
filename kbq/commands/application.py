"""Application: the help of the command line by topic, and the new spelling of what was called otherwise before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typer.core import TyperGroup

if TYPE_CHECKING:
    from collections.abc import Sequence

RENAMED = {  # what was typed, in which command (empty: in any): what it is now
    ("train", "--checkpoint"): "--init",
    ("train", "--teacher"): "`kbq train reader`",
    ("train", "--generator"): "`kbq train generator`",
    ("train", "--sparse"): "`kbq train sparta`",
    ("index", "--bm25"): "`kbq index bm25 KB`",
    ("index", "--sparta"): "`kbq index sparta KB MODEL`",
    ("index", "--index"): "--kind",
    ("", "sparse"): "sparta",
    ("", "document"): "page",
    ("", "approximate"): "disk",
}
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
            rows.append((name, command.get_short_help_str(formatter.width - 14)))
        for topic, rows in topics.items():
            with formatter.section(topic):
                formatter.write_dl(rows)


def new_spelling(typed: Sequence[str], problem: str = "") -> str:
    """What to type instead of an old spelling in a refused command; empty where there is none.

    >>> new_spelling(["train", "squad.json", "--teacher"]), new_spelling(["query", "--unit=document"])
    ('--teacher is `kbq train reader` now', 'document is page now')
    """
    command = typed[0] if typed else ""
    words = [part for word in typed[1:] for part in word.split("=")]
    for (place, old), new in RENAMED.items():
        if old in words and place in ("", command):
            return f"{old} is {new} now"
    return SPLIT.get(command, "") if problem.startswith("No such command") else ""
