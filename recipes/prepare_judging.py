"""Make queries with known answers, to mine phrases for: KILT lines about the pages of DATA/wiki,
and about passages.

    python recipes/prepare_judging.py DATA OUT

OUT becomes a folder: wiki.jsonl asks the pages of DATA/wiki (questions of SQuAD and NQ, slot
queries of Re-DocRED), passages.jsonl asks OUT/corpus.jsonl (slot queries of FewRel, KnowledgeNet,
and sentences that say what their subject is). What a document of KnowledgeNet or a page of
Re-DocRED was annotated as not stating is asked, too: nothing is right there. Held-out pages of
Re-DocRED and the last fold of KnowledgeNet stay for tests. tables.jsonl has the cells of
DATA/tables to teach from, all that are stated and most that are not, some in other wordings of
known relations; its texts of other genres are pages of texts.jsonl. Queries of the other files are
marked as `is_kept`: a reader that judges already should go on saying of them what it says.
"""

import random
import sys
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from make_contrasts import made_texts
from prepare_slots import (
    KNOWLEDGENET_NAMES,
    PRONOUNS,
    Passages,
    fewrel,
    held_out,
    json_lines,
    kinds,
    knowledgenet,
    write_lines,
)
from usual_relations import TABLES, subjects

from kbq.tables.relations import known_relations

SQUAD_QUESTIONS = 36_000
MOST_OF_REDOCRED, MOST_OF_FEWREL = 300, 350  # of a relation
# Cells of persons, works and organisations; of places and events.
UNSAID, UNSAID_OF_OTHERS = (
    9_000,
    2_000,
)
UNSAID_OF_TABLES = 9_500  # cells that short pages of every kind do not state
UNSAID_BESIDE = 4_500  # cells of subjects beside the title
MADE = 140  # texts with traps from templates
TEXTS = ("styles", "contrast")  # files of DATA/tables whose lines are texts with their cells
REWORDED = 0.4  # of the cells of relations that `kbq fill` asks for in other words, too
TEST_FOLD = "4"

Record = dict[str, Any]


def record(
    identity: str, text: str, answers: Iterable[str] = (), page: str = "", title: str = ""
) -> Record:
    provenance = [{"wikipedia_id": page, "title": title}]
    outputs = [{"answer": answer, "provenance": provenance} for answer in dict.fromkeys(answers)]
    return {"id": identity, "input": text, "output": outputs or [{"answer": ""}]}


def relation(one: Record) -> str:
    return one["input"].split(" [SEP] ")[1]


def at_most(most: int, records: Iterable[Record], rng: random.Random) -> list[Record]:
    """Shuffle records, and keep so many of a relation."""
    shuffled = list(records)
    rng.shuffle(shuffled)
    counts: Counter[str] = Counter()
    kept = []
    for one in shuffled:
        counts[relation(one)] += 1
        if counts[relation(one)] <= most:
            kept.append(one)
    return kept


def squad(path: Path, ids: dict[str, str]) -> Iterator[Record]:
    for article in next(json_lines(path))["data"]:
        title = article["title"].replace("_", " ")
        for question in (
            question for paragraph in article["paragraphs"] for question in paragraph["qas"]
        ):
            if not any(one.get("start_inferred") for one in (question, *question["answers"])):
                answers = [answer["text"] for answer in question["answers"]]
                yield record(question["id"], question["question"], answers, ids[title], title)


def nq(path: Path, ids: dict[str, str]) -> Iterator[Record]:
    for line in json_lines(path):
        title = line["title_text"]
        if title in ids and any(line["answer_text"]):
            yield record(
                str(line["example_id"]),
                line["question_text"],
                line["answer_text"],
                ids[title],
                title,
            )


def redocred(path: Path) -> Iterator[Record]:
    for line in json_lines(path):
        titles = sorted(
            place["title"] for output in line["output"] for place in output.get("provenance", [])
        )
        if titles and not held_out(titles[0]):
            yield line


