"""Bodies: what costs the event loop much comes one after another; who is gone keeps no place in the line."""

import asyncio
from unittest.mock import patch

from kbq.serve.bodies import EACH, PACE, Bodies


def test_turns_come_one_after_another_and_who_hangs_up_takes_no_time() -> None:
    now, begun = 100.0, list[tuple[str, float]]()

    async def sleeps(seconds: float) -> None:
        nonlocal now
        now += max(0.0, seconds)

    async def asks(bodies: Bodies, name: str, size: int) -> None:
        await bodies.turn(size)
        begun.append((name, round(now - 100, 6)))

    async def all_ask() -> None:
        bodies = Bodies()
        async with bodies._line:
            asking = [asyncio.create_task(asks(bodies, *one)) for one in (("a", PACE), ("b", 9 * PACE), ("c", 0))]
            await asyncio.wait(asking, timeout=0)
            asking[1].cancel()
        await asyncio.wait(asking)
        await asks(bodies, "d", 0)

    with patch("kbq.serve.bodies.asyncio.sleep", sleeps), patch("kbq.serve.bodies.time.monotonic", lambda: now):
        asyncio.run(all_ask())
    assert begun == [("a", 0.0), ("c", 1 + EACH), ("d", 1 + 2 * EACH)]
