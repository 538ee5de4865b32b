"""Known relations: their file is sound, presets are taken, what is printed is read again, and a
probe ranks them.
"""

from pathlib import Path

import pytest

from kbq.errors import KbqError
from kbq.kb import KnowledgeBase
from kbq.tables.fill import best_known
from kbq.tables.relations import (
    Relation,
    as_toml,
    known_property,
    known_relations,
    preset,
    property_iri,
    read_relations,
    relation_named,
    relations_of,
)


def test_every_known_relation_can_be_asked_and_published(tmp_path: Path) -> None:
    known = list(known_relations())
    assert (
        len(known)
        == len({one.name for one in known})
        == len({one.property for one in known})
        == 168
    )
    assert all(property_iri(one.property) and one.query and one.type for one in known)
    (tmp_path / "r.toml").write_text(as_toml(known, ["a comment"] * len(known)), "utf-8")
    assert read_relations(tmp_path / "r.toml") == known
    assert relations_of(["@"]) == known
    groups = {"people", "works", "organisations", "places", "events", "species", "things", "usual"}
    assert {group for presets in known_relations().values() for group in presets} == groups


def test_every_known_quantity_says_what_its_unit_measures() -> None:
    for one in known_relations():
        assert bool(one.measures) == (one.type == "quantity"), one.name
    assert relation_named("elevation").measures == ("length",)


def test_presets_and_known_names_are_relations() -> None:
    assert preset("date of birth") == [
        Relation("date of birth", ("date of birth",), type="date", property="P569")
    ]
    assert [one.name for one in relations_of(["@species", "@works", "@people"])].count("genre") == 1
    assert known_property("http://www.wikidata.org/entity/P19") == preset("place of birth")[0]
    assert (known_property("P999999"), known_property("")) == (None, None)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (
            "place of brith",
            "place of brith is neither a preset nor a known relation: did you mean place of birth?",
        ),
        (
            "@place of brith",
            "@place of brith is neither a preset nor a known relation: did you mean @place of "
            "birth?",
        ),
        ("zzz", "zzz is neither a preset nor a known relation: choose from people, "),
    ],
)
def test_a_hint_is_written_as_the_name_was(typed: str, said: str) -> None:
    with pytest.raises(KbqError) as caught:
        preset(typed)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("@poeple", "@poeple is neither a preset nor a known relation: did you mean @people?"),
        ("@zzz", "@zzz is neither a preset nor a known relation: choose from @people, @"),
        (
            "rel.yaml",
            "'rel.yaml' looks like a file: relations are read from a file that ends in .toml",
        ),
        ("folder/relations.CSV", "'folder/relations.CSV' looks like a file"),
        (
            "spouse, place of birth",
            "'spouse, place of birth' is several relations: give each by itself",
        ),
    ],
)
def test_what_is_none_is_refused(name: str, said: str) -> None:
    with pytest.raises(KbqError) as caught:
        relations_of([name])
    assert str(caught.value).startswith(said)


def test_a_name_with_a_full_stop_is_a_relation() -> None:
    assert [one.name for one in relations_of(["no. of pages", "U.S. state"])] == [
        "no. of pages",
        "U.S. state",
    ]


def test_what_is_answered_best_comes_first() -> None:
    few = KnowledgeBase.sample(device="cpu").with_pages(["S001", "S013"])
    ranked = best_known(few.searcher, [*preset("head coach"), *preset("place of birth")], 2)
    assert [(relation.name, share, pages) for relation, share, pages in ranked] == [
        ("place of birth", 1.0, 2),
        ("head coach", 0.0, 2),
    ]
