"""Loop: one forward pass of the queries serves search and loss; the phrases are those found by the live encoder.

Source: arXiv 2012.12624, section 4.5 and Eq. 11; arXiv 2109.08133, section 5. Beyond the papers: answers on the gold
pages take part even where the search does not find them, so that hardly any query is without a positive.
"""

import hashlib
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from kbq.array_types import Bools
from kbq.encoding.devices import autocast, padded
from kbq.errors import TrainingError
from kbq.finetuning.labels import Labeller, Objective, Phrases, joined, penalties, retrieve, vectors
from kbq.finetuning.preparation import PreparedQuery
from kbq.kb import KnowledgeBase
from kbq.kilt.task import Task
from kbq.training.attention import recompute_attention
from kbq.training.engine import CHECKPOINT_SECONDS, Descent, read_checkpoint, write_checkpoint
from kbq.training.losses import marginal_losses

Term = Literal["joint", "start", "end"]
TERMS: tuple[Term, ...] = ("joint", "start", "end")


def choices(phrases: Phrases, positive: Bools) -> dict[Term, tuple[Bools, Bools]]:
    """(counted, positive) of each term for one query; what is positive is counted. Shapes: (phrases,)."""
    starts, ends = (phrases.shards * 2**40 + rows for rows in (phrases.starts, phrases.ends))
    first_start, first_end = _first_of_each(starts), _first_of_each(ends)
    return {
        "joint": (np.ones(len(positive), bool), positive),
        "start": (first_start, first_start & np.isin(starts, starts[positive])),
        "end": (first_end, first_end & np.isin(ends, ends[positive])),
    }


def _first_of_each(rows: np.ndarray) -> Bools:
    first = np.zeros(len(rows), bool)
    first[np.unique(rows, return_index=True)[1]] = True
    return first


@dataclass(frozen=True, slots=True)
class FinetuningSettings:
    """Everything that decides the outcome besides data and knowledge base."""

    objective: Objective = "kilt"
    terms: tuple[Term, ...] = TERMS
    k: int = 100  # phrases that compete
    epochs: int = 3
    patience: int = 2  # epochs without a better dev score, after which tuning stops
    batch: int = 24
    accumulate: int = 1  # batches of one step
    learning_rate: float = 2e-4
    warmup: float = 0.05  # share of all steps
    seed: int = 0


def chosen_objective(name: str, task: Task) -> Objective:
    """The objective of that name; `auto` is `kilt` for a task whose answers are phrases, else `page`."""
    if name == "auto":
        return "kilt" if task.answer == "phrase" else "page"
    return cast(Objective, name)


def chosen_terms(names: str) -> tuple[Term, ...]:
    """The terms in a list such as `joint,start,end`.

    Raises:
        TrainingError: there is none, or one that is unknown.
    """
    wanted = [name.strip() for name in names.split(",")]
    unknown = [name for name in wanted if name not in TERMS]
    if unknown:
        raise TrainingError(f"term {unknown[0]!r} is unknown: choose from {', '.join(TERMS)}", is_usage=True)
    return tuple(term for term in TERMS if term in wanted)


@dataclass(frozen=True, slots=True)
class FinetuningStep:
    """A step, for reports. `found`: share of its queries for which the search found a positive; `dev`: last score."""

    step: int
    steps: int
    loss: float
    found: float
    dev: float


