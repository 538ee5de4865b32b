"""RDF: accepted claims become facts in N-Triples. Source: RDF 1.1 N-Triples (W3C)."""

import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote

from kbq.dump.page_directory import PageValue
from kbq.errors import KbqError
from kbq.tables.claims import Claim, DateValue, QuantityValue
from kbq.tables.dates import gregorian
from kbq.tables.relations import Relation
from kbq.tables.wikidata import WIKIDATA, property_iri, subject_number, value_number
from kbq.text.letters import without_surrogates

XSD = "http://www.w3.org/2001/XMLSchema#"
EDTF = "http://id.loc.gov/datatypes/edtf/EDTF"
DATE_TYPES = {4: "gYear", 7: "gYearMonth", 10: "date"}  # of XML Schema, by the length of an ISO date

_NOT_IN_LITERALS = re.compile('[\x00-\x1f\x7f"\\\\\ufffe\uffff]')
_SHORT = {"\b": r"\b", "\t": r"\t", "\n": r"\n", "\f": r"\f", "\r": r"\r", '"': r"\"", "\\": r"\\"}


def ntriples(claims: Iterable[Claim], relations: Iterable[Relation], ids: Mapping[str, str]) -> Iterable[str]:
    """Return the lines of an N-Triples file: the accepted claims as facts, each once.

    Args:
        relations: one with a property, a P-number of Wikidata or an IRI, is named by it, any other by a URN.
        ids: Q-numbers of Wikidata of subjects, page ids and titles; things without one are named by URNs.

    Raises:
        KbqError: a property is not an IRI.
    """
    properties = {relation.name: relation.property for relation in relations if relation.property}
    return dict.fromkeys(fact(claim, properties, ids) + " ." for claim in claims if claim.accepted)


def fact(claim: Claim, properties: Mapping[str, str], ids: Mapping[str, str]) -> str:
    """Return the triple of a claim, without the full stop."""
    subject = _thing(claim.subject, subject_number(claim, ids))
    return f"{subject} {_property(claim.relation, properties)} {_object(claim, ids)}"


def _thing(name: str, number: str) -> str:
    """Name a subject, or a page as a value: by its Q-number or, so that the two meet, by its title."""
    return f"<{WIKIDATA}/entity/{number}>" if number else f"<urn:kbq:thing:{_quoted(name)}>"


def _property(relation: str, properties: Mapping[str, str]) -> str:
    if relation not in properties:
        return f"<urn:kbq:relation:{_quoted(relation)}>"
    if iri := property_iri(properties[relation]):
        return f"<{iri}>"
    raise KbqError(
        f"the property of relation {relation!r} is {properties[relation]!r}: write a P-number of Wikidata, or an IRI"
    )


def _object(claim: Claim, ids: Mapping[str, str]) -> str:
    normal = claim.normal
    if isinstance(normal, PageValue):
        return _thing(normal.title, value_number(claim, ids))
    if isinstance(normal, DateValue):
        # XML Schema's own versions disagree on the year 0, and it has no word for decades, centuries and "circa".
        edtf = gregorian(normal)
        is_plain = re.fullmatch("[0-9-]+", edtf) and edtf[0] != "-" and edtf[:4] != "0000"
        return _literal(edtf, f"<{XSD}{DATE_TYPES[len(edtf)]}>" if is_plain else f"<{EDTF}>")
    if isinstance(normal, QuantityValue) and not normal.unit:
        return _literal(normal.number, f"<{XSD}decimal>")
    number = "" if normal else value_number(claim, ids)
    return _thing(claim.value, number) if number else _literal(claim.value)


def _quoted(name: str) -> str:
    return quote(without_surrogates(name), safe="")


def _literal(text: str, datatype: str = "") -> str:
    r"""Return a literal with the escapes of canonical N-Triples.

    >>> print(_literal('a "b"\n\\'), _literal("1867", "xsd:gYear"))
    "a \"b\"\n\\" "1867"^^xsd:gYear
    """
    escaped = _NOT_IN_LITERALS.sub(
        lambda found: _SHORT.get(found[0]) or f"\\u{ord(found[0]):04X}", without_surrogates(text)
    )
    return f'"{escaped}"' + (f"^^{datatype}" if datatype else "")