def unsaid(path: Path, rng: random.Random) -> Iterator[Record]:
    """Yield plausible cells that the pages of Re-DocRED do not state."""
    cells: dict[bool, list[Record]] = {True: [], False: []}
    for subject in subjects(json_lines(path), least=2):
        for name in [] if held_out(subject.page) else subject.unsaid():
            place = [{"wikipedia_id": subject.page_id, "title": subject.page}]
            asked = record(f"unsaid-{subject.name}-{name}", f"{subject.name} [SEP] {name}")
            cells[subject.kind in TABLES].append(
                asked | {"output": [{"answer": "", "provenance": place}]}
            )
    for is_of_tables, most in ((True, UNSAID), (False, UNSAID_OF_OTHERS)):
        yield from rng.sample(cells[is_of_tables], min(most, len(cells[is_of_tables])))


def slots(name: str, passages: Passages) -> Iterator[Record]:
    """Yield the questions of passages whose pages have the ids that `corpus` gives."""
    for number, ((title, _, _), questions) in enumerate(passages.items()):
        for place, asked in enumerate(questions):
            answers = [answer["text"] for answer in asked["answers"]]
            yield record(
                f"{name}-{number}-{place}", asked["question"], answers, f"{name}-{number}", title
            )


def corpus(name: str, passages: Passages) -> Iterator[Record]:
    for number, (title, text, _) in enumerate(passages):
        yield {"id": f"{name}-{number}", "title": title, "text": text}


def unstated(facts: list[Record]) -> Iterator[Record]:
    """Yield subject and property of each document that does not state the property; nor does any
    other.
    """
    subjects, stated, missing = defaultdict(set), defaultdict(set), defaultdict(set)
    known = set()
    for fact in facts:
        (stated if fact["object"] else missing)[fact["doc"]].add(fact["property"])
        if fact["subject"] and fact["subject"].lower() not in PRONOUNS:
            subjects[fact["doc"]].add(fact["subject"])
            known.add((fact["subject"], fact["property"]))
    tested = {fact["doc"] for fact in facts if fact["fold"] == TEST_FOLD}
    for document in sorted(missing.keys() - tested):
        for subject in sorted(subjects[document]):
            for name in sorted(missing[document] - stated[document]):
                if (subject, name) not in known:
                    yield record(
                        f"{document}-{subject}-{name}",
                        f"{subject} [SEP] {KNOWLEDGENET_NAMES[name]}",
                    )


def about_wiki(data: Path, rng: random.Random) -> list[Record]:
    ids = {
        page["wikipedia_title"]: page["wikipedia_id"]
        for page in json_lines(data / "wiki/knowledge_source.jsonl.xz")
    }
    questions = list(squad(data / "squad/train-v1.1.json.xz", ids))
    return [
        *rng.sample(questions, min(SQUAD_QUESTIONS, len(questions))),
        *nq(data / "nq/qed-train.jsonl.xz", ids),
        *at_most(MOST_OF_REDOCRED, redocred(data / "redocred/redocred-dev-kilt.jsonl.xz"), rng),
        *unsaid(data / "redocred/redocred-dev-kilt.jsonl.xz", rng),
    ]


def about_passages(data: Path, rng: random.Random) -> tuple[list[Record], list[Record]]:
    """Return queries, and the pages of the corpus."""
    facts = list(json_lines(data / "knowledgenet/facts.jsonl.xz"))
    tests = {fact["passage"].strip() for fact in facts if fact["fold"] == TEST_FOLD}
    sources: dict[str, Passages] = {
        name: defaultdict(list) for name in ("fewrel", "knowledgenet", "kinds")
    }
    fewrel(data / "fewrel", rng, sources["fewrel"])
    knowledgenet(data / "knowledgenet/facts.jsonl.xz", rng, sources["knowledgenet"])
    kinds(data, rng, sources["kinds"])
    queries, pages = list(unstated(facts)), []
    for name, passages in sources.items():
        used = {key: asked for key, asked in passages.items() if key[1].strip() not in tests}
        records = slots(name, used)
        queries += at_most(MOST_OF_FEWREL, records, rng) if name == "fewrel" else records
        pages += corpus(name, used)
    return queries, pages


