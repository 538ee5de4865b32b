"""Texts: the paragraphs that one search reads, each once; all answers from a paragraph share its text."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeAlias

from kbq.dump.shards import Shard

TextOf: TypeAlias = Callable[[int, int], str]  # the number of a shard, and of a paragraph in it → its text


def shared_texts(shards: Sequence[Shard]) -> TextOf:
    """Reads paragraphs, and keeps them as long as the function itself is kept: for one search."""
    return cache(lambda shard, paragraph: shards[shard].texts[paragraph])
