"""Relations: a file of them is read, and what is wrong in it is named by line and key."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kbq.errors import KbqError
from kbq.tables import relations
from kbq.tables.relations import (
    Relation,
    as_toml,
    property_iri,
    read_relations,
    relations_of,
)

FILE = """
["place of birth"]
query = [
  "place of birth",
  "born in",
]
type = "page"
property = "P19"

[children]
values = "many"
min_probability = 0.7
"""


def test_a_quantity_says_what_its_unit_measures(tmp_path: Path) -> None:
    path = tmp_path / "relations.toml"
    path.write_text('[span]\ntype = "quantity"\nmeasures = "length"\n', "utf-8")
    (relation,) = relations_of([str(path)])
    assert relation == Relation("span", ("span",), type="quantity", measures=("length",))
    path.write_text(as_toml([relation]), "utf-8")
    assert read_relations(path) == [relation]


def test_names_and_files_make_relations(tmp_path: Path) -> None:
    path = tmp_path / "relations.toml"
    path.write_text(FILE, "utf-8")
    assert relations_of(["date_of_birth", str(path)]) == [
        Relation(
            "date_of_birth", ("date of birth",), type="date", property="P569"
        ),  # as it is known
        Relation("place of birth", ("place of birth", "born in"), type="page", property="P19"),
        Relation("children", ("children",), "many", min_probability=0.7),
    ]
    assert relations_of(["a"], "many")[0].values == "many"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("type =", "typ =", ":7: place of birth: key 'typ' is unknown: write 'type'"),
        (
            "min_probability =",
            "x =",
            ":12: children: key 'x' is unknown: choose from query, values, type, min_prob",
        ),
        ('"many"', '"some"', ":11: children: values is 'some': choose from one, many"),
        (
            '"page"',
            '"entity"',
            ":7: place of birth: type is 'entity': choose from text, page, date, quantity",
        ),
        (
            "0.7",
            '0.7\nmeasures = "miles"',
            ":13: children: measures is 'miles': choose from count, length",
        ),
        ("0.7", "0.7\nmeasures = []", ":13: children: measures is []: choose from count, length"),
        (
            "0.7",
            '0.7\nmeasures = "length"',
            ":13: children: measures is 'length': write type = \"quantity\", too",
        ),
        ("0.7", "70", ":12: children: min_probability is 70: write a number from 0 to 1"),
        (
            '"P19"',
            "19",
            ":8: place of birth: property is 19: write a P-number of Wikidata, or a whole IRI",
        ),
        (
            "P19",
            "birth place",
            ":8: place of birth: property is 'birth place': write a P-number of Wikidata, or a "
            "whole IRI",
        ),
        (
            '"born in"',
            "1",
            ":3: place of birth: query is ['place of birth', 1]: write a text, or a list of texts",
        ),
        (
            "[children]",
            "employer = 1\n[children]",
            ":10: place of birth: key 'employer' is unknown: choose from",
        ),
        (
            '\n["place',
            'name = "x"\n["place',
            ":1: name is outside of a table: write [relation] above it",
        ),
        (
            "0.7",
            "",
            ": Invalid value (at line 12, column 19): write a table for each relation, such as "
            "[employer]",
        ),
        (
            '"born in"',
            '"a [SEP] b"',
            "relation 'place of birth' is asked as 'a [SEP] b': write words, without [SEP]",
        ),
        ("[children]", '["employer"]\n[children]', ""),
    ],
)
def test_a_bad_file_is_named_by_line_and_key(old: str, new: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "relations.toml"
    path.write_text(FILE.replace(old, new, 1), "utf-8")
    if not said:
        assert [relation.name for relation in relations_of([str(path)])] == [
            "place of birth",
            "employer",
            "children",
        ]
        return
    with pytest.raises(KbqError) as caught:
        relations_of([str(path)])
    assert said in str(caught.value)


BOMBS = {
    "a key of many parts": (".".join(["a"] * 100_000) + " = 1", "write a table for each relation"),
    "a table of many parts": (
        "[" + " . ".join(["a"] * 50_000) + "]",
        "write a table for each relation",
    ),
    "tables of quoted parts": (
        '["' + '"."'.join(["a"] * 50_000) + '"]',
        "write a table for each relation",
    ),
    "a key of many parts behind a quotation mark": (
        "a = { x = '''a'#''', " + "b." * 100_000 + "c = 1 }",
        "write a table for each relation",
    ),
    "a text without an end": (
        '[a]\nquery = "' + '\\"' * 300_000,
        "write a table for each relation",
    ),
    "deep lists": ("a = " + "[" * 100_000, "its lists are nested too deeply"),
    "deep tables": ("a = " + "{a=" * 100_000, "its lists are nested too deeply"),
    "many brackets": ("[" * 100_000, "write a table for each relation"),
    "a long number": ("a = " + "1" * 5_000, "write a table for each relation"),
    "a long hexadecimal number": ("[a]\nquery = 0x" + "f" * 500_000, "query is"),
    "a long text": ('[a]\ntype = "' + "x" * 500_000 + '"', "type is 'xxxx"),
    "a long key": ("[a]\n" + "k" * 500_000 + " = 1", "key 'kkkk"),
    "a long name": (f"[{'n' * 500_000}]\nx = 1", "key 'x' is unknown"),
    "a typo among many": (
        "".join(f"[r{n}]\nvalues = 'one'\n" for n in range(20_000)) + "[z]\nvalue = 1",
        ":40002: z: key",
    ),
    "a large file": (
        "# " + "x" * 2**20,
        "has 1,048,578 bytes, 1,048,576 at most are read: divide it",
    ),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_bombs_are_one_sentence(bomb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relations, "SECONDS", 1.0)
    content, said = BOMBS[bomb]
    path = tmp_path / "relations.toml"
    path.write_text(content, "utf-8")
    with pytest.raises(KbqError) as caught:
        relations_of([str(path)])
    assert said in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ([], "no relation is given: name the columns to fill, or a file relations.toml"),
        (["a", "a"], "relation 'a' is given 2 times: once is enough"),
        ([" "], "relation '' is asked as '': write words, without"),
        (["no.toml"], "no.toml: cannot be read"),
        ("born", "the relations are 'born': give a list of names"),
    ],
)
def test_bad_relations_are_one_sentence(names: list[str], said: str) -> None:
    with pytest.raises(KbqError) as caught:
        relations_of(names)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("property", "iri"),
    [
        ("wdt:P19", "http://www.wikidata.org/prop/direct/P19"),
        ("pq:P19", "http://www.wikidata.org/prop/direct/P19"),
        ("dbo:birthPlace", "http://dbpedia.org/ontology/birthPlace"),
        ("dbp:birthPlace", "http://dbpedia.org/property/birthPlace"),
        ("foaf:name", "http://xmlns.com/foaf/0.1/name"),
        ("dcterms:creator", "http://purl.org/dc/terms/creator"),
        ("urn:isbn:1", "urn:isbn:1"),
        ("ftp://example.org/x", "ftp://example.org/x"),
        ("schema:spouse", ""),  # of http or https
        ("ex:spouse", ""),
        ("wdt:spouse", ""),
        ("dbo:birth place", ""),
    ],
)
def test_known_prefixes_are_expanded_and_others_refused(property: str, iri: str) -> None:
    assert property_iri(property) == iri


def test_relations_are_read_from_a_pipe_and_from_any_file(tmp_path: Path) -> None:
    (tmp_path / "relations.txt").write_text("[employer]\n")
    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor(1) as pool:
        pool.submit((tmp_path / "pipe").write_text, '[spouse]\nvalues = "many"\n')
        found = relations_of([str(tmp_path / "relations.txt"), str(tmp_path / "pipe")])
    assert [(one.name, one.values) for one in found] == [("employer", "one"), ("spouse", "many")]