def part_of(text: Record) -> str:
    """Return what a text of DATA/tables is for; texts without a mark are dealt out by their ids."""
    number = zlib.crc32(text["id"].encode()) % 5
    return str(
        text.get("part") or ("judge" if number == 0 else "calibrate" if number == 1 else "teach")
    )


def texts_of(data: Path) -> Iterator[tuple[str, Record]]:
    """Yield the texts of other genres and those made from templates, each with the id of its page."""
    for name in TEXTS:
        for text in json_lines(data / f"tables/{name}.jsonl"):
            yield f"{name}-{text['id']}", text
    for text in made_texts(MADE):
        yield f"made-{text['id']}", text


def pages_of_texts(data: Path) -> Iterator[Record]:
    for page, text in texts_of(data):
        yield {"id": page, "title": text["title"], "text": text["text"]}


def cells_of_texts(data: Path) -> Iterator[Record]:
    """Yield a cell for each relation that was asked of a subject of a text, in the form of the
    other cells.
    """
    for page, text in texts_of(data):
        for number, subject in enumerate(text["subjects"]):
            for name, values in subject["cells"].items():
                forms = [form for value in values for form in value]
                cell = record(
                    f"{page}-{number}-{name}",
                    f"{subject['name']} [SEP] {name}",
                    forms,
                    page,
                    text["title"],
                )
                meta = {
                    "kind": subject["kind"],
                    "page": page,
                    "title": text["title"],
                    "values": values,
                }
                yield cell | {
                    "meta": meta
                    | {"beside": subject["name"] != text["title"], "part": part_of(text)}
                }


def cells_of(data: Path, part: str) -> Iterator[Record]:
    """Yield all cells of DATA/tables that are for this: teach, calibrate or judge.

    Those of subjects beside the title, and of texts, are `alone`: another page may say what their
    page does not.
    """
    for name in ("cells", "beside"):
        for cell in json_lines(data / f"tables/{name}.jsonl.xz"):
            if cell["meta"]["part"] == part:
                yield cell | {"meta": cell["meta"] | {"set": name, "alone": name == "beside"}}
    for cell in cells_of_texts(data):
        if cell["meta"]["part"] == part:
            yield cell | {
                "meta": cell["meta"] | {"set": cell["meta"]["page"].split("-")[0], "alone": True}
            }


def about_tables(data: Path, rng: random.Random) -> list[Record]:
    by_set: dict[str, list[Record]] = defaultdict(list)
    for cell in cells_of(data, "teach"):
        by_set["stated" if cell["meta"]["values"] else cell["meta"]["set"]].append(cell)
    wordings = {
        known.name: [one for one in known.query if one != known.name] for known in known_relations()
    }
    most = {"cells": UNSAID_OF_TABLES, "beside": UNSAID_BESIDE}
    chosen = [
        cell
        for name, cells in by_set.items()
        for cell in rng.sample(cells, min(most.get(name, len(cells)), len(cells)))
    ]
    for cell in chosen:
        subject, name = cell["input"].split(" [SEP] ")
        if (others := wordings.get(name)) and rng.random() < REWORDED:
            cell["input"] = f"{subject} [SEP] {rng.choice(others)}"
    return rng.sample(chosen, len(chosen))


def main(data: Path, out: Path) -> None:
    rng = random.Random(0)
    out.mkdir(parents=True, exist_ok=True)
    queries, pages = about_passages(data, rng)
    for name, asked in (("wiki", about_wiki(data, rng)), ("passages", queries)):
        write_lines(
            out / f"{name}.jsonl",
            [one | {"meta": one.get("meta", {}) | {"is_kept": True}} for one in asked],
        )
    write_lines(out / "corpus.jsonl", pages)
    write_lines(out / "texts.jsonl", list(pages_of_texts(data)))
    write_lines(out / "tables.jsonl", about_tables(data, rng))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
