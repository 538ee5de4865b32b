"""Question answering: plain questions; the answer is a phrase, but for ELI5, whose answers are essays."""

from kbq.adapters import question
from kbq.task import Task

METRICS = ("em", "f1", "KILT-em", "KILT-f1")
ESSAY = "answers are essays, which no phrase can be: only the pages are predicted"

TASKS = (
    Task("nq", question, "phrase", METRICS, "KILT-em", "nq", {"dev": 2_837, "test": 1_444}),
    Task("hotpotqa", question, "phrase", METRICS, "KILT-em", "hotpotqa", {"dev": 5_600, "test": 5_569}),
    Task("triviaqa", question, "phrase", METRICS, "KILT-em", "triviaqa", {"dev": 5_359, "test": 6_586}),
    Task(
        "eli5",
        question,
        "none",
        ("rougel", "f1", "KILT-rougel", "KILT-f1"),
        "KILT-rougel",
        "eli5",
        {"dev": 1_507, "test": 600},
        ESSAY,
    ),
)
