"""Reconciliation: the protocol as its schemas have it, a session as OpenRefine makes it, and a
public client.

The schemas here are our own: they say what the specification of version 0.2 demands of each
document, no more.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import jsonschema
import numpy as np
import pytest

from kbq.corpus.pages import Page
from kbq.kb import KnowledgeBase
from kbq.model.model import Model
from kbq.sample_kb import ARTICLES

from .conftest import Serve, running

pytestmark = pytest.mark.usefixtures("modest")

KEY = "a-key-of-sixteen-letters"
EVIL = "<script>alert(1)</script> & \"Co'"


def fields(required: str, optional: str = "", **properties: Any) -> dict[str, Any]:
    """The schema of an object: names of its fields, which are texts unless said otherwise."""
    names = [*required.split(), *optional.split()]
    return {
        "type": "object",
        "required": required.split(),
        "properties": {name: properties.get(name, {"type": "string"}) for name in names},
        "additionalProperties": False,
    }


def list_of(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


TEXT, NUMBER, TRUTH = {"type": "string"}, {"type": "number"}, {"type": "boolean"}
TEMPLATE = {"type": "string", "pattern": r"^https?://.*\{\{id\}\}"}
ADDRESS = {"type": "string", "pattern": "^https?://"}
PLACE = fields(
    "service_url service_path",
    service_url=ADDRESS,
    service_path={"type": "string", "pattern": "^/[^?]*$"},
)
FLYOUT = {"type": "string", "pattern": r"\$\{id\}"}
TYPE = fields("id name")
SETTING = {
    "oneOf": [
        fields("type name label default help_text", type={"const": "number"}, default=NUMBER),
        fields(
            "type name label default help_text choices",
            type={"const": "select"},
            choices=list_of(fields("value name")),
        ),
    ]
}
SCHEMAS: dict[str, dict[str, Any]] = {
    "manifest": fields(
        "versions name identifierSpace schemaSpace documentation serviceVersion batchSize "
        "defaultTypes view preview suggest extend",
        "authentication",
        versions={"type": "array", "items": TEXT, "contains": {"const": "0.2"}},
        identifierSpace=ADDRESS,
        schemaSpace=ADDRESS,
        documentation=ADDRESS,
        batchSize={"type": "integer"},
        defaultTypes=list_of(TYPE),
        view=fields("url", url=TEMPLATE),
        preview=fields(
            "url width height", url=TEMPLATE, width={"type": "integer"}, height={"type": "integer"}
        ),
        suggest=fields(
            "entity property type",
            entity=PLACE
            | {
                "properties": PLACE["properties"]
                | {"flyout_service_url": ADDRESS, "flyout_service_path": FLYOUT}
            },
            property=PLACE,
            type=PLACE,
        ),
        extend=fields(
            "propose_properties property_settings",
            propose_properties=PLACE,
            property_settings=list_of(SETTING),
        ),
        authentication=fields("type name in", type={"const": "apiKey"}),
    ),
    "results": {
        "type": "object",
        "additionalProperties": fields(
            "result",
            result=list_of(
                fields(
                    "id name type score match description features",
                    type=list_of(TYPE),
                    score={"type": "number", "minimum": 0, "maximum": 100},
                    match=TRUTH,
                    features=list_of(fields("id value", value={"type": ["boolean", "number"]})),
                )
            ),
        ),
    },
    "extension": fields(
        "meta rows",
        meta=list_of(fields("id name")),
        rows={
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "additionalProperties": list_of(
                    {
                        "oneOf": [
                            fields(""),
                            fields("id name"),
                            fields("str"),
                            fields("date"),
                            fields("float", float=NUMBER),
                        ]
                    }
                ),
            },
        },
    ),
    "entities": fields(
        "result", result=list_of(fields("id name description notable", notable=list_of(TYPE)))
    ),
    "relations": fields("result", result=list_of(fields("id name"))),
    "types": fields("result", result=list_of(TYPE)),
    "proposal": fields(
        "type properties", "limit", properties=list_of(fields("id name")), limit={"type": "integer"}
    ),
    "error": fields("status message", status={"const": "error"}),
}


def checked(answer: httpx2.Response, schema: str, status: int = 200) -> Any:
    """The document of an answer, which any page of a browser may read, and which fits its schema."""
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (status, "*"), (
        answer.text
    )
    document = answer.json()
    jsonschema.validate(document, SCHEMAS[schema])
    return document


@pytest.fixture(scope="module")
def folders(
    model: Model, sample: KnowledgeBase, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """The sample, and pages with names that are the same, or that would be obeyed."""
    pages = [
        Page("1", "Emma", ["Emma is a novel by Jane Austen."]),
        Page("2", "Emma", ["Emma is a film by Autumn de Wilde."]),
        Page("../a b?#%/é", EVIL, [EVIL]),
        Page("4", "Empty"),
    ]
    folder = tmp_path_factory.mktemp("kbs") / "names"
    KnowledgeBase.build(pages, folder, model)
    return {"sample": sample.folder, "names": folder}


@pytest.fixture(scope="module")
def client(folders: dict[str, Path]) -> Iterator[httpx2.Client]:
    with running(folders) as service:
        yield service.client


def reconcile(
    client: httpx2.Client, *names: dict[str, Any], at: str = "/reconcile"
) -> list[list[dict[str, Any]]]:
    """The candidates of each name."""
    queries = {f"q{number}": name for number, name in enumerate(names)}
    found = checked(client.post(at, data={"queries": json.dumps(queries)}), "results")
    assert list(found) == list(queries)
    return [each["result"] for each in found.values()]


def extend(client: httpx2.Client, at: str = "/reconcile", **request: Any) -> Any:
    return checked(client.post(at, data={"extend": json.dumps(request)}), "extension")


def titles() -> dict[str, str]:
    """The titles of the sample, with their ids."""
    articles = map(json.loads, ARTICLES.read_text("utf-8").splitlines())
    return {article["title"]: article["id"] for article in articles}


def test_a_session_of_openrefine(client: httpx2.Client) -> None:
    manifest = checked(client.get("/reconcile"), "manifest")
    assert manifest == client.get("/reconcile/").json()
    assert {manifest["suggest"]["entity"]["service_url"], *manifest["versions"]} == {
        str(client.base_url).rstrip("/"), "0.1", "0.2",
    }  # fmt: skip
    names = list(titles())[:100]
    for found in reconcile(client, *({"query": name, "limit": 3} for name in names[:10])):
        # From which OpenRefine guesses the type.
        assert found[0]["type"] == [{"id": "page", "name": "Page"}]
        assert len(found) <= 3
    ids: list[str] = []
    for first in range(0, 100, 10):
        asked = [
            {"query": name, "type": "page", "type_strict": "should"}
            for name in names[first : first + 10]
        ]
        candidates = reconcile(client, *asked)
        assert [each[0]["match"] for each in candidates] == [True] * 10
        ids += [each[0]["id"] for each in candidates]
    assert ids == list(titles().values())[:100]
    place = manifest["extend"]["propose_properties"]
    proposed = checked(
        client.get(place["service_url"] + place["service_path"], params={"type": "page"}),
        "proposal",
    )
    columns = [one["id"] for one in proposed["properties"][:3]]
    assert columns == ["place of birth", "date of birth", "place of death"]
    cells: dict[str, Any] = {}
    for first in (0, 5):
        wanted = ids[first : first + 5]
        rows = extend(
            client, ids=wanted, properties=[{"id": column, "settings": {}} for column in columns]
        )["rows"]
        assert list(rows) == wanted
        # Without one, OpenRefine shifts the others.
        assert {tuple(row) for row in rows.values()} == {tuple(columns)}
        cells |= rows
    table = KnowledgeBase.sample().fill(
        [{"subject": name} for name in names[:10]], columns, dates="iso"
    )
    for row, page_id in zip(table.rows, ids[:10], strict=True):
        for column in columns:
            values = [
                value.get("name") or value.get("str") or value["date"].removesuffix("T00:00:00Z")
                for value in cells[page_id][column]
            ]
            assert values == ([row[column]] if row.get(column) else [])
    assert cells["S001"]["place of birth"] == [{"id": "S111", "name": "Warsaw"}]
    # A moment, as OpenRefine has dates.
    assert cells["S001"]["date of birth"] == [{"date": "1867-11-07T00:00:00Z"}]
    url = manifest["preview"]["url"].replace("{{id}}", "S001")
    assert "Marie Curie</h1>" in client.get(url).text


def test_names_are_matched_only_where_one_page_is_meant(client: httpx2.Client) -> None:
    (emmas,) = reconcile(client, {"query": "emma"}, at="/reconcile/kb/names")
    assert [(one["id"], one["score"], one["match"]) for one in emmas] == [
        ("1", 99.0, False),
        ("2", 99.0, False),
    ]
    names = ["Curie, Marie", "FREDERIC CHOPIN", "S001", "Robert Schuman", "Curie", "Zork", ""]
    found = reconcile(client, *({"query": name} for name in names))
    assert [(each[0]["name"], each[0]["match"]) if each else () for each in found] == [
        ("Marie Curie", True), ("Frédéric Chopin", True), ("Marie Curie", True), ("Robert Schumann", False),
        ("Marie Curie", False), (), (),
    ]  # fmt: skip


def test_a_name_that_is_none_has_no_candidates_and_the_others_have_theirs(
    client: httpx2.Client,
) -> None:
    names: list[Any] = [
        {"query": "Warsaw"}, {"query": None}, {}, None, "Warsaw", {"query": 7}, {"query": ["Warsaw"]}, {"query": True},
        {"query": "Warsaw", "limit": None, "properties": None}, {"query": "Warsaw", "limit": "many"},
        {"query": "Warsaw", "properties": [7]},
    ]  # fmt: skip
    found = reconcile(client, *names)
    assert [[one["name"] for one in each[:1]] for each in found] == [
        ["Warsaw"], [], [], [], [], [], [], [], ["Warsaw"], ["Warsaw"], ["Warsaw"],
    ]  # fmt: skip


def test_other_cells_tell_candidates_apart(client: httpx2.Client) -> None:
    said = {"pid": "place of birth", "v": "Warsaw"}
    as_page = {"pid": "place of birth", "v": {"id": "S111", "name": "Warsaw"}}
    denied = {"pid": "place of birth", "v": "London"}
    unknown = {"pid": "record label", "v": "Motown"}
    blank = {"pid": "place of birth", "v": " "}
    several = {"pid": "place of birth", "v": ["Rome", "warsaw"]}
    found = reconcile(
        client,
        *(
            {"query": "Marie Curie", "properties": [other]}
            for other in (said, as_page, denied, unknown, several)
        ),
        {"query": "Marie Curie", "properties": [blank, said]},
        {"query": "Curie", "properties": [said]},
    )
    features = [each[0]["features"][1:] for each in found]
    agrees = [{"id": "place of birth", "value": True}]
    assert features == [
        agrees,
        agrees,
        [{"id": "place of birth", "value": False}],
        [],
        agrees,
        agrees,
        agrees,
    ]
    assert [(each[0]["score"], each[0]["match"]) for each in found[:6]] == [
        (100.0, True), (100.0, True), (71.4, False), (100.0, True), (100.0, True), (100.0, True),
    ]  # fmt: skip
    assert [(one["name"], one["match"]) for one in found[6][:1]] == [("Marie Curie", False)]


@pytest.mark.parametrize(
    ("settings", "cells"),
    [
        ({}, [{"id": "S111", "name": "Warsaw"}]),
        ({"limit": "1", "probability": "0.5"}, [{"id": "S111", "name": "Warsaw"}]),
        ({"limit": "", "probability": None, "other": 1}, [{"id": "S111", "name": "Warsaw"}]),
        ({"probability": 0.99}, []),
        ({"content": "place"}, [{"str": "S001, paragraph 0, characters 24-30"}]),
    ],
)
def test_a_column_has_settings(
    settings: dict[str, Any], cells: list[Any], client: httpx2.Client
) -> None:
    found = extend(
        client, ids=["S001", "no page"], properties=[{"id": "place of birth", "settings": settings}]
    )
    assert found == {
        "meta": [{"id": "place of birth", "name": "place of birth"}],
        "rows": {"S001": {"place of birth": cells}, "no page": {"place of birth": []}},
    }


def test_a_cell_can_have_the_probability_all_values_or_the_sentence(client: httpx2.Client) -> None:
    chosen = {"probability": {"content": "probability"}, "all": {"limit": 0, "probability": 0}}
    found = [
        extend(client, ids=["S001"], properties=[{"id": "place of birth", "settings": settings}])[
            "rows"
        ]["S001"]
        for settings in chosen.values()
    ]
    assert found[0]["place of birth"][0]["float"] == pytest.approx(0.95, abs=0.03)
    assert found[1]["place of birth"][0] == {"id": "S111", "name": "Warsaw"}
    assert {"str": "Paris"} in found[1]["place of birth"]
    sentence = extend(
        client,
        ids=["S001"],
        properties=[{"id": "place of birth", "settings": {"content": "sentence"}}],
    )
    assert sentence["rows"]["S001"]["place of birth"][0]["str"].startswith(
        "Marie Curie was born in Warsaw, then part "
    )


def test_suggestions(client: httpx2.Client) -> None:
    noise = {
        "spell": "always",
        "exact": "false",
        "scoring": "schema",
        "prefixed": "true",
        "key": "",
        "callback": "",
    }

    def suggested(kind: str, prefix: str) -> list[str]:
        schema = {"entity": "entities", "property": "relations", "type": "types"}[kind]
        answer = client.get(f"/reconcile/suggest/{kind}", params={"prefix": prefix} | noise)
        return [one["name"] for one in checked(answer, schema)["result"]]

    assert suggested("entity", "mar") == ["Marie Curie", "Mary Shelley"]
    assert suggested("entity", "S001") == ["Marie Curie"]
    assert suggested("entity", "zzz") == []
    assert suggested("property", "place of") == ["place of birth", "place of death", "place of"]
    assert suggested("property", "place") == ["place of birth", "place of death", "place"]
    assert suggested("property", "shoe  size") == ["shoe size"]
    assert suggested("type", "p") == ["Page"]
    unbounded = checked(client.get(f"/reconcile/properties?type=&limit={'9' * 5000}"), "proposal")
    assert "limit" not in unbounded
    proposed = checked(client.get("/reconcile/properties?type=&limit=2"), "proposal")
    assert proposed == {
        "type": "page", "limit": 2,
        "properties": [{"id": name, "name": name} for name in ("place of birth", "date of birth")],
    }  # fmt: skip


def test_nothing_in_a_page_is_obeyed(client: httpx2.Client) -> None:
    page_id = "../a b?#%/é"
    (found,) = reconcile(client, {"query": EVIL}, at="/reconcile/kb/names")
    assert [(one["id"], one["name"], one["match"]) for one in found[:1]] == [
        ("~2E~2E/a b~3F~23~25/é", EVIL, True)
    ]
    answer = client.get("/reconcile/kb/names/preview", params={"id": found[0]["id"]})
    assert (
        answer.content == client.get("/reconcile/kb/names/preview", params={"id": page_id}).content
    )
    assert answer.status_code == 200
    assert "<script" not in answer.text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &#34;Co&#39;" in answer.text
    policy = answer.headers["content-security-policy"]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; sandbox"
    assert "x-frame-options" not in answer.headers  # OpenRefine shows it in a frame
    flyout = client.get("/reconcile/kb/names/flyout", params={"id": page_id}).json()
    assert (flyout["id"], "<script" in flyout["html"]) == (page_id, False)
    assert "Empty</h1>" in client.get("/reconcile/kb/names/preview?id=4").text


@pytest.mark.parametrize(
    ("fields", "status", "said"),
    [
        ({}, 400, "the request has neither queries nor extend"),
        ({"queries": "{"}, 400, "queries cannot be read: Expecting property name"),
        ({"queries": "[]"}, 400, "queries cannot be read: Expected `object`, got `array`"),
        (
            {"queries": '{"q0": ' + "[" * 100_000 + "]" * 100_000 + "}"},
            400,
            "queries cannot be read",
        ),
        (
            {"queries": json.dumps({str(number): {} for number in range(26)})},
            413,
            "has 26 names, at most 25 are taken",
        ),
        (
            {"queries": '{"q0": {"query": "Emma", "properties": [{"pid": "", "v": 1}]}}'},
            422,
            "relation ''",
        ),
        ({"extend": '{"properties": []}'}, 400, "send ids and properties, each a list"),
        (
            {"extend": json.dumps({"ids": ["1"] * 501, "properties": [{"id": "a"}] * 2})},
            413,
            "has 1,002 cells",
        ),
        (
            {"extend": '{"ids": ["1"], "properties": [{"id": "a [SEP] b"}]}'},
            422,
            "write words, without [SEP]",
        ),
        (
            {"extend": '{"ids": ["1"], "properties": [{"id": "a", "settings": {"limit": -1}}]}'},
            422,
            "the settings of 'a' have no meaning: Expected `int` >= 0",
        ),
        (
            {
                "extend": '{"ids": ["1"], "properties": [{"id": "a", "settings": {"probability": 2}}]}'
            },
            422,
            "<= 1.0",
        ),
    ],
)
def test_bad_requests_are_told_as_the_protocol_has_it(
    fields: dict[str, str], status: int, said: str, client: httpx2.Client
) -> None:
    document = checked(client.post("/reconcile", data=fields), "error", status)
    assert said in document["message"]
    if fields and len(str(fields)) < 10_000:
        assert client.get("/reconcile", params=fields).json() == document


ODD_IDS = [
    "report.pdf#page=1", "C# and F#.md", "R+D 100%.md", "what?.md", "a&b=c", "50%25", "~23", "./x/../y", "é ü;,:@",
]  # fmt: skip


def encode_uri(text: str) -> str:
    """JavaScript's encodeURI, which OpenRefine applies to a whole address, with the id as it is."""
    return quote(text, safe=";,/?:@&=+$-_.!~*'()#")


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """A client of a service whose pages have such ids."""
    folder = tmp_path_factory.mktemp("kbs") / "odd"
    pages = [
        Page(page_id, f"Title {number}", ["It is red."]) for number, page_id in enumerate(ODD_IDS)
    ]
    KnowledgeBase.build(pages, folder, device="cpu")
    with running({"odd": folder}) as service:
        yield service.client


