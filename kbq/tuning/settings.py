"""Settings: the hyperparameters of tuning a query encoder."""

from dataclasses import dataclass
from typing import Annotated, Literal, TypedDict, get_args

from kbq.errors import TrainingError
from kbq.options import Option, check
from kbq.training.settings import StepSettings

Objective = Literal["kilt", "phrase", "page"]
Term = Literal["joint", "start", "end"]
TERMS: tuple[Term, ...] = get_args(Term)
# Share of the queries that are asked again without the texts that answer them, to fit a calibration.
HIDDEN = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class FinetuningSettings(StepSettings):
    """Settings of tuning the query encoder. Raises TrainingError for a value that has no meaning."""

    objective: Annotated[
        Literal["auto", Objective],
        Option(
            "What is right: the answer on a gold page (kilt), the answer anywhere (phrase), or "
            "the page."
        ),
    ] = "auto"
    terms: Annotated[str, Option("Terms of the loss: joint (phrases), start, end.")] = ",".join(
        TERMS
    )
    k: Annotated[
        int, Option("How many of the phrases found for a query enter the loss.", least=1, flag="-k")
    ] = 100
    epochs: Annotated[int, Option("At most this many passes over the triples.", least=1)] = 3
    patience: Annotated[
        int, Option("Epochs without a better dev score before training stops.", least=1)
    ] = 2
    batch: Annotated[int, Option("Queries to search together.", least=1)] = 24
    keep: Annotated[
        float, Option("How much the answers to other queries count; 0: only the triples.", 0, 1)
    ] = 0.5
    vectors: Annotated[
        Literal["rows", "codes"],
        Option(
            "What the loss multiplies: rows of the dump, or what the codes of the index stand for."
        ),
    ] = "rows"
    found_alone: Annotated[
        bool,
        Option(
            "Only phrases that the search found enter the loss, as in the paper, and not those of "
            "the gold pages, too."
        ),
    ] = False
    random_sample: Annotated[
        bool,
        Option(
            "With --examples: draw them at random, as in the paper, instead of each relation's "
            "share."
        ),
    ] = False

    def __post_init__(self) -> None:
        check(self, TrainingError)
        self.chosen_terms()

    def chosen_terms(self) -> tuple[Term, ...]:
        """Return the terms of the loss. Raises TrainingError if there is none, or one is unknown."""
        if not isinstance(self.terms, str):
            raise TrainingError(
                f"terms are {self.terms!r:.60}: give a text such as joint,start,end", is_usage=True
            )
        wanted = [name.strip() for name in self.terms.split(",")]
        unknown = [name for name in wanted if name not in TERMS]
        if unknown:
            raise TrainingError(
                f"term {unknown[0]!r} is unknown: choose from {', '.join(TERMS)}", is_usage=True
            )
        return tuple(term for term in TERMS if term in wanted)

    def chosen_objective(self, answer: str) -> Objective:
        """Return the objective; `auto` is `kilt` for a task whose answers are phrases, else `page`."""
        if self.objective != "auto":
            return self.objective
        return "kilt" if answer == "phrase" else "page"


# Section 6, Eq. 11 and appendix D of arXiv 2012.12624: of all epochs the best one on the dev
# queries is kept.
PAPER_TUNING = FinetuningSettings(
    learning_rate=3e-5,
    warmup=0.0,
    objective="phrase",
    terms="joint",
    k=100,
    epochs=10,
    patience=10,
    batch=12,
    keep=0.0,
    found_alone=True,
    random_sample=True,
)


class FinetuningKwargs(TypedDict, total=False):
    """The settings of `KnowledgeBase.finetune`; see `FinetuningSettings`."""

    objective: Literal["auto", Objective]
    terms: str
    k: int
    epochs: int
    patience: int
    batch: int
    accumulate: int
    learning_rate: float
    warmup: float
    keep: float
    vectors: Literal["rows", "codes"]
    found_alone: bool
    random_sample: bool
    seed: int
