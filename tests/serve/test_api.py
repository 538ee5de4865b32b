"""The API: what is answered is what the commands and the library say."""

import html
import json
import re
import shlex
from pathlib import Path
from typing import Any

import httpx2
import pytest
import torch
from command_line import Run
from prometheus_client.parser import text_string_to_metric_families

import kbq
from kbq.corpus.pages import Page
from kbq.kb import KnowledgeBase
from kbq.model.bert import Linear
from kbq.tables.relations import WIKIDATA
from kbq.text.normal_forms import normalised

from .conftest import Running, Serve
from .test_access import KEY

SLOT, MISTYPED = "Marie Curie [SEP] place of birth", "Marie Curye [SEP] record label"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, []),
        ({"k": 2, "min_probability": 0.5}, ["-k", "2", "--min-probability", "0.5"]),
        ({"unit": "page", "backend": "bm25"}, ["--unit", "page", "--backend", "bm25"]),
        ({"rerank": 0, "context": 20}, ["--rerank", "0", "--context", "20"]),
        ({"reader": "default", "k": 1}, ["--reader", "default", "-k", "1"]),
    ],
    ids=["default", "likely", "words", "first look", "reader"],
)
def test_documents_are_those_of_the_command(
    service: Running, options: dict[str, Any], words: list[str], run: Run
) -> None:
    assert (
        service.query(SLOT, MISTYPED, **options)
        == run("query", SLOT, MISTYPED, "--json", *words).documents
    )


def test_a_filled_table_is_that_of_the_library(service: Running, sample: KnowledgeBase) -> None:
    subjects, relations = (
        ["Marie Curie", "Isaac Newton", "Zork Blah"],
        ["place of birth", "date_of_birth", "employer"],
    )
    asked = {"subjects": subjects, "relations": relations, "values": "many", "min_probability": 0.3}
    with service.client.stream("POST", "/v1/fill", json=asked) as answer:
        assert answer.headers["content-type"] == "application/x-ndjson"
        *cells, last = [json.loads(line) for line in answer.iter_lines()]
    table = sample.fill(
        [{"subject": one} for one in subjects], relations, values="many", min_probability=0.3
    )
    assert [claim for cell in cells for claim in cell["claims"]] == json.loads(
        json.dumps([claim.to_dict() for claim in table.claims])
    )
    assert [(cell["subject"], cell["relation"]) for cell in cells] == [
        (s, r) for s in subjects for r in relations
    ]
    assert (last["columns"], last["rows"]) == (list(table.columns), list(table.rows))
    assert last["counts"] == {
        "rows": 3,
        "cells": 9,
        "queries": 9,
        "filled": table.counts.filled,
        "unasked": [],
    }
    fact = f"<urn:kbq:thing:Marie%20Curie> <{WIKIDATA}/prop/direct/P19> <urn:kbq:thing:Warsaw> ."
    assert cells[0]["triples"] == [fact]
    assert (cells[0]["values"], cells[0]["views"][0][0]["fact"]) == ("many", fact)


def test_presets_and_known_relations_are_asked_for_by_their_names(service: Running) -> None:
    def columns(*relations: str) -> list[str]:
        answer = service.client.post(
            "/v1/fill", json={"subjects": ["Kilimanjaro"], "relations": relations}
        )
        return list(json.loads(answer.text.splitlines()[-1])["columns"])

    assert columns("@species", "@spouse", "height")[-2:] == ["spouse", "height"]
    answer = service.client.post("/v1/fill", json={"subjects": ["x"], "relations": ["@spose"]})
    assert (answer.status_code, "did you mean @spouse?" in answer.text) == (422, True)
    answer = service.client.post(
        "/v1/fill", json={"subjects": ["x"], "relations": ["relations.toml"]}
    )
    # No file of the server.
    assert json.loads(answer.text.splitlines()[-1])["columns"] == [
        "subject",
        "relations.toml",
    ]


def test_subjects_that_cannot_be_asked_are_named(service: Running) -> None:
    asked = {"subjects": ["Marie Curie", "a [SEP] b"], "relations": ["spouse"]}
    *cells, last = map(json.loads, service.client.post("/v1/fill", json=asked).text.splitlines())
    assert len(cells) == 1
    assert last["counts"]["unasked"][0].startswith(
        "row 2: the query 'a [SEP] b [SEP] spouse' has 2"
    )


