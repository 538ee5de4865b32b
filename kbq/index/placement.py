"""Placement: assign the rows of shards to GPUs that have room for them."""

from collections.abc import Mapping, Sequence

import torch

from kbq.dump.shards import Shard
from kbq.errors import KnowledgeBaseError
from kbq.index.base import ADVICE

WORKING = 2**31  # bytes that the products of a block take at most
# Computed from a row, besides its float32 vector, for the 64 queries of a batch.
BATCH_NUMBERS = 640


def devices_for(
    shards: Sequence[Shard], device: torch.device, copies: int = 1, advice: str = ADVICE
) -> list[torch.device]:
    """Choose a device for the rows of each shard: the given one and, if it is a GPU without room,
    other GPUs.

    Raises KnowledgeBaseError if all GPUs together lack memory for this number of copies.
    """
    if device.type != "cuda":
        return [device] * len(shards)
    # Each GPU keeps room for the products of a block of rows, or of the largest shard if that is
    # smaller.
    numbers = max(
        (len(shard) * (shard.vectors.shape[1] + BATCH_NUMBERS) for shard in shards), default=0
    )
    sizes = [bytes_of(shard) for shard in shards]
    working = min(WORKING, 4 * numbers)
    return gpus_for(sizes, device, "exact search", working, advice, copies)


def gpus_for(
    sizes: Sequence[int],
    device: torch.device,
    what: str,
    working: int,
    advice: str,
    copies: int = 1,
) -> list[torch.device]:
    """Choose a GPU with room for each size in bytes, first the given one; each process keeps
    `working` bytes free.

    Raises KnowledgeBaseError if all GPUs together lack memory for this number of processes with a
    copy each.
    """
    count = torch.cuda.device_count()
    first = device.index or 0
    kept = working * -(-copies // count)
    room: dict[torch.device, int] = {}

    # One by one: a GPU that is queried reserves memory for this process for good.
    for number in range(count):
        gpu = torch.device("cuda", (first + number) % count)
        room[gpu] = _free(gpu) - kept
        chosen = spread([*sizes] * copies, room)
        if chosen is not None:
            return chosen[: len(sizes)]

    need = (sum(sizes) * copies + working * max(copies, count)) / 1e9
    free = ", ".join(f"{(left + kept) / 1e9:.1f} GB on {gpu}" for gpu, left in room.items())
    several = f" for {copies} processes" if copies > 1 else ""
    fewer = "use fewer workers, or " if copies > 1 else ""
    raise KnowledgeBaseError(
        f"{what} needs {need:.1f} GB of GPU memory{several}, but only {free} are free: "
        f"{fewer}{advice}"
    )


def bytes_of(shard: Shard) -> int:
    """Bytes of a shard on a GPU: vector, edges and paragraph of each row, and two 8-byte numbers
    for each paragraph.
    """
    return shard.vectors.nbytes + 5 * len(shard) + 2 * 8 * len(shard.paragraph_rows)


def spread(sizes: Sequence[int], room: Mapping[torch.device, int]) -> list[torch.device] | None:
    """Choose a device with room for each size in bytes, so that all are equally busy if that works.

    Otherwise each gets the first device with room. Returns None if neither way works.
    """
    for pick_first in (False, True):
        given = dict.fromkeys(room, 0)
        chosen = []
        for size in sizes:
            fitting = [device for device in room if room[device] - given[device] >= size]
            if not fitting:
                break
            if pick_first:
                chosen.append(fitting[0])
            else:
                chosen.append(min(fitting, key=given.__getitem__))
            given[chosen[-1]] += size
        else:
            return chosen

    return None


def _free(gpu: torch.device) -> int:
    """Free bytes of a GPU and those that PyTorch has reserved for this process, or 0 if it cannot
    be used.
    """
    try:
        reserved = torch.cuda.memory_reserved(gpu) - torch.cuda.memory_allocated(gpu)
        return int(torch.cuda.mem_get_info(gpu)[0] + reserved)
    except RuntimeError:  # another process may use it exclusively
        return 0
