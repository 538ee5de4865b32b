"""Reconciliation: count the names that OpenRefine would match, rightly and wrongly, and the cells
of new columns.

    python benchmarks/reconciliation.py SAMPLE GOLD.jsonl LARGE [--names 2000]

Names are titles and variants of them, sent to `kbq serve` as OpenRefine sends them: ten at a time,
one request after another. A name is matched wrongly if the service is certain of another page. Then
each name is asked as if its page were not there, so any match is wrong. GOLD has slots of SAMPLE.
"""

import json
import random
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import httpx2
import reporting
from measuring import arguments
from service import Service, serving

from kbq.kb import KnowledgeBase
from kbq.serve.titles import edits, words_of
from kbq.tables.tables import read_table
from kbq.text.normal_forms import normalised
from kbq.text.queries import slot_of

SEED, TOGETHER = 7, 10
CERTAIN = 95  # score of a title that has the words of the name, and no others
COLUMNS = ("place of birth", "date of birth", "place of death")
Document = dict[str, Any]


def main() -> None:
    options = arguments(__doc__, sample=Path, gold=Path, large=Path, names=2000)
    with serving(
        f"sample={options.sample}", f"large={options.large}", "--device", "cpu"
    ) as service:
        sample, large = (Reconciliation(service, name) for name in ("sample", "large"))
        kbs = KnowledgeBase.open(options.sample), KnowledgeBase.open(options.large)
        titles, all_titles = ({page.page_id: page.title for page in kb.pages()} for kb in kbs)
        some = random.Random(SEED).sample(sorted(all_titles), options.names)
        figures = {
            "sample": {"pages": len(titles), "names": matched(sample, titles)},
            "large": {
                "pages": len(all_titles),
                "one letter from another": alike(all_titles.values()),
                "names": matched(large, {page_id: all_titles[page_id] for page_id in some}),
            },
            "session": session(sample, dict(islice(titles.items(), 100))),
            "cells of known value": known_cells(sample, options.gold, titles),
        }
    reporting.write("reconciliation", figures, [options.sample, options.gold, options.large], SEED)


class Reconciliation:
    """A client that asks as OpenRefine does."""

    def __init__(self, service: Service, kb: str) -> None:
        self._client = httpx2.Client(
            base_url=f"http://127.0.0.1:{service.port}/reconcile/kb/{kb}", timeout=60
        )
        self.cpu_seconds = service.cpu_seconds

    def candidates(self, names: Sequence[str]) -> list[list[Document]]:
        """Return the candidates of each name, best first."""
        found: list[list[Document]] = []
        for part in batched(names):
            queries = {f"q{number}": {"query": name} for number, name in enumerate(part)}
            found += [one["result"] for one in self._sent("queries", queries).values()]
        return found

    def cells(
        self, ids: Sequence[str], columns: Sequence[str]
    ) -> dict[str, dict[str, list[Document]]]:
        """Return cells by page and column."""
        rows: dict[str, dict[str, list[Document]]] = {}
        for part in batched(ids):
            rows |= self._sent(
                "extend", {"ids": part, "properties": [{"id": column} for column in columns]}
            )["rows"]
        return rows

    def _sent(self, field: str, document: Document) -> Document:
        answer = self._client.post("", data={field: json.dumps(document)})
        answer.raise_for_status()
        return answer.json()


def batched(items: Sequence[str]) -> Iterator[Sequence[str]]:
    return (items[first : first + TOGETHER] for first in range(0, len(items), TOGETHER))


# Names


def without_accents(title: str) -> str:
    return "".join(
        letter
        for letter in unicodedata.normalize("NFKD", title)
        if not unicodedata.combining(letter)
    )


def surname_first(title: str) -> str:
    first, _, last = title.rpartition(" ")
    return f"{last}, {first}" if first else title


