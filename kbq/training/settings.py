"""Settings: the hyperparameters of training."""

from dataclasses import dataclass
from typing import Annotated

from kbq.options import Option


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSettings:
    """Settings of the steps of every run."""

    learning_rate: Annotated[float, Option("The highest learning rate.", 0, 1e6)] = (
        2e-4  # the paper's 3e-5: SpanBERT-base
    )
    warmup: Annotated[
        float, Option("Share of all steps in which the learning rate rises.", 0, 1)
    ] = 0.05
    # A large batch in the memory of a small one.
    accumulate: Annotated[int, Option("Batches per step.", least=1)] = 1
    seed: Annotated[int, Option("Seed of all random numbers.")] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings(StepSettings):
    """Settings of a run over passages."""

    epochs: Annotated[float, Option("Passes over the examples.", 0, 1e6)] = 3.0
    batch_tokens: Annotated[
        int, Option("Tokens in a batch of passages, with padding.", least=64)
    ] = 4096
    # On a CPU the random numbers of dropout take a sixth of a step.
    dropout: Annotated[float, Option("Share of hidden values to drop in each step.", 0, 0.9)] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSettings(RunSettings):
    """Everything that decides the outcome of training encoders."""

    max_queries: Annotated[int, Option("At most this many queries per passage.", least=1)] = 12
    batch_queries: Annotated[
        int,
        Option(
            "B: queries in a batch, drawn at random, each with its own passage, as in the paper; "
            "0: whole passages, up to --batch-tokens.",
            least=0,
        ),
    ] = 0
    # The paper: 2.
    pre_batches: Annotated[int, Option("C: how many earlier batches give negatives.", least=0)] = 0
    pre_batches_from: Annotated[
        float, Option("Share of all steps after which these are used.", 0, 1)
    ] = 0.3
    same_answers: Annotated[
        bool, Option("Also take the same answer elsewhere as a negative, as in the paper.")
    ] = False
    single_weight: Annotated[
        float, Option("Weight of L_single, λ1: tokens of the passage.", least=0)
    ] = 1.0
    # The paper's λ3 is 4.
    negatives_weight: Annotated[
        float, Option("Weight of L_neg, λ3: answers of other passages.", least=0)
    ] = 1.0
    # L_neg over all tokens of the batch, as in an open search; section 4.2 tried it without a gain.
    tokens_weight: Annotated[
        float, Option("Weight of negatives over all tokens; 0 in the paper.", least=0)
    ] = 1.0
    filter_weight: Annotated[float, Option("Weight of L_filter.", least=0)] = 0.3
    distill_weight: Annotated[float, Option("With --distill: the paper's λ2.", least=0)] = 2.0
    temperature: Annotated[
        float, Option("With --distill: above 1, it softens both sides.", least=0.01)
    ] = 1.0
    equal_trust: Annotated[
        bool,
        Option(
            "With --distill: learn as much from a wrong reader as from a right one, as in the "
            "paper."
        ),
    ] = False
    without_penalty: Annotated[
        bool, Option("Give the model no penalty for the length of phrases, as in the paper.")
    ] = False


# Section 4.4 and appendix D of arXiv 2012.12624, with two query encoders. λ1, λ2 and λ3 are 1, 2
# and 4; the queue of two batches is used in the last two of four epochs.
PAPER = TrainingSettings(
    learning_rate=3e-5,
    warmup=0.0,
    epochs=4.0,
    max_queries=10**6,
    batch_queries=84,
    pre_batches=2,
    pre_batches_from=0.5,
    same_answers=True,
    single_weight=1.0,
    distill_weight=2.0,
    negatives_weight=4.0,
    tokens_weight=0.0,
    filter_weight=1.0,
    equal_trust=True,
    without_penalty=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpartaSettings(RunSettings):
    """Everything that decides the outcome of training a SPARTA model."""

    all_tokens: Annotated[
        bool,
        Option(
            "With --marked: compare terms with all tokens of a window, as in the paper's Eq. 4."
        ),
    ] = False
    window: Annotated[
        int, Option("Tokens of a window; the paper: 512.", 0, None, "256; with --marked: 128")
    ] = 0
    negatives: Annotated[
        int,
        Option(
            "Negatives of each query, half from its article, as in the paper; 0: all of the batch.",
            least=0,
        ),
    ] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderSettings(RunSettings):
    """Everything that decides the outcome of training a reader."""

    epochs: Annotated[float, Option("Passes over the examples.", 0, 1e6)] = 2.0
    learning_rate: Annotated[float, Option("The highest learning rate.", 0, 1e6)] = 1e-4
    max_queries: Annotated[int, Option("At most this many queries per passage.", least=1)] = 12
    distill_weight: float = 2.0  # weight of L_distill, if there is a larger reader
