"""Query side: tune the query encoder on what its own searches find; the best epoch is kept.

Source: arXiv 2012.12624, section 6 and Eq. 11; arXiv 2109.08133, section 5. Beyond the papers:
answers on the gold pages take part even if the search does not find them, so that hardly any query
is without a positive; and answers to other queries are kept, as in arXiv 1606.09282 (learning
without forgetting), Eq. 2. Of these, the answers found by a search compete, and the queries are
made from the knowledge base, so that no old training data is needed.
"""

import hashlib
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import kl_div
from torch.nn.utils.rnn import pad_sequence

from kbq.answers import Answer
from kbq.array_types import Bools, Doubles, Rows
from kbq.asking.searcher import Searcher
from kbq.kilt.records import Gold, Guess
from kbq.kilt.scores import DOWNSTREAM_NAMES, downstream_row
from kbq.kilt.task import AnswerKind, Task
from kbq.model.devices import autocast, padded
from kbq.model.queries import QueryEncoder
from kbq.search.options import BM25_WEIGHT, SPARTA_WEIGHT, SearchOptions
from kbq.search.search import BATCH
from kbq.storage.reports import Report, silent
from kbq.text.queries import Query
from kbq.training.engine import Run, best_round
from kbq.training.losses import marginal_losses
from kbq.tuning.labels import (
    CodedRows,
    Labeller,
    Phrases,
    PreparedQuery,
    concatenated,
    joined,
    penalties,
    retrieve,
    vectors,
)
from kbq.tuning.settings import FinetuningSettings, Term
from kbq.tuning.triples import GoldQuery, pages_of

LAST = 1 / 3  # share of the layers that are tuned, unless nothing is to be kept
FACTORS = (0.5, 1.0, 2.0, 4.0)  # factors that are tried for the weights of words
DENSE = SearchOptions(5, "page", "dense", rerank=0)


class Competing:
    """The phrases that compete for each of several queries.

    Side by side they have the shape (queries, most phrases of a query), with zeros after the last
    phrase of a query.
    """

    def __init__(
        self, kb: Searcher, phrases: Sequence[Phrases], coded: CodedRows | None = None
    ) -> None:
        self._kb = kb
        self._coded = coded
        self._sizes = [len(of_query) for of_query in phrases]
        self.phrases = concatenated(phrases)
        self._query_of = np.repeat(np.arange(len(phrases)), self._sizes)

    def side_by_side(self, values: NDArray[Any]) -> Tensor:
        """Put values of all phrases in a row for each query. Shapes: (phrases, …), (queries, most
        phrases, …).
        """
        flat = torch.from_numpy(values).to(self._kb.model.device)
        return pad_sequence([*torch.split(flat, self._sizes)], batch_first=True)

    def scores(self, starts: Tensor, ends: Tensor) -> dict[Term, Tensor]:
        """Return the scores of each term, side by side. Shapes: (queries, dim)."""
        first, last = map(self.side_by_side, vectors(self._kb, self.phrases, self._coded))
        of_starts = torch.einsum("qd,qpd->qp", starts, first)
        of_ends = torch.einsum("qd,qpd->qp", ends, last)
        penalty = self.side_by_side(penalties(self._kb, self.phrases))
        return {"joint": of_starts + of_ends - penalty, "start": of_starts, "end": of_ends}

    def choices(self, positive: Bools) -> dict[Term, tuple[Bools, Bools]]:
        """Return (counted, positive) of each term; all positives are counted. Shapes: (phrases,)."""
        starts = self._numbered(self.phrases.starts)
        ends = self._numbered(self.phrases.ends)
        first_start = _first_of_each(starts)
        first_end = _first_of_each(ends)
        positive_start = first_start & np.isin(starts, starts[positive])
        positive_end = first_end & np.isin(ends, ends[positive])
        return {
            "joint": (np.ones(len(positive), bool), positive),
            "start": (first_start, positive_start),
            "end": (first_end, positive_end),
        }

    def _numbered(self, rows: Rows) -> Rows:
        """Number the rows of each query, equal ones alike. Shape: (phrases,)."""
        places = self.phrases.shards * 2**40 + rows
        _, numbers = np.unique([self._query_of, places], axis=1, return_inverse=True)
        return np.asarray(numbers.ravel())


