"""Make slot queries to train the default model on: passages of Re-DocRED, KnowledgeNet and FewRel
with their queries.

    python recipes/prepare_slots.py DATA OUT.jsonl

DATA is a folder with redocred/, knowledgenet/, fewrel/, qamr/, nq/ and wiki/ as the model card
names them. One page in five of Re-DocRED is held out, so that the benchmark can tell seen from
unseen pages; T-REx is never read. Sentences that say what their subject is ("Emma is a novel by …")
become queries for `instance of` and `occupation`, which no other source has. Mentions of
wiki/el-train become queries for the first paragraph of the page that they mean.
"""

import json
import lzma
import random
import re
import sys
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

PRONOUN_TEXT = "he she it they his her him its their i we you my our who hers"
PRONOUNS = set(PRONOUN_TEXT.split())
KNOWLEDGENET_NAMES = {  # as Wikidata calls them
    "PLACE_OF_RESIDENCE": "residence",
    "EMPLOYEE_OR_MEMBER_OF": "employer",
    "SPOUSE": "spouse",
    "PLACE_OF_BIRTH": "place of birth",
    "HEADQUARTERS": "headquarters location",
    "EDUCATED_AT": "educated at",
    "CHILD_OF": "parent",
    "DATE_OF_BIRTH": "date of birth",
    "NATIONALITY": "country of citizenship",
    "FOUNDED_BY": "founded by",
    "POLITICAL_AFFILIATION": "member of political party",
    "CEO": "chief executive officer",
    "DATE_OF_DEATH": "date of death",
    "DATE_FOUNDED": "inception",
    "SUBSIDIARY_OF": "parent organization",
}
MOST_PER_RELATION = 400  # of Re-DocRED: two relations of 96 are a third of it
TITLE_SHARE = 0.7  # of passages whose page is called like the subject; the others have no title
MENTION_WORDS = 30  # of the context on each side

# After "… is a": modifiers, the kind itself, and a word or sign that ends it.
BEHIND_A_KIND = (
    "about|and|as|at|based|best|born|by|consisting|currently|designed|directed|during|featuring|for|from|in|known|made|"
    "near|of|on|or|set|since|situated|starring|that|under|used|when|where|which|who|whom|whose|with|within|written"
)
A_KIND = re.compile(
    rf"(?:a|an|the|one of the) ([^.,;:()\[\]]{{2,70}}?)(?=\s+(?:{BEHIND_A_KIND})\b|[.,;:(\[]|\s*$)"
)
# In the brackets behind a name.
LIFE = re.compile(r"\bborn\b|\bdied\b|\d{4} ?[-–] ?(?:\w+ )?(?:\d+ )?(?:\w+ )?\d{4}")
# An occupation, or a river.
LIKE_A_PERSON = re.compile(r"(?:er|or|ist|ian|man|woman|ant|eer|ess|ath|ete)s?$")

Question = dict[str, Any]
Passages = dict[tuple[str, str, str], list[Question]]  # (title, text, group) → questions


def held_out(page: str) -> bool:
    """Return whether a Re-DocRED page is kept from training, by its name, so that every script
    agrees.
    """
    return zlib.crc32(page.encode()) % 5 == 0


