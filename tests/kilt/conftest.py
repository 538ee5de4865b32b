"""Fixtures: KILT files written for one test."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes records as JSON lines into a file of that name; text is written as it is."""

    def write_file(name: str, *records: object) -> Path:
        path = tmp_path / name
        lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
        path.write_bytes("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass"))
        return path

    return write_file


@pytest.fixture
def score(write: Callable[..., Path]) -> Callable[..., dict[str, float]]:
    """Official scores of one gold output list and one predicted output, all in one dict; `ks` are
    1, 2, 5.
    """
    from kbq.kilt.scores import Rules, score

    def score_one(gold: list[object], guess: object, text: str = "Q") -> dict[str, float]:
        gold_path = write("gold.jsonl", {"id": "1", "input": text, "output": gold})
        guess_path = write("guess.jsonl", {"id": "1", "output": [guess]})
        sections = score(guess_path, gold_path).layout()
        retrieval = score(guess_path, gold_path, "retrieval", Rules(ks=(1, 2, 5))).layout()
        return {**sections["kilt"], **sections["downstream"], **sections["retrieval"], **retrieval}

    return score_one
