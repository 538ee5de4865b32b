"""Parallel: answers do not depend on the number of processes, nor on what stops one of them."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbq import parallel
from kbq.errors import KnowledgeBaseError
from kbq.kb import KnowledgeBase

TEXTS = ["Marie Curie [SEP] place of birth", "Ada Lovelace [SEP] father", "where is the Eiffel Tower?"] * 3


@pytest.fixture(scope="module")
def here() -> KnowledgeBase:
    return KnowledgeBase.sample(device="cpu")


def test_the_number_of_processes_does_not_matter(here: KnowledgeBase) -> None:
    with KnowledgeBase.sample(device="cpu", workers=2) as kb:
        assert multiprocessing.active_children() == []  # before anything is asked
        assert kb.query(TEXTS, k=3) == here.query(TEXTS, k=3)
        assert kb.query(TEXTS, k=2, unit="page", backend="bm25") == here.query(TEXTS, k=2, unit="page", backend="bm25")
        assert kb.query(TEXTS[0]) == here.query(TEXTS[0])
        assert len(multiprocessing.active_children()) == 2
    assert multiprocessing.active_children() == []


def test_processes_answer_from_the_chosen_pages(here: KnowledgeBase) -> None:
    pages = [answer.page_id for answer in here.query(TEXTS[1], k=3, unit="page")]
    with KnowledgeBase.sample(device="cpu", workers=2) as kb, kb.with_pages(pages) as some:
        assert some.query(TEXTS, k=3) == here.with_pages(pages).query(TEXTS, k=3)


def dies_once(packed: bytes, device: str) -> Callable[[Any], Any]:
    answer, mark = parallel.answerer(packed, device), Path(os.environ["KBQ_TEST_MARK"])

    def answer_or_die(asked: Any) -> Any:
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return answer(asked)

    return answer_or_die


def test_a_process_that_is_killed_is_replaced(
    here: KnowledgeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)
    monkeypatch.setenv("KBQ_TEST_MARK", str(tmp_path / "mark"))
    monkeypatch.setattr(parallel, "answerer", dies_once)
    with KnowledgeBase.sample(device="cpu", workers=2) as kb:
        assert kb.query(TEXTS, k=3) == here.query(TEXTS, k=3)
    assert (tmp_path / "mark").exists()


@pytest.mark.parametrize(("workers", "ray"), [(0, None), (2.5, None), (2, "local")])
def test_other_numbers_are_refused(workers: Any, ray: str | None) -> None:
    with pytest.raises(KnowledgeBaseError, match=rf"workers is {workers}: give 1 or more; with a Ray cluster, 1"):
        KnowledgeBase.sample(device="cpu", workers=workers, ray=ray)


def test_a_file_is_predicted_by_several(run: Callable[..., tuple[object, str, str]], tmp_path: Path) -> None:
    given = tmp_path / "in.jsonl"
    given.write_text("".join(f'{{"id": "{number}", "input": "{text}"}}\n' for number, text in enumerate(TEXTS)))
    outs = [tmp_path / f"{workers}.jsonl" for workers in (1, 2)]
    for workers, out in enumerate(outs, start=1):
        words = "predict", given, "--task", "slot_filling", "--workers", workers, "--device", "cpu", "--out", out
        status, _, errors = run(*words)
        assert status == 0, errors
    assert outs[0].read_bytes() == outs[1].read_bytes()