def json_lines(path: Path) -> Iterator[Any]:
    opened = lzma.open if path.suffix == ".xz" else open
    with opened(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def write_lines(path: Path, records: Iterable[object], ensure_ascii: bool = False) -> None:
    """Write JSON lines, and say how many there are."""
    lines = [json.dumps(record, ensure_ascii=ensure_ascii) + "\n" for record in records]
    path.write_text("".join(lines), "utf-8")
    print(f"{path}: {len(lines):,} lines")


def question(subject: str, relation: str, text: str, places: Iterable[tuple[int, int]]) -> Question:
    answers = [{"text": text[start:end], "answer_start": start} for start, end in places]
    return {"question": f"{subject} [SEP] {relation}", "answers": answers}


def occurrences(needle: str, text: str) -> list[tuple[int, int]]:
    return [match.span() for match in re.finditer(rf"(?<!\w){re.escape(needle)}(?!\w)", text)]


def fewrel(folder: Path, rng: random.Random, passages: Passages) -> None:
    names = json.loads((folder / "pid2name.json").read_text("utf-8"))
    for relation, instances in next(json_lines(folder / "val_wiki.json.xz")).items():
        for instance in instances:
            tokens = instance["tokens"]
            starts, text = [], ""
            for token in tokens:
                starts.append(len(text))
                text += token + " "
            spans = [
                (starts[mention[0]], starts[mention[-1]] + len(tokens[mention[-1]]))
                for mention in (instance["h"][2][0], instance["t"][2][0])
            ]
            subject = text[slice(*spans[0])]
            title = subject if rng.random() < TITLE_SHARE else ""
            passages[title, text.rstrip(), relation].append(
                question(subject, names[relation][0], text, [spans[1]])
            )


def knowledgenet(path: Path, rng: random.Random, passages: Passages) -> None:
    facts = [fact for fact in json_lines(path) if fact["subject"] and fact["object"]]
    names: dict[str, Counter[str]] = defaultdict(Counter)
    for fact in facts:
        if fact["subject_qid"] and fact["subject"].lower() not in PRONOUNS:
            names[fact["subject_qid"]][fact["subject"]] += 1
    of_text: dict[str, list[tuple[str, Question, str]]] = defaultdict(list)
    for fact in facts:
        subject = fact["subject"]
        if subject.lower() in PRONOUNS:
            known = names.get(fact["subject_qid"])
            subject = known.most_common(1)[0][0] if known else None
        if subject is None or fact["object"].lower() in PRONOUNS:
            continue
        start, end = (int(place) - int(fact["passage_start"]) for place in fact["o"])
        if fact["passage"][start:end] == fact["object"]:
            asked = question(
                subject, KNOWLEDGENET_NAMES[fact["property"]], fact["passage"], [(start, end)]
            )
            of_text[fact["passage"]].append((subject, asked, fact["property"]))
    for text, asked_of in of_text.items():
        main = Counter(subject for subject, *_ in asked_of).most_common(1)[0][0]
        named = main in text
        title = main if not named or rng.random() < TITLE_SHARE else ""
        merged: dict[str, Question] = {}
        for (
            _,
            asked,
            _,
        ) in asked_of:  # several objects of one property are several right answers of one query
            merged.setdefault(asked["question"], {"question": asked["question"], "answers": []})[
                "answers"
            ] += asked["answers"]
        passages[title, text, asked_of[0][2]] += merged.values()


def redocred(path: Path, source: Path, rng: random.Random, passages: Passages) -> None:
    pages = {page["wikipedia_id"]: page for page in json_lines(source)}
    queries = list(json_lines(path))
    rng.shuffle(queries)
    counts: Counter[str] = Counter()
    for query in queries:
        subject, relation = query["input"].split(" [SEP] ")
        proven = [
            (o["answer"], p["wikipedia_id"])
            for o in query["output"]
            for p in o.get("provenance", [])
        ]
        if not proven or counts[relation] >= MOST_PER_RELATION:
            continue
        page = pages[proven[0][1]]
        if held_out(page["wikipedia_title"]):
            continue
        found = []
        for text in page["text"][1:]:
            places = sorted({place for answer, _ in proven for place in occurrences(answer, text)})
            named = any(alias in text for alias in query["meta"]["subj_aliases"])
            if places:
                found.append((named, text, places))
        if found:
            _, text, places = max(found, key=lambda candidate: candidate[0])
            counts[relation] += 1
            title = page["wikipedia_title"]
            passages[title, text, title].append(question(subject, relation, text, places))


def kind(subject: str, text: str) -> tuple[str, list[tuple[int, int]]] | None:
    """Return the relation that a sentence "SUBJECT is a …" states, and the places of the kind and
    of its last word.

    >>> text = "Emma Stone (born 1988) is an American stage actress who was born in Arizona."
    >>> relation, places = kind("Emma Stone", text)
    >>> relation, [text[start:end] for start, end in places]
    ('occupation', ['stage actress', 'actress'])
    """
    named = re.search(
        rf"(?:^|[.!?] |[Tt]he ){re.escape(subject)}\b( ?\([^)]*\)|,[^.,]{{0,60}},)? (?:is|was|are|were) (?:also )?",
        text,
    )
    found = A_KIND.match(text, named.end()) if named else None
    if named is None or found is None:
        return None
    words = [(match.group(), match.span()) for match in re.finditer(r"\S+", found.group(1))]
    while words and not words[0][0].islower():  # American, 1971
        words.pop(0)
    if not words or words[-1][0].endswith(("ly", "ed")):
        return None
    person = bool(LIFE.search(named.group(1) or ""))
    if not person and LIKE_A_PERSON.search(words[-1][0]):
        return None
    first = found.start(1)
    end = first + words[-1][1][1]
    starts = (
        sorted({first + words[0][1][0], first + words[-1][1][0]})
        if len(words) <= 3
        else [first + words[-1][1][0]]
    )
    return "occupation" if person else "instance of", [(start, end) for start in starts]


def kinds(data: Path, rng: random.Random, passages: Passages) -> None:
    """Add the sentences of NQ, FewRel and KnowledgeNet that say what their subject is."""
    known = [
        (line["title_text"], line["paragraph_text"])
        for line in json_lines(data / "nq/qed-train.jsonl.xz")
    ]
    for instances in next(json_lines(data / "fewrel/val_wiki.json.xz")).values():
        known += [
            (" ".join(i["tokens"][n] for n in i["h"][2][0]), " ".join(i["tokens"]))
            for i in instances
        ]
    facts = json_lines(data / "knowledgenet/facts.jsonl.xz")
    known += [(fact["subject"], fact["passage"].strip()) for fact in facts if fact["subject"]]
    for subject, text in dict.fromkeys(known):
        stated = kind(subject, text) if subject.lower() not in PRONOUNS else None
        if stated is not None:
            title = subject if rng.random() < TITLE_SHARE else ""
            passages[title, text, stated[0]].append(question(subject, stated[0], text, stated[1]))


def mentions(data: Path, passages: Passages) -> None:
    """Add marked mentions, answered by the name of the page that they mean, where its first
    paragraph holds it.
    """
    pages = {
        page["wikipedia_id"]: page for page in json_lines(data / "wiki/knowledge_source.jsonl.xz")
    }
    for line in json_lines(data / "wiki/el-train-kilt.jsonl.xz"):
        place = line["output"][0]["provenance"][0]
        text = "".join(pages[place["wikipedia_id"]]["text"][1:2])
        answers = occurrences(re.sub(r" \(.*\)$", "", place["title"]), text)[:1]
        if answers:
            before, marked, after = re.split(
                r"(\[START_ENT\].*\[END_ENT\])", line["input"], flags=re.DOTALL
            )
            context = " ".join(
                [*before.split()[-MENTION_WORDS:], marked, *after.split()[:MENTION_WORDS]]
            )
            asked = question("", "", text, answers) | {"question": context}
            passages[place["title"], text, "mentions"].append(asked)


def qamr(path: Path, passages: Passages) -> None:
    for line in json_lines(path):
        if line.get("answer") and line["context"].startswith(line["answer"], line["answer_start"]):
            place = (line["answer_start"], line["answer_start"] + len(line["answer"]))
            asked = question("", "", line["context"], [place]) | {"question": line["question"]}
            passages["", line["context"], "qamr"].append(asked)


def main(data: Path, out: Path) -> None:
    rng = random.Random(0)
    passages: Passages = defaultdict(list)
    fewrel(data / "fewrel", rng, passages)
    knowledgenet(data / "knowledgenet/facts.jsonl.xz", rng, passages)
    wiki = data / "wiki/knowledge_source.jsonl.xz"
    redocred(data / "redocred/redocred-dev-kilt.jsonl.xz", wiki, rng, passages)
    kinds(data, rng, passages)
    mentions(data, passages)
    qamr(data / "qamr/qamr.jsonl.xz", passages)
    for questions in passages.values():
        rng.shuffle(questions)
    write_lines(
        out,
        (
            {"title": title, "context": text, "group": group, "questions": questions}
            for (title, text, group), questions in passages.items()
        ),
    )
    print(f"{sum(map(len, passages.values())):,} questions")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
