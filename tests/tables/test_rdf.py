"""RDF: rdflib reads what is written, and finds every text as it was."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kbq.dump.page_directory import PageValue
from kbq.english.dates import DateValue
from kbq.errors import KbqError
from kbq.tables.claims import Claim, QuantityValue, write_lines
from kbq.tables.outputs import fact, ntriples
from kbq.tables.relations import Relation
from kbq.text.normal_forms import tidy, without_surrogates

rdflib: Any = pytest.importorskip(
    "rdflib", reason="what is written is read by rdflib: pip install rdflib"
)

# Rdflib warns of itself.
pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning:rdflib")
WD, WDT, XSD = (
    "http://www.wikidata.org/entity/",
    "http://www.wikidata.org/prop/direct/",
    "http://www.w3.org/2001/XMLSchema#",
)
EDTF = "http://id.loc.gov/datatypes/edtf/EDTF"
BIRTH = Claim(
    subject="Marie Curie", relation="date of birth", value="7 November 1867", probability=0.93, accepted=True,
    page_id="S1", title="Marie Curie", paragraph=2, start=120, end=135, sentence="She was born on 7 November 1867.",
    sentence_start=104, normal=DateValue("1867-11-07", 11), metadata={"url": "https://example.org/curie"},
)  # fmt: skip
AWFUL = (
    "a \"b\" \\ \n\r\t\x00\x08\x0b\x7f\x85\u2028 <b> {c} | ^ ` é 👩‍🚀 \ufffe . ; \\u0041 %20 '''"
)
RELATIONS = [Relation("date of birth", ("born",), property="P569"), Relation("length", ("length",))]


def triples(
    path: Path, claims: list[Claim], ids: dict[str, str] | None = None
) -> set[tuple[str, str, Any]]:
    write_lines(path, ntriples(claims, RELATIONS, ids or {}))
    return {
        (str(s), str(p), o) for s, p, o in rdflib.Graph().parse(data=path.read_bytes(), format="nt")
    }


def saying(value: str, **more: Any) -> Claim:
    place: dict[str, Any] = {"start": 104, "end": 104 + len(value), "sentence": value}
    return replace(BIRTH, value=value, **place, **({"normal": None} | more))


def test_a_fact_in_n_triples(tmp_path: Path) -> None:
    write_lines(
        tmp_path / "f.nt",
        ntriples([BIRTH, BIRTH, replace(BIRTH, value="1867", accepted=False)], RELATIONS, {}),
    )
    assert (tmp_path / "f.nt").read_text("utf-8") == (
        f'<urn:kbq:thing:Marie%20Curie> <{WDT}P569> "1867-11-07"^^<{XSD}date> .\n'
    )


@pytest.mark.parametrize(
    ("normal", "expected", "datatype"),
    [
        (None, "as it is written", None),
        (DateValue("1867-11", 10), "1867-11", XSD + "gYearMonth"),
        (DateValue("1867", 9), "1867", XSD + "gYear"),
        (DateValue("0079", 9), "0079", XSD + "gYear"),
        (DateValue("1867~", 9), "1867~", EDTF),
        (DateValue("-0043", 9), "-0043", EDTF),
        (DateValue("0000", 9), "0000", EDTF),
        (DateValue("199X", 8), "199X", EDTF),
        (DateValue("18XX", 7), "18XX", EDTF),
        (QuantityValue("6800", ""), "6800", XSD + "decimal"),
        (QuantityValue("12.5", "km"), "as it is written", None),
    ],
)
def test_what_a_value_becomes(
    tmp_path: Path, normal: Any, expected: str, datatype: str | None
) -> None:
    claim = saying("as it is written", normal=normal)
    literal = rdflib.Literal(
        expected, datatype=datatype and rdflib.URIRef(datatype), normalize=False
    )
    assert triples(tmp_path / "f.nt", [claim]) == {
        ("urn:kbq:thing:Marie%20Curie", WDT + "P569", literal)
    }


def test_a_page_as_a_value_meets_a_subject_of_its_title(tmp_path: Path) -> None:
    birth = saying("Warschau", relation="place of birth", normal=PageValue("S9", "Warsaw"))
    country = saying("Poland", relation="country", subject="Warsaw")
    warsaw, place = "urn:kbq:thing:Warsaw", "urn:kbq:relation:place%20of%20birth"
    assert triples(tmp_path / "f.nt", [birth, country]) == {
        ("urn:kbq:thing:Marie%20Curie", place, rdflib.URIRef(warsaw)),
        (warsaw, "urn:kbq:relation:country", rdflib.Literal("Poland")),
    }
    assert triples(
        tmp_path / "f.nt",
        [birth, country],
        ids={"Marie Curie": "Q7186", "S9": "Q270", "Warsaw": "Q270"},
    ) == {
        (WD + "Q7186", place, rdflib.URIRef(WD + "Q270")),
        (WD + "Q270", "urn:kbq:relation:country", rdflib.Literal("Poland")),
    }


@pytest.mark.parametrize(
    "name",
    [
        "P569", "wdt:P569", "wd:P569", "p:P569", "ps:P569", "Property:P569",
        "http://www.wikidata.org/prop/statement/P569", "http://www.wikidata.org/prop/direct/P569",
        "http://www.wikidata.org/entity/P569", "https://www.wikidata.org/wiki/Property:P569",
    ],
)  # fmt: skip
def test_every_name_of_a_property_of_wikidata(tmp_path: Path, name: str) -> None:
    write_lines(
        tmp_path / "f.nt",
        ntriples([BIRTH], [Relation("date of birth", ("born",), property=name)], {}),
    )
    assert f" <{WDT}P569> " in (tmp_path / "f.nt").read_text("utf-8")


@pytest.mark.parametrize(
    "name",
    [
        "birthdate", " ", "P0", "http://x y", "http://x/<a>", "http://x/\ud800", "p569", "http://x/#a#b", "schema:x",
        "ex:P569",
    ],
)  # fmt: skip
def test_a_property_that_is_no_iri_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(
        KbqError,
        match=r"the property of relation 'date of birth' is .*: write a P-number of Wikidata",
    ):
        write_lines(
            tmp_path / "f.nt",
            ntriples([BIRTH], [Relation("date of birth", ("born",), property=name)], {}),
        )
    assert list(tmp_path.iterdir()) == []


@given(st.text(st.characters(exclude_categories=()), min_size=1))
@example(AWFUL)
def test_every_text_is_found_as_it_was(text: str) -> None:
    claim = saying(text, subject=text, relation=text, page_id=text, title=text, metadata={})
    whole = "".join("\ufffd" if 0xD800 <= ord(letter) <= 0xDFFF else letter for letter in text)
    ((subject, relation, value),) = rdflib.Graph().parse(
        data=fact(claim, {}, {}) + " .", format="nt"
    )
    assert str(value) == tidy(whole)
    assert [unquote(str(subject)), unquote(str(relation))] == [
        f"urn:kbq:thing:{whole}",
        f"urn:kbq:relation:{whole}",
    ]


ANY_TEXT = st.text(st.characters(exclude_categories=()), min_size=1)


@given(
    ANY_TEXT,
    ANY_TEXT | st.text("ab%25#?/[]@:é "),
    st.sampled_from(["https://e.org/", "http://", "https://e.org:", "x:"]),
)
def test_a_strict_parser_refuses_nothing(text: str, rest: str, begin: str) -> None:
    oxigraph: Any = pytest.importorskip(
        "pyoxigraph", reason="rdflib reads IRIs that are none: pip install pyoxigraph"
    )
    claim = saying(
        text, subject=text, relation=text, page_id=text, title=text, metadata={"url": begin + rest}
    )
    try:
        line = fact(claim, {text: begin + rest}, {})
    except KbqError:
        return
    (triple,) = oxigraph.parse(f"{line} .", format=oxigraph.RdfFormat.N_TRIPLES)
    assert (triple.predicate.value, triple.object.value) == (
        begin + rest,
        tidy(without_surrogates(text)),
    )