def mistyped(title: str) -> str:
    """Leave out, double or replace a letter within a word of four letters or more, or swap it with
    the next.
    """
    source = random.Random(f"{SEED} {title}")
    places = [
        at
        for word in re.finditer(r"[^\W\d_]{4,}", title)
        for at in range(word.start() + 1, word.end() - 1)
    ]
    if not places:
        return title
    at = source.choice(places)
    one, two = title[at], title[at + 1]
    typed = source.choice([two, one * 2 + two, source.choice(ascii_lowercase) + two, two + one])
    return title[:at] + typed + title[at + 2 :]


VARIANTS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "in lower case": str.lower,
    "in capitals": str.upper,
    "without accents": without_accents,
    "last word first": surname_first,
    "one letter mistyped": mistyped,
}


def matched(service: Reconciliation, titles: Mapping[str, str]) -> Document:
    """Count the matched names of each kind, leaving out titles that the variant does not change."""
    found: Document = {}
    for kind, variant in VARIANTS.items():
        names = {page_id: variant(title) for page_id, title in titles.items()}
        names = {
            page_id: name
            for page_id, name in names.items()
            if variant is str or name != titles[page_id]
        }
        found[kind] = counts(
            dict(zip(names, service.candidates(list(names.values())), strict=True))
        )
    return found


def counts(candidates: Mapping[str, Sequence[Document]]) -> Document:
    """Count outcomes, given the candidates of each name by the id of the page that is meant."""
    firsts = {page_id: each[0] for page_id, each in candidates.items() if each}
    certain = {page_id: first for page_id, first in firsts.items() if first["match"]}
    absent = {
        page_id: [one for one in each if one["id"] != page_id]
        for page_id, each in candidates.items()
    }
    return {
        "names": len(candidates),
        "matched rightly": sum(first["id"] == page_id for page_id, first in certain.items()),
        "matched wrongly": sum(first["id"] != page_id for page_id, first in certain.items()),
        "first candidate right": sum(first["id"] == page_id for page_id, first in firsts.items()),
        "among the candidates": sum(
            page_id in [one["id"] for one in each] for page_id, each in candidates.items()
        ),
        "matched wrongly without the page": sum(map(is_certain, absent.values())),
    }


def is_certain(candidates: Sequence[Document]) -> bool:
    """Return whether the first candidate would be matched."""
    scores = [one["score"] for one in candidates[:2]]
    return scores[:1] >= [CERTAIN] and scores[1:] < scores[:1]


def alike(titles: Iterable[str]) -> int:
    """Count titles that one typing error in one word turns into another title, so that either could
    be meant.
    """
    words = {tuple(sorted(words_of(title))) for title in titles}
    return sum(any(other in words for other in mistakes(one)) for one in words)


def mistakes(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for place, word in enumerate(words):
        for typed in edits(word) if word.isalpha() else ():
            yield tuple(sorted((*words[:place], typed, *words[place + 1 :])))


# Columns


def session(service: Reconciliation, titles: Mapping[str, str]) -> Document:
    """Measure what it costs to reconcile names and to add three columns."""
    begun = service.cpu_seconds()
    service.candidates(list(titles.values()))
    service.cells(list(titles), COLUMNS)
    return {
        "names": len(titles),
        "columns": list(COLUMNS),
        "CPU seconds": round(service.cpu_seconds() - begun, 2),
    }


def known_cells(service: Reconciliation, gold: Path, titles: Mapping[str, str]) -> Document:
    """Count how many cells of known value are filled, and rightly."""
    # By relation and page.
    values: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    ids = {title: page_id for page_id, title in titles.items()}
    for record in read_table(gold).rows:
        subject, relation = slot_of(record["input"]) or ("", "")
        if subject in ids:  # other subjects have no page
            answers = (output["answer"] for output in record["output"] if "answer" in output)
            values[relation][ids[subject]] |= set(map(normalised, answers))
    found = {"cells": sum(map(len, values.values())), "filled": 0, "right": 0}
    for relation, known in values.items():
        for page_id, row in service.cells(list(known), [relation]).items():
            for value in row[relation]:
                found["filled"] += 1
                found["right"] += normalised(value.get("name") or value["str"]) in known[page_id]
    return found


if __name__ == "__main__":
    main()
