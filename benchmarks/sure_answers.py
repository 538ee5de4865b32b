"""Sure answers: give each annotated value as a certain answer, and count what the rules spoil.

    python benchmarks/sure_answers.py CORPUS CELLS.jsonl … [--name sure_answers]

CELLS are KILT lines whose `meta` has the page and all values of the cell, each with its forms;
CORPUS has the pages. No network is asked. The first place of each value on its page is decided on
as `kbq fill` does, for a cell of one value and for one of many: one of the cell's forms should come
out. A value is ruled out if it is so at every place where it stands.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import reporting
from measuring import arguments, records_of

from kbq.answers import Answer
from kbq.corpus.readers import read_corpus
from kbq.dump.page_directory import PageValue
from kbq.english.statements import is_ruled_out
from kbq.tables.deciding import Decider
from kbq.tables.options import Values
from kbq.tables.relations import Slot, relation_named
from kbq.tables.values import agree
from kbq.text.normal_forms import normalised
from kbq.text.queries import Query

CHANCE = 0.9
SHOWN = 12  # relations, those that lose most
KINDS: tuple[Values, ...] = ("one", "many")


class Titles:
    """The titles of a corpus, each of one page."""

    def __init__(self, corpus: Path) -> None:
        self.texts: dict[str, list[str]] = {}
        self._pages: dict[str, PageValue] = {}
        for page in read_corpus(str(corpus)):
            self.texts[page.page_id] = [paragraph.text for paragraph in page.paragraphs]
            self._pages.setdefault(normalised(page.title), PageValue(page.page_id, page.title))

    def page(self, text: str) -> PageValue | None:
        return self._pages.get(normalised(text))

    def pages(self, text: str) -> list[PageValue]:
        return [page for page in [self.page(text)] if page]


class Stated(NamedTuple):
    """A value of a cell with its places on the page, and the forms of all values of the cell."""

    subject: str
    relation: str
    places: list[Answer]
    forms: list[str]


def stated_values(cells: Sequence[dict[str, Any]], titles: Titles) -> Iterator[Stated]:
    for cell in cells:
        subject, relation = cell["input"].split(" [SEP] ")
        page = str(cell["meta"]["page"])
        every_form = [form for value in cell["meta"]["values"] for form in value]
        for value in cell["meta"]["values"]:
            places = list(places_of(value, page, titles.texts.get(page, [])))
            if places:
                yield Stated(subject, relation, places, every_form)


def places_of(forms: Sequence[str], page: str, texts: Sequence[str]) -> Iterator[Answer]:
    """Yield the places of a value, in the order of the text and of its forms."""
    for number, text in enumerate(texts):
        for form in forms:
            for found in re.finditer(rf"(?<!\w){re.escape(form)}(?!\w)", text):
                place = found.span()
                yield Answer(
                    form, 0.0, page, "", number, *place, text, (0, len(text)), {}, CHANCE
                )  # fmt: skip


def is_kept(value: Stated, decider: Decider, values: Values) -> bool:
    """Whether a form of the cell comes out of the first place of a value."""
    slot = Slot(value.subject, relation_named(value.relation, values))
    claims = decider.claims(slot, [value.places[:1]])
    accepted = [claim.value for claim in claims if claim.accepted]
    return any(agree(text, form, value.relation) for text in accepted for form in value.forms)


def main() -> None:
    options = arguments(__doc__, corpus=Path, cells=[Path], name="sure_answers")
    titles = Titles(options.corpus)
    decider = Decider(titles, 0.5, 0, {})  # type: ignore[arg-type]
    counts = Counter[str]()
    lost: dict[Values, Counter[str]] = {kind: Counter() for kind in KINDS}
    for path in options.cells:
        for value in stated_values(records_of(path), titles):
            counts[value.relation] += 1
            query = Query.of(f"{value.subject} [SEP] {value.relation}")
            counts["ruled out"] += all(is_ruled_out(query, place) for place in value.places)
            for kind in KINDS:
                lost[kind][value.relation] += not is_kept(value, decider, kind)
    ruled_out = counts.pop("ruled out")
    figures: dict[str, Any] = {"values": counts.total(), "ruled out": ruled_out}
    for kind, of_kind in lost.items():
        worst = {name: [count, counts[name]] for name, count in of_kind.most_common(SHOWN)}
        figures[f"cells of {kind}"] = {"lost": of_kind.total(), "by relation": worst}
    reporting.write(options.name, figures, [options.corpus, *options.cells])


if __name__ == "__main__":
    main()
