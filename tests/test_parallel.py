"""Parallel: answers do not depend on the number of processes, nor on what stops one of them."""

import gc
import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import Run

from kbq.asking.workers import answerer
from kbq.errors import KnowledgeBaseError
from kbq.kb import KnowledgeBase
from kbq.model.model import Model
from kbq.search.options import SearchOptions
from kbq.text.queries import Query
from kbq.tuning.finetune import _with_own_query_encoder

TEXTS = [
    "Marie Curie [SEP] place of birth",
    "Ada Lovelace [SEP] father",
    "where is the Eiffel Tower?",
] * 3


def test_the_number_of_processes_does_not_matter(
    sample: KnowledgeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(sample.folder.parent)
    with KnowledgeBase.open(sample.folder.name, device="cpu", workers=2) as kb:
        assert multiprocessing.active_children() == []  # before anything is asked
        monkeypatch.chdir(tmp_path)  # processes find the folder from elsewhere
        assert kb.query(TEXTS, k=3) == sample.query(TEXTS, k=3)
        assert kb.query(TEXTS[0]) == sample.query(TEXTS[0])
        assert len(multiprocessing.active_children()) == 2
        monkeypatch.chdir(sample.folder.parent)
        assert kb.query(TEXTS, k=2, unit="page", backend="bm25") == sample.query(
            TEXTS, k=2, unit="page", backend="bm25"
        )
        pages = [answer.page_id for answer in sample.query(TEXTS[1], k=3, unit="page")]
        with kb.with_pages(pages) as some:
            assert some.query(TEXTS, k=3) == sample.with_pages(pages).query(TEXTS, k=3)
    assert multiprocessing.active_children() == []


def test_processes_end_with_the_knowledge_base(sample: KnowledgeBase) -> None:
    kb = KnowledgeBase.sample(device="cpu", workers=2)
    assert kb.query(TEXTS[0]) == sample.query(TEXTS[0])
    assert len(multiprocessing.active_children()) == 1
    del kb
    gc.collect()
    assert multiprocessing.active_children() == []


def test_an_encoder_that_is_being_tuned_is_asked_in_this_process(kb_folder: Path) -> None:
    with KnowledgeBase.open(kb_folder, device="cpu", workers=2) as kb:
        tuned, query = _with_own_query_encoder(kb.searcher), Query.of("Marie [SEP] place")
        before = tuned.search([query], SearchOptions(5, rerank=0))
        with torch.no_grad():
            tuned.model.queries.start_head.get_parameter("bias").add_(
                5 * torch.linspace(-1, 1, kb.model.dim)
            )
        assert tuned.search([query], SearchOptions(5, rerank=0)) != before
        assert multiprocessing.active_children() == []


def test_a_model_in_no_folder_is_refused(sample: KnowledgeBase) -> None:
    model = Model.open("default", "cpu")
    model.source = ""
    with pytest.raises(KnowledgeBaseError, match="a model that is in no folder: save it first"):
        KnowledgeBase.open(sample.folder, model, workers=2)


def dies_once(packed: bytes, device: str) -> Callable[[Any], Any]:
    answer, mark = answerer(packed, device), Path(os.environ["KBQ_TEST_MARK"])

    def answer_or_die(asked: Any) -> Any:
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return answer(asked)

    return answer_or_die


def test_a_process_that_is_killed_is_said_and_others_answer_the_next_query(
    sample: KnowledgeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)
    monkeypatch.setenv("KBQ_TEST_MARK", str(tmp_path / "mark"))
    monkeypatch.setattr("kbq.asking.workers.answerer", dies_once)
    with KnowledgeBase.sample(device="cpu", workers=2) as kb:
        with pytest.raises(
            KnowledgeBaseError, match=r"^a worker died, perhaps .*: use fewer workers$"
        ):
            kb.query(TEXTS, k=3)
        assert kb.query(TEXTS, k=3) == sample.query(TEXTS, k=3)


@pytest.mark.parametrize(("workers", "ray"), [(0, None), (2.5, None), (2, "local")])
def test_other_numbers_are_refused(workers: Any, ray: str | None) -> None:
    with pytest.raises(
        KnowledgeBaseError, match=rf"workers is {workers}: give 1 or more; with a Ray cluster, 1"
    ):
        KnowledgeBase.sample(device="cpu", workers=workers, ray=ray)


def test_a_file_is_predicted_by_several(run: Run, kb_folder: Path, tmp_path: Path) -> None:
    given = tmp_path / "in.jsonl"
    given.write_text(
        "".join(f'{{"id": "{number}", "input": "{text}"}}\n' for number, text in enumerate(TEXTS))
    )
    outs = [tmp_path / f"{workers}.jsonl" for workers in (1, 2)]
    for workers, out in enumerate(outs, start=1):
        words = (
            "predict",
            given,
            "--task",
            "slot_filling",
            "--kb",
            kb_folder,
            "--device",
            "cpu",
            "--out",
            out,
        )
        status, _, errors = run(*words, "--workers", workers)
        assert status == 0, errors
    assert outs[0].read_bytes() == outs[1].read_bytes()
