"""Judging: what comes with a model to look at phrases again, and to say how likely they are.

That is its own reader, the judge that triples have taught, and its calibration. A query encoder that was tuned has its
base's reader, and its base's calibration unless it has one of its own.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from kbq.answers import LOOKS, WORDS_ALONE, SearchOptions
from kbq.errors import QueryError
from kbq.model.model_folder import local_folder
from kbq.reading.calibration import CALIBRATION, Calibration
from kbq.reading.judge import TaughtJudge
from kbq.reading.network import judge_digest
from kbq.reading.reranker import rerank

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbq.answers import Answer
    from kbq.model.model import Model
    from kbq.reading.calibration import SearchMode
    from kbq.reading.reader import Reader
    from kbq.reading.reranker import Look


class Reranking:
    """The reader and the taught judge of a model, opened when they are needed, and its calibrations."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.base = model.config.base or model.source  # that with the phrase encoder and the reader

    @cached_property
    def reader(self) -> Reader:
        """The model's own reader.

        Raises:
            ModelError: it has none.
        """
        from kbq.reading.reader import Reader

        return Reader.open(self.base, str(self._model.device))

    @cached_property
    def reader_digest(self) -> str:
        """That of the reader that judges phrases; empty: the model has none."""
        return judge_digest(local_folder(self.base))

    @cached_property
    def taught(self) -> TaughtJudge | None:
        """The judge of the relations that the query encoder was tuned on, if it came out better than the reader's own.

        Raises:
            ModelError: it is damaged, or was taught with another reader.
        """
        if not self._model.config.base:
            return None
        return TaughtJudge.open(local_folder(self._model.source), self.reader_digest, self._model.device)

    @property
    def digest(self) -> str:
        """What judges phrases; empty: nothing."""
        taught = self.taught if self.reader_digest else None
        return f"{self.reader_digest} {taught.fingerprint}" if taught else self.reader_digest

    def looks(self, options: SearchOptions) -> int:
        """How many phrases of a query are looked at again.

        Raises:
            QueryError: some are asked for, but none can be.
        """
        if options.rerank == 0:
            return 0
        reason = self._no_look(options)
        if reason and options.rerank:
            raise QueryError(f"--rerank has no effect where {reason}: leave it out", is_usage=True)
        return 0 if reason else LOOKS if options.rerank is None else options.rerank

    def _no_look(self, options: SearchOptions) -> str:
        """Why nothing is looked at again, in words; empty if something is."""
        return (
            "a reader reads" if options.reader is not None
            else f"{options.backend} finds no phrases" if options.backend in WORDS_ALONE
            else f"{options.chosen_unit}s are asked for" if options.chosen_unit not in ("phrase", "page")
            else f"the model {self.base} has no reader that judges phrases" if not self.reader_digest
            else "nothing is reranked (--rerank 0)" if options.rerank == 0 else ""
        )  # fmt: skip

    def rerank_found(
        self, texts: Sequence[str], phrases: Sequence[Sequence[Answer]], score_scale: float
    ) -> list[list[Look]]:
        """Judge the phrases found for each text again: they have a new order, but no probabilities yet.

        Args:
            score_scale: what a point of the search is worth; see `rerank`.
        """
        return rerank(self.reader, texts, phrases, score_scale, self.taught)

    def calibration(self, options: SearchOptions, mode: SearchMode) -> Calibration | None:
        """What gives answers their probabilities: the file that is asked for, or the model's own where that fits.

        Args:
            mode: of the search that is asked for.

        Raises:
            QueryError: the file does not fit, or probabilities are needed, and there are none.
            ModelError: the file is missing or damaged.
        """
        if not mode.second_look and (options.calibration is not None or options.min_probability):
            idle = (
                "--calibration must be left out" if options.calibration is not None else "--min-probability must be 0"
            )
            raise QueryError(f"answers have no probability where {self._no_look(options)}, so {idle}")
        if options.calibration is not None:
            found: Calibration | None = Calibration.read(Path(options.calibration))
        else:
            found = self.own_calibration() if mode.second_look else None
        differing = "; ".join(found.mode.differences(mode)) if found else ""
        if options.calibration is not None and differing:
            raise QueryError(
                f"{options.calibration} was made for another search ({differing}): search like that, or calibrate again"
            )
        if options.min_probability and (not found or differing):
            reason = f"is for another search ({differing})" if found else "is missing"
            raise QueryError(
                f"answers have no probability here: the calibration of the model {self._model.source} {reason}. Leave "
                f"--min-probability out, or make a calibration with `kbq calibrate` and name it with --calibration"
            )
        return None if differing else found

    def own_calibration(self) -> Calibration | None:
        """The calibration in the model's folder or, if its query encoder was tuned, in that of its base."""
        for source in (self._model.source, self._model.config.base):
            path = local_folder(source) / CALIBRATION if source else None
            if path and path.is_file():
                return Calibration.read(path)
        return None
