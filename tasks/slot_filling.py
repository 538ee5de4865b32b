"""Slot filling: T-REx, zero-shot relation extraction. The query is `subject [SEP] relation`; the
answer is a phrase.
"""

from kbq.kilt.task import Task, slot


def _slots(name: str, **lines: int) -> Task:
    metrics = ("accuracy", "f1", "KILT-accuracy", "KILT-f1")
    return Task(name, slot, answer="phrase", metrics=metrics, ranked="KILT-accuracy", lines=lines)


TASKS = (
    _slots("trex", train=2_284_168, dev=5_000, test=5_000),
    _slots("structured_zeroshot", train=147_909, dev=3_724, test=4_966),
)
