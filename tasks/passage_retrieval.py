"""Passage retrieval: BEIR, MS MARCO and the like. The query is a question; pages alone are
predicted.
"""

from kbq.kilt.task import Task, question

TASKS = (
    Task(
        "passages",
        question,
        answer="none",
        metrics=("Rprec", "recall@5"),
        ranked="Rprec",
        note="only pages are predicted: score them with TREC tools, too",
    ),
)
