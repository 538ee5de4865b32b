"""Glossary: each word has one meaning, each class one name, and words that were replaced do not
come back.
"""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "kbq").rglob("*.py"))
GLOSSARY = (ROOT / "docs" / "explanation" / "glossary.md").read_text("utf-8")
ENTRIES = re.findall(r"^(\S.*)\n:   ", GLOSSARY, re.MULTILINE)
# What was called otherwise, with the files that must know the old name.
REPLACED = {
    r"second[ _-]looks?": {
        "answers.py",
        "application.py",
        "plan.py",
        "probability.py",
        "calibrate.py",
    },
    r"\bcrews?\b": {"triples.py"},  # of a ship
    r"\bhir(?:e|es|ed|ing)\b": set(),
    r"\bdescent\b": set(),
    r"\bkeepers?\b": set(),
    r"is_apart|states_apart": set(),
    r"\bdev exams?\b": set(),
}
MANY = {"Codes", "Queries"}  # classes of one name in two places, until one of them is renamed


def test_each_word_has_one_entry() -> None:
    assert len(ENTRIES) > 60
    assert sorted(ENTRIES) == sorted(set(ENTRIES))


@pytest.mark.parametrize("pattern", REPLACED)
def test_a_word_that_was_replaced_is_not_used(pattern: str) -> None:
    found = {
        path.name for path in FILES if re.search(pattern, path.read_text("utf-8"), re.IGNORECASE)
    }
    assert found <= REPLACED[pattern]


def test_each_class_has_a_name_of_its_own() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in FILES:
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(path.relative_to(ROOT).as_posix())
    assert {
        name: found for name, found in places.items() if len(found) > 1 and name not in MANY
    } == {}


def test_words_of_the_glossary_are_used() -> None:
    texts = " ".join(
        path.read_text("utf-8") for path in [*FILES, *(ROOT / "docs").rglob("*.md")]
    ).lower()
    texts = texts.replace(GLOSSARY.lower(), "")
    unused = [
        word
        for word in ENTRIES
        if re.sub(r" \(.*\)", "", word).lower().removeprefix("to ") not in texts
    ]
    assert unused == []
