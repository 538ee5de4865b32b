"""Casing: how a word is mostly written, so that a query in lower case reads like the texts of a cased model.

The table is made from the passages that a model is trained on. Words that open a sentence do not count.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

Forms = Mapping[str, str]  # word in lower case → as it is mostly written, where that differs
WORD = re.compile(r"\w+(?:['’]\w+)*")
SENTENCE_END = re.compile(r"(?:^|[.!?:•\n][\"'”’)\]]*)\s*[\"'“‘(\[]*$")


def usual_forms(texts: Iterable[str]) -> Forms:
    """The most frequent form of every word; of equally frequent ones, the first in the alphabet of code points.

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


def opens_sentence(text: str, place: int) -> bool:
    """Whether the word at that place is the first one of a sentence."""
    return SENTENCE_END.search(text, max(0, place - 8), place) is not None  # only a few signs and blanks stand between


def truecased(text: str, forms: Forms) -> str:
    """Give a text without any capital letter its capitals; any other text stays as it is.

    >>> truecased("where is warsaw", {"warsaw": "Warsaw"})
    'where is Warsaw'
    """
    if text != text.lower():
        return text
    return WORD.sub(lambda match: forms.get(match[0], match[0]), text)


def is_cased(tokenizer: Any) -> bool:
    """Whether a tokenizer tells capitals from small letters."""
    return bool(tokenizer.tokenize("Paris USA") != tokenizer.tokenize("paris usa"))
