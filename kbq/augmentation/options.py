"""Options: how training examples are made from a corpus."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from kbq.corpus.options import CorpusFormat
from kbq.errors import TrainingError
from kbq.options import Option, check
from kbq.search.options import Backend

Negatives = Literal["bm25", "phrase"]
A_READER = "`default`, or a question-answering checkpoint (folder or hub name)"


@dataclass(frozen=True, slots=True)
class AugmentOptions:
    """How training examples are made: with a generator and a reader, from triples, or from known
    questions. Raises TrainingError for invalid values.
    """

    generator: Annotated[
        str,
        Option("A sequence-to-sequence checkpoint (folder or hub name), to write questions."),
    ] = ""
    reader: Annotated[
        str,
        Option(f"Drop questions that this answers differently: {A_READER}."),
    ] = ""
    triples: Annotated[
        Path | None, Option("Instead, make slot queries from triples, as for `kbq finetune`.")
    ] = None
    questions: Annotated[
        Path | None,
        Option("Instead, add hard negatives from the knowledge base CORPUS to this file."),
    ] = None
    negatives: Annotated[
        Negatives,
        Option(
            "With --questions: paragraphs with their words but no answer, or with the answer's "
            "phrase."
        ),
    ] = "bm25"
    format: Annotated[CorpusFormat, Option("Format of the corpus.")] = "auto"
    entities: Annotated[
        str,
        Option(
            "Answers to ask for: `written` (names and numbers), or a spaCy pipeline's entities."
        ),
    ] = "written"
    prompt: Annotated[
        str | None,
        Option("The generator's input, with {before}, {answer}, {after} and {title}."),
    ] = None
    beams: Annotated[int, Option("Beams of the generator's search.", least=1)] = 1
    each: Annotated[int, Option("At most this many questions on a paragraph.", least=1)] = 5
    depth: Annotated[
        int, Option("Paragraphs that a knowledge base finds for a triple.", least=1)
    ] = 5
    backend: Annotated[Backend, Option("Backend of that search, as for `kbq query`.")] = "auto"
    seed: Annotated[int, Option("Seed of all random numbers.")] = 0

    def __post_init__(self) -> None:
        check(self, TrainingError)
