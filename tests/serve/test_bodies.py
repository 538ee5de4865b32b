"""Line: what costs the event loop much comes one after another; who is gone keeps no place in it."""

import asyncio
from unittest.mock import patch

from kbq.serve.bodies import EACH, PACE, Line
from kbq.serve.turns import CLIENT


def test_clients_have_turns_one_after_another_and_who_hangs_up_takes_no_time() -> None:
    now, begun = 100.0, list[tuple[str, float]]()

    async def sleeps(seconds: float) -> None:
        nonlocal now
        now += max(0.0, seconds)

    async def asks(line: Line, name: str, size: int) -> None:
        CLIENT.set(name[0])
        await line.turn(size)
        begun.append((name, round(now - 100, 6)))

    async def all_ask() -> None:
        line = Line()
        several = (("a1", PACE), ("a2", 9 * PACE), ("a3", 0), ("b", 0))
        async with line._next:
            asking = [asyncio.create_task(asks(line, *one)) for one in several]
            await asyncio.wait(asking, timeout=0)
            assert line.waiting == 4
            asking[1].cancel()
        await asyncio.wait(asking)
        assert line.waiting == 0

    with patch("kbq.serve.bodies.asyncio.sleep", sleeps), patch("kbq.serve.bodies.time.monotonic", lambda: now):
        asyncio.run(all_ask())
    assert begun == [("a1", 0.0), ("b", round(1 + EACH, 6)), ("a3", round(1 + 2 * EACH, 6))]
