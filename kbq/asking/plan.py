"""Plan: what follows from the options of a search in one knowledge base."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from kbq.errors import QueryError
from kbq.reading.probability import Calibration, SearchMode
from kbq.reading.reranker import Reranking
from kbq.search.options import ASKED, BM25_WEIGHT, SPARTA_WEIGHT, Backend, SearchOptions
from kbq.search.search import WordIndexes
from kbq.storage.records import digest_of_record
from kbq.text.queries import Query
from kbq.words.names import Naming


def refuse_unfit(
    calibration: Calibration | None, options: SearchOptions, mode: SearchMode, reranking: Reranking
) -> None:
    """Raise QueryError if a calibration file is asked for and does not fit the search, or
    probabilities are, and there are none.

    `calibration`: `options.calibration` or, without one, the model's own.
    """
    path = options.calibration
    if path is None and not options.min_probability:
        return
    if not mode.n_reranked:
        idle = "leave --calibration out" if path is not None else "leave --min-probability out"
        raise QueryError(f"answers have no probability where {reranking.why_not(options)}: {idle}")
    if path is not None and calibration and calibration.purpose not in (None, options.purpose):
        raise QueryError(
            f"{path} was made for {ASKED[calibration.purpose]}, and {ASKED[options.purpose]} are "
            f"asked for: calibrate again with --purpose={options.purpose}"
        )

    differing = "missing"
    if calibration:
        differing = "; ".join(calibration.mode.differences(mode))
    if not differing:
        return
    if path is not None:
        raise QueryError(
            f"{path} was made for another search ({differing}): search like that, or calibrate "
            "again"
        )

    reason = "is missing"
    if calibration:
        reason = f"is for another search ({differing})"
    raise QueryError(
        "answers have no probability here: the calibration of the model "
        f"{reranking.model.source} {reason}. Leave --min-probability out, or make a calibration "
        "with `kbq calibrate` and name it with --calibration"
    )


@dataclass(frozen=True, slots=True)
class SearchFacts:
    """All that decides the answers of a search besides its queries: runs that share it can resume
    one another.
    """

    contents: str  # digest of the knowledge base, without its indexes of vectors
    pages: str  # digest of the ids of the pages that answers come from; empty: all
    index: str  # `exact`, or what decides the hits of another index
    query_encoder: str  # its fingerprint
    backend: Backend
    weights: tuple[float, float]  # worth of a point of BM25, and of SPARTA
    reader: str | None  # fingerprint of the reader, if one is asked for
    # The reader that judges phrases again, and the digest of the calibration.
    reranker: Mapping[str, object] | None


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """The consequences of a search's options in one knowledge base."""

    backend: Literal["dense", "hybrid", "bm25", "sparta"]
    # Points that one of BM25, and one of learned impacts, adds in a hybrid search.
    weights: tuple[float, float]
    # Worth of a point of the search, in points of a query encoder whose `lexical_factor` is 1.
    score_scale: float
    mode: SearchMode
    calibration: Calibration | None  # gives answers their probabilities
    naming: Callable[[Query], Naming]  # the pages that name a query's subject

    @property
    def n_reranked(self) -> int:
        """How many phrases of a query are judged again."""
        return self.mode.n_reranked

    @property
    def judged_by(self) -> dict[str, object] | None:
        """The reranker and the calibration, to compare runs, or None if nothing is reranked."""
        if not self.n_reranked:
            return None
        digest = self.calibration and digest_of_record(self.calibration)
        return {"reader": self.mode.reader, "phrases": self.n_reranked, "calibration": digest}

    @classmethod
    def of(
        cls,
        options: SearchOptions,
        words: WordIndexes,
        reranking: Reranking,
        own_calibration: Callable[[], Calibration | None],
    ) -> Self:
        """Plan a search; `own_calibration` reads that of the model.

        Raises QueryError if probabilities or reranking are asked for but impossible, or a
        calibration does not fit, and ModelError if it is missing or damaged.
        """
        config = reranking.model.config
        backend = options.backend
        if backend == "auto":
            backend = "hybrid" if words else "dense"
        bm25 = BM25_WEIGHT * config.lexical_factor
        sparta = SPARTA_WEIGHT * config.lexical_factor
        point = {"bm25": bm25, "sparta": sparta}.get(options.backend, 1.0)
        weights = (
            bm25 if options.bm25_weight is None else options.bm25_weight,
            sparta if options.sparta_weight is None else options.sparta_weight,
        )
        sources = zip(("BM25", "SPARTA"), weights, (words.bm25, words.sparta), strict=True)
        added = [
            f"{weight:g} {name}" for name, weight, index in sources if index and backend == "hybrid"
        ]
        n_reranked = reranking.n_reranked(options)
        mode = SearchMode(
            config.query_fingerprint, reranking.digest, " + ".join(["vectors", *added]), n_reranked
        )
        path = options.calibration
        calibration = None
        if n_reranked:
            if path is None:
                calibration = own_calibration()
            else:
                calibration = Calibration.read(Path(path))
        refuse_unfit(calibration, options, mode, reranking)
        if calibration is not None and not calibration.fits(mode):
            calibration = None

        return cls(
            backend,
            weights,
            point / (config.lexical_factor or 1.0),
            mode,
            calibration,
            words.naming,
        )
