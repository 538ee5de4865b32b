"""Gold triples: convert a file of LM-KBC or KnowledgeNet to triples, which `kbq evaluate-table`
reads.

    python benchmarks/gold_triples.py FILE > gold.jsonl

In KnowledgeNet, a subject gets its longest name in the document, and objects with one URI are one
value.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from measuring import arguments, records_of

# subject, relation, and the names of one object; no names if there is no object.
Triple = tuple[str, str, list[str]]


def main() -> None:
    for fields in records_of(arguments(__doc__, file=Path).file):
        for subject, relation, names in (
            knowledgenet(fields) if "passages" in fields else lm_kbc(fields)
        ):
            line = {
                "subject": subject,
                "relation": relation,
                "object": names[:1],
                "aliases": names[1:],
            }
            sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")


def lm_kbc(fields: Mapping[str, Any]) -> Iterator[Triple]:
    """Read objects that are names, lists of equally good names (2022, 2026), or Q-numbers (2023,
    2024).
    """
    names, ids = fields.get("ObjectEntities"), fields.get("ObjectEntitiesID")
    several = [one for one in (names, ids) if isinstance(one, list)]
    if len({len(one) for one in several}) != 1:  # names without their numbers
        several = several[:1]
    found = [
        [name for one in value for name in all_names(one)] for value in zip(*several, strict=True)
    ]
    for value in found or [[]]:
        yield fields["SubjectEntity"], fields["Relation"], value


def all_names(one: object) -> list[str]:
    return [str(name) for name in (one if isinstance(one, list) else [one]) if name]


def knowledgenet(fields: Mapping[str, Any]) -> Iterator[Triple]:
    """Read the facts of a document."""
    annotated = [
        one for passage in fields["passages"] for one in passage["exhaustivelyAnnotatedProperties"]
    ]
    relations = {one["propertyId"]: one["propertyName"] for one in annotated}
    facts = [fact for passage in fields["passages"] for fact in passage["facts"]]
    names: dict[str, list[str]] = defaultdict(list)
    for fact in facts:
        for side in ("subject", "object"):
            names[fact[f"{side}Uri"] or fact[f"{side}Text"]].append(fact[f"{side}Text"])
    for fact in facts:
        subject = max(names[fact["subjectUri"] or fact["subjectText"]], key=len)
        objects = names[fact["objectUri"] or fact["objectText"]]
        yield subject, relations[fact["propertyId"]], list(dict.fromkeys(objects))


if __name__ == "__main__":
    main()