@pytest.mark.parametrize("encodings", [0, 1, 2])
def test_what_openrefine_makes_of_an_id_still_finds_its_page(
    odd: httpx2.Client, encodings: int
) -> None:
    manifest = odd.get("/reconcile").json()
    for number, page_id in enumerate(ODD_IDS):
        (found, *_) = reconcile(odd, {"query": f"Title {number}", "limit": 1})[0]
        for what in ("view", "preview"):
            address = manifest[what]["url"].replace("{{id}}", found["id"])
            for _ in range(encodings):
                address = encode_uri(address)
            answer = odd.get(address)
            assert (answer.status_code, f">Title {number}</h1>" in answer.text) == (200, True), (
                address
            )
        extend = {"ids": [found["id"], page_id], "properties": [{"id": "colour"}]}
        assert list(
            odd.post("/reconcile", data={"extend": json.dumps(extend)}).json()["rows"]
        ) == list(dict.fromkeys([found["id"], page_id]))
        suggested = odd.get(
            "/reconcile/suggest/entity", params={"prefix": f"title {number}"}
        ).json()["result"]
        assert [one["id"] for one in suggested] == [found["id"]]


BORN = {"id": "place of birth"}


@pytest.mark.parametrize(
    ("extend", "rows"),
    [
        ({"ids": ["S001", None], "properties": [BORN]}, {"S001": ["Warsaw"], "null": []}),
        (
            {"ids": ["S001", 5, 1.5, True], "properties": [BORN]},
            {"S001": ["Warsaw"], "5": [], "1.5": [], "true": []},
        ),
        (
            {"ids": [["S001"], {}, "S001"], "properties": [BORN]},
            {'["S001"]': [], "{}": [], "S001": ["Warsaw"]},
        ),
        ({"ids": ["S001"], "properties": [BORN | {"settings": None}]}, {"S001": ["Warsaw"]}),
        ({"ids": ["S001"], "properties": [BORN | {"settings": []}]}, {"S001": ["Warsaw"]}),
        (
            {"ids": ["S001"], "properties": [BORN | {"settings": {"limit": None}}]},
            {"S001": ["Warsaw"]},
        ),
        ({"ids": ["S001"], "properties": [None, BORN, {"id": None}]}, {"S001": ["Warsaw"]}),
    ],
)
def test_what_is_odd_in_a_batch_is_empty_and_the_rest_is_filled(
    extend: dict[str, Any], rows: dict[str, list[str]], client: httpx2.Client
) -> None:
    answer = client.post("/reconcile", data={"extend": json.dumps(extend)})
    assert answer.status_code == 200, answer.text
    found = {
        key: [one.get("str", one.get("name")) for one in row["place of birth"]]
        for key, row in answer.json()["rows"].items()
    }
    assert found == rows


