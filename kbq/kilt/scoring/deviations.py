"""Deviations: everything that may differ from the official evaluation, each by a name of its own."""

from dataclasses import dataclass, fields
from typing import Literal, get_args

from kbq.errors import EvaluationError

Missing = Literal["error", "zero", "skip"]
EmptyProvenance = Literal["count", "ignore"]
SEMANTICS = "kilt-2664322"  # commit of facebookresearch/KILT whose numbers are reproduced


@dataclass(frozen=True, slots=True)
class Deviations:
    """Choices of an evaluation; the defaults are the official ones.

    Attributes:
        missing: a gold record without prediction is an error, scores zero, or is skipped (which inflates).
        empty_provenance: an empty provenance list counts as an evidence set nobody can find, or is ignored.
        coupled: add KILT-accuracy-coupled, which wants the pages of the answer that was given.
        top_1: add recall@1 and success_rate@1, which the official evaluation leaves out.
        rouge: score ROUGE-L; without it the slowest score and its two keys are left out.
    """

    missing: Missing = "error"
    empty_provenance: EmptyProvenance = "count"
    coupled: bool = False
    top_1: bool = False
    rouge: bool = True

    def __post_init__(self) -> None:
        if self.missing not in get_args(Missing):
            raise EvaluationError(f"missing is {self.missing!r}, choose from {', '.join(get_args(Missing))}")
        if self.empty_provenance not in get_args(EmptyProvenance):
            choices = ", ".join(get_args(EmptyProvenance))
            raise EvaluationError(f"empty_provenance is {self.empty_provenance!r}, choose from {choices}")

    def named(self) -> tuple[str, ...]:
        """What differs from the official evaluation, as `name=value`.

        >>> Deviations(missing="zero", rouge=False).named()
        ('missing=zero', 'rouge=no')
        """
        words = {True: "yes", False: "no"}
        changed = [field.name for field in fields(self) if getattr(self, field.name) != field.default]
        values = [getattr(self, name) for name in changed]
        return tuple(f"{name}={words.get(value, value)}" for name, value in zip(changed, values, strict=True))


OFFICIAL = Deviations()
