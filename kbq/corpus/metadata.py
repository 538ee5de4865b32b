"""Metadata: the fields of a page that kbq does not read itself become JSON values that can be kept and printed."""

import json
import math
from collections.abc import Callable, Mapping

from kbq.errors import CorpusError
from kbq.storage.lines import clean_text

DEEPEST = 50  # lists and objects in one another
_WANTED = "write text, a finite number, true, false, null, a list or an object"


def clean_metadata(fields: Mapping[str, object]) -> dict[str, object]:
    """The fields with clean texts and names, inside lists and objects, too.

    Raises:
        CorpusError: a value is not JSON, or too deep, or two names are the same once they are clean.

    >>> clean_metadata({"url": "https://a.org/Cafe\u0301", "years": [1815, None]})
    {'url': 'https://a.org/Café', 'years': [1815, None]}
    """
    return _object(fields, "", clean_text)


def check_metadata(fields: Mapping[str, object]) -> None:
    """Refuse what `clean_metadata` refuses, and half of a character, in fields that are to be kept as they are."""
    _object(fields, "", _whole)


def _object(fields: Mapping[str, object], name: str, clean: Callable[[str], str], depth: int = 0) -> dict[str, object]:
    cleaned: dict[str, object] = {}
    for key, value in fields.items():
        if not isinstance(key, str):
            raise CorpusError(f"{name or 'metadata'} has the field {key!r:.40}: name it by a text")
        clean_key = clean(key)
        if clean_key in cleaned:
            raise CorpusError(f"{name or 'the page'} has two fields {clean_key!r:.40}: give each its own name")
        cleaned[clean_key] = _value(value, f"{name}.{clean_key}" if name else clean_key, clean, depth + 1)
    return cleaned


def _value(value: object, name: str, clean: Callable[[str], str], depth: int) -> object:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, float) and math.isfinite(value):
        return value
    if depth > DEEPEST and isinstance(value, list | dict):
        raise CorpusError(f"{name:.40}… is nested more than {DEEPEST} deep: write it flatter")
    if isinstance(value, list):
        return [_value(item, f"{name}[{number}]", clean, depth + 1) for number, item in enumerate(value)]
    if isinstance(value, dict):
        return _object(value, name, clean, depth)
    shown = json.dumps(value) if isinstance(value, float) else f"{value!r:.40}"
    raise CorpusError(f"{name} is {shown}: {_WANTED}")


def _whole(text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        found = text[error.start]
        raise CorpusError(f"metadata contains {found!r}, half of a character: leave it out") from None
    return text