def test_a_property_without_a_value_does_not_cost_the_query_its_candidates(
    client: httpx2.Client,
) -> None:
    properties = [None, {"pid": None, "v": "x"}, {"pid": "spouse", "v": None}, {"v": 1}]
    for query in (
        {"properties": properties},
        {"properties": None, "type": None},
        {"limit": "x"},
        {"limit": [1]},
    ):
        (found,) = reconcile(client, {"query": "Marie Curie", **query})
        assert (found[0]["id"], found[0]["match"]) == ("S001", True)


def test_unknown_pages_and_knowledge_bases(client: httpx2.Client) -> None:
    checked(client.get("/reconcile/kb/none"), "error", 404)
    assert (
        checked(client.get("/reconcile/preview?id=none"), "error", 404)["message"]
        == "sample has no page 'none'"
    )
    checked(client.get("/reconcile/flyout", headers={"Accept": "text/html"}), "error", 404)
    checked(client.get("/reconcile/none"), "error", 404)
    checked(client.delete("/reconcile"), "error", 405)
    checked(client.post("/reconcile", content=b"x" * 2_000_000), "error", 413)
    checked(client.post("/reconcile", headers={"Host": "evil.example"}), "error", 421)


def test_strange_names_are_only_names(client: httpx2.Client) -> None:
    names = ["\x00", "\ud800", "a" * 100_000, "[SEP]", "%s {} ${id}", "é" * 4096, "NaN"]
    assert (
        reconcile(
            client, *({"query": name, "limit": limit} for name in names for limit in (1e300, -1))
        )
        == [[]] * 14
    )
    asked = {
        "\ud800 key": {
            "query": "Emma",
            "limit": 1,
            "unknown": [],
            "type": ["page"],
            "type_strict": "all",
        }
    }
    answer = client.post("/reconcile", data={"queries": json.dumps(asked)})
    assert [one["name"] for one in checked(answer, "results")["\ud800 key"]["result"]] == ["Emma"]


