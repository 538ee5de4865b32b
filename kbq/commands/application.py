"""Application: help by topic and in whole clauses, and what to type instead of a command line that is wrong."""

import re
from typing import Any

from typer.core import TyperGroup

ONE_AT_A_TIME = "give one at a time"
ONE_FOLDER = "put several files into one folder, and give that"
EXTRA = {  # what to do about an argument too many, by command; a missing option is named anyway
    "build": ONE_FOLDER,
    "update": ONE_FOLDER,
    "sync": ONE_FOLDER,
    "compact": ONE_AT_A_TIME,
    "verify": ONE_AT_A_TIME,
    "info": ONE_AT_A_TIME,
    "explain": "put quotes around a query of several words",
    "pages": "put quotes around several words",
    "fill": "the columns to fill go after --relations",
    "export": "give one file of claims; the format goes after --to",
    "evaluate-table": "a column to score goes after --relation",
    "evaluate": "predictions of a second system go after --compare",
    "predict": "the knowledge base goes after --kb",
    "errors": "the knowledge base goes after --kb",
    "validate": "the KILT file goes after --inputs, the knowledge base after --kb",
    "index vectors": "the kind of index goes after --kind, a file of queries after --queries",
}
GONE = {  # what takes the place of an option or a command of the last version
    "fill --format": "the ending of --out is the format; `kbq export` writes others",
    "cluster place": "put the knowledge base into a shared folder, or copy it to the same path on each node",
    "fill --ids": "give it to `kbq export`",
    "evaluate --diagnosis": "`kbq errors` counts right answers on wrong pages, and the reverse",
    "evaluate --rank-keys": "pages are ranked, as on the leaderboard",
    "evaluate --empty-provenance": "it counts, as on the leaderboard",
    "evaluate --coupled": "use KILT-accuracy, the leaderboard's",
    "evaluate --top-1": "precision@1 is among the retrieval scores",
    "evaluate --no-rouge": "leave it out; ROUGE-L is always scored",
    "evaluate --measures": "write --trec-run and --trec-qrels, and give both files to ir_measures",
    "validate --fix": "`kbq submit` cleans the files that it packages",
    "merge-models": "tune one query encoder on the triples of all: `kbq finetune`",
    "train generator": "any sequence-to-sequence checkpoint will do for `kbq augment --generator`",
    "merge": "join the files by id with a script, the answer of one and the provenance of the other",
    "pages --by": "`kbq pages --where FIELD=VALUE` lists pages",
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
    """Return the first sentence of a help, without its last clauses if it would take more than `room` characters.

    >>> summary("Tune the query encoder on triples; the knowledge base stays as it is. It takes minutes.", 60)
    'Tune the query encoder on triples'
    """
    sentence = re.split(r"\.(?:\s|$)", " ".join(text.split()), maxsplit=1)[0]
    part = re.match("[^:;]*", sentence)[0]  # type: ignore[index]  # after it, commas divide lists
    ends = [*(found.start() for found in re.finditer(", ", part)), len(part), len(sentence)]
    return sentence[: max((end for end in ends if end <= room), default=ends[0])]


def explained(message: str, context: Any) -> str:
    """Add to a message about a command line that is wrong what to type instead, if that is known."""
    if context is None:
        return message
    told, _, similar = message.rstrip(".").partition(" Did you mean")
    missing = re.match("No such (?:option|command):? '?([^ ']+)", told)
    if gone := GONE.get(f"{_name(context)} {missing[1].rstrip('.')}".strip() if missing else ""):
        return f"{told.rstrip('.')}: {gone}"
    if message.startswith("Got unexpected extra argument") and (advice := EXTRA.get(_name(context))):
        return f"{told}: {advice}"
    is_of_group = context.parent is not None and message.startswith("No such command") and not similar
    return f"{told}: choose from {', '.join(context.command.commands)}" if is_of_group else message


def _name(context: Any) -> str:
    """Return the name of a command, such as "index vectors"."""
    return f"{_name(context.parent)} {context.info_name}".strip() if context.parent else ""