def test_a_page_has_its_paragraphs(service: Running, sample: KnowledgeBase) -> None:
    page = service.client.get("/v1/pages/S001").json()
    assert (page["id"], page["title"], page["paragraphs"][0]["number"]) == (
        "S001",
        "Marie Curie",
        0,
    )
    assert page["paragraphs"][0]["text"] == sample.query(SLOT, k=1)[0].context


@pytest.mark.parametrize(
    ("prefix", "titles"),
    [("mar", ["Marie Curie", "Mary Shelley"]), ("MARIE C", ["Marie Curie"]), ("sagrada familia", ["Sagrada Família"]),
     ("zzz", []), ("marie curie x", [])],
)  # fmt: skip
def test_titles_are_found_by_their_beginning(
    service: Running, prefix: str, titles: list[str]
) -> None:
    found = service.client.get("/v1/titles", params={"prefix": prefix}).json()["titles"]
    assert [one["title"] for one in found] == titles


def test_all_titles_are_in_order(service: Running) -> None:
    found = service.client.get("/v1/titles", params={"limit": 3}).json()["titles"]
    assert [one["title"] for one in found] == ["Aconcagua", "Ada Lovelace", "Aida"]
    assert len(service.services.kbs.named().titles.listed("", 0, 1000)[0]) == 198


def test_several_knowledge_bases(serve: Serve, kb_folder: Path, sample: KnowledgeBase) -> None:
    service = serve({"tiny": kb_folder, "sample": sample.folder, "again": sample.folder})
    told = service.client.get("/v1/kbs").json()
    assert [(one["name"], one["pages"]) for one in told["kbs"]] == [
        ("tiny", 12),
        ("sample", 198),
        ("again", 198),
    ]
    assert told["version"] == kbq.__version__
    assert service.query(SLOT, k=1, kb="sample")[0]["answers"][0]["text"] == "Warsaw"
    (tiny,) = service.query("the river", k=1)  # the first
    assert tiny["answers"][0]["page_id"].startswith("P")
    kbs = service.services.kbs
    assert kbs.named("sample").kb.model is kbs.named("again").kb.model
    assert kbs.named("sample").kb.model is not kbs.named("tiny").kb.model


def test_metrics_are_those_of_prometheus(serve: Serve, kb_folder: Path) -> None:
    service = serve({"tiny": kb_folder})
    for _ in range(3):
        service.query("the river", "Paris", k=1)
    service.client.post("/v1/query", json={"queries": []})
    text = service.client.get("/metrics").text
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found["kbq_requests_total", "/v1/query", "200"] == 3
    assert found["kbq_requests_total", "/v1/query", "422"] == 1
    assert found["kbq_queries_total", "tiny", "answered"] == 6
    assert (found["kbq_batch_queries_count",], found["kbq_batch_queries_sum",]) == (3, 6)
    assert found["kbq_queue_queries",] == 0
    assert found["kbq_pages", "tiny"] == 12


def test_health_is_told(service: Running) -> None:
    assert service.client.get("/healthz").json() == {"status": "alive"}
    for path in ("/", "/healthz", "/readyz", "/v1/kbs", "/reconcile"):
        head = service.client.head(path)
        assert (head.status_code, head.content) == (200, b"")
    ready = service.client.get("/readyz")
    assert (ready.status_code, ready.json()) == (
        200,
        {"status": "ready", "kbs": [{"name": "sample", "problem": ""}]},
    )


def test_a_request_keeps_its_id(service: Running) -> None:
    assert (
        service.client.get("/healthz", headers={"X-Request-Id": "my-id_1"}).headers["x-request-id"]
        == "my-id_1"
    )
    other = service.client.get("/healthz", headers={"X-Request-Id": "no id"}).headers[
        "x-request-id"
    ]
    assert len(other) == 32


def test_every_route_is_described(service: Running) -> None:
    routes = service.client.get("/openapi.json").json()
    assert routes["openapi"].startswith("3.1")
    assert {
        "/v1/query",
        "/v1/fill",
        "/v1/pages/{page_id}",
        "/v1/titles",
        "/v1/kbs",
        "/healthz",
    } <= set(routes["paths"])
    assert set(routes["paths"]["/v1/query"]["post"]["responses"]) == {"200", "4XX", "5XX"}
    page = service.client.get("/api").text
    assert all(path in page for path in routes["paths"])


