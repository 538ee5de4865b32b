"""Tokenizer: split texts into word pieces; restore capitals in lower-case queries.

`tokenizer.json` is read without transformers, whose import takes seconds. `FastTokenizer` has the
part of the interface of transformers' tokenizers that kbq uses, so that either can be used.

Paragraphs are cut into windows that fit the encoder:
`[CLS] title [SEP] stretch of one paragraph [SEP]`. Neighbouring windows overlap, so that a token
near a cut still has context on both sides; exactly one window owns each token.
Source: arXiv 2012.12624, section 3.
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from kbq.array_types import Bools, Doubles, Rows
from kbq.errors import ModelError, first_line
from kbq.storage.folders import make_folder
from kbq.storage.records import read_object
from kbq.storage.writing import write_text

Forms = Mapping[str, str]  # word in lower case → its most frequent form, if that differs
WORD = re.compile(r"\w+(?:['’]\w+)*")
SENTENCE_END = re.compile(r"(?:^|[.!?:•\n][\"'”’)\]]*)\s*[\"'“‘(\[]*$")
CONFIG = "tokenizer_config.json"
FILE = "tokenizer.json"
BERT: dict[str, Any] = {
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "mask_token": "[MASK]",
    "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
}
OTHERS: dict[str, Any] = {"model_input_names": ["input_ids", "attention_mask"]}
# The classes that use tokenizer.json as it is, and the defaults of their configuration.
DEFAULTS = {
    "BertTokenizer": BERT,
    "BertTokenizerFast": BERT,
    "PreTrainedTokenizerFast": OTHERS,
    "TokenizersBackend": OTHERS,
}

Positions = NDArray[np.uint32]


class FastTokenizer:
    """The tokenizer that a folder's `tokenizer.json` and `tokenizer_config.json` describe."""

    def __init__(self, inner: Tokenizer, written: dict[str, Any]) -> None:
        """`written`: the configuration, which names the special tokens; it is saved unchanged."""
        self.backend_tokenizer = inner
        self._written = written
        config = DEFAULTS[written["tokenizer_class"]] | written
        self.model_input_names: list[str] = list(config["model_input_names"])
        named = {name: _content(token) for name, token in config.items() if name.endswith("_token")}
        others = config.get("extra_special_tokens") or config.get("additional_special_tokens") or []
        others = [
            _content(token) for token in (others.values() if isinstance(others, dict) else others)
        ]
        self._special = [
            token for token in dict.fromkeys([*named.values(), *others]) if token is not None
        ]
        self.sep_token = named.get("sep_token")
        self.cls_token_id, self.sep_token_id, self.pad_token_id, self.unk_token_id = (
            inner.token_to_id(named.get(name) or "")
            for name in ("cls_token", "sep_token", "pad_token", "unk_token")
        )

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Read the fast tokenizer of a folder, or None if it is damaged, or transformers might read
        it differently.
        """
        try:
            written = read_object(folder / CONFIG)
            return cls(Tokenizer.from_file(str(folder / FILE)), written)
        except (
            BaseException
        ) as error:  # tokenizers raises nothing narrower; transformers then names the problem
            if not isinstance(error, Exception) and not is_panic(error):
                raise
            return None

    def save_pretrained(self, folder: Path) -> None:
        """Write both files. Raises OSError."""
        make_folder(folder)
        write_text(folder / FILE, self.backend_tokenizer.to_str(pretty=True))
        write_text(folder / CONFIG, json.dumps(self._written, indent=2, ensure_ascii=False) + "\n")

    @property
    def all_special_ids(self) -> list[int]:
        return [self.convert_tokens_to_ids(token) for token in self._special]

    def get_vocab(self) -> dict[str, int]:
        return self.backend_tokenizer.get_vocab()

    def convert_tokens_to_ids(self, token: str) -> Any:
        """Return the id of a word piece, or of the unknown token."""
        token_id = self.backend_tokenizer.token_to_id(token)
        return self.unk_token_id if token_id is None else token_id

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str | None]:
        return [self.backend_tokenizer.id_to_token(token_id) for token_id in ids]

    def tokenize(self, text: str) -> list[str]:
        """Return the word pieces of a text, in which special tokens are recognised."""
        (encoding,) = encodings(self, [text], special=True)
        return encoding.tokens


def encodings(tokenizer: Any, texts: Sequence[str], special: bool = False) -> list[Encoding]:
    """Return the word pieces of each text, without added special tokens; `special`: recognise those
    in the text.
    """
    inner: Tokenizer = tokenizer.backend_tokenizer
    inner.no_truncation()
    inner.no_padding()
    inner.encode_special_tokens = not special
    try:
        return inner.encode_batch(list(texts), add_special_tokens=False)
    except BaseException as error:  # tokenizers raises nothing narrower
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        reason = f"the model's tokenizer cannot read a text ({first_line(error)[:100]})"
        raise ModelError(f"{reason}: use another model") from None


def is_panic(error: BaseException) -> bool:
    """Whether an error is a fault that a library in Rust did not expect; it is no `Exception`, and
    ends threads.
    """
    return type(error).__name__ == "PanicException"


def _content(token: Any) -> str | None:
    """Return the text of a special token, which may be written with its settings, or None for
    anything else.
    """
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else None


def is_cased(tokenizer: Any) -> bool:
    return bool(tokenizer.tokenize("Paris USA") != tokenizer.tokenize("paris usa"))


def usual_forms(texts: Iterable[str]) -> Forms:
    """Return the most frequent form of every word; of equally frequent forms, the first by code
    points.

    >>> usual_forms(["The city of Warsaw. Warsaw is in Poland, the USA is not."])
    {'warsaw': 'Warsaw', 'poland': 'Poland', 'usa': 'USA'}
    """
    counts: dict[str, Counter[str]] = {}
    for text in texts:
        for match in WORD.finditer(text):
            if not opens_sentence(text, match.start()):
                counts.setdefault(match[0].lower(), Counter())[match[0]] += 1
    usual = {
        word: min(forms, key=lambda form: (-forms[form], form)) for word, forms in counts.items()
    }
    return {word: form for word, form in usual.items() if form != word}


def opens_sentence(text: str, start: int) -> bool:
    """Whether the word that starts at a character is the first of a sentence."""
    # A few quotes and blanks may come between.
    return SENTENCE_END.search(text, max(0, start - 8), start) is not None


def truecased(text: str, forms: Forms) -> str:
    """Restore the capitals of a text that has none; any other text is returned unchanged.

    >>> truecased("where is warsaw", {"warsaw": "Warsaw"})
    'where is Warsaw'
    """
    if text != text.lower():
        return text
    return WORD.sub(lambda match: forms.get(match[0], match[0]), text)


@dataclass(frozen=True, slots=True)
class WindowShape:
    """Lengths in tokens; `length` counts the whole window, special tokens included.

    `title_segment`: the segment that the title is marked with; the original code marks it as it
    marks the paragraph.
    """

    length: Annotated[int, Meta(le=2**20)] = 256
    overlap: int = 64
    max_title: Annotated[int, Meta(ge=0)] = 10
    title_segment: Annotated[int, Meta(ge=0, le=1)] = 0

    def __post_init__(self) -> None:
        room = self.length - self.max_title - 3  # [CLS] title [SEP] … [SEP]
        if not 0 <= self.overlap < room:
            raise ValueError(
                f"overlap is {self.overlap}, must be from 0 to {room - 1} in windows of "
                f"{self.length} tokens with {self.max_title} for the title"
            )


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of one paragraph. Arrays have shape (tokens,).

    `starts` and `ends` are the characters [start, end) of the word that a token belongs to, so that
    phrases never begin or end inside a word.
    """

    ids: list[int]
    starts: Positions
    ends: Positions