def _first_of_each(rows: np.ndarray) -> Bools:
    first = np.zeros(len(rows), bool)
    first[np.unique(rows, return_index=True)[1]] = True
    return first


class Distillation:
    """The answers of a query encoder to other queries, from before tuning."""

    def __init__(
        self,
        kb: Searcher,
        learned: Sequence[str],
        watched: Sequence[str],
        k: int,
        report: Report = silent,
    ) -> None:
        """Find k phrases for each of the `learned` queries of `divergences`, and answer the
        `watched` ones.
        """
        self._kb = kb
        self.queries = len(learned) + len(watched)
        self._ids = [kb.model.query_tokenizer.ids_of(text) for text in learned]
        self._phrases: list[Phrases] = []
        for first in range(0, len(learned), BATCH):
            report("answers to keep", first, len(learned))
            self._phrases += retrieve(
                kb, *kb.model.encode_queries(learned[first : first + BATCH]), k
            )
        self._watched = list(map(Query.of, watched))
        self._before = self._answers()

    def divergences(self, members: Sequence[int]) -> Tensor:
        """Return how far learned queries have moved, by number (counted on from 0 after the last).
        Shape: (members,).

        It is the Kullback–Leibler divergence of their phrases' present shares from the earlier
        ones.
        """
        chosen = [member % len(self._ids) for member in members]
        model = self._kb.model
        tensors = padded(
            [self._ids[query] for query in chosen], model.tokenizer.pad_token_id, model.device
        )
        with autocast(model.device):
            starts, ends = model.queries(*tensors)
        competing = Competing(self._kb, [self._phrases[query] for query in chosen])
        now = competing.scores(starts, ends)["joint"]
        before = competing.side_by_side(competing.phrases.scores)
        outside = ~competing.side_by_side(np.ones(len(competing.phrases), bool))
        now, before = (
            scores.masked_fill(outside, -torch.inf).log_softmax(1).masked_fill(outside, 0.0)
            for scores in (now, before)
        )

        return kl_div(now, before, reduction="none", log_target=True).sum(dim=1)

    def agreement(self) -> float:
        """Return the share of the watched queries whose best phrase is the same text of the same
        page as before.
        """
        pairs = zip(self._answers(), self._before, strict=True)
        return sum(now == before for now, before in pairs) / max(1, len(self._watched))

    def _answers(self) -> list[list[tuple[str, str]]]:
        options = SearchOptions(1, "phrase", "dense", rerank=0)
        batches = (
            self._watched[first : first + BATCH] for first in range(0, len(self._watched), BATCH)
        )
        found = chain.from_iterable(self._kb.search(batch, options) for batch in batches)
        return [[(hit.page_id, hit.text) for hit in hits] for hits in found]


def _tuned(encoder: QueryEncoder, keep: float) -> list[nn.Module]:
    """Return the modules to tune: all, as in the papers, or the last layers alone if other answers
    are to be kept.

    Word embeddings, which belong to the phrase encoder, too, are always frozen.
    """
    if not keep:
        return [encoder]
    encoder.requires_grad_(False)
    return [layer.requires_grad_() for layer in encoder.last_layers(LAST)]