PROPERTY = {"pid": "spouse", "v": "x"}


@pytest.mark.parametrize(
    ("field", "asked", "said"),
    [
        ("queries", {"q": {"query": "x", "properties": [PROPERTY] * 2000}}, "6,000 properties of candidates"),
        ("queries", {f"q{n}": {"query": "x", "properties": [PROPERTY] * 5} for n in range(25)}, "375 properties"),
        ("queries", {"q": {"query": "x", "properties": [PROPERTY | {"pid": "x" * 5000}]}}, "5,000 letters in the name"),
        ("queries", {"q": {"query": "x", "properties": [PROPERTY | {"v": ["x"] * 5000}]}}, "5,000 values of one"),
        ("extend", {"ids": ["a"] * 9000, "properties": []}, "9,000 rows and columns"),
        ("extend", {"ids": [], "properties": [{"id": "a"}] * 9000}, "9,000 rows and columns"),
        ("extend", {"ids": ["a"] * 20, "properties": [{"id": "a"}] * 20}, "400 cells, at most 300 are taken"),
    ],
)  # fmt: skip
def test_what_a_request_becomes_is_bounded(
    client: httpx2.Client, field: str, asked: Any, said: str
) -> None:
    answer = client.post("/reconcile", data={field: json.dumps(asked)})
    assert said in checked(answer, "error", 413)["message"]


