"""Triples: four formats give the same records; samples and splits are what they promise; bad files
get one sentence.
"""

import csv
import gzip
import io
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kbq.errors import TrainingError
from kbq.kilt.records import Gold, GoldOutput
from kbq.tuning.triples import (
    pages_of,
    read_triples,
    sample_by_relation,
    split,
    subject_of,
)

ROWS: list[dict[str, str]] = [
    {
        "subject": "Marie Curie",
        "relation": "birth",
        "object": "Warsaw",
        "aliases": "Warszawa|Varsovie",
        "page": "7",
    },
    {"subject": "Marie Curie", "relation": "birth", "object": "Poland", "aliases": "", "page": "8"},
    {
        "subject": "Douglas, Adams",
        "relation": "author",
        "object": 'the "Guide"',
        "aliases": "",
        "page": "9",
    },
    {"subject": "居里夫人", "relation": "birth", "object": "华沙", "aliases": "", "page": "10"},
]
EXPECTED: list[tuple[str | None, list[tuple[str, ...]]]] = [
    (
        "Marie Curie [SEP] birth",
        [("Warsaw", "7"), ("Warszawa", "7"), ("Varsovie", "7"), ("Poland", "8")],
    ),
    ("Douglas, Adams [SEP] author", [('the "Guide"', "9")]),
    ("居里夫人 [SEP] birth", [("华沙", "10")]),
]


