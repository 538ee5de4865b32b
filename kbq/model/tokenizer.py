"""Tokenizer: split texts into word pieces with character offsets; restore capitals in lower-case queries.

`tokenizer.json` is read without transformers, whose import takes seconds. `FastTokenizer` has the part of the interface
of transformers' tokenizers that kbq uses, so that either can be used.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tokenizers import Encoding, Tokenizer

from kbq.errors import ModelError, first_line
from kbq.storage.records import read_object
from kbq.storage.writing import make_folder, write_text

Forms = Mapping[str, str]  # word in lower case → its most frequent form, if that differs
WORD = re.compile(r"\w+(?:['’]\w+)*")
SENTENCE_END = re.compile(r"(?:^|[.!?:•\n][\"'”’)\]]*)\s*[\"'“‘(\[]*$")
CONFIG, FILE = "tokenizer_config.json", "tokenizer.json"
BERT: dict[str, Any] = {
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "mask_token": "[MASK]",
    "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
}
OTHERS: dict[str, Any] = {"model_input_names": ["input_ids", "attention_mask"]}
DEFAULTS = {  # the classes that use tokenizer.json as it is, and the defaults of their configuration
    "BertTokenizer": BERT,
    "BertTokenizerFast": BERT,
    "PreTrainedTokenizerFast": OTHERS,
    "TokenizersBackend": OTHERS,
}


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
        others = [_content(token) for token in (others.values() if isinstance(others, dict) else others)]
        self._special = [token for token in dict.fromkeys([*named.values(), *others]) if token is not None]
        self.sep_token = named.get("sep_token")
        self.cls_token_id, self.sep_token_id, self.pad_token_id, self.unk_token_id = (
            inner.token_to_id(named.get(name) or "") for name in ("cls_token", "sep_token", "pad_token", "unk_token")
        )

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Read the fast tokenizer of a folder, or None if it is damaged, or transformers might read it differently."""
        try:
            written = read_object(folder / CONFIG)
            return cls(Tokenizer.from_file(str(folder / FILE)), written)
        except BaseException as error:  # tokenizers raises nothing narrower; transformers then names the problem
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
        """The ids of the special tokens."""
        return [self.convert_tokens_to_ids(token) for token in self._special]

    def get_vocab(self) -> dict[str, int]:
        """Return the id of every word piece."""
        return self.backend_tokenizer.get_vocab()

    def convert_tokens_to_ids(self, token: str) -> Any:
        """Return the id of a word piece, or of the unknown token."""
        token_id = self.backend_tokenizer.token_to_id(token)
        return self.unk_token_id if token_id is None else token_id

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str | None]:
        """Return the word pieces of these ids."""
        return [self.backend_tokenizer.id_to_token(token_id) for token_id in ids]

    def tokenize(self, text: str) -> list[str]:
        """Return the word pieces of a text, in which special tokens are recognised."""
        (encoding,) = encodings(self, [text], special=True)
        return encoding.tokens


def encodings(tokenizer: Any, texts: Sequence[str], special: bool = False) -> list[Encoding]:
    """Return the word pieces of each text, without added special tokens; `special`: recognise those in the text."""
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
    """Whether an error is a fault that a library in Rust did not expect; it is no `Exception`, and ends threads."""
    return type(error).__name__ == "PanicException"


def _content(token: Any) -> str | None:
    """Return the text of a special token, which may be written with its settings, or None for anything else."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else None


def is_cased(tokenizer: Any) -> bool:
    """Whether a tokenizer distinguishes upper and lower case."""
    return bool(tokenizer.tokenize("Paris USA") != tokenizer.tokenize("paris usa"))


def usual_forms(texts: Iterable[str]) -> Forms:
    """Return the most frequent form of every word; of equally frequent forms, the first by code points.

    >>> usual_forms(["The city of Warsaw. Warsaw is in Poland, the USA is not."])
    {'warsaw': 'Warsaw', 'poland': 'Poland', 'usa': 'USA'}
    """
    counts: dict[str, Counter[str]] = {}
    for text in texts:
        for match in WORD.finditer(text):
            if not opens_sentence(text, match.start()):
                counts.setdefault(match[0].lower(), Counter())[match[0]] += 1
    usual = {word: min(forms, key=lambda form: (-forms[form], form)) for word, forms in counts.items()}
    return {word: form for word, form in usual.items() if form != word}


def opens_sentence(text: str, start: int) -> bool:
    """Whether the word that starts at a character is the first of a sentence."""
    return SENTENCE_END.search(text, max(0, start - 8), start) is not None  # a few quotes and blanks may come between


def truecased(text: str, forms: Forms) -> str:
    """Restore the capitals of a text that has none; any other text is returned unchanged.

    >>> truecased("where is warsaw", {"warsaw": "Warsaw"})
    'where is Warsaw'
    """
    if text != text.lower():
        return text
    return WORD.sub(lambda match: forms.get(match[0], match[0]), text)