def test_who_waits_too_long_for_all_of_it_is_told(folders: dict[str, Path], serve: Serve) -> None:
    service = serve(folders, seconds=0.3)
    asked = {
        "q": {
            "query": "Marie Curie",
            "properties": [PROPERTY | {"pid": f"p{n}"} for n in range(99)],
        }
    }
    answer = service.client.post("/reconcile", data={"queries": json.dumps(asked)})
    assert "no answer within 0.3 seconds" in checked(answer, "error", 504)["message"]


def test_a_key_may_be_in_the_address(folders: dict[str, Path], serve: Serve) -> None:
    client = serve(folders, keys=(KEY,)).client
    assert "a key is needed" in checked(client.get("/reconcile"), "error", 401)["message"]
    manifest = checked(client.get(f"/reconcile?api_key={KEY}"), "manifest")
    assert manifest["authentication"] == {"type": "apiKey", "name": "api_key", "in": "query"}
    assert client.get(manifest["preview"]["url"].replace("{{id}}", "S001")).status_code == 200
    asked = {"queries": '{"q0": {"query": "Marie Curie"}}'}
    assert (
        client.post(f"/reconcile?api_key={KEY}", data=asked).json()["q0"]["result"][0]["id"]
        == "S001"
    )


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # of pandas, in the client
def test_a_public_client_reconciles(client: httpx2.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    reconciler = pytest.importorskip("reconciler", reason="the public client is not installed")
    pandas = pytest.importorskip("pandas")
    monkeypatch.setattr(np, "NaN", np.nan, raising=False)  # which it still uses
    names = pandas.Series([*list(titles())[:25], "Zork"])
    found = reconciler.reconcile(
        names, type_id="page", reconciliation_endpoint=str(client.base_url.join("/reconcile"))
    )
    assert dict(zip(found["input_value"], found["id"], strict=True)) == dict(
        list(titles().items())[:25]
    ) | {"Zork": pytest.approx(np.nan, nan_ok=True)}
    assert found["match"].tolist() == [True] * 25 + [False]
