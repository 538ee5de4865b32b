"""Make a corpus of KnowledgeNet's last fold, which neither judge nor calibration has seen, and a
table of its facts.

    python recipes/prepare_knowledgenet.py FACTS.jsonl.xz OUT

OUT becomes a folder. corpus.jsonl has a page for each document, with the passages that are
annotated as its paragraphs. A page is called like its subject, the one that most of its facts are
about; `silent` has, for each paragraph, the relations that it was annotated not to state.
gold.jsonl has triples: a subject is called by its longest name in its document, objects come with
all of theirs. A subject that is a pronoun, and nothing else, is the only subject that the document
names, or is left out. A relation that a document was annotated not to state, and that it states
nowhere else, has no object, for each of its subjects.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from prepare_judging import TEST_FOLD
from prepare_slots import KNOWLEDGENET_NAMES, PRONOUNS, json_lines, write_lines

MORE_PRONOUNS = {
    "which", "that", "whom", "whose", "me", "us", "himself", "herself", "itself", "themselves",
}  # fmt: skip
Fact = Mapping[str, Any]


def is_name(text: str | None) -> bool:
    return bool(text) and str(text).lower() not in PRONOUNS | MORE_PRONOUNS


class Document:
    """The facts of one document, in which one Q-number, or one text without one, is one thing."""

    def __init__(self, identity: str, facts: Sequence[Fact]) -> None:
        self.id, self.facts = identity, facts
        starts = {fact["passage"]: int(fact["passage_start"]) for fact in facts}
        self.passages = sorted(starts, key=starts.__getitem__)
        names: dict[str, set[str]] = defaultdict(set)
        for fact in facts:
            for side in ("subject", "object"):
                if is_name(fact[side]):
                    names[fact[f"{side}_qid"] or fact[side]].add(fact[side])
        self._names = {
            thing: sorted(several, key=lambda name: (-len(name), name))
            for thing, several in names.items()
        }

    def names(self, fact: Fact, side: str) -> list[str]:
        """Return the names of a side, the longest first; none where it has only pronouns."""
        return self._names.get(fact[f"{side}_qid"] or fact[side], [])

    @property
    def subjects(self) -> Counter[str]:
        """Count the facts about each subject."""
        return Counter(
            names[0]
            for fact in self.facts
            if fact["object"] and (names := self.names(fact, "subject"))
        )

    def page(self) -> dict[str, object]:
        silent: dict[str, list[str]] = {text: [] for text in self.passages}
        for fact in self.facts:
            if not fact["object"]:
                silent[fact["passage"]].append(KNOWLEDGENET_NAMES[fact["property"]])
        title = next((name for name, _ in self.subjects.most_common(1)), "")
        return {
            "id": self.id,
            "title": title,
            "paragraphs": list(silent),
            "silent": list(silent.values()),
        }

    def triples(self) -> Iterator[tuple[str, str, str, list[str]]]:
        """Yield page, subject, relation and the names of an object."""
        only = list(self.subjects) if len(self.subjects) == 1 else []
        for fact in self.facts:
            subject, value = self.names(fact, "subject")[:1] or only, self.names(fact, "object")
            if fact["object"] and subject and value:
                yield self.id, subject[0], KNOWLEDGENET_NAMES[fact["property"]], value

    def unstated(self) -> Iterator[tuple[str, str]]:
        """Yield subjects with each relation that the document does not state of anything."""
        stated = {fact["property"] for fact in self.facts if fact["object"]}
        for name in sorted({fact["property"] for fact in self.facts} - stated):
            for subject in sorted(self.subjects):
                yield subject, KNOWLEDGENET_NAMES[name]


def gold(documents: Sequence[Document]) -> Iterator[dict[str, object]]:
    seen = set()
    for page, subject, relation, names in (
        triple for document in documents for triple in document.triples()
    ):
        seen.add((subject, relation))
        yield {
            "subject": subject,
            "relation": relation,
            "object": names[0],
            "aliases": names[1:],
            "page": page,
        }
    for subject, relation in dict.fromkeys(
        slot for document in documents for slot in document.unstated()
    ):
        if (subject, relation) not in seen:
            yield {"subject": subject, "relation": relation, "object": ""}


def main(facts: Path, out: Path) -> None:
    by_document: dict[str, list[Fact]] = defaultdict(list)
    for fact in json_lines(facts):
        if fact["fold"] == TEST_FOLD:
            by_document[fact["doc"]].append(fact)
    documents = [Document(identity, several) for identity, several in sorted(by_document.items())]
    out.mkdir(parents=True, exist_ok=True)
    write_lines(out / "corpus.jsonl", (document.page() for document in documents))
    write_lines(out / "gold.jsonl", gold(documents))
    stated = sum(bool(fact["object"]) for document in documents for fact in document.facts)
    kept = sum(1 for document in documents for _ in document.triples())
    print(
        f"{len(documents)} documents, {stated} facts, {stated - kept} of them about pronouns "
        "whose names are not known"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
