"""Settings: the hyperparameters of `kbq train` and `kbq finetune`."""

from dataclasses import dataclass
from typing import Annotated, Literal, TypedDict, get_args

from kbq.errors import TrainingError
from kbq.options import Option, check

Objective = Literal["kilt", "phrase", "page"]
Term = Literal["joint", "start", "end"]
TERMS: tuple[Term, ...] = get_args(Term)


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
    distill_weight: float = 2.0  # of L_distill, if there is a larger reader


@dataclass(frozen=True, slots=True, kw_only=True)
class FinetuningSettings(StepSettings):
    """Settings of tuning the query encoder. Raises TrainingError for a value that has no meaning."""

    objective: Annotated[
        Literal["auto", Objective],
        Option("What is right: the answer on a gold page (kilt), the answer anywhere (phrase), or the page."),
    ] = "auto"
    terms: Annotated[str, Option("Terms of the loss: joint (phrases), start, end.")] = ",".join(TERMS)
    k: Annotated[int, Option("How many of the phrases found for a query enter the loss.", least=1, flag="-k")] = 100
    epochs: Annotated[int, Option("At most this many passes over the triples.", least=1)] = 3
    patience: Annotated[int, Option("Epochs without a better dev score before training stops.", least=1)] = 2
    batch: Annotated[int, Option("Queries to search together.", least=1)] = 24
    keep: Annotated[float, Option("How much the answers to other queries count; 0: only the triples.", 0, 1)] = 0.5
    vectors: Annotated[
        Literal["rows", "codes"],
        Option("What the loss multiplies: rows of the dump, or what the codes of the index stand for."),
    ] = "rows"

    def __post_init__(self) -> None:
        check(self, TrainingError)
        self.chosen_terms()

    def chosen_terms(self) -> tuple[Term, ...]:
        """Return the terms of the loss. Raises TrainingError if there is none, or one is unknown."""
        if not isinstance(self.terms, str):
            raise TrainingError(f"terms are {self.terms!r:.60}: give a text such as joint,start,end", is_usage=True)
        wanted = [name.strip() for name in self.terms.split(",")]
        unknown = [name for name in wanted if name not in TERMS]
        if unknown:
            raise TrainingError(f"term {unknown[0]!r} is unknown: choose from {', '.join(TERMS)}", is_usage=True)
        return tuple(term for term in TERMS if term in wanted)

    def chosen_objective(self, answer: str) -> Objective:
        """Return the objective; `auto` is `kilt` for a task whose answers are phrases, else `page`."""
        if self.objective != "auto":
            return self.objective
        return "kilt" if answer == "phrase" else "page"


class FinetuningWords(TypedDict, total=False):
    """The settings of `KnowledgeBase.finetune`; see `FinetuningSettings`."""

    objective: Literal["auto", Objective]
    terms: str
    k: int
    epochs: int
    patience: int
    batch: int
    accumulate: int
    learning_rate: float
    keep: float
    vectors: Literal["rows", "codes"]
    seed: int
