"""Question answering: the query is a question; the answer is a phrase or, for ELI5, an essay."""

from kbq.kilt.task import Task, question


def _short_answers(name: str, part: str = "", **lines: int) -> Task:
    metrics = ("em", "f1", "KILT-em", "KILT-f1")
    return Task(
        name, question, answer="phrase", metrics=metrics, ranked="KILT-em", lines=lines, part=part
    )


TASKS = (
    _short_answers("nq", dev=2_837, test=1_444),
    _short_answers("hotpotqa", dev=5_600, test=5_569),
    _short_answers("triviaqa", part="_id", dev=5_359, test=6_586),
    Task(
        "eli5",
        question,
        answer="none",
        metrics=("rougel", "f1", "KILT-rougel", "KILT-f1"),
        ranked="KILT-rougel",
        lines={"dev": 1_507, "test": 600},
        note="answers are essays, not phrases: only the pages are predicted",
    ),
)
