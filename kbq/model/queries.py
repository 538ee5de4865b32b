"""Queries: encode texts as pairs of vectors. Source: arXiv 2012.12624, section 3.2.

The `[SEP]` of `subject [SEP] relation` becomes the tokenizer's separator; mentions are marked with
`[START_ENT]` and `[END_ENT]`.
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from kbq.array_types import Floats
from kbq.errors import QueryError
from kbq.model import bert
from kbq.model.backbone import hidden_states
from kbq.model.devices import batch_tokens, buckets, dtype_for, readable_length
from kbq.model.tokenizer import Forms, encodings, truecased
from kbq.text.queries import MARKERS, SEPARATOR, Query

# Longest query: no encoder reads this many words, and their pieces would take gigabytes.
MOST_CHARACTERS = 100_000
SHOWN = 60  # characters of a query in a message


class QueryEncoder(nn.Module):
    """Start and end vector: the last hidden state of the first token, not normalised.

    Either two backbones, as in the paper, or one shared backbone with a linear head for each
    vector, which halves the cost of a query.
    """

    _recorded: bert.Recorded | None = None

    def __init__(self, backbone: Any, shared: bool) -> None:
        super().__init__()
        self.start = backbone
        self.end = backbone
        self.start_head: nn.Module = nn.Identity()
        self.end_head: nn.Module = nn.Identity()
        if shared:
            dim = int(backbone.config.hidden_size)
            self.start_head = _identity(dim)
            self.end_head = _identity(dim)
        else:
            self.end = copy.deepcopy(backbone)
        bert.pack_few_rows(self)

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Shapes: inputs (queries, tokens); start vectors and end vectors (queries, dim)."""
        first = hidden_states(self.start, ids, mask, None)[:, 0]
        if self.end is self.start:
            last = first
        else:
            last = hidden_states(self.end, ids, mask, None)[:, 0]
        return self.start_head(first).float(), self.end_head(last).float()

    def recorded(self, device: torch.device) -> bert.Recorded:
        """`forward` for many batches of one shape."""
        if self._recorded is None or self._recorded.device != device:
            self._recorded = bert.Recorded(self, self.start, self, device)
        return self._recorded

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_recorded"}

    def last_layers(self, share: float) -> list[nn.Module]:
        """Return the last layers of each backbone, this share of them, rounded up; all of a
        backbone without layers.
        """
        last: list[nn.Module] = []
        for backbone in dict.fromkeys((self.start, self.end)):
            lists = [module for module in backbone.modules() if isinstance(module, nn.ModuleList)]
            layers = max(lists, key=len, default=[backbone])
            last += layers[-math.ceil(share * len(layers)) :]
        return last

    def each_alone(self, ids: Sequence[list[int]]) -> tuple[Tensor, Tensor]:
        """`forward` on a CPU, each query as if it were alone. Shape of both: (queries, dim)."""
        firsts = bert.first_states(self.start, ids)
        if self.end is self.start:
            lasts = firsts
        else:
            lasts = bert.first_states(self.end, ids)
        dtype = dtype_for(self.start, bert.CPU)
        start = bert.product_of(self.start_head, dtype)
        end = bert.product_of(self.end_head, dtype)
        return torch.cat([start(row) for row in firsts]).float(), torch.cat(
            [end(row) for row in lasts]
        ).float()


def _identity(dim: int) -> bert.Linear:
    head = bert.Linear(dim, dim)
    nn.init.eye_(head.weight)
    nn.init.zeros_(head.bias)
    return head


def marker_tokens(tokenizer: Any) -> dict[str, str]:
    """Return the token of each marker in an untrained model; a marker without one is ordinary text."""
    known = tokenizer.get_vocab()
    mentions = (("[START_ENT]", "[unused1]"), ("[END_ENT]", "[unused2]"))
    return {"[SEP]": tokenizer.sep_token} | {
        marker: token for marker, token in mentions if token in known
    }


