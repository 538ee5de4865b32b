"""Dialogue: Wizard of Wikipedia. The query is the dialogue's last turns; the answer, a reply, is no span."""

from kbq.adapters import dialogue
from kbq.task import Task

TASKS = (
    Task(
        "wow",
        dialogue,
        "none",
        ("f1", "rougel", "KILT-f1", "KILT-rougel"),
        "KILT-f1",
        "wow",
        {"dev": 3_054, "test": 2_944},
        "answers are replies, which no phrase can be: only the pages are predicted",
    ),
)