class Finetuner(Run):
    """Tunes the query encoder of an opened knowledge base in place; a round is an epoch and ends
    with dev scoring.

    Tuning ends when dev scores stop rising or all epochs are done, with the best query encoder.
    """

    settings: FinetuningSettings
    trained_on = "triples"

    def __init__(
        self,
        kb: Searcher,
        labeller: Labeller,
        queries: Sequence[PreparedQuery],
        settings: FinetuningSettings,
        score: Callable[[], float],
        distillation: Distillation,
        dev: str = "",
    ) -> None:
        """`score`: how good the query encoder is now on dev data; higher is better. `dev`: a digest
        of these data.
        """
        self.kb = kb
        self.labeller = labeller
        self.queries = queries
        self.score = score
        self.distillation = distillation
        self.dev = dev
        self.weights = {"loss": 1.0 - settings.keep, "moved": settings.keep}
        self.per_epoch = math.ceil(len(queries) / (settings.batch * settings.accumulate))
        # Share answered as before tuning, as often; the queries are others.
        self.agreements: list[float] = []
        self.found: list[int] = []  # queries of each epoch for which the search found a positive
        # Imported codes have rows that they stand for.
        has_rows = settings.vectors == "rows" or kb.manifest.has_codes
        self._coded = None if has_rows else CodedRows(kb)
        super().__init__(
            _tuned(kb.model.queries, settings.keep), settings, settings.epochs * self.per_epoch
        )

    @property
    def is_finished(self) -> bool:
        """Whether all epochs are done, or as many as patience allows have not raised the dev score."""
        done = len(self.scores) - 1
        since_best = done - best_round(self.scores)
        return done >= self.settings.epochs or since_best >= self.settings.patience

    def between_rounds(self) -> None:
        """Score dev data, and keep the parameters if they are the best so far; at the end, go back
        to the best.
        """
        self.agreements.append(self.distillation.agreement())
        self.keep_best(self.score())

    @property
    def begun(self) -> int:
        """Steps before this epoch."""
        return (len(self.scores) - 1) * self.per_epoch

    def batches(self) -> Iterator[Sequence[int]]:
        epoch = len(self.scores) - 1
        size = self.settings.batch
        if len(self.found) < len(self.scores):
            self.found.append(0)
        order = random.Random(self.settings.seed + epoch).sample(
            range(len(self.queries)), len(self.queries)
        )
        yield from (order[first : first + size] for first in range(0, len(order), size))

    def losses(self, members: Sequence[int]) -> tuple[dict[str, Tensor], int]:
        """Return the loss of each query, and whether the search found a positive for it; shapes:
        (queries,).
        """
        batch = [self.queries[index] for index in members]
        model = self.kb.model
        tensors = padded(
            [list(query.ids) for query in batch], model.tokenizer.pad_token_id, model.device
        )
        with autocast(model.device):
            starts, ends = model.queries(*tensors)
        phrase_lists = retrieve(
            self.kb, starts.detach().cpu().numpy(), ends.detach().cpu().numpy(), self.settings.k
        )
        candidates = phrase_lists
        if not self.settings.found_alone:
            golds = [query.golds for query in batch]
            candidates = list(map(joined, phrase_lists, golds))
        usual = self.settings.chosen_objective("phrase")
        positives = [
            self.labeller.label(phrases, query.gold).positive(query.objective or usual)
            for query, phrases in zip(batch, candidates, strict=True)
        ]
        found = [
            bool(right[: len(own)].any())
            for right, own in zip(positives, phrase_lists, strict=True)
        ]
        competing = Competing(self.kb, candidates, self._coded)
        scores = competing.scores(starts, ends)
        chosen = competing.choices(np.concatenate(positives))
        terms = []
        for term in self.settings.chosen_terms():
            counted, right = map(competing.side_by_side, chosen[term])
            terms.append(marginal_losses(scores[term], right, counted))

        self.found[-1] += sum(found)
        shares = torch.tensor(found, dtype=torch.float32, device=model.device)
        losses = {"loss": torch.stack(terms).mean(dim=0), "found": shares}
        if self.settings.keep:
            # Each epoch has other ones, as far as there are more.
            others = len(self.found) * len(self.queries)
            losses["moved"] = self.distillation.divergences([others + index for index in members])

        return losses, tensors[0].numel()

    def digest(self) -> str:
        """Return a digest of the query encoder, the knowledge base, the queries and the dev data."""
        digest = hashlib.blake2b(digest_size=16)
        model = self.kb.model.config
        digest.update(repr((model.phrase_fingerprint, model.query_fingerprint)).encode())
        digest.update(repr((self.kb.manifest.corpora, self.kb.index.kind, self.dev)).encode())
        for query in self.queries:
            outputs = [(output.answer, output.pages) for output in query.gold.outputs]
            digest.update(repr((query.ids, outputs, query.objective)).encode())
        return digest.hexdigest()

    def state(self) -> dict[str, Any]:
        return super().state() | {"agreements": self.agreements, "found": self.found}

    def load_state(self, state: dict[str, Any]) -> None:
        super().load_state(state)
        self.agreements = state["agreements"]
        self.found = state["found"]


def hybrid(factor: float) -> SearchOptions:
    """Return the options of a search with these weights of words, whose answers nothing reranks."""
    return SearchOptions(
        5, "page", "hybrid", BM25_WEIGHT * factor, SPARTA_WEIGHT * factor, rerank=0
    )


