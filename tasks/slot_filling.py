"""Slot filling: T-REx and zero-shot relation extraction. Input: `subject [SEP] relation`; answer: a phrase."""

from kbq.adapters import slot
from kbq.task import Task

METRICS = ("accuracy", "f1", "KILT-accuracy", "KILT-f1")

TASKS = (
    Task("trex", slot, "phrase", METRICS, "KILT-accuracy", "trex", {"train": 2_284_168, "dev": 5_000, "test": 5_000}),
    Task(
        "structured_zeroshot",
        slot,
        "phrase",
        METRICS,
        "KILT-accuracy",
        "structured_zeroshot",
        {"train": 147_909, "dev": 3_724, "test": 4_966},
    ),
)