@dataclass(frozen=True, slots=True)
class Window:
    """The tokens that the encoder reads, `ids`; the window owns ids[first : first + count]."""

    ids: list[int]
    segments: list[int]  # 0 = title (or, in the windows of a reader, the question), 1 = paragraph
    first: int
    count: int
    position: int  # position of the first token that it owns, within the paragraph


def tokenize(tokenizer: Any, texts: Sequence[str]) -> list[Tokens]:
    """Return the word pieces of each text, with the characters of their words."""
    encoded = encodings(tokenizer, texts)
    ids = [encoding.ids for encoding in encoded]
    bounds = np.cumsum([0, *map(len, ids)])
    numbers = chain.from_iterable(chain.from_iterable(encoding.offsets for encoding in encoded))
    offsets = np.fromiter(numbers, np.uint32, 2 * int(bounds[-1])).reshape(-1, 2)

    for text, (begin, stop) in zip(texts, pairwise(bounds), strict=True):
        # A tokenizer may strip combining marks, which belong to no piece.
        if not text.isascii() and _has_marks(text):
            own = offsets[begin:stop]
            limits = [*own[1:, 0].tolist(), len(text)]
            own[:, 1] = [
                _after_marks(text, *places)
                for places in zip(own[:, 1].tolist(), limits, strict=False)
            ]

    # NaN: none.
    words = np.array(
        list(chain.from_iterable(encoding.word_ids for encoding in encoded)), np.float64
    )
    starts, ends = _of_whole_words(offsets, _continues(texts, bounds, offsets, words))

    return [
        Tokens(pieces, starts[begin:stop], ends[begin:stop])
        for pieces, (begin, stop) in zip(ids, pairwise(bounds), strict=True)
    ]


