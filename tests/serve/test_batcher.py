"""The batcher: what waits together is searched together, what is given up is left out, and nobody
fails for another.
"""

import asyncio
import math
import threading
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbq.answers import Answer
from kbq.errors import QueryError
from kbq.kb import KnowledgeBase
from kbq.reading.probability import FEATURES, Calibration
from kbq.search.options import SearchOptions
from kbq.serve.batcher import Batcher, _Queries
from kbq.serve.filling import TABLES, TableFiller
from kbq.serve.knowledge_bases import Folder, OpenedKb, ServedKb
from kbq.serve.limits import cost
from kbq.serve.metrics import Metrics
from kbq.serve.problems import LateError, OverloadedError
from kbq.tables.options import FillOptions
from kbq.tables.relations import relation_named
from kbq.text.queries import Query

ONE, TWO = SearchOptions(1), SearchOptions(2)


@pytest.fixture(scope="module")
def served(kb_folder: Path) -> OpenedKb:
    return opened(kb_folder)


def opened(folder: Path) -> OpenedKb:
    return ServedKb("tiny", Folder(folder, device="cpu")).now


@pytest.fixture
def batches(served: OpenedKb, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The texts of every search."""
    seen: list[list[str]] = []
    search = served.kb.searcher.search

    def watched(queries: Sequence[Query], options: SearchOptions) -> list[list[Answer]]:
        seen.append([query.text for query in queries])
        return search(queries, options)

    monkeypatch.setattr(served.kb.searcher, "search", watched)
    return seen


@asynccontextmanager
async def busy(batcher: Batcher) -> AsyncIterator[None]:
    """While the thread has something else to do: what is asked in this block waits until the block
    ends.
    """
    free, loop, begun = threading.Event(), asyncio.get_running_loop(), asyncio.Event()

    def work() -> None:
        loop.call_soon_threadsafe(begun.set)
        assert free.wait(30)

    working = asyncio.create_task(batcher.call(work, math.inf))
    await begun.wait()
    yield
    await asyncio.sleep(0)  # tasks that were made in the block have begun
    free.set()
    await working


async def outcomes(batcher: Batcher, *requests: Coroutine[Any, Any, Any]) -> list[Any]:
    """What comes of requests that are made, in this order, while the thread is busy."""
    async with batcher:
        async with busy(batcher):
            tasks = [asyncio.create_task(request) for request in requests]
        return await asyncio.gather(*tasks, return_exceptions=True)


def test_what_waits_is_searched_together(served: OpenedKb, batches: list[list[str]]) -> None:
    batcher = Batcher(metrics=(metrics := Metrics()))
    asked = (["the river"], ["Paris", "Warsaw"], ["Marie"])
    found = asyncio.run(outcomes(batcher, *(batcher.ask(served, texts, ONE) for texts in asked)))
    assert batches == [["the river", "Paris", "Warsaw", "Marie"]]
    assert found == [served.kb.query(texts, 1) for texts in asked]
    assert metrics.registry.get_sample_value("kbq_batch_queries_sum") == 4.0


def test_a_query_alone_waits_for_nobody(served: OpenedKb, batches: list[list[str]]) -> None:
    async def alone() -> list[list[Answer]]:
        async with (batcher := Batcher()):
            return await batcher.ask(served, ["Paris"], ONE)

    assert asyncio.run(alone())[0][0] == served.kb.query("Paris", 1)[0]
    assert batches[0] == ["Paris"]


def test_other_options_are_another_batch(served: OpenedKb, batches: list[list[str]]) -> None:
    batcher = Batcher()
    asked = [("a", ONE), ("b", TWO), ("c", ONE), ("d", TWO)]
    asyncio.run(
        outcomes(batcher, *(batcher.ask(served, [text], options) for text, options in asked))
    )
    assert batches == [["a", "c"], ["b", "d"]]


def test_a_batch_has_16_reranked_queries_at_most_so_that_who_comes_need_not_wait_for_long(
    served: OpenedKb, batches: list[list[str]]
) -> None:
    batcher, plain = Batcher(), SearchOptions(1, rerank=0)
    asked = [(30, ONE), (6, ONE), (7, ONE), (64, plain)]
    asyncio.run(
        outcomes(
            batcher, *(batcher.ask(served, ["Paris"] * size, options) for size, options in asked)
        )
    )
    assert list(map(len, batches)) == [16, 14, 13, 64]  # the rest of 30 has no room for six more


def test_beside_others_a_large_request_is_searched_in_parts(
    served: OpenedKb, batches: list[list[str]]
) -> None:
    batcher = Batcher()
    asked = [["Paris"] * 10, ["Marie", "?"] * 20, ["Marie"], ["Warsaw"] * 2]
    found = asyncio.run(outcomes(batcher, *(batcher.ask(served, texts, ONE) for texts in asked)))
    assert batches == [["Marie", "Warsaw", "Warsaw"], ["Paris"] * 4, ["Paris"] * 4, ["Paris"] * 2]
    assert [found[0], *found[2:]] == [served.kb.query(texts, 1) for texts in (asked[0], *asked[2:])]
    assert isinstance(found[1], QueryError)  # before the first of its queries was searched


def test_a_request_is_answered_from_one_knowledge_base(
    served: OpenedKb, kb_folder: Path, batches: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def replaced() -> list[list[Answer]]:
        async with (batcher := Batcher()):
            async with busy(batcher):
                asking = asyncio.create_task(batcher.ask(served, ["Paris"] * 6, ONE))
                asyncio.create_task(batcher.ask(served, ["Marie"], ONE))  # noqa: RUF006 (its answer is not wanted)
                await asyncio.sleep(0)
                monkeypatch.setattr(served, "kb", opened(kb_folder).kb)
            return await asking

    assert len(asyncio.run(replaced())) == 6
    # All of them from the one that was open.
    assert batches == [
        ["Marie"],
        ["Paris"] * 4,
        ["Paris"] * 2,
    ]


def test_what_is_given_up_is_not_searched(served: OpenedKb, batches: list[list[str]]) -> None:
    async def given_up() -> None:
        async with (batcher := Batcher(queue=2)):
            async with busy(batcher):
                first = asyncio.create_task(batcher.ask(served, ["gone"], ONE))
                second = asyncio.create_task(batcher.ask(served, ["here"], ONE))
                await asyncio.sleep(0)
                first.cancel()
            await second

    asyncio.run(given_up())
    assert batches == [["here"]]


def test_a_deadline_that_passes_is_told(served: OpenedKb, batches: list[list[str]]) -> None:
    async def late() -> None:
        async with (batcher := Batcher(seconds=0.0)), busy(batcher):
            with pytest.raises(LateError, match="no answer within 0 seconds") as refused:
                await batcher.ask(served, ["late"], ONE)
            assert refused.value.status == 504

    asyncio.run(late())
    assert batches == []


def test_a_full_queue_refuses_at_once(served: OpenedKb, batches: list[list[str]]) -> None:
    async def overloaded() -> None:
        async with (batcher := Batcher(queue=3)):
            async with busy(batcher):
                waiting = [asyncio.create_task(batcher.ask(served, [text], ONE)) for text in "abc"]
                await asyncio.sleep(0)
                with pytest.raises(OverloadedError, match="too many queries wait") as refused:
                    await batcher.ask(served, ["d"], ONE)
                assert (refused.value.status, refused.value.headers["Retry-After"]) == (503, "1")
            assert len(await asyncio.gather(*waiting)) == 3
            # Nobody waits: a request that is larger is answered.
            assert await batcher.ask(served, ["e"] * 4, ONE)

    asyncio.run(overloaded())
    assert batches == [["a", "b", "c"], ["e"] * 4]


def test_who_would_wait_for_half_of_the_time_is_refused_at_once(
    served: OpenedKb, batches: list[list[str]]
) -> None:
    async def slow() -> None:
        async with (batcher := Batcher(seconds=30.0)):
            for text in "ab":
                await batcher.ask(served, [text], ONE)
            assert len(batcher._paces) == 2
            assert 0 < min(batcher._paces) < 30
            batcher._paces.extend([60.0, 5.0])  # seconds for a query: the faster one counts
            async with busy(batcher):
                waiting = [asyncio.create_task(batcher.ask(served, [text], ONE)) for text in "cde"]
                await asyncio.sleep(0)  # 15 seconds
                with pytest.raises(OverloadedError, match="too many queries wait") as refused:
                    await batcher.ask(served, ["f"], ONE)
                assert refused.value.headers["Retry-After"] == "10"  # half of four queries
                # A large one is in the other line, where nobody waits.
                large = asyncio.create_task(batcher.ask(served, ["g"] * 16, ONE))
                await asyncio.sleep(0)
            assert len(await asyncio.gather(*waiting, large)) == 4

    asyncio.run(slow())
    assert batches[2:] == [["c", "d", "e"], *[["g"] * 4] * 4]


def test_nobody_fails_for_another(served: OpenedKb, batches: list[list[str]]) -> None:
    batcher = Batcher()
    good, bad, also_good = asyncio.run(
        outcomes(
            batcher,
            batcher.ask(served, ["Paris"], ONE),
            batcher.ask(served, ["Warsaw", "?"], ONE),
            batcher.ask(served, ["Marie"], ONE),
        )
    )
    assert good == served.kb.query(["Paris"], 1)
    assert also_good == served.kb.query(["Marie"], 1)
    assert isinstance(bad, QueryError)
    assert batches[0] == ["Paris", "Marie"]


def test_what_was_refused_tells_no_pace(served: OpenedKb) -> None:
    """A query that cannot be asked takes no time, and would make all others seem as fast."""

    async def asked() -> list[float]:
        async with (batcher := Batcher()):
            for text in ("Paris", "?", "Paris", "?"):
                with suppress(QueryError):
                    await batcher.ask(served, [text], ONE)
            return list(batcher._paces)

    assert len(asyncio.run(asked())) == 2


def test_the_rest_of_a_large_request_is_waited_for(
    served: OpenedKb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a part of it is searched, the request itself is in no line."""
    search = served.kb.searcher.search
    begun, free = threading.Event(), threading.Event()

    def held(queries: Sequence[Query], options: SearchOptions) -> list[list[Answer]]:
        begun.set()
        free.wait()
        return search(queries, options)

    async def second() -> float:
        async with (batcher := Batcher(queue=10_000)):
            batcher._paces.extend([1.0, 1.0])  # a plain query takes a second
            first = asyncio.create_task(batcher.ask(served, ["Paris"] * 400, ONE))
            await asyncio.to_thread(begun.wait)
            request = _Queries(
                outcome=asyncio.get_running_loop().create_future(),
                texts=["Warsaw"] * 100,
                cost=cost(100, ONE),
                kb=served.kb,
                options=ONE,
            )
            seconds = batcher._wait_of(request)
            free.set()
            await first
            return seconds

    with monkeypatch.context() as patch:
        patch.setattr(served.kb.searcher, "search", held)
        assert asyncio.run(second()) == pytest.approx(cost(500, ONE))


def test_a_mention_that_needs_a_probability_fails_alone(
    judging_kb: KnowledgeBase, tmp_path: Path
) -> None:
    even = Calibration(
        judging_kb.searcher.plan(SearchOptions()).mode,
        dict.fromkeys(FEATURES, 0.0),
        0.0,
        40,
        20,
        {},
        {},
    )
    even.write(tmp_path / "c.json")
    options = SearchOptions(1, min_probability=0.3, calibration=str(tmp_path / "c.json"))
    served, batcher = opened(judging_kb.folder), Batcher()
    asked = ("[START_ENT] Marie [END_ENT] was born", "Marie [SEP] place of birth")
    mention, slot = asyncio.run(
        outcomes(batcher, *(batcher.ask(served, [text], options) for text in asked))
    )
    assert "the page of a mention has no probability" in str(mention)
    assert slot == judging_kb.searcher.search([Query.of(asked[1])], options)


def test_large_requests_wait_for_small_ones_and_do_not_fill_their_queue(
    served: OpenedKb, batches: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbq.serve.batcher.RECENT", math.inf)  # however slow the machine is

    async def mixed() -> None:
        async with (batcher := Batcher(queue=64)):
            async with busy(batcher):
                large = [asyncio.create_task(batcher.ask(served, ["Paris"] * 40, ONE))]
                large += [asyncio.create_task(batcher.ask(served, ["Paris"] * 24, TWO))]
                await asyncio.sleep(0)
                with pytest.raises(OverloadedError):  # of large ones, no more
                    await batcher.ask(served, ["Paris"] * 40, ONE)
                small = [
                    asyncio.create_task(batcher.ask(served, ["Marie"], ONE)) for _ in range(64)
                ]
            await asyncio.gather(*large, *small)

    asyncio.run(mixed())
    assert [len(batch) for batch in batches if batch[0] == "Marie"] == [16] * 4
    assert [batch[0] for batch in batches[:6]] == ["Marie", "Paris"] * 3  # 16 queries, and 4
    assert max(len(batch) for batch in batches if batch[0] == "Paris") == 4


def test_who_waited_for_a_long_search_is_expected_to_ask_again(
    served: OpenedKb, batches: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each search takes longer than small requests are expected for, but it is their answers that
    count.
    """
    passed = 0.0
    monkeypatch.setattr(
        "kbq.serve.batcher.time", SimpleNamespace(monotonic=lambda: time.monotonic() + passed)
    )
    monkeypatch.setattr("kbq.serve.batcher.RECENT", 100.0)
    search = served.kb.searcher.search

    def slow(queries: Sequence[Query], options: SearchOptions) -> list[list[Answer]]:
        nonlocal passed
        passed += 200
        return search(queries, options)

    async def mixed() -> None:
        async with (batcher := Batcher(seconds=10_000.0)):
            async with busy(batcher):
                large = [
                    asyncio.create_task(batcher.ask(served, ["Paris"] * 64, options))
                    for options in (ONE, TWO)
                ]
                small = asyncio.create_task(batcher.ask(served, ["Marie"], ONE))
            await asyncio.gather(*large, small)

    with monkeypatch.context() as patch:
        patch.setattr(served.kb.searcher, "search", slow)
        asyncio.run(mixed())
    assert [(batch[0], len(batch)) for batch in batches[:2]] == [("Marie", 1), ("Paris", 4)]


class Panic(BaseException):
    """What a library in Rust raises."""


@pytest.mark.parametrize(
    "error", [Panic("index"), StopIteration(), SystemExit(3), MemoryError(), ZeroDivisionError()]
)
def test_whatever_a_search_raises_the_next_one_is_answered(
    error: BaseException, served: OpenedKb, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(texts: Sequence[str], options: SearchOptions) -> list[list[Answer]]:
        raise error

    async def both() -> None:
        async with (batcher := Batcher()):
            with monkeypatch.context() as patch:
                patch.setattr(served.kb.searcher, "search", broken)
                with pytest.raises((RuntimeError, MemoryError, ZeroDivisionError)):
                    await batcher.ask(served, ["Paris"], ONE)
            assert batcher.problem == ""
            assert await batcher.ask(served, ["Paris"], ONE)
        assert batcher.problem == "the search has ended"

    asyncio.run(both())


def test_a_search_that_does_not_end_is_told(served: OpenedKb) -> None:
    found = []

    async def stuck() -> None:
        async with (batcher := Batcher(seconds=0.01)):
            async with busy(batcher):
                await asyncio.sleep(0.02)
                found.append(batcher.problem)
            found.append(batcher.problem)

    asyncio.run(stuck())
    assert found == ["the search has been busy for 0 seconds", ""]


def test_tables_are_bounded_and_leave_room_for_queries(
    served: OpenedKb, batches: list[list[str]]
) -> None:
    async def fill(filler: TableFiller, subjects: list[str]) -> list[dict[str, Any]]:
        options = FillOptions(min_probability=0.0)
        rows = [{"subject": subject} for subject in subjects]
        return [
            line
            async for line in filler.lines(served.kb, rows, [relation_named("birth")], options, {})
        ]

    async def both() -> list[Any]:
        async with (batcher := Batcher()):
            filler = TableFiller(batcher)
            tables = [
                asyncio.create_task(fill(filler, [f"Marie {n}" for n in range(20)]))
                for _ in range(TABLES)
            ]
            await asyncio.sleep(0)
            with pytest.raises(OverloadedError):
                await fill(filler, ["Marie"])
            query = asyncio.create_task(batcher.ask(served, ["Paris"], ONE))
            await asyncio.gather(query, *tables)
            return await fill(filler, ["Marie"])

    assert len(asyncio.run(both())) == 2
    assert batches.index(["Paris"]) < TABLES * 3  # it did not wait for all parts of the tables
    assert max(map(len, batches)) == 4