class QueryTokenizer:
    """Turns queries into token ids, and refuses unreadable ones."""

    def __init__(
        self,
        tokenizer: Any,
        max_tokens: int,
        marker_tokens: dict[str, str],
        casing: Forms | None = None,
        official: bool = False,
    ) -> None:
        """Wrap an encoder's tokenizer.

        Args:
            max_tokens: longest query, special tokens included.
            marker_tokens: the token of each marker, for instance {"[SEP]": "[SEP]"}.
            casing: the capitals of words, for queries without any.
            official: read queries as the original code does: cut long ones, and keep a final
                question mark.
        """
        self.tokenizer = tokenizer
        self.official = official
        self.max_tokens = max_tokens
        self.casing = casing or {}
        self.marker_ids = {
            marker: [tokenizer.convert_tokens_to_ids(token)]
            for marker, token in marker_tokens.items()
        }

    def ids_of(self, text: str) -> list[int]:
        """Return the ids of `[CLS] query [SEP]`. Raises QueryError if it is malformed or too long
        for the encoder.
        """
        check_query(text)
        if len(text) > MOST_CHARACTERS:
            most = f"at most {MOST_CHARACTERS:,} are read"
            raise QueryError(
                f"the query {_shown(text)} has {len(text):,} characters, {most}: shorten it"
            )

        ids = self._pieces(text)
        if self.official:
            ids = ids[: self.max_tokens - 1]
        if len(ids) >= self.max_tokens:
            raise QueryError(
                f"the query {_shown(text)} has {len(ids) + 1} tokens, the encoder reads "
                f"{self.max_tokens}: shorten it"
            )

        return [*ids, self.tokenizer.sep_token_id]

    def accepts(self, text: str) -> bool:
        """Whether a text is a query that the encoder can read."""
        try:
            self.ids_of(text)
        except QueryError:
            return False
        return True

    def is_short_enough(self, text: str) -> bool:
        """Whether a text, be it a query or not, is not too long for the encoder."""
        return len(text) <= MOST_CHARACTERS and (
            self.official or len(self._pieces(text)) < self.max_tokens
        )

    def numbers(self, words: Sequence[str]) -> list[int | None]:
        """Return the ids of words, lower for common words; None for a word that is not one token of
        the vocabulary.
        """
        ids = [encoding.ids for encoding in encodings(self.tokenizer, words)]
        unknown = self.tokenizer.unk_token_id
        return [pieces[0] if len(pieces) == 1 and pieces[0] != unknown else None for pieces in ids]

    def _pieces(self, text: str) -> list[int]:
        """Return [CLS] and the word pieces, without a final question mark, which carries no
        information.
        """
        ids = [self.tokenizer.cls_token_id]
        if self.official:
            text = text.strip()
        else:
            text = text.strip().removesuffix("?")
        pieces = MARKERS.split(text)
        markers = [marker.upper() for marker in MARKERS.findall(text)]
        if self.casing and all(piece == piece.lower() for piece in pieces):
            pieces = [truecased(piece, self.casing) for piece in pieces]
        for encoding, marker in zip(
            encodings(self.tokenizer, pieces), [*markers, None], strict=True
        ):
            ids += encoding.ids
            # The vocabulary has no token for it.
            if marker is not None and marker not in self.marker_ids:
                (special,) = encodings(self.tokenizer, [marker], special=True)
                self.marker_ids[marker] = special.ids
            ids += self.marker_ids[marker] if marker else []

        return ids


def check_query(text: str) -> None:
    """Raise QueryError for a query that is empty, has two `[SEP]`, or nothing on one side of it."""
    if not _has_content(text):
        raise QueryError('the query is empty: write "subject [SEP] relation" or a question')
    sides = SEPARATOR.split(text)
    if len(sides) > 2:
        raise QueryError(
            f'the query {_shown(text)} has {len(sides) - 1} "[SEP]": write "subject [SEP] '
            'relation" with one'
        )

    if not all(map(_has_content, sides)):
        raise QueryError(
            f'the query {_shown(text)} has nothing on one side of "[SEP]": write "subject [SEP] '
            'relation"'
        )


class ReadsQueries(Protocol):
    """The tokenizer of a network that reads queries."""

    def ids_of(self, text: str) -> list[int]:
        """Return token ids. Raises QueryError if the network cannot read the text."""

    def is_short_enough(self, text: str) -> bool:
        """Whether a text fits the network."""


def readable_queries(
    texts: Sequence[str], tokenizers: Sequence[ReadsQueries], places: Sequence[str] = ()
) -> list[Query]:
    """Return the queries that texts are, with the token ids of the first tokenizer, if there is one.

    Raises QueryError for those that are malformed, or that one of these tokenizers cannot read; it
    names all. `places`: where each text stands, for the message.
    """
    queries: list[Query] = []
    problems: list[str] = []
    for number, text in enumerate(texts):
        try:
            if not isinstance(text, str):
                raise QueryError(f"a query is {text!r:.60}: give a text")
            query = Query.of(text)
            check_query(query.text)
            read = [tokenizer.ids_of(query.text) for tokenizer in tokenizers]
            if read:
                query = replace(query, ids=tuple(read[0]))
            queries.append(query)
        except QueryError as error:
            if places:
                place = places[number]
            elif len(texts) > 1:
                place = f"query {number + 1}"
            else:
                place = ""
            problem = error.typed
            if place:
                problem = f"{place}: {problem}"
            problems.append(problem)

    if len(problems) == 1:
        raise QueryError(problems[0])
    if problems:
        raise QueryError(f"{len(problems)} of {len(texts)} queries cannot be asked", problems)

    return queries


def _has_content(text: str) -> bool:
    return any(
        letter.isprintable() and not letter.isspace() for letter in text.strip().removesuffix("?")
    )


def _shown(text: str) -> str:
    # Joined by blanks, as this many words are too many already.
    text = " ".join(text.split(None, SHOWN)[:SHOWN])
    if len(text) > SHOWN:
        text = text[: SHOWN - 1] + "…"
    return repr(text)


@torch.inference_mode()
def encode_queries(
    encoder: QueryEncoder, ids: list[list[int]], pad_id: int
) -> tuple[Floats, Floats]:
    """Return start and end vectors of tokenised queries, in order; see `each_alone`. Shapes:
    (queries, dim).
    """
    device = next(encoder.parameters()).device
    dim = int(encoder.start.config.hidden_size)
    lengths = [len(row) for row in ids]
    starts = np.empty((len(ids), dim), np.float32)
    ends = np.empty((len(ids), dim), np.float32)
    if bert.is_batch_invariant(encoder.start, device):
        for members in buckets(lengths, batch_tokens(device)):
            start, end = encoder.each_alone([ids[i] for i in members])
            starts[members], ends[members] = start.numpy(), end.numpy()
        return starts, ends

    together, multiple = bert.batch_shape(device)
    for members, length in bert.alike(lengths, together, multiple):
        shape = together, readable_length(encoder.start, length)
        start, end = encoder.recorded(device)(
            *bert.in_shape([ids[i] for i in members], shape, pad_id, device)
        )
        starts[members], ends[members] = (
            side[: len(members)].cpu().numpy() for side in (start, end)
        )

    return starts, ends
