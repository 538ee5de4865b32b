"""Tokenizer: text becomes word pieces with the characters that they stand for.

A folder's `tokenizer.json` is read without transformers, whose import takes seconds; `FastTokenizer` has the part of
its tokenizers that kbq asks for, under the same names, so that either serves.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from tokenizers import Encoding, Tokenizer

CONFIG, FILE = "tokenizer_config.json", "tokenizer.json"
AS_WRITTEN = ("BertTokenizer", "BertTokenizerFast", "PreTrainedTokenizerFast", "TokenizersBackend")
SPECIAL = ("cls_token", "sep_token", "pad_token", "unk_token", "mask_token")


class FastTokenizer:
    """What a folder's `tokenizer.json` and `tokenizer_config.json` say."""

    is_fast = True

    def __init__(self, inner: Tokenizer, written: dict[str, Any]) -> None:
        """`written`: the configuration, for what is special, and to be saved again."""
        self.backend_tokenizer = inner
        self._written = written
        self.model_input_names: list[str] = written.get("model_input_names", ["input_ids", "token_type_ids"])
        self.cls_token, self.sep_token, self.pad_token, self.unk_token, self.mask_token = (
            _content(written.get(name)) for name in SPECIAL
        )
        self.cls_token_id, self.sep_token_id, self.pad_token_id, self.unk_token_id, self.mask_token_id = (
            None if token is None else inner.token_to_id(token)
            for token in (self.cls_token, self.sep_token, self.pad_token, self.unk_token, self.mask_token)
        )

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Of a folder that a fast tokenizer was saved in; None where transformers might read it otherwise, or not."""
        try:
            written = json.loads((folder / CONFIG).read_text("utf-8"))
            if written.get("tokenizer_class") not in AS_WRITTEN:
                return None
            return cls(Tokenizer.from_file(str(folder / FILE)), written)
        except Exception:  # of a damaged file tokenizers raises no narrower one; transformers then says what is wrong
            return None

    def save_pretrained(self, folder: Path) -> None:
        """Write both files. Raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / FILE).write_text(self.backend_tokenizer.to_str(pretty=True), "utf-8")
        (folder / CONFIG).write_text(json.dumps(self._written, indent=2, ensure_ascii=False) + "\n", "utf-8")

    @property
    def all_special_ids(self) -> list[int]:
        """Of every token that no text holds."""
        more = self._written.get("extra_special_tokens") or self._written.get("additional_special_tokens") or []
        tokens = [_content(self._written.get(name)) for name in SPECIAL]
        tokens += [_content(token) for token in (more.values() if isinstance(more, dict) else more)]
        return [self.convert_tokens_to_ids(token) for token in dict.fromkeys(tokens) if token is not None]

    def get_vocab(self) -> dict[str, int]:
        """Every word piece and its number."""
        return self.backend_tokenizer.get_vocab()

    def convert_tokens_to_ids(self, token: str) -> Any:
        """The number of a word piece, or that of the unknown one."""
        number = self.backend_tokenizer.token_to_id(token)
        return self.unk_token_id if number is None else number

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str | None]:
        """The word pieces of these numbers."""
        return [self.backend_tokenizer.id_to_token(number) for number in ids]

    def tokenize(self, text: str) -> list[str]:
        """The word pieces of a text, special tokens in it included."""
        (found,) = encodings(self, [text], special=True)
        return found.tokens


def encodings(tokenizer: Any, texts: Sequence[str], special: bool = False) -> list[Encoding]:
    """The word pieces of each text, with none around them; `special`: what looks like a special token is one."""
    inner: Tokenizer = tokenizer.backend_tokenizer
    inner.no_truncation()
    inner.no_padding()
    inner.encode_special_tokens = not special
    return inner.encode_batch(list(texts), add_special_tokens=False)


def _content(token: Any) -> str | None:
    """A special token as it is written, or with its settings."""
    found: str | None = token["content"] if isinstance(token, dict) else token
    return found