class DevScorer:
    """Scores the live query encoder on dev queries, as KILT does; several tasks count the same."""

    def __init__(self, asked: Sequence[tuple[Task, Gold]], kb: Searcher) -> None:
        self._asked = asked
        self._kb = kb
        fits = kb.model.query_tokenizer.is_short_enough
        texts = [task.query_of(gold.input or "", fits, gold.id) for task, gold in asked]
        self._queries = list(map(Query.of, texts))
        self._have_pages = np.array([bool(pages_of(gold)) for _, gold in asked])
        self._tasks = np.array([task.name for task, _ in asked])
        self.names = list(dict.fromkeys(self._tasks.tolist()))
        self._measures = {name: self._measure_of(name) for name in self.names}
        sizes = Counter(self._tasks.tolist())
        # The mean of all weighted values is the mean of the tasks' means.
        self._weights = np.array(
            [len(asked) / len(sizes) / sizes[name] for name in self._tasks.tolist()]
        )

    def _measure_of(self, name: str) -> str:
        own = [
            (task, gold, has_page)
            for (task, gold), has_page in zip(self._asked, self._have_pages, strict=True)
            if task.name == name
        ]
        task = own[0][0]
        if task.answer == "none":
            return "Rprec"
        if not any(gold.answers for _, gold, _ in own):
            return "Rprec"
        return (
            f"KILT-{task.answer_metric}"
            if any(has_page for *_, has_page in own)
            else task.answer_metric
        )

    @property
    def measure(self) -> str:
        return ", ".join(dict.fromkeys(self._measures.values()))

    def asked(self, answer: AnswerKind | None = None) -> list[GoldQuery]:
        """Return the dev records, of one kind of answer or all, with the queries that the encoder
        reads.
        """
        pairs = zip(self._asked, self._queries, strict=True)
        return [
            GoldQuery(replace(gold, input=query.text), query)
            for (task, gold), query in pairs
            if answer in (None, task.answer)
        ]

    def __len__(self) -> int:
        return len(self._asked)

    @property
    def digest(self) -> str:
        """Return a digest of the dev queries, their answers, the measures and the search."""
        digest = hashlib.sha256(repr((self._measures, DENSE)).encode())
        for _, gold in self._asked:
            digest.update(
                repr(
                    (gold.input, [(output.answer, output.pages) for output in gold.outputs])
                ).encode()
            )
        return digest.hexdigest()

    def score(self) -> float:
        """Return the mean of the measures by vectors alone, from 0 to 1."""
        return float(self.values(DENSE).mean())

    def by_task(self) -> dict[str, float]:
        """Return the mean of each task by vectors alone, from 0 to 1."""
        values = self.values(DENSE) / self._weights
        return {name: float(values[self._tasks == name].mean()) for name in self.names}

    def values(self, options: SearchOptions) -> Doubles:
        """Measure each dev query; without a gold page, its answer counts anywhere. Shape:
        (queries,).
        """
        found = self._kb.search(self._queries, options)
        values = []
        for (task, gold), pages, has_page in zip(self._asked, found, self._have_pages, strict=True):
            measure = self._measures[task.name]
            name = measure if has_page else measure.removeprefix("KILT-")
            row = downstream_row(gold, self._guess(task, gold, pages))
            values.append(row[DOWNSTREAM_NAMES.index(name)])
        weighted: Doubles = self._weights * np.array(values)
        return weighted

    def _guess(self, task: Task, gold: Gold, pages: Sequence[Answer]) -> Guess:
        """Make a prediction, without an answer if the gold record has none."""
        answer = ""
        if pages and gold.answers and task.answer != "none":
            if task.answer == "phrase":
                answer = pages[0].text
            else:
                answer = pages[0].title
        return Guess(gold.id, gold.line, answer.strip(), tuple(hit.page_id for hit in pages))

    def best_factor(self, usual: float) -> tuple[float, float]:
        """Return the factor for the weights of words that serves this query encoder best, and its
        score with it.

        The `usual` factor stays unless another one gains more than two standard errors on these
        queries.
        """
        factors = dict.fromkeys((usual, *FACTORS))
        values = {factor: self.values(hybrid(factor)) for factor in factors}
        best = max(values, key=lambda factor: float(values[factor].mean()))
        gain = values[best] - values[usual]
        if gain.mean() <= 2 * gain.std() / math.sqrt(len(gain)):
            best = usual
        return best, float(values[best].mean())
