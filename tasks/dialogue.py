"""Dialogue: Wizard of Wikipedia. The query is the last turns of a dialogue; the answer is a reply,
not a phrase.
"""

from kbq.kilt.task import Task, dialogue

TASKS = (
    Task(
        "wow",
        dialogue,
        answer="none",
        metrics=("f1", "rougel", "KILT-f1", "KILT-rougel"),
        ranked="KILT-f1",
        lines={"dev": 3_054, "test": 2_944},
        note="answers are replies, not phrases: only the pages are predicted",
    ),
)