def table(delimiter: str, rows: list[dict[str, str]]) -> str:
    text = io.StringIO()
    if delimiter == "\t":  # as it comes: quotation marks are letters
        return "".join(
            "\t".join(row) + "\n" for row in (list(rows[0]), *(list(row.values()) for row in rows))
        )
    writer = csv.DictWriter(text, list(rows[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_json(rows: list[dict[str, str]]) -> str:
    with_lists = (
        row | {"aliases": row["aliases"].split("|") if row["aliases"] else []} for row in rows
    )
    return "".join(json.dumps(row) + "\n" for row in with_lists)


def as_kilt() -> str:
    return "".join(
        json.dumps(
            {
                "id": number,
                "input": text,
                "output": [
                    {"answer": answer, "provenance": [{"wikipedia_id": page}]}
                    for answer, page in outputs
                ],
            }
        )
        + "\n"
        for number, (text, outputs) in enumerate(EXPECTED)
    )


FORMATS = {
    "csv": table(",", ROWS),
    "tsv": table("\t", ROWS),
    "jsonl": as_json(ROWS),
    "kilt": as_kilt(),
}


def contents(golds: list[Gold]) -> list[tuple[str | None, list[tuple[str, ...]]]]:
    return [
        (gold.input, [(output.answer, *output.pages) for output in gold.outputs]) for gold in golds
    ]


@pytest.fixture
def read(tmp_path: Path) -> Callable[[str], list[Gold]]:
    """Reads the triples of a file with this text."""

    def once(text: str) -> list[Gold]:
        (tmp_path / "triples").write_bytes(text.encode())
        return read_triples(tmp_path / "triples")

    return once


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("packed", [False, True])
def test_all_formats_give_the_same_records(name: str, packed: bool, tmp_path: Path) -> None:
    content = FORMATS[name].encode()
    (tmp_path / "triples").write_bytes(gzip.compress(content) if packed else content)
    golds = read_triples(tmp_path / "triples")
    assert contents(golds) == EXPECTED
    assert golds[0].answers == {"Warsaw", "Warszawa", "Varsovie", "Poland"}
    assert [output.evidence for output in golds[1].outputs] == [frozenset(["9"])]
    assert len({gold.id for gold in golds}) == 3
    assert pages_of(golds[0]) == {"7", "8"}


@pytest.mark.parametrize("name", ["csv", "tsv", "jsonl"])
def test_blank_lines_marks_and_line_ends_of_other_systems_do_no_harm(
    name: str, read: Callable[[str], list[Gold]]
) -> None:
    lines = FORMATS[name].splitlines()
    assert contents(read("\ufeff\n" + "\r\n\r\n".join(lines) + "\n\n")) == EXPECTED


@pytest.mark.parametrize("name", FORMATS)
def test_queries_are_nfc(name: str, read: Callable[[str], list[Gold]]) -> None:
    (marie, *_) = read(FORMATS[name].replace("Marie", "Marie\u0301"))
    assert marie.input == "Mari\xe9 Curie [SEP] birth"


def test_columns_come_in_any_order_and_case_and_others_are_ignored(
    read: Callable[[str], list[Gold]],
) -> None:
    golds = read("Object, comment ,RELATION,subject\nWarsaw,!,birth,Marie\n")
    assert contents(golds) == [("Marie [SEP] birth", [("Warsaw",)])]
    assert golds[0].outputs[0].evidence is None


def test_a_rejected_value_of_a_review_is_no_triple(read: Callable[[str], list[Gold]]) -> None:
    decided = {
        "value": "Warsaw",
        "page_id": "7",
        "paragraph": 0,
        "start": 3,
        "end": 9,
        "object": "Warsaw",
        "page": "7",
    }
    slot = {"subject": "Marie Curie", "relation": "birth"}
    lines = [slot | decided | {"decision": decision} for decision in ("reject", "accept")]
    lines[0]["object"] = "Poland"
    golds = read("\n".join(map(json.dumps, lines)))
    assert contents(golds) == [("Marie Curie [SEP] birth", [("Warsaw", "7")])]
    with pytest.raises(TrainingError, match="has no triple with an answer"):
        read(json.dumps(lines[0]))
    changed = lines[1] | {"decision": "reject", "object": "WARSAW", "value": "WARSAW"}
    with pytest.raises(TrainingError, match="has no triple with an answer"):
        read("\n".join(map(json.dumps, [lines[1], changed])))


def test_values_that_are_numbers_are_text(read: Callable[[str], list[Gold]]) -> None:
    golds = read('{"subject": 1984, "relation": "year", "object": 0, "page": 12}\n')
    assert contents(golds) == [("1984 [SEP] year", [("0", "12")])]


@pytest.mark.parametrize(
    "text",
    [
        "subject,relation,object\ra,b,c\r",
        "\ufeffsubject;relation;object\r\na;b;c\r\n",
        "Subject\tRelation\tObject\na\tb\tc\n",
        '[{"subject": "a", "relation": "b",\n "object": "c"}]',
        '{"subject": "a", "relation": "b", "object": "c"}\r',
        '[{"id": 1, "input": "a [SEP] b", "output": [{"answer": "c"}]}]',
    ],
)
def test_triples_are_read_in_every_dialect_of_rows(
    text: str, read: Callable[[str], list[Gold]]
) -> None:
    assert [(gold.input, sorted(gold.answers)) for gold in read(text)] == [("a [SEP] b", ["c"])]


def test_records_without_answer_and_page_are_left_out(read: Callable[[str], list[Gold]]) -> None:
    lines = [
        {"id": 1, "input": "a", "output": [{"meta": 1}]},
        {"id": 2, "input": "b", "output": [{"answer": "x"}]},
    ]
    assert [gold.id for gold in read("".join(json.dumps(line) + "\n" for line in lines))] == ["2"]


@pytest.mark.parametrize(
    ("text", "message", "problem"),
    [
        (
            "",
            "triples is empty: write a header with the names of the columns, and rows below it",
            "",
        ),
        ("\n \n", "triples is empty", ""),
        ("subject,relation,object\n", "triples has no triple with an answer", ""),
        (
            "subject,relation\na,b\n",
            "triples:1: column 'object' is missing, there are subject, relation: write",
            "",
        ),
        (
            "Marie\tbirth\tWarsaw\n",
            "triples:1: column 'subject' is missing, there are marie, birth, warsaw",
            "",
        ),
        (
            "subject~relation~object\na~b~c\n",
            "as JSON lines or with commas or tabs between them",
            "",
        ),
        (
            "subject,relation,object,subject\na,b,c,d\n",
            "triples has 2 columns 'subject': give each its own name",
            "",
        ),
        (
            'subject,relation,object\na,b,c\nd,"e,f\ng,h,i\n',
            "triples:3: unexpected end of data: is it a CSV or TSV",
            "",
        ),
        (
            "subject,relation,object,pages\na,b,c,d\n",
            "triples:1: column 'pages' is not read: if it is 'page', call",
            "",
        ),
        ('{"subject": "a", "relation": "b"}\n', "triples:1: column 'object' is missing", ""),
        (
            '{"subject": "a", "relation": "b", "object": "c"}\n{}\n',
            "triples:2: column 'subject' is missing",
            "",
        ),
        ('{"subject": "a"\n', "has 1 line", "triples:1: not JSON"),
        (
            '{"subject": "a", "relation": "b", "object": "c"}\n{"sub\n',
            "has 1 line",
            "triples:2: not JSON",
        ),
        (
            '{"subject": "a", "relation": "b", "object": "c"}\n[1]\n',
            "has 1 line",
            "triples:2: '[1]' is not a JSON object",
        ),
        (
            "subject,relation,object\na,b,NA\n",
            "has 1 line that cannot be used",
            ":2: object is empty, which `kbq calibrate` takes",
        ),
        (
            "subject,relation,object\na,b,c,\n",
            "has 1 line that cannot be used",
            ":2: 4 values for 3 columns",
        ),
        (
            "subject,relation,object\na,b, \n",
            "has 1 line that cannot be used",
            ":2: object is empty, which `kbq calibrate` takes",
        ),
        (
            "subject,relation,object\na,b,c\n,,c\na\n",
            "has 2 lines that cannot be used",
            ":3: subject or relation is empty",
        ),
        (
            '{"subject": "a", "relation": null, "object": "c"}\n',
            "has 1 line",
            ":1: subject or relation is empty",
        ),
        (
            '{"id": 1, "input": "a", "output": []}\n',
            "has 1 line that cannot be used",
            "has no gold output",
        ),
        (
            '{"id": 1, "input": "", "output": [{"answer": "x"}]}\n',
            "has 1 line",
            ":1: has no input",
        ),
        (
            '{"id": 1, "input": "a", "output": [{"answer": "x"}]}\n{"id"\n',
            "has 1 line",
            ":2: is not JSON",
        ),
        (
            '{"id": 1, "input": "a", "output": [{"answer": "x"}]}\n' * 2,
            "has 1 line",
            "has the id of line 1",
        ),
        ('{"id": 1, "input": "a", "output": [{}]}\n', "has no triple with an answer", ""),
        (
            "subject,relation,object\nTexas, Austin,capital of,Texas\n",
            "",
            ":2: ",
        ),  # a value too many
        ('subject,relation,object\na,b,"c\nd,e,f\n', "", ":"),  # a quote that is never closed
        ('{"subject": "a", "relation": "b", "object": ["c", "d"]}\n', "", ":1: "),
        ('{"subject": {"en": "a"}, "relation": "b", "object": "c"}\n', "", ":1: "),
    ],
)
def test_bad_files_get_one_sentence(
    text: str, message: str, problem: str, read: Callable[[str], list[Gold]]
) -> None:
    with pytest.raises(TrainingError) as refusal:
        read(text)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert problem in " ".join([str(refusal.value), *refusal.value.problems])


def test_a_table_that_is_not_utf_8_is_read_by_a_guess(tmp_path: Path) -> None:
    text = "subject,relation,object\nCafé de la Régence,located in,Paris\n"
    (tmp_path / "triples").write_bytes(text.encode("latin-1"))
    (triple,) = read_triples(tmp_path / "triples")
    assert triple.input == "Café de la Régence [SEP] located in"


def record(number: int, text: str) -> Gold:
    return Gold(str(number), number, text, {}, (GoldOutput(f"answer {number}", (), None, ()),))


# a, b 160 each, c 80.
MANY = [record(n, f"subject {n // 3} [SEP] {'abc'[min(2, n % 10 // 4)]}") for n in range(400)]


def test_samples_are_nested_and_each_relation_has_its_share() -> None:
    before = {gold.id for gold in sample_by_relation(MANY, 0, 7)}
    assert before == set()
    for count in (5, 50, 100, 399, 400, 1000):
        sample = sample_by_relation(MANY, count, 7)
        ids = {gold.id for gold in sample}
        assert len(ids) == len(sample) == min(count, 400)
        assert before <= ids
        before = ids
        shares = Counter(str(gold.input)[-1] for gold in sample)
        for relation, share in (("a", 0.4), ("b", 0.4), ("c", 0.2)):
            assert abs(shares[relation] - share * len(sample)) <= 1.5


def test_samples_and_splits_are_those_of_the_seed_whatever_the_order() -> None:
    order = [gold.id for gold in MANY]
    first, again, other = (sample_by_relation(MANY, 50, seed) for seed in (7, 7, 8))
    assert first == again != other
    assert [gold.id for gold in MANY] == order
    assert split(MANY, 7) == split(MANY, 7) != split(MANY, 8)


def test_a_split_shares_no_subject_and_loses_no_record() -> None:
    tuned, dev = split(MANY, 3)
    assert {gold.id for gold in tuned} | {gold.id for gold in dev} == {gold.id for gold in MANY}
    assert len(tuned) + len(dev) == 400
    assert {subject_of(gold) for gold in tuned} & {subject_of(gold) for gold in dev} == set()
    assert 40 <= len(dev) <= 42  # a tenth, to the end of a subject


def test_a_split_shares_no_page_and_leaves_out_what_shares_a_subject() -> None:
    golds = [
        replace(
            record(n, f"subject {n % 150} [SEP] r"),
            outputs=(GoldOutput("a", (f"page {n % 40}",), None, ()),),
        )
        for n in range(400)
    ]
    tuned, dev = split(golds, 1)
    assert len(dev) == 40  # four pages of ten records
    subjects, pages = (
        {subject_of(gold) for gold in dev},
        {page for gold in dev for page in pages_of(gold)},
    )
    assert len(pages) == 4
    left = [
        gold for gold in golds if subject_of(gold) not in subjects and not pages_of(gold) & pages
    ]
    assert {gold.id for gold in tuned} == {gold.id for gold in left}
    assert 0 < len(left) < 360


def test_at_most_500_are_set_aside_and_at_least_one() -> None:
    assert len(split([record(n, f"s{n} [SEP] r") for n in range(9000)], 0)[1]) == 500
    tuned, dev = split([record(n, f"s{n} [SEP] r") for n in range(2)], 0)
    assert (len(tuned), len(dev)) == (1, 1)


@pytest.mark.parametrize("golds", [[], MANY[:1], MANY[:3]])
def test_one_subject_cannot_be_split(golds: list[Gold]) -> None:
    with pytest.raises(
        TrainingError,
        match="one subject or page is not enough to tune and to score: give more triples",
    ):
        split(golds, 0)


def test_the_subject_of_a_slot_stands_before_the_separator_and_of_another_query_is_itself() -> None:
    assert subject_of(record(1, "Emma [SEP] author")) == "Emma"
    assert subject_of(record(1, "who wrote Emma?")) == "who wrote Emma?"
