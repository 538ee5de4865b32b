"""Fact checking: FEVER. The query is the claim; the answer, SUPPORTS or REFUTES, is no span."""

from kbq.kilt.adapters import question
from kbq.kilt.task import Task

TASKS = (
    Task(
        "fever",
        question,
        answer="none",
        metrics=("accuracy", "KILT-accuracy"),
        ranked="KILT-accuracy",
        lines={"dev": 10_444, "test": 10_100},
        note="answers are labels, which no phrase can be: only the pages are predicted",
    ),
)
