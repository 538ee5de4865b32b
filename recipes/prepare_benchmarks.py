"""Make benchmarks like those of the tables from public files: a knowledge source and queries in
KILT's format.

    python recipes/prepare_benchmarks.py squad dev-v1.1.json OUT
    python recipes/prepare_benchmarks.py redocred dev_revised.json OUT
    python recipes/prepare_benchmarks.py kilt trex-dev-kilt.jsonl OUT --source
    kilt_knowledgesource.json \
        --queries 2000 --pages 20000

Each writes OUT/knowledge_source.jsonl and OUT/queries.jsonl. `kilt` takes a sample of the queries
of one of KILT's own data sets, with the pages that answer them and as many others, chosen by a
checksum, so that the sample is always the same and a larger one holds the smaller.
docs/notebook/data.md says where the files are, and what differs from ours.
"""

import argparse
import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from kbq.storage.lines import read_json_lines, read_lines

Record = dict[str, Any]
Output = tuple[list[Record], list[Record]]  # pages and queries
PAGES = 5_903_530  # of KILT's knowledge source
NO_BLANK_BEFORE, NO_BLANK_AFTER = set(".,;:!?)]}%'’”"), set("([{“‘$£€")


def records(path: Path) -> Iterator[Any]:
    """Yield the JSON object of each line, plain or compressed."""
    return (record for _, record in read_json_lines(str(path)))


def whole(path: Path) -> Any:
    return json.loads("\n".join(line for _, line in read_lines(str(path))))


def write(path: Path, lines: Iterable[Record]) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with path.open("w", encoding="utf-8") as stream:
        for count, line in enumerate(lines, start=1):  # noqa: B007 - counted to the end
            stream.write(json.dumps(line, ensure_ascii=False) + "\n")
    return count


def page(page_id: str, title: str, paragraphs: Iterable[str]) -> Record:
    return {
        "_id": page_id,
        "wikipedia_id": page_id,
        "wikipedia_title": title,
        "text": [title, *paragraphs],
    }


def outputs(names: Iterable[str], provenance: list[Record]) -> list[Record]:
    """Return each name as an answer, then the first one with its pages."""
    answers = list(dict.fromkeys(names))
    return [
        *({"answer": answer} for answer in answers),
        {"answer": answers[0], "provenance": provenance},
    ]


def squad(path: Path) -> Output:
    """Ask every question of all articles."""
    pages, queries = [], []
    for number, article in enumerate(whole(path)["data"]):
        title, page_id = article["title"].replace("_", " "), str(number)
        pages.append(
            page(page_id, title, (paragraph["context"] for paragraph in article["paragraphs"]))
        )
        for place, paragraph in enumerate(article["paragraphs"], start=1):
            where = {
                "wikipedia_id": page_id,
                "title": title,
                "start_paragraph_id": place,
                "end_paragraph_id": place,
            }
            queries += [
                {
                    "id": asked["id"],
                    "input": asked["question"],
                    "output": outputs((answer["text"] for answer in asked["answers"]), [where]),
                }
                for asked in paragraph["qas"]
            ]
    return pages, queries


def joined(tokens: Iterable[str]) -> str:
    """Join tokens to a text.

    >>> joined(["Emma", "(", "1815", ")", ",", "by", "Austen", "."])
    'Emma (1815), by Austen.'
    """
    text = ""
    for token in tokens:
        glued = not text or text[-1] in NO_BLANK_AFTER or token[:1] in NO_BLANK_BEFORE
        text += token if glued else f" {token}"
    return text


def redocred(path: Path, relations: dict[str, str]) -> Output:
    """Ask for every relation that a document states, by the names of Wikidata's properties."""
    pages, queries = [], []
    for number, document in enumerate(whole(path)):
        title, page_id, entities = document["title"], str(number), document["vertexSet"]
        pages.append(page(page_id, title, [" ".join(map(joined, document["sents"]))]))
        objects: dict[tuple[int, str], list[int]] = {}
        for label in document["labels"]:
            objects.setdefault((label["h"], label["r"]), []).append(label["t"])
        for (subject, relation), tails in objects.items():
            names = list(dict.fromkeys(mention["name"] for mention in entities[subject]))
            where = [{"wikipedia_id": page_id, "title": title}]
            answers = [
                outputs((mention["name"] for mention in entities[tail]), where)
                for tail in dict.fromkeys(tails)
            ]
            queries.append(
                {
                    "id": f"redocred-dev-{title}-{subject}-{relation}",
                    "input": f"{names[0]} [SEP] {relations.get(relation, relation)}",
                    "meta": {
                        "relation": relation,
                        "subj_aliases": names,
                        "subj_is_title": title in names,
                    },
                    "output": [output for each in answers for output in each],
                }
            )
    return pages, queries


def sampled(name: str, of: int, wanted: int) -> bool:
    """Return whether something is among the `wanted` of all `of`, by a checksum of its name."""
    return zlib.crc32(name.encode()) < 2**32 * wanted / max(of, 1)


def kilt(
    path: Path, source: Path, wanted_queries: int, wanted_pages: int
) -> tuple[Iterator[Record], list[Record]]:
    """Sample one of KILT's data sets; the knowledge source (35 GiB) is read page by page."""
    every = list(records(path))
    queries = [query for query in every if sampled(str(query["id"]), len(every), wanted_queries)]
    provenance = (
        item
        for query in queries
        for output in query["output"]
        for item in output.get("provenance", [])
    )
    gold = {str(item["wikipedia_id"]) for item in provenance}
    ids = ((one, str(one["wikipedia_id"])) for one in records(source))
    return (one for one, name in ids if name in gold or sampled(name, PAGES, wanted_pages)), queries


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=["squad", "redocred", "kilt"])
    parser.add_argument("file", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument(
        "--relations", type=Path, help="rel_info.json of DocRED: names of its relations"
    )
    parser.add_argument("--source", type=Path, help="KILT's knowledge source")
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument(
        "--pages", type=int, default=20_000, help="pages beside those that answer the queries"
    )
    given = parser.parse_args()
    pages: Iterable[Record]
    if given.kind == "kilt":
        if given.source is None:
            parser.error("kilt needs --source")
        pages, queries = kilt(given.file, given.source, given.queries, given.pages)
    elif given.kind == "squad":
        pages, queries = squad(given.file)
    else:
        pages, queries = redocred(given.file, whole(given.relations) if given.relations else {})
    print(f"{write(given.out / 'knowledge_source.jsonl', pages):,} pages, "
          f"{write(given.out / 'queries.jsonl', queries):,} queries in {given.out}")  # fmt: skip


if __name__ == "__main__":
    main()