def test_the_examples_of_the_page_are_of_its_knowledge_base_and_work(service: Running) -> None:
    text = html.unescape(re.sub("<[^>]+>", "", service.client.get("/api").text))
    commands = [shlex.split(one) for one in re.findall(r"^curl (?:.*\\\n)?.*", text, re.MULTILINE)]
    assert [next(word for word in one if word.startswith("http")).rpartition(":")[2][5:] for one in commands] == [
        "/v1/query", "/v1/fill", "/reconcile", "/mcp"
    ]  # fmt: skip
    titles = {
        one["title"]
        for one in service.client.get("/v1/titles", params={"limit": 50}).json()["titles"]
    }
    for one in commands:
        address = next(word for word in one if word.startswith("http"))
        if "--data-urlencode" in one:
            name, _, content = one[one.index("--data-urlencode") + 1].partition("=")
            answer = service.client.post(address, data={name: content})
        else:
            headers = dict(
                one[place + 1].split(": ") for place, word in enumerate(one) if word == "-H"
            )
            answer = service.client.post(
                address, content=one[one.index("-d") + 1].encode(), headers=headers
            )
        assert answer.status_code == 200, answer.text
        assert any(title in " ".join(one) for title in titles)
    assert answer.json()["result"]["structuredContent"]["subject"] in titles


def test_pages_are_found_by_any_words_of_their_titles(service: Running) -> None:
    served = service.services.kbs.named()
    assert "Marie Curie" in [one.title for one in served.listed("curie", 0, 9)[0]]
    assert [one.title for one in served.listed("Curie, MARIE", 0, 9)[0]] == ["Marie Curie"]
    every = [one.title for one in served.titles.listed("", 0, 1000)[0]]
    for text in ("a", "the", "of", "is"):
        words = normalised(text).split()
        beginning = [title for title in every if normalised(title).startswith(normalised(text))]
        having = [
            title
            for title in every
            if title not in beginning and set(words) <= set(normalised(title).split())
        ]
        found, count = served.listed(text, 0, 1000)
        assert ([one.title for one in found], count) == (
            beginning + having,
            len(beginning) + len(having),
        )
        pieces = [
            one.title for first in range(0, count, 3) for one in served.listed(text, first, 3)[0]
        ]
        assert pieces == beginning + having


def test_answers_are_described_and_are_as_described(service: Running) -> None:
    described = service.client.get("/openapi.json").json()
    paths, schemas = described["paths"], described["components"]["schemas"]
    found = service.client.post("/v1/query", json={"queries": ["Marie Curie [SEP] spouse"]}).json()
    assert {*found["results"][0]["answers"][0]} <= {*schemas["Found"]["properties"]}
    assert {*found["results"][0]} <= {*schemas["QueryResult"]["properties"]}
    for path, method, name in (
        ("/v1/query", "post", "Queried"),
        ("/v1/kbs", "get", "Served"),
        ("/v1/titles", "get", "NamedPages"),
    ):
        answer = paths[path][method]["responses"]["200"]["content"]["application/json"]["schema"]
        assert answer == {"$ref": f"#/components/schemas/{name}"}
    line = service.client.post(
        "/v1/fill", json={"subjects": ["Marie Curie"], "relations": ["spouse"]}
    ).text.splitlines()[0]
    cell, last, problem = paths["/v1/fill"]["post"]["responses"]["200"]["content"][
        "application/x-ndjson"
    ]["schema"]["oneOf"]
    assert {*json.loads(line)} == {*cell["properties"]}
    assert [*last["properties"], *problem["properties"]] == ["columns", "rows", "counts", "problem"]
    assert {*json.loads(line)["claims"][0]} <= {*schemas["Claim"]["properties"]}
    for name in re.findall(r"#/components/schemas/(\w+)", json.dumps(described)):
        assert name in schemas


