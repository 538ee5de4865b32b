"""Trust: measure how well probabilities tell right answers from wrong ones, where some queries have
lost their pages.

    python benchmarks/trust.py NAME=KB:GOLD.jsonl [NAME=…] [--unanswerable 0.3]
        [--model MODEL] [--name trust]

A share of the pages that answer queries is not searched (`with_pages`), so their queries are
answered wrongly unless another page says the same. If a query has no gold answer, any answer is
wrong. GOLD holds KILT lines, or triples.
"""

import zlib
from collections.abc import Sequence

import numpy as np
import reporting
from measuring import DataSet, arguments, rounded, share_of

from kbq.array_types import Bools, Doubles
from kbq.dump.page_directory import Pages
from kbq.kb import KnowledgeBase
from kbq.kilt.confidence import auroc, brier, coverage_at, reliability
from kbq.kilt.records import Gold
from kbq.reading.probability import FEATURES, features
from kbq.reading.reranker import rerank
from kbq.search.options import N_RERANKED, SearchOptions
from kbq.search.search import BATCH
from kbq.text.answer_scores import normalise_answer
from kbq.text.queries import Query
from kbq.tuning.triples import pages_of, read_triples


def main() -> None:
    options = arguments(__doc__, sets=[DataSet.of], unanswerable=0.3, model=None, name="trust")

    def measured(one: DataSet) -> dict[str, object]:
        golds = read_triples(one.gold, unanswered=True)
        return judged(KnowledgeBase.open(one.kb, options.model), golds, options.unanswerable)

    reporting.write_sets(options.name, options.sets, measured)


def judged(kb: KnowledgeBase, golds: Sequence[Gold], share: float) -> dict[str, object]:
    """Return all figures of one data set."""
    hidden = {page for gold in golds for page in pages_of(gold) if is_hidden(page, share)}
    lost = np.array([bool(pages_of(gold)) and pages_of(gold) <= hidden for gold in golds])
    has_none = np.array([not gold.answers for gold in golds])
    if hidden:
        kb = kb.with_pages([page for page in Pages(kb.searcher.shards).ids() if page not in hidden])
    chances, right, plain_scores, plain_right, rows = asked(kb, golds)
    found: dict[str, object] = {
        "queries": len(golds),
        "without their pages": int(lost.sum()),
        "right": round(float(right.mean()), 4),
        "probability": figures_of(chances, right),
        "search score alone": signal(plain_scores, plain_right),
        "features": {name: signal(rows[:, number], right) for number, name in enumerate(FEATURES)},
    }
    own = kb.searcher.plan(SearchOptions()).calibration
    for precision, threshold in own.thresholds.items() if own else ():
        if threshold is not None:
            accepted = chances >= threshold
            found[f"above the threshold of {precision}"] = {
                "threshold": round(threshold, 4),
                "answered": share_of(accepted),
                "right of these": share_of(right[accepted]),
                "answered without their pages": share_of(accepted[lost]),
                "answered where nothing is right": share_of(accepted[has_none]),
            }
    return found


def asked(
    kb: KnowledgeBase, golds: Sequence[Gold]
) -> tuple[Doubles, Bools, Doubles, Bools, Doubles]:
    """Return the best answers' probabilities, whether they are right, the same for the search, and
    their features.
    """
    plan = kb.searcher.plan(SearchOptions(k=N_RERANKED, unit="phrase"))
    columns: list[tuple[float, bool, float, bool, list[float]]] = []
    for first in range(0, len(golds), BATCH):
        part = golds[first : first + BATCH]
        queries = [Query.of(gold.input or "") for gold in part]
        phrases = kb.searcher.search(queries, SearchOptions(k=N_RERANKED, unit="phrase", rerank=0))
        reranking = kb.searcher.reranking
        seen = rerank(
            reranking.reader, queries, phrases, plan.score_scale, reranking.relation_judge
        )
        for gold, query, hits, looks in zip(part, queries, phrases, seen, strict=True):
            answers = {normalise_answer(answer) for answer in gold.answers}
            naming = plan.naming(query)
            looks = plan.calibration.applied(query, looks, naming) if plan.calibration else looks
            chance = looks[0].answer.probability or 0.0
            right, plain = (
                normalise_answer(looks[0].answer.text) in answers,
                normalise_answer(hits[0].text) in answers,
            )
            columns.append(
                (chance, right, hits[0].score, plain, features(query, looks, naming)[0].tolist())
            )
    return tuple(map(np.array, zip(*columns, strict=True)))


def is_hidden(page: str, share: float) -> bool:
    return zlib.crc32(f"trust {page}".encode()) < share * 2**32


def figures_of(chances: Doubles, right: Bools) -> dict[str, object]:
    """Return the scores of probabilities."""
    calibrated = reliability(chances, right)
    return signal(chances, right) | {
        "coverage at 95 %": coverage(chances, right, 0.95),
        "Brier": rounded(brier(chances, right)),
        "ECE": rounded(calibrated and calibrated.ece),
        "ECE of a perfect one": [
            rounded(calibrated and calibrated.floor),
            rounded(calibrated and calibrated.floor_high),
        ],
    }


def signal(values: Doubles, right: Bools) -> dict[str, object]:
    """Return how well a number tells right answers from wrong ones."""
    return {
        "AUROC": rounded(auroc(values, right)),
        "coverage at 90 %": coverage(values, right, 0.9),
    }


def coverage(values: Doubles, right: Bools, precision: float) -> list[float | None]:
    found = coverage_at(values, right, precision)
    return [rounded(each) for each in (found.share, found.low, found.high)]


if __name__ == "__main__":
    main()
