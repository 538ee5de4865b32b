"""Language: pages pass as they are, and other languages than English are named once."""

import pytest

from kbq.corpus.pages import Page
from kbq.corpus.readers import read_corpus
from kbq.maintain.build import NOT_ENGLISH, noting_language
from kbq.sample_kb import ARTICLES

GERMAN = (
    "Die Brücke über den Fluss wurde im Jahr 1851 gebaut und steht noch heute in der Stadt. " * 20
)
JAPANESE = "この 橋 は 1851 年 に 建設 された 。" * 40


@pytest.mark.parametrize("text", [GERMAN, JAPANESE, f"{GERMAN}The end of the story is here."])
@pytest.mark.parametrize("count", [1, 300])
def test_other_languages_are_named_once(text: str, count: int) -> None:
    said: list[str] = []
    pages = [Page(str(number), "T", [text]) for number in range(count)]
    assert list(noting_language(pages, said.append)) == pages
    assert said == [NOT_ENGLISH]


@pytest.mark.parametrize(
    "text",
    ["", "Ja.", "1 2 3", "The bridge of the town was built in 1851 and is still there. " * 30],
)
def test_english_and_too_little_text_are_not(text: str) -> None:
    said: list[str] = []
    list(noting_language([Page("1", "T", [text])], said.append))
    list(noting_language([], said.append))
    list(noting_language(read_corpus(ARTICLES), said.append))
    assert said == []
