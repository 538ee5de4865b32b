"""Histories: after any changes, a knowledge base answers like one that is built from the pages that
are left.

The truth is a plain list of pages; what searches it is built anew each time, with vectors alone
compared exactly.
"""

import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from killed import Killed

from kbq.answers import Answer
from kbq.corpus.pages import Page
from kbq.dump import shard_writer
from kbq.dump.manifest import write_manifest
from kbq.kb import KnowledgeBase
from kbq.maintain.compact import write_compacted
from kbq.maintain.merge import merge
from kbq.maintain.verify import verify
from kbq.model.model import Model
from kbq.storage.records import write_record

IDS = [f"P{number}" for number in range(7)]
TEXTS = [
    "Marie Curie was born in Warsaw.",
    "the river of Paris",
    "was the city born",
    "place of the birth",
    "",
]
QUERIES = ["Marie Curie [SEP] place of birth", "the river", "was born in Paris"]
page = st.builds(
    lambda number, title, texts, licence: Page(
        IDS[number], title, texts, metadata={} if licence is None else {"licence": licence}
    ),
    st.integers(0, 6),
    st.sampled_from(["Marie Curie", "Paris", "Warsaw"]),
    st.lists(st.sampled_from(TEXTS), max_size=3).map(
        lambda texts: [text for text in texts if text]
    ),
    st.sampled_from([None, "CC0"]),
)
corpora = st.lists(page, min_size=1, max_size=5, unique_by=lambda page: page.page_id)
kills = st.one_of(st.none(), st.integers(0, 3))
EXAMPLES = int(os.environ.get("KBQ_HISTORIES", "5"))


def said(answers: list[Answer]) -> list[tuple[Any, ...]]:
    return [
        (one.text, one.score, one.place, one.title, one.context, one.unit, dict(one.metadata))
        for one in answers
    ]


def answers(kb: KnowledgeBase) -> dict[str, Any]:
    """What a knowledge base says, over all units and backends."""
    asked: dict[str, Any] = {}
    query: Any = kb.query
    for unit, backend in itertools.product(
        ("phrase", "sentence", "paragraph", "page"), ("dense", "hybrid")
    ):
        for k in (1, 4):
            found = query(QUERIES, k=k, unit=unit, backend=backend)
            asked[f"{unit} {backend} {k}"] = [said(of_query) for of_query in found]
    for unit in ("paragraph", "page"):
        found = query(QUERIES, k=4, unit=unit, backend="bm25")
        asked[f"{unit} bm25"] = [said(of_query) for of_query in found]
    return asked


@contextmanager
def killed(call: int | None) -> Iterator[list[bool]]:
    """Kill at the n-th time that a file is published or a shard is closed; tells whether it came to
    that.
    """
    happened = [False]
    if call is None:
        yield happened
        return
    calls = itertools.count()

    def failing(function: Any) -> Any:
        def wrapped(*arguments: Any, **named: Any) -> Any:
            if next(calls) == call:
                happened[0] = True
                raise Killed
            return function(*arguments, **named)

        return wrapped

    with pytest.MonkeyPatch.context() as patch:
        for module in ("update", "compact"):
            patch.setattr(f"kbq.maintain.{module}.write_manifest", failing(write_manifest))
        patch.setattr("kbq.dump.manifest.write_record", failing(write_record))
        patch.setattr("kbq.dump.resumable_build.write_record", failing(write_record))
        patch.setattr("kbq.maintain.compact.write_compacted", failing(write_compacted))
        patch.setattr(shard_writer.ShardWriter, "close", failing(shard_writer.ShardWriter.close))
        with suppress(Killed):
            yield happened


