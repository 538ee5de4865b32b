"""GPUs: which one holds the rows of which shard for exact search; what does not fit on one goes to the next."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch

from kbq.dump.shards import Shard
from kbq.errors import KnowledgeBaseError

WORKING = 2**31  # bytes that a block's products take at the most
BATCH_NUMBERS = 640  # that are computed from a row, besides its float32 vector, for the 64 queries of a batch
WAY_OUT = "use --device cpu, or an index that fits: kbq index KB --index compact"


def places(shards: Sequence[Shard], device: torch.device) -> list[torch.device]:
    """Where each shard's rows shall lie: on the device, or on it and the GPUs behind it.

    Raises:
        KnowledgeBaseError: all GPUs together have too little memory.
    """
    if device.type != "cuda":
        return [device] * len(shards)
    sizes, working = [bytes_of(shard) for shard in shards], _working(shards)
    count, first = torch.cuda.device_count(), device.index or 0
    room: dict[torch.device, int] = {}
    for number in range(count):  # a GPU that is asked gives memory to this process for good: only as many as are needed
        gpu = torch.device("cuda", (first + number) % count)
        room[gpu] = _free(gpu) - working
        chosen = fitted(sizes, room)
        if chosen is not None:
            return chosen
    need = (sum(sizes) + working * count) / 1e9
    here = ", ".join(f"{(left + working) / 1e9:.1f} GB of {gpu}" for gpu, left in room.items())
    raise KnowledgeBaseError(f"exact search needs {need:.1f} GB of GPU memory, free are {here}: {WAY_OUT}")


def bytes_of(shard: Shard) -> int:
    """Vectors and edges of all rows, and two numbers of 8 bytes for every paragraph."""
    return shard.vectors.nbytes + shard.edges.nbytes + 2 * 8 * len(shard.paragraph_rows)


def fitted(sizes: Sequence[int], room: Mapping[torch.device, int]) -> list[torch.device] | None:
    """The first device with room for each size, in bytes; None where one has no place."""
    left, chosen = dict(room), []
    for size in sizes:
        device = next((device for device, bytes_left in left.items() if bytes_left >= size), None)
        if device is None:
            return None
        left[device] -= size
        chosen.append(device)
    return chosen


def _working(shards: Sequence[Shard]) -> int:
    """Bytes kept free on each GPU for the products of a block of rows, or of the largest shard if that is smaller."""
    return max((min(WORKING, 4 * len(s) * (s.vectors.shape[1] + BATCH_NUMBERS)) for s in shards), default=0)


def _free(gpu: torch.device) -> int:
    """Free bytes: those nobody has, and those torch keeps for this process; 0 of a GPU that cannot be used."""
    try:
        kept = torch.cuda.memory_reserved(gpu) - torch.cuda.memory_allocated(gpu)
        return int(torch.cuda.mem_get_info(gpu)[0] + kept)
    except RuntimeError:  # another process has it for itself, say
        return 0


@contextmanager
def full_memory_is_said(device: torch.device) -> Iterator[None]:
    """A GPU out of memory becomes an error of kbq: what other programs take of it is not known beforehand."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise KnowledgeBaseError(f"{device} ran out of memory, which others may use too: {WAY_OUT}") from None