class Finetuner:
    """Tunes the query encoder of an opened knowledge base in place."""

    def __init__(
        self,
        kb: KnowledgeBase,
        labeller: Labeller,
        queries: Sequence[PreparedQuery],
        settings: FinetuningSettings,
        score: Callable[[], float],
        dev: str = "",
    ) -> None:
        """`score`: how good the query encoder is now on dev data; higher is better. `dev`: a digest of these data."""
        self.kb = kb
        self.labeller = labeller
        self.queries = queries
        self.settings = settings
        self.score = score
        self.dev = dev
        self.per_epoch = math.ceil(len(queries) / (settings.batch * settings.accumulate))
        recompute_attention(kb.model.queries)
        # Word embeddings belong to the phrase encoder, too, so they stay as they are.
        parameters = [parameter for parameter in kb.model.queries.parameters() if parameter.requires_grad]
        self.descent = Descent(parameters, settings.learning_rate, settings.warmup, settings.epochs * self.per_epoch)
        self.scores: list[float] = []  # before tuning, and after each epoch
        self.found: list[int] = []  # in each epoch, queries for which the search found a positive
        self.best: list[Tensor] = []

    def run(self, checkpoint: Path, report: Callable[[FinetuningStep], None]) -> None:
        """Tune until dev scores stop rising or all epochs are done; the model ends with the best query encoder.

        Raises:
            TrainingError: the loss is no number any more (the last checkpoint stays), or the checkpoint is of
                another run.
        """
        self._resume(checkpoint)
        while not self._is_finished():
            if len(self.found) < len(self.scores):
                self.found.append(0)
            for queries in self._rest_of_epoch():
                report(self._one_step(queries))
                if time.monotonic() - self._saved > CHECKPOINT_SECONDS:
                    self._save(checkpoint)
            self._score()
            self._save(checkpoint)
        self.descent.set_values(self.best)

    def _is_finished(self) -> bool:
        since_best = len(self.scores) - 1 - self.scores.index(max(self.scores))
        return len(self.scores) > self.settings.epochs or since_best >= self.settings.patience

    def _score(self) -> None:
        self.scores.append(self.score())
        if self.scores.index(max(self.scores)) == len(self.scores) - 1:
            self.best = [value.clone() for value in self.descent.values()]

    def _rest_of_epoch(self) -> Iterator[list[PreparedQuery]]:
        """The queries of each step that is left in this epoch."""
        epoch = len(self.scores) - 1
        order = random.Random(self.settings.seed + epoch).sample(range(len(self.queries)), len(self.queries))
        size = self.settings.batch * self.settings.accumulate
        for first in range((self.descent.done - epoch * self.per_epoch) * size, len(order), size):
            yield [self.queries[place] for place in order[first : first + size]]

    def _one_step(self, queries: Sequence[PreparedQuery]) -> FinetuningStep:
        total, found = 0.0, 0
        for first in range(0, len(queries), self.settings.batch):
            batch = queries[first : first + self.settings.batch]
            losses, with_positives = self._losses(batch)
            self.descent.add(losses.sum() / len(queries))
            total += float(losses.detach().sum())
            found += with_positives
        self.found[-1] += found
        self.descent.step()
        share = found / len(queries)
        return FinetuningStep(self.descent.done, self.descent.steps, total / len(queries), share, self.scores[-1])

    def _losses(self, batch: Sequence[PreparedQuery]) -> tuple[Tensor, int]:
        """The loss of each query, and for how many of them the search found a positive."""
        model = self.kb.model
        tensors = padded([list(query.ids) for query in batch], model.tokenizer.pad_token_id, model.device)
        with autocast(model.device):
            starts, ends = model.queries(*tensors)
        phrase_lists = retrieve(self.kb, starts.detach().cpu().numpy(), ends.detach().cpu().numpy(), self.settings.k)
        with_positives = 0
        parts: list[dict[str, Tensor]] = []
        for query, phrases in zip(batch, phrase_lists, strict=True):
            candidates = joined(phrases, query.golds)
            positive = self.labeller.label(candidates, query.gold).positive(self.settings.objective)
            with_positives += int(positive[: len(phrases)].any())
            parts.append(self._tensors(candidates, positive))
        columns = {
            name: pad_sequence([part[name] for part in parts], batch_first=True).to(model.device) for name in parts[0]
        }
        start_scores = torch.einsum("qd,qpd->qp", starts, columns["starts"])
        end_scores = torch.einsum("qd,qpd->qp", ends, columns["ends"])
        scores = {"joint": start_scores + end_scores - columns["penalties"], "start": start_scores, "end": end_scores}
        terms = [
            marginal_losses(scores[term], columns[f"{term} positive"], columns[f"{term} counted"])
            for term in self.settings.terms
        ]
        return torch.stack(terms).mean(dim=0), with_positives

    def _tensors(self, phrases: Phrases, positive: Bools) -> dict[str, Tensor]:
        """Vectors of a query's phrases, shape (phrases, dim); penalties and what competes in each term, (phrases,)."""
        starts, ends = vectors(self.kb, phrases)
        numbers = {"starts": starts, "ends": ends, "penalties": penalties(self.kb, phrases)}
        tensors = {name: torch.from_numpy(values) for name, values in numbers.items()}
        for term, (counted, right) in choices(phrases, positive).items():
            tensors[f"{term} counted"] = torch.from_numpy(counted)
            tensors[f"{term} positive"] = torch.from_numpy(right)
        return tensors

    @cached_property
    def _digest(self) -> str:
        """A digest of the starting encoder, the queries and the dev set."""
        digest = hashlib.blake2b(digest_size=16)
        model = self.kb.model.config
        digest.update(repr((model.phrase_fingerprint, model.query_fingerprint)).encode())
        digest.update(repr((self.kb.manifest.corpora, self.kb.index.kind, self.dev)).encode())
        for query in self.queries:
            outputs = [(output.answer, output.pages) for output in query.gold.outputs]
            digest.update(repr((query.ids, outputs)).encode())
        return digest.hexdigest()

    def _save(self, checkpoint: Path) -> None:
        run = {"settings": asdict(self.settings), "data": self._digest}
        progress = {"scores": self.scores, "found": self.found, "best": self.best}
        write_checkpoint(checkpoint, run | progress | self.descent.state())
        self._saved = time.monotonic()

    def _resume(self, checkpoint: Path) -> None:
        self._saved = time.monotonic()
        state = read_checkpoint(checkpoint, self.kb.model.device, asdict(self.settings), self._digest, "triples")
        if state is None:
            self._score()
            return
        self.descent.load_state(state)
        self.scores, self.found, self.best = state["scores"], state["found"], state["best"]