@pytest.mark.usefixtures("without_waiting_for_the_disk")
def test_a_history_of_changes(model: Model) -> None:
    class Histories(RuleBasedStateMachine):
        """A knowledge base, and the plain list of its pages."""

        written = Bundle("written")

        def __init__(self) -> None:
            super().__init__()
            self.folder = Path(tempfile.mkdtemp())
            self.pages: dict[str, Page] = {}

        @initialize(corpus=corpora)
        def build(self, corpus: list[Page]) -> None:
            self.kb = KnowledgeBase.build(corpus, self.folder / "kb", model)
            self.pages = {page.page_id: page for page in corpus}

        def changed(self, change: Any, call: int | None) -> None:
            """Make a change, which may be killed: then what was there is still there, and the
            change is made again.
            """
            before = answers(self.kb)
            with killed(call) as happened:
                change()
            if happened[0]:
                assert answers(self.kb) == before  # of a reader that has it open
                now = KnowledgeBase.open(self.folder / "kb")
                assert answers(now) in (before, self.truth())
                change()
            self.kb = KnowledgeBase.open(self.folder / "kb")

        @rule(corpus=corpora, call=kills)
        def update(self, corpus: list[Page], call: int | None) -> None:
            self.update_pages(corpus)
            self.changed(lambda: KnowledgeBase.open(self.folder / "kb").update(corpus), call)

        def update_pages(self, corpus: list[Page]) -> None:
            for one in corpus:
                if self.pages.get(one.page_id) != one:
                    self.pages.pop(one.page_id, None)
                    self.pages[one.page_id] = one

        @rule(corpus=corpora, call=kills)
        def sync(self, corpus: list[Page], call: int | None) -> None:
            self.update_pages(corpus)
            for page_id in set(self.pages) - {one.page_id for one in corpus}:
                del self.pages[page_id]
            self.changed(lambda: KnowledgeBase.open(self.folder / "kb").sync(corpus), call)

        @precondition(lambda self: len(self.pages) > 1)
        @rule(data=st.data(), call=kills)
        def delete(self, data: st.DataObject, call: int | None) -> None:
            ids = data.draw(
                st.lists(st.sampled_from(sorted(self.pages)), min_size=1, max_size=3, unique=True)
            )
            for page_id in ids:
                del self.pages[page_id]
            self.changed(
                lambda: KnowledgeBase.open(self.folder / "kb").delete(ids, missing_ok=True), call
            )

        @rule(call=kills)
        def compact(self, call: int | None) -> None:
            self.changed(lambda: KnowledgeBase.open(self.folder / "kb").compact(), call)
            assert all(not shard.deleted for shard in self.kb.manifest.shards)

        @rule()
        def merge_with_one(self) -> None:
            """Join it with a knowledge base of one page."""
            other = Page("other", "Paris", ["the river of Paris"])
            if "other" in self.pages:
                return
            KnowledgeBase.build([other], self.folder / "one", model)
            merge(self.folder / "merged", [self.folder / "kb", self.folder / "one"])
            for name in ("kb", "one"):
                shutil.rmtree(self.folder / name)
            (self.folder / "merged").rename(self.folder / "kb")
            self.pages["other"] = other
            self.kb = KnowledgeBase.open(self.folder / "kb")

        @rule()
        def verify(self) -> None:
            assert verify(self.folder / "kb").problems == ()

        def truth(self) -> dict[str, Any]:
            folder = Path(tempfile.mkdtemp(dir=self.folder))
            if not self.pages:
                return answers(KnowledgeBase.build([Page("none", "", [])], folder / "kb", model))
            return answers(KnowledgeBase.build(list(self.pages.values()), folder / "kb", model))

        @invariant()
        def says_what_its_pages_say(self) -> None:
            kept = [
                shard.page(number)
                for shard in self.kb.searcher.shards
                for number, _ in shard.live_ids()
            ]
            assert [(one.page_id, one.title, one.metadata) for one in kept] == [
                (one.page_id, one.title, one.metadata) for one in self.pages.values()
            ]
            assert self.kb.counts.pages == len(self.pages)
            assert answers(self.kb) == self.truth()

        def teardown(self) -> None:
            shutil.rmtree(self.folder, ignore_errors=True)

    hypothesis.stateful.run_state_machine_as_test(
        Histories,
        settings=hypothesis.settings(
            max_examples=EXAMPLES,
            stateful_step_count=6,
            deadline=None,
            suppress_health_check=list(hypothesis.HealthCheck),
        ),
    )
