"""Counting: records of counts that are added field by field."""

from dataclasses import dataclass, fields
from typing import Self


@dataclass(frozen=True, slots=True)
class Summed:
    """Counts that are added field by field."""

    def __add__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))
