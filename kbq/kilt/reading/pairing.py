"""Pairing: each gold record meets its prediction in one pass over both files; what was noticed on the way is noted."""

from collections.abc import Iterator
from dataclasses import dataclass

from kbq.kilt.reading.records import Gold, Guess


class Pairing:
    """Pairs in gold order. Predictions wait in memory only while the two files differ in order."""

    def __init__(self, golds: Iterator[Gold], guesses: Iterator[Guess]) -> None:
        self._golds = golds
        self._guesses = guesses
        self.unknown = 0  # predictions whose id is not in the gold file, known at the end

    def __iter__(self) -> Iterator[tuple[Gold, Guess | None]]:
        """Each gold record with its prediction, None where there is none."""
        waiting: dict[str, Guess] = {}
        for gold in self._golds:
            while gold.id not in waiting:
                guess = next(self._guesses, None)
                if guess is None:
                    break
                waiting[guess.id] = guess
            yield gold, waiting.pop(gold.id, None)
        # Lines after the last gold record must still be readable, and their ids unique.
        self.unknown = len(waiting) + sum(1 for _ in self._guesses)


@dataclass(slots=True)
class Observations:
    """Counts over one evaluation."""

    golds: int = 0
    matched: int = 0
    unknown: int = 0  # predictions whose id is not in the gold file
    no_input: int = 0
    empty_evidence: int = 0

    def look_at(self, gold: Gold, guess: Guess | None) -> None:
        """Count one pair."""
        self.golds += 1
        self.matched += guess is not None
        self.no_input += gold.input is None
        self.empty_evidence += any(output.evidence == frozenset() for output in gold.outputs)

    def hint(self) -> str:
        """The likely reason for many problems, "" if there is none."""
        if self.golds and self.unknown and not self.matched:
            return f" (no id of its {self.unknown:,} predictions is in the gold file: for another file?)"
        return ""

    def partners(self) -> tuple[str, ...]:
        """One sentence for each way in which the two files do not belong together."""
        guesses = self.matched + self.unknown
        found = {
            "the gold file holds no record, so that every score is 0: is it the file you mean?": not self.golds,
            f"{self.golds:,} gold records, {guesses:,} predictions": guesses != self.golds,
            f"{self.unknown:,} predictions have ids that the gold file lacks: ignored": self.unknown,
        }
        return tuple(note for note, applies in found.items() if applies)

    def notes(self) -> tuple[str, ...]:
        """One sentence for each thing worth knowing."""
        found = {
            f"{self.no_input:,} gold records have no input: entity_in_input is left out": self.no_input,
            f"{self.empty_evidence:,} gold records have empty provenance lists, which lower recall@k as "
            "evidence sets that cannot be found (files exported from the Hugging Face hub have them, the "
            "official files do not)": self.empty_evidence,
        }
        return (*self.partners(), *(note for note, applies in found.items() if applies))
