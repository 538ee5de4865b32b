"""Fact checking: FEVER. The query is a claim; the answer is SUPPORTS or REFUTES, not a phrase."""

from kbq.kilt.task import Task, question

TASKS = (
    Task(
        "fever",
        question,
        answer="none",
        metrics=("accuracy", "KILT-accuracy"),
        ranked="KILT-accuracy",
        lines={"dev": 10_444, "test": 10_100},
        note="answers are labels, not phrases: only the pages are predicted",
    ),
)