def _continues(texts: Sequence[str], bounds: Rows, offsets: Positions, words: Doubles) -> Bools:
    """Whether a piece goes on with the word of the piece before it, in the text, too. Shape:
    (tokens,).
    """
    follows = np.zeros(len(offsets), bool)
    follows[1:] = (words[1:] == words[:-1]) & (offsets[1:, 0] == offsets[:-1, 1])
    follows[bounds[:-1][bounds[:-1] < len(follows)]] = False  # the first of a text
    places = np.flatnonzero(follows)
    text_of = (bounds.searchsorted(places, side="right") - 1).tolist()
    cuts = offsets[places, 0].tolist()
    follows[places] = [
        _inside_word(texts[number], cut) for number, cut in zip(text_of, cuts, strict=True)
    ]
    return follows


def _of_whole_words(offsets: Positions, follows: Bools) -> tuple[Positions, Positions]:
    """Return the first and last character of each piece's word; `follows`: if it continues one.
    Shapes: (tokens,).
    """
    places = np.arange(len(offsets))
    starts = offsets[np.maximum.accumulate(np.where(follows, 0, places)), 0]
    # The next piece begins where its word does.
    is_last = np.append(starts[1:] >= offsets[1:, 0], True)[: len(places)]
    last = np.minimum.accumulate(np.where(is_last, places, len(places))[::-1])[::-1]
    return starts, offsets[last, 1]


def _has_marks(text: str) -> bool:
    return any(unicodedata.category(letter)[0] == "M" for letter in set(text) if letter > "\x7f")


def _after_marks(text: str, end: int, limit: int) -> int:
    """Return the end of the letter before `end`, its combining marks included."""
    while end < limit and unicodedata.category(text[end])[0] == "M":
        end += 1
    return end


def _inside_word(text: str, cut: int) -> bool:
    """Whether characters cut-1 and cut belong to one word; for some tokenizers, words include
    punctuation.
    """
    if not 0 < cut < len(text):
        return False
    both = text[cut - 1 : cut + 1]
    return both.isalnum() or all(unicodedata.category(letter)[0] in "LMN" for letter in both)


def token_span(tokens: Tokens, start: int, end: int) -> tuple[int, int]:
    """Return the first and last token of the words that hold characters [start, end)."""
    first = int(np.searchsorted(tokens.ends, start, side="right"))
    last = int(np.searchsorted(tokens.starts, end, side="left")) - 1
    limit = len(tokens.ids) - 1
    return min(first, limit), min(max(last, first), limit)


def windows(
    tokenizer: Any, title: list[int], paragraph: Tokens, shape: WindowShape
) -> list[Window]:
    """Cut a paragraph into windows; title tokens beyond `shape.max_title` are left out."""
    head = [tokenizer.cls_token_id, *title[: shape.max_title], tokenizer.sep_token_id]
    return cut(
        head,
        paragraph.ids,
        tokenizer.sep_token_id,
        shape.length,
        shape.overlap,
        shape.title_segment,
    )


def cut(
    head: list[int],
    paragraph: list[int],
    separator: int,
    length: int,
    overlap: int,
    head_segment: int = 0,
) -> list[Window]:
    """Make windows of at most `length` tokens: `head`, a stretch of the paragraph, `separator`."""
    room = length - len(head) - 1
    cut_windows = []
    for begin, own_from, own_to in stretches(len(paragraph), room, overlap):
        body = [*paragraph[begin : begin + room], separator]
        segments = [head_segment] * len(head) + [1] * len(body)
        first = len(head) + own_from - begin
        cut_windows.append(Window(head + body, segments, first, own_to - own_from, own_from))
    return cut_windows


def stretches(tokens: int, room: int, overlap: int) -> list[tuple[int, int, int]]:
    """Return (first token read, first token owned, last token owned + 1) of each window; the last
    reads to the end.

    >>> stretches(10, room=6, overlap=2)
    [(0, 0, 5), (4, 5, 10)]
    """
    begins = [0]
    while begins[-1] + room < tokens:
        begins.append(min(begins[-1] + room - overlap, tokens - room))
    seams = [begin + (previous + room - begin) // 2 for previous, begin in pairwise(begins)]
    if tokens:
        return list(zip(begins, [0, *seams], [*seams, tokens], strict=True))
    return []
