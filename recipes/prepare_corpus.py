"""Select text to ask new questions about: paragraphs of DATA/wiki that no training or dev set asks
about.

    python recipes/prepare_corpus.py DATA OUT.jsonl

Left out are pages of SQuAD dev and the held-out pages of Re-DocRED, paragraphs of SQuAD train and
NQ, which have questions of people, and paragraphs of fewer than 40 words. The order is random: a
part of the file is a sample.
"""

import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from prepare_slots import held_out, json_lines, write_lines

WORDS = 40
CHARACTERS = 80  # letters and digits at its beginning tell a paragraph from others


def beginning(text: str) -> str:
    return re.sub(r"\W+", "", text).lower()[:CHARACTERS]


def squad_articles(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield title and paragraphs of each article."""
    for article in next(json_lines(path))["data"]:
        yield (
            article["title"].replace("_", " "),
            [paragraph["context"] for paragraph in article["paragraphs"]],
        )


def main() -> None:
    data, out = map(Path, sys.argv[1:])
    dev = list(squad_articles(data / "squad" / "dev-v1.1.json.xz"))
    dev_titles = {title.lower() for title, _ in dev}
    dev_texts = {beginning(text) for _, texts in dev for text in texts}
    asked = {
        beginning(text)
        for _, texts in squad_articles(data / "squad" / "train-v1.1.json.xz")
        for text in texts
    }
    asked |= {
        beginning(example["paragraph_text"])
        for example in json_lines(data / "nq" / "qed-train.jsonl.xz")
    }
    found: list[tuple[str, str]] = []
    for page in json_lines(data / "wiki" / "knowledge_source.jsonl.xz"):
        title, texts = page["wikipedia_title"], page["text"][1:]
        marks = list(map(beginning, texts))
        if title.lower() in dev_titles or held_out(title) or not dev_texts.isdisjoint(marks):
            continue
        found += [
            (title, text)
            for text, mark in zip(texts, marks, strict=True)
            if mark not in asked and len(text.split()) >= WORDS
        ]
    random.Random(0).shuffle(found)
    pages = (
        {"id": str(number), "title": title, "paragraphs": [text]}
        for number, (title, text) in enumerate(found)
    )
    write_lines(out, pages)


if __name__ == "__main__":
    main()
