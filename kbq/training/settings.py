"""Settings: what decides the outcome of a training run besides its data. `kbq train` has them."""

from dataclasses import dataclass
from typing import Annotated

from kbq.options import Option


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSettings:
    """Settings of the steps of every run."""

    learning_rate: Annotated[float, Option("The highest learning rate.", 0, 1e6)] = (
        2e-4  # the paper's 3e-5: SpanBERT-base
    )
    warmup: float = 0.05  # share of all steps
    accumulate: Annotated[int, Option("Batches per step.", least=1)] = 1  # a large batch in the memory of a small one
    seed: Annotated[int, Option("Seed of all random numbers.")] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings(StepSettings):
    """Settings of a run over passages."""

    epochs: Annotated[float, Option("Passes over the examples.", 0, 1e6)] = 3.0
    batch_tokens: Annotated[int, Option("Tokens in a batch of passages, with padding.", least=64)] = 4096
    # On a CPU the random numbers of dropout take a sixth of a step.
    dropout: Annotated[float, Option("Share of hidden values to drop in each step.", 0, 0.9)] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSettings(RunSettings):
    """Everything that decides the outcome of training encoders."""

    max_queries: int = 12  # of one passage
    pre_batches: Annotated[int, Option("C: how many earlier batches give negatives.", least=0)] = 0  # the paper: 2
    pre_batches_from: float = 0.3  # share of all steps after which the queue is used
    same_answers: Annotated[bool, Option("Also take the same answer elsewhere as a negative, as in the paper.")] = False
    negatives_weight: float = 1.0  # L_neg: answers of other passages, of this batch and of the queue
    # L_neg over all tokens of the batch, as in an open search, is not in the paper.
    tokens_weight: Annotated[float, Option("Weight of negatives over all tokens; 0 in the paper.", least=0)] = 1.0
    filter_weight: float = 0.3
    distill_weight: Annotated[float, Option("With --distill: the paper's λ2.", least=0)] = 2.0
    temperature: Annotated[float, Option("With --distill: above 1, it softens both sides.", least=0.01)] = 1.0
    trust_by_gold: bool = True  # weights L_distill by the chance that the reader gives the gold tokens (the paper: 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderSettings(RunSettings):
    """Everything that decides the outcome of training a reader."""

    epochs: Annotated[float, Option("Passes over the examples.", 0, 1e6)] = 2.0
    learning_rate: Annotated[float, Option("The highest learning rate.", 0, 1e6)] = 1e-4
    max_queries: Annotated[int, Option("At most this many queries per passage.", least=1)] = 12
    distill_weight: float = 2.0  # of L_distill, where there is a larger reader