def test_the_description_says_how_to_ask(serve: Serve, kb_folder: Path) -> None:
    service = serve({"tiny": kb_folder}, keys=(KEY,), public_url="https://kbq.example")
    # Without a key.
    described = (
        httpx2.get(f"http://127.0.0.1:{service.port}/openapi.json", timeout=300)
        .raise_for_status()
        .json()
    )
    assert described["servers"] == [{"url": "https://kbq.example"}]
    assert described["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    assert described["security"] == [{"key": []}]
    operations = {
        operation["operationId"]: operation
        for path in described["paths"].values()
        for operation in path.values()
    }
    assert {"query", "fill", "page", "titles", "healthz"} <= set(operations)
    assert operations["healthz"]["security"] == []
    assert {tag for one in operations.values() for tag in one["tags"]} <= {
        one["name"] for one in described["tags"]
    }


def test_answers_come_from_chosen_pages(serve: Serve, tmp_path: Path) -> None:
    pages = [
        Page(
            f"p{n}",
            f"Place {n}",
            [f"Place {n} is a town in {where}."],
            metadata={"language": "de" if n % 2 else "en"},
        )
        for n, where in enumerate(("Norway", "Sweden", "Denmark", "Finland"))
    ]
    KnowledgeBase.build(pages, tmp_path / "kb", device="cpu")
    service = serve({"places": tmp_path / "kb"})

    def found(**chosen: Any) -> set[str]:
        (result,) = service.query(
            "Place [SEP] country", k=50, unit="page", backend="bm25", **chosen
        )
        return {answer["page_id"] for answer in result["answers"]}

    assert found() == {"p0", "p1", "p2", "p3"}
    assert found(pages=["p1", "p2"]) == {"p1", "p2"}
    assert found(where={"language": "de"}) == {"p1", "p3"}
    assert found(pages=["p1", "p2"], where={"language": "de"}) == {"p1"}
    for chosen, status in (
        ({"pages": ["none"]}, 404),
        ({"where": {"language": "fr"}}, 422),
        ({"where": {"x": "y"}}, 422),
    ):
        answer = service.client.post(
            "/v1/query", json={"queries": ["Place 1 [SEP] country"], **chosen}
        )
        assert answer.status_code == status


def test_a_table_has_the_options_of_the_command(service: Running, sample: KnowledgeBase) -> None:
    asked: dict[str, object] = {
        "subjects": ["Marie Curie"],
        "relations": ["@date of birth"],
        "dates": "iso",
        "pages": ["S001"],
        "min_probability": 0.3,
    }
    answer = service.client.post("/v1/fill", json=asked | {"ids": {"Marie Curie": "Q7186"}})
    cell, last = map(json.loads, answer.text.splitlines())
    assert last["rows"] == [{"subject": "Marie Curie", "date of birth": "1867-11-07"}]
    assert cell["triples"][0].startswith(
        "<http://www.wikidata.org/entity/Q7186> <http://www.wikidata.org/prop/direct/P569> "
    )
    table = sample.fill([{"subject": "Marie Curie"}], ["place of birth"], precision=0.9)
    promised: dict[str, object] = {
        "subjects": ["Marie Curie"],
        "relations": ["place of birth"],
        "precision": 0.9,
    }
    answer = service.client.post("/v1/fill", json=promised)
    assert json.loads(answer.text.splitlines()[-1])["rows"] == list(table.rows)


@pytest.mark.parametrize(
    ("table", "status", "said"),
    [
        ({"relations": ["x"]}, 422, "the table has no subjects: give either subjects or rows"),
        (
            {"rows": [{"name": "x"}], "relations": ["y"]},
            422,
            "the table has no column 'subject' (it has 'name')",
        ),
        (
            {"subjects": ["x"], "relations": [{"name": "y", "typ": "date"}]},
            422,
            "is unknown: leave it out",
        ),
        (
            {"subjects": ["x"], "relations": ["y"]} | dict.fromkeys(map(str, range(50_000))),
            422,
            "has 50,002 fields: leave unknown ones out",
        ),
        ({"subjects": ["x"], "relations": [""]}, 422, "is empty: write something"),
        (
            {"subjects": ["x"] * 1001, "relations": ["y"]},
            422,
            "subjects: has more than 1,000 items: give fewer",
        ),
    ],
)
def test_a_table_that_is_none_is_one_sentence(
    table: dict[str, Any], status: int, said: str, service: Running
) -> None:
    answer = service.client.post("/v1/fill", json=table)
    assert (answer.status_code, said in json.dumps(answer.json(), ensure_ascii=False)) == (
        status,
        True,
    ), answer.text


def test_halves_of_characters_end_no_answer(service: Running) -> None:
    asked = b'{"rows": [{"subject": "Marie Curie", "\\ud800": "\\udfff"}], "relations": ["spouse"]}'
    answer = service.client.post(
        "/v1/fill", content=asked, headers={"Content-Type": "application/json"}
    )
    _, last = map(json.loads, answer.text.splitlines())
    assert last["rows"] == [
        {"subject": "Marie Curie", "\ufffd": "\ufffd", "spouse": "Pierre Curie"}
    ]


BREAKS = "a\u2028b\u2029c\x85d\x0be\x1cf"  # what ends a line for some readers


def test_a_line_of_json_is_one_line_for_every_reader(serve: Serve, tmp_path: Path) -> None:
    KnowledgeBase.build(
        [Page("1", f"Gus {BREAKS}", [f"Gus Yard was born in Ber{BREAKS}gen."])],
        tmp_path / "kb",
        device="cpu",
    )
    service = serve({"breaks": tmp_path / "kb"})
    table = {
        "rows": [{"subject": f"Gus {BREAKS}", "note": BREAKS}],
        "relations": ["place of birth"],
        "min_probability": 0.0,
    }
    answer = service.client.post("/v1/fill", json=table)
    *_, last = map(json.loads, answer.content.decode().splitlines())
    assert last["rows"][0]["note"] == BREAKS
    answer = service.client.post(
        "/v1/query", json={"queries": ["Gus [SEP] place of birth"], "k": 1}
    )
    assert len(answer.content.decode().splitlines()) == 1
    assert "\u2028" in answer.json()["results"][0]["answers"][0]["context"]


@pytest.mark.parametrize(
    "name", ["k", "unit", "backend", "reader", "rerank", "min_probability", "context", "kb"]
)
def test_null_is_the_default(service: Running, name: str) -> None:
    asked = {"queries": [SLOT], "rerank": 0}
    assert (
        service.client.post("/v1/query", json=asked | {name: None}).json()
        == service.client.post(
            "/v1/query", json=asked if name != "rerank" else {"queries": [SLOT]}
        ).json()
    )


def test_rows_types_and_wordings_are_taken(service: Running) -> None:
    relation = {
        "name": "born",
        "query": ["date of birth", "born on"],
        "type": "date",
        "min_probability": 0.2,
    }
    rows = [
        {"name": "Marie Curie", "born": ""},
        {"name": "Isaac Newton", "born": "1642"},
        {"name": "Marie  Curie", "born": None},
    ]
    table = {"rows": rows, "subject": "name", "relations": [relation]}
    cell, last = map(json.loads, service.client.post("/v1/fill", json=table).text.splitlines())
    assert (cell["subject"], cell["rows"], cell["column"]) == ("Marie Curie", [0, 2], 0)
    assert cell["claims"][0]["normal"]["edtf"] == "1867-11-07"
    assert [row["born"] for row in last["rows"]] == ["7 November 1867", "1642", "7 November 1867"]


def test_no_weights_are_there_twice_and_answers_stay_the_same(
    service: Running, sample: KnowledgeBase
) -> None:
    kb = service.services.kbs.named().kb
    texts = ["Marie Curie [SEP] place of birth", "Who wrote War and Peace?"]
    assert [[one.score for one in found] for found in kb.query(texts, 3)] == [
        [one.score for one in found] for found in sample.query(texts, 3)
    ]
    network = kb.searcher.reranking.reader.judging_network
    table = kb.model.queries.start.get_input_embeddings()
    assert network.backbone.get_input_embeddings() is table
    assert (table.weight.dtype, table.weight.shape) == (
        torch.int8,
        sample.model.word_embeddings.shape,
    )
    ids = torch.arange(len(table.weight))
    assert torch.equal(table(ids), sample.model.word_embeddings)
    kept = [
        layer.weight.numel()
        for layer in kb.model.queries.modules()
        if isinstance(layer, Linear) and layer._packed
    ]
    assert set(kept) <= {0}  # none is packed where oneDNN is missing
