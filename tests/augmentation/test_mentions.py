"""Mentions: names and numbers as they are written, or what spaCy finds."""

import sys
from types import SimpleNamespace

import pytest

from kbq.augmentation.augment import entity_finder, written_mentions
from kbq.errors import TrainingError


@pytest.mark.parametrize(
    ("text", "mentions"),
    [
        ("", []),
        ("nothing here", []),
        ("She was born in Warsaw.", ["Warsaw"]),
        ("Warsaw is a city. She left Warsaw.", ["Warsaw", "Warsaw"]),
        ("Born in Łódź, on 7 November 1867.", ["Łódź", "7 November 1867"]),
        ("the Duke of York and Jean-Luc Picard", ["Duke of York", "Jean-Luc Picard"]),
        ("Marie Curie was first.", ["Marie Curie"]),
        ("In 1903 she won; Paris, France cheered.", ["1903", "Paris", "France"]),
        ("1903 was good.", ["1903"]),
        ('He said: "Never." Then Ann O\'Neill left.', ["Ann O'Neill"]),
        ("some 1,234 people and 3.5 km", ["1,234", "3.5"]),
    ],
)
def test_written_mentions(text: str, mentions: list[str]) -> None:
    assert [text[start:end] for start, end in written_mentions(text)] == mentions


def test_spacy_finds_entities(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> object:
        if name != "xx_small":
            raise OSError
        return lambda text: SimpleNamespace(
            ents=[SimpleNamespace(start_char=3, end_char=len(text))]
        )

    monkeypatch.setitem(sys.modules, "spacy", SimpleNamespace(load=load))
    assert entity_finder("xx_small")("in Warsaw") == [(3, 9)]
    with pytest.raises(
        TrainingError, match="spaCy has no pipeline other: python -m spacy download other"
    ):
        entity_finder("other")


def test_without_spacy_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(
        TrainingError, match=r"need spaCy: pip install spacy, or leave out entities=…"
    ):
        entity_finder("en_core_web_sm")


def test_a_name_keeps_its_marks() -> None:
    text = "They ruled from Ọ\u0300yọ\u0301 in the west."
    assert [text[start:end] for start, end in written_mentions(text)] == ["Ọ\u0300yọ\u0301"]
