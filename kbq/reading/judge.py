"""Judge: the states of a phrase's first and last token become the odds that it is right, against none being right.

The default model's reader comes with one. Triples can teach it more, of their relations alone: a taught judge lies
beside the query encoder that was tuned on them.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from kbq.errors import ModelError
from kbq.model.model_files import remedy
from kbq.model.model_folder import fingerprint, load_weights, named_weights, read_weights, save_tensors
from kbq.storage.files import reading_problem
from kbq.storage.json_text import parsed_json
from kbq.storage.writing import writing_to
from kbq.text.markers import relation_key, slot_of

TAUGHT = "judge.safetensors"
POINTS = 10  # of the search: about as much as a logit


class PhraseJudge(nn.Module):
    """How much more likely a phrase is right than that none is, from the states of its first and its last token.

    What it says is added to the logits of these tokens to open and to close the answer.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.inner = nn.Linear(2 * dim, dim)
        self.outer = nn.Linear(dim, 1)
        self.none = nn.Parameter(torch.zeros(1))  # the logit of "no phrase is right"
        self.retrieval = nn.Parameter(torch.zeros(1))  # what POINTS of the search are worth

    def forward(self, edges: Tensor) -> Tensor:
        """Shapes: states of the first token, then of the last (phrases, 2 dim), result (phrases,)."""
        result: Tensor = self.outer(nn.functional.gelu(self.inner(edges)))[:, 0] - self.none
        return result

    @property
    def retrieval_weight(self) -> float:
        """What a point of the search is worth, beside what phrases are judged."""
        return float(self.retrieval.detach()) / POINTS


@dataclass(frozen=True, eq=False)
class TaughtJudge:
    """A judge that has learned from triples; it judges the slots of their relations, and no other query."""

    judge: PhraseJudge
    relations: frozenset[str]
    reader: str  # the digest of the reader whose states it was taught with

    def judges(self, text: str) -> bool:
        """Whether a query is a slot of one of its relations."""
        slot = slot_of(text)
        return slot is not None and relation_key(slot[1]) in self._keys

    @cached_property
    def _keys(self) -> frozenset[str]:
        return frozenset(map(relation_key, self.relations))

    @cached_property
    def fingerprint(self) -> str:
        """A digest that identifies its weights."""
        return fingerprint(named_weights(self.judge, ""))

    def save(self, folder: Path) -> None:
        """Write it into the folder of a tuned query encoder, whose configuration is to be written afterwards.

        Raises:
            ModelError: the folder cannot be written.
        """
        facts = {"relations": json.dumps(sorted(self.relations), ensure_ascii=False), "reader": self.reader}
        with writing_to(folder, ModelError, also=(SafetensorError,)):
            save_tensors(named_weights(self.judge, ""), folder / TAUGHT, facts)

    @classmethod
    def open(cls, folder: Path, reader: str, device: torch.device) -> Self | None:
        """The one that was saved in a folder; None: there is none.

        Args:
            reader: the digest of the reader that is used.

        Raises:
            ModelError: it is damaged, or was taught with another reader.
        """
        path = folder / TAUGHT
        if not path.is_file():
            return None
        try:
            weights = read_weights(path)
            with safe_open(path, "pt") as file:
                facts = file.metadata() or {}
            relations = _texts(parsed_json(facts["relations"]))
            judge = PhraseJudge(weights["outer.weight"].shape[1])
        except (OSError, SafetensorError, ValueError, KeyError, IndexError) as error:
            raise ModelError(reading_problem(path, error, remedy(folder))) from None
        load_weights(judge, weights, "", folder)
        if facts.get("reader") != reader:
            raise ModelError(f"{path} was taught with another reader than the model has now: tune again")
        return cls(judge.eval().to(device), relations, reader)


def _texts(found: Iterable[object]) -> frozenset[str]:
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ValueError("its relations are not a list of texts")
    return frozenset(map(str, found))
