"""Answers: what comes out of a knowledge base, and what may be asked for. Imports nothing from kbq.

Text is Unicode NFC everywhere. Character positions are half-open, [start, end), and count the characters of one
paragraph. `score`: higher is better; only the scores of one query in one search can be compared.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

CorpusFormat: TypeAlias = Literal["auto", "kilt", "jsonl", "squad", "dpr", "text"]
IndexKind = Literal["exact", "disk", "compact", "tiny"]
WantedKind = Literal["auto", "exact", "disk", "compact", "tiny"]
Unit = Literal["phrase", "sentence", "paragraph", "page"]
Backend = Literal["auto", "dense", "bm25", "sparta", "hybrid"]
WordBackend = Literal["bm25", "sparta"]
WORDS_ALONE: tuple[WordBackend, ...] = ("bm25", "sparta")
WeightType = Literal["float32", "int8"]


@dataclass(frozen=True, slots=True)
class Answer:
    """A phrase found for a query, with its evidence: `text == context[start:end]`.

    A search by words alone finds no phrase: the whole paragraph is the answer.
    """

    text: str
    score: float
    page_id: str
    title: str
    paragraph: int  # the corpus's own number, so numbers may have gaps
    start: int
    end: int
    context: str  # the whole paragraph
    unit: tuple[int, int]  # characters of the retrieved unit (phrase, sentence, paragraph) in it

    @property
    def place(self) -> tuple[str, int, int, int]:
        """Page id, paragraph and characters: what tells answers apart."""
        return self.page_id, self.paragraph, self.start, self.end

    def to_dict(self) -> dict[str, str | int | float]:
        """The answer as `kbq query --json` prints it, flat."""
        return {
            "text": self.text,
            "score": round(self.score, 4),
            "page_id": self.page_id,
            "title": self.title,
            "paragraph": self.paragraph,
            "start": self.start,
            "end": self.end,
            "unit_start": self.unit[0],
            "unit_end": self.unit[1],
            "context": self.context,
        }

    def __str__(self) -> str:
        return f"{self.text}  {self.score:.2f}  {self.title} (page {self.page_id}, paragraph {self.paragraph})"
