"""RDF: accepted claims become facts in N-Triples, or in TriG one named graph each, with provenance and place.

Sources: RDF 1.1 N-Triples and TriG, PROV-O, Web Annotation Vocabulary (W3C).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote

from kbq.dump.page_directory import PageValue
from kbq.errors import KbqError
from kbq.storage.records import digest_of_bytes
from kbq.tables.claims import Claim, DateValue, QuantityValue, Source
from kbq.tables.dates import gregorian
from kbq.tables.relations import Relation
from kbq.tables.wikidata import URL, WIKIDATA, property_iri, subject_number, value_number
from kbq.text.letters import without_surrogates

XSD = "http://www.w3.org/2001/XMLSchema#"
EDTF = "http://id.loc.gov/datatypes/edtf/EDTF"
PREFIXES = f"""@prefix kbq: <urn:kbq:> .
@prefix oa: <http://www.w3.org/ns/oa#> .
@prefix prov: <http://www.w3.org/ns/prov#> .
@prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix xsd: <{XSD}> .
"""
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
    properties = _properties(relations)
    return dict.fromkeys(fact(claim, properties, ids) + " ." for claim in claims if claim.accepted)


def _properties(relations: Iterable[Relation]) -> dict[str, str]:
    return {relation.name: relation.property for relation in relations if relation.property}


def fact(claim: Claim, properties: Mapping[str, str], ids: Mapping[str, str]) -> str:
    """Return the triple of a claim, without the full stop."""
    subject = _thing(claim.subject, subject_number(claim, ids))
    return f"{subject} {_property(claim.relation, properties)} {_object(claim, ids)}"


def trig(
    claims: Iterable[Claim], source: Source, relations: Iterable[Relation], ids: Mapping[str, str]
) -> Iterator[str]:
    """Yield the parts of a TriG file: what the claims come from, then each accepted claim as a named graph.

    Their provenance is in the graph `urn:kbq:provenance`. Args and raises: as `ntriples`.
    """
    properties = _properties(relations)
    run = f"urn:kbq:run:{digest_of_bytes(repr(source).encode('utf-8', 'backslashreplace'))}"
    yield f"""{PREFIXES}
kbq:provenance {{
    <{run}> a prov:Activity ;
        prov:startedAtTime {_literal(source.time, "xsd:dateTime")} ;
        prov:wasAssociatedWith [ a prov:SoftwareAgent ; rdfs:label {_literal(f"kbq {source.kbq_version}")} ] ;
        prov:used <urn:kbq:knowledge-base:{_quoted(source.knowledge_base)}> , <urn:kbq:model:{_quoted(source.model)}> ;
        kbq:command {_literal(source.command)} .
}}"""
    for claim in claims:
        if claim.accepted:
            yield _graphs(claim, source, run, fact(claim, properties, ids))


def _graphs(claim: Claim, source: Source, run: str, triple: str) -> str:
    """Return the graph of a claim, and its provenance."""
    before, value, behind = claim.parts
    probability = "" if claim.probability is None else f"\n        kbq:probability {_decimal(claim.probability)} ;"
    quantity = ""
    if isinstance(claim.normal, QuantityValue):
        quantity = f"\n        kbq:number {_literal(claim.normal.number, 'xsd:decimal')} ;"
        quantity += f" kbq:unit {_literal(claim.normal.unit)} ;" if claim.normal.unit else ""
    derived = f"""prov:wasDerivedFrom [ a oa:SpecificResource ;
            oa:hasSource {_page(claim)} ;
            oa:hasSelector [ a oa:FragmentSelector ; rdf:value "paragraph={claim.paragraph}" ;
                oa:refinedBy [ a oa:TextPositionSelector ; oa:start {claim.start} ; oa:end {claim.end} ] ] ,
                [ a oa:TextQuoteSelector ; oa:exact {_literal(value)} ;
                    oa:prefix {_literal(before)} ; oa:suffix {_literal(behind)} ] ] .
    {_page(claim)} rdfs:label {_literal(claim.title)} ."""
    return f"""
<urn:kbq:claim:{claim.digest}> {{
    {triple} .
}}
kbq:provenance {{
    <urn:kbq:claim:{claim.digest}> a prov:Entity ;
        prov:generatedAtTime {_literal(source.time, "xsd:dateTime")} ;
        prov:wasGeneratedBy <{run}> ;{probability}
        kbq:saysTheSame {claim.says_the_same} ;{quantity}
        {"kbq:byHand true ." if claim.by_hand else derived}
}}"""


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


def _page(claim: Claim) -> str:
    """Return the address of a page, as its corpus says, or a URN."""
    url = claim.metadata.get("url")
    if isinstance(url, str):
        url = quote(re.sub("%(?![0-9A-Fa-f]{2})", "%25", without_surrogates(url)), safe="%/:?#@!$&'()*+,;=~")
        if URL.fullmatch(url):
            return f"<{url}>"
    return f"<urn:kbq:page:{_quoted(claim.page_id)}>"


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


def _decimal(number: float) -> str:
    return f"{number:.6f}".rstrip("0").ljust(3, "0") if number else "0.0"
