"""GPUs: which one holds the rows of which shard for exact search; what does not fit on one goes to the next."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch

from kbq.dump.shards import Shard
from kbq.errors import KnowledgeBaseError

WORKING = 2**31  # bytes kept free for a block's products
WAY_OUT = "use --device cpu, or an index that fits: kbq index KB --index compact"


def places(shards: Sequence[Shard], device: torch.device) -> list[torch.device]:
    """Where each shard's rows shall lie: on the device, or on it and the GPUs behind it.

    Raises:
        KnowledgeBaseError: all GPUs together have too little memory.
    """
    if device.type != "cuda":
        return [device] * len(shards)
    count, first = torch.cuda.device_count(), device.index or 0
    gpus = [torch.device("cuda", (first + number) % count) for number in range(count)]
    free = {gpu: torch.cuda.mem_get_info(gpu)[0] - WORKING for gpu in gpus}
    return fitted([bytes_of(shard) for shard in shards], free)


def bytes_of(shard: Shard) -> int:
    """Vectors and edges of all rows, and two numbers of 8 bytes for every paragraph."""
    return shard.vectors.nbytes + shard.edges.nbytes + 2 * 8 * len(shard.paragraph_rows)


def fitted(sizes: Sequence[int], free: Mapping[torch.device, int]) -> list[torch.device]:
    """The first device with room for each size, in bytes. Raises KnowledgeBaseError where there is none."""
    left, chosen = dict(free), []
    for size in sizes:
        device = next((device for device, room in left.items() if room >= size), None)
        if device is None:
            need = (sum(sizes) + WORKING * len(free)) / 1e9
            here = ", ".join(f"{(room + WORKING) / 1e9:.1f} GB of {gpu}" for gpu, room in free.items())
            raise KnowledgeBaseError(f"exact search needs {need:.1f} GB of GPU memory, free are {here}: {WAY_OUT}")
        left[device] -= size
        chosen.append(device)
    return chosen


@contextmanager
def full_memory_is_said(device: torch.device) -> Iterator[None]:
    """What other programs take of a GPU's memory is not known beforehand."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise KnowledgeBaseError(f"{device} ran out of memory, which others may use too: {WAY_OUT}") from None
