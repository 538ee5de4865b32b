"""CPU features are whole words of what Linux says."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kbq.system.machine import cpu_has


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    cpu_has.cache_clear()
    yield
    cpu_has.cache_clear()


def test_one_of_the_features_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda path: "flags\t\t: sse avx512_bf16\nFeatures\t: fp i8mm\n")
    assert cpu_has("amx_bf16", "avx512_bf16")
    assert cpu_has("i8mm")
    assert not cpu_has("bf16", "avx_vnni")


def test_a_system_that_says_nothing_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(path: Path) -> str:
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "read_text", missing)
    assert not cpu_has("avx512_bf16")
