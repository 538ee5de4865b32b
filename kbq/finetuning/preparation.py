"""Preparation: gold records become token ids with their gold phrases; `Reach` counts which can be answered."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product

from kbq.errors import QueryError, TrainingError
from kbq.finetuning.labels import Labeller, Phrases
from kbq.finetuning.triples import pages_of
from kbq.kb import KnowledgeBase
from kbq.kilt.records import Gold, GoldOutput
from kbq.kilt.task import Task

MOST_NAMESAKES = 100  # ways to read an output whose pages are named by titles that several pages have


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """A query as token ids; `golds`: its answers on its gold pages."""

    ids: tuple[int, ...]
    gold: Gold
    golds: Phrases
    lost_pages: tuple[str, ...] = ()  # the pages that it names, where the knowledge base has none of them


@dataclass(frozen=True, slots=True)
class Reach:
    """How many queries can be answered from the knowledge base at all."""

    queries: int = 0
    unreadable: int = 0  # too long for the encoder, or malformed: left out
    on_page: int = 0  # an answer is a phrase of a gold page
    dropped: int = 0  # an answer stands on a gold page, but as no phrase: the filter dropped its words
    elsewhere: int = 0  # no answer stands on the gold pages that the knowledge base has
    no_page: int = 0  # the knowledge base has none of the gold pages
    unnamed: int = 0  # no page is named: an answer counts anywhere
    nowhere: int = 0  # of the last two: every answer has a word that stands nowhere, so it is never found (BM25 tells)


def prepare(
    task: Task, golds: Sequence[Gold], kb: KnowledgeBase, labeller: Labeller
) -> tuple[list[PreparedQuery], Reach]:
    """All queries that the encoder reads.

    Raises:
        TrainingError: there is none.
    """
    prepared, counts = [], dict.fromkeys((field.name for field in dataclasses.fields(Reach)), 0)
    readable = readable_queries(task, golds, kb)
    counts["unreadable"] = len(golds) - len(readable)
    for gold, ids in readable:
        findable = labeller.find(gold)
        lost = tuple(sorted(pages_of(gold))) if findable.kind == "no_page" else ()
        prepared.append(PreparedQuery(tuple(ids), gold, findable.phrases, lost))
        counts[findable.kind] += 1
        if findable.kind in ("no_page", "unnamed") and gold.answers:
            counts["nowhere"] += all(kb.words.missing(answer) for answer in gold.answers)
    return prepared, Reach(**counts | {"queries": len(prepared)})


def readable_queries(task: Task, golds: Sequence[Gold], kb: KnowledgeBase) -> list[tuple[Gold, list[int]]]:
    """The records whose queries the encoder reads, with their token ids.

    Raises:
        TrainingError: there is none; it says why the first one cannot be read.
    """
    tokenizer, readable, reason = kb.model.query_tokenizer, [], ""
    for gold in golds:
        try:
            text = task.query_of(gold.input or "", tokenizer.is_short_enough, gold.id)
            readable.append((gold, tokenizer.ids_of(text)))
        except QueryError as error:
            reason = reason or f"line {gold.line}: {error}"
    if not readable:
        raise TrainingError(f"no query can be read; {reason}")
    return readable


def with_page_ids(gold: Gold, labeller: Labeller) -> Gold:
    """Replace page titles by ids, which predictions name; several pages with one title are alternatives.

    Where the knowledge base has none of the pages, all are left out: the answer counts anywhere, as in
    tuning, unless that is on pages alone.
    """
    if gold.answers and labeller.find(gold).kind == "no_page":
        without_pages = (dataclasses.replace(output, pages=(), evidence=None) for output in gold.outputs)
        return dataclasses.replace(gold, outputs=tuple(without_pages))

    def with_ids(output: GoldOutput) -> Iterator[GoldOutput]:
        ids = [labeller.page_ids(page) or [page] for page in output.pages]
        for pages in islice(product(*ids), MOST_NAMESAKES):
            evidence = None if output.evidence is None else frozenset(pages)
            yield dataclasses.replace(output, pages=pages, evidence=evidence)

    return dataclasses.replace(gold, outputs=tuple(variant for output in gold.outputs for variant in with_ids(output)))
