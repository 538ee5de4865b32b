"""MCP: the tools, asked by the SDK's own client: in memory, over standard input and output, over
HTTP; both eras.
"""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

import httpx2
import pytest
from browsing import PATIENCE
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.types import TextContent, TextResourceContents

from kbq.__main__ import main
from kbq.corpus.pages import Page
from kbq.kb import KnowledgeBase
from kbq.model.model import Model
from kbq.serve.batcher import Batcher
from kbq.serve.knowledge_bases import Folder, ServedKb
from kbq.serve.tools import LONGEST_PAGE, NOTHING, UNLIKELY, server

from .conftest import Running, Serve

T = TypeVar("T")
Era = Literal["auto", "legacy"]
ERAS: tuple[Era, ...] = ("auto", "legacy")
READ_ONLY = {
    "readOnlyHint": True,
    "destructiveHint": False,
    "idempotentHint": True,
    "openWorldHint": False,
}


def in_memory(served: ServedKb, work: Callable[[Client], Awaitable[T]], era: Era = "auto") -> T:
    """What some work with a client in this process gives."""

    async def run() -> T:
        patient = Batcher(seconds=PATIENCE / 1000)
        async with patient as batcher, Client(server(served, batcher), mode=era) as client:
            return await work(client)

    return asyncio.run(run())


async def called(client: Client, tool: str, **arguments: Any) -> Any:
    """The structured answer of a tool, which is also its one text."""
    answer = await client.call_tool(tool, arguments)
    (content,) = answer.content
    assert isinstance(content, TextContent)
    assert not answer.is_error, content.text
    assert json.loads(content.text) == answer.structured_content
    return answer.structured_content


async def refusal(client: Client, tool: str, **arguments: Any) -> str:
    """What the model reads where a tool refuses."""
    answer = await client.call_tool(tool, arguments)
    (content,) = answer.content
    assert isinstance(content, TextContent)
    assert answer.is_error
    return content.text


async def three_slots(client: Client) -> None:
    """A client lists the tools and asks three slots."""
    assert "198 pages" in (client.instructions or "")
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert list(tools) == ["search", "fetch", "fill_slot", "fill_table"]
    for tool in tools.values():
        assert tool.annotations
        assert tool.annotations.model_dump(by_alias=True, exclude_none=True) == READ_ONLY
        assert tool.output_schema
    born = await called(client, "fill_slot", subject="Marie Curie", relation="place of birth")
    (fact,) = born["answers"]
    assert fact.pop("probability") == pytest.approx(0.95, abs=0.03)
    assert fact == {
        "value": "Warsaw", "page_id": "S001", "title": "Marie Curie", "paragraph": 0, "start": 24, "end": 30,
        "sentence": "Marie Curie was born in Warsaw, then part of the Russian Empire, on 7 November 1867 as Maria "
        "Salomea Skłodowska.",
        "normal": {"type": "page", "page_id": "S111", "title": "Warsaw"},
    }  # fmt: skip
    day = await called(client, "fill_slot", subject="Marie Curie", relation="date of birth")
    assert (day["answers"] or [day["best_guess"]])[0]["normal"] == {
        "type": "date",
        "edtf": "1867-11-07",
        "precision": 11,
    }
    assert (born["best_guess"], born["note"]) == (None, "")
    maker = await called(client, "fill_slot", subject="Game Boy", relation="manufacturer")
    assert [one["value"] for one in maker["answers"] or [maker["best_guess"]]] == ["Nintendo"]
    none = await called(client, "fill_slot", subject="Marie Curie", relation="record label")
    assert (none["answers"], none["note"]) == ([], UNLIKELY)
    assert none["best_guess"]["probability"] < 0.5


@pytest.fixture(scope="module")
def served(sample: KnowledgeBase) -> ServedKb:
    return ServedKb("sample", Folder(sample.folder, device="cpu"))


@pytest.mark.parametrize("era", ERAS)
def test_slots_in_memory(era: Era, served: ServedKb) -> None:
    in_memory(served, three_slots, era)


@pytest.mark.parametrize("era", ERAS)
def test_slots_over_http(era: Era, service: Running) -> None:
    async def run() -> None:
        for path in ("/mcp", "/mcp/kb/sample"):
            async with Client(service.address + path, mode=era) as client:
                await three_slots(client)

    asyncio.run(run())


@pytest.mark.slow
def test_slots_over_standard_input_and_output_while_the_sample_is_built(tmp_path: Path) -> None:
    # A first use: nothing but the protocol may be printed.
    environment = os.environ | {"KBQ_CACHE": str(tmp_path)}
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "kbq", "mcp"], env=environment
    )

    async def run() -> None:
        async with Client(command) as client:
            await three_slots(client)

    asyncio.run(run())
    assert [path.name.startswith("sample-") for path in tmp_path.iterdir()] == [True]


@pytest.mark.slow
def test_a_page_that_is_added_meanwhile_is_found(kb_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(kb_folder, tmp_path / "kb")
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "kbq", "mcp", str(folder)], env=dict(os.environ)
    )

    async def run() -> str:
        async with Client(command, mode="legacy") as client:
            assert "has no page 'new'" in await refusal(client, "fetch", id="new")
            KnowledgeBase.open(folder, device="cpu").update([Page("new", "New", ["The river."])])
            for _ in range(10_000):
                answer = await client.call_tool("fetch", {"id": "new"})
                if not answer.is_error:
                    return str((answer.structured_content or {})["text"])
        return ""

    assert asyncio.run(run()) == "The river."


def test_a_table_is_filled_as_kbq_fill_does(served: ServedKb, sample: KnowledgeBase) -> None:
    subjects, relations = (
        ["Marie Curie", "Warsaw", "Zork Blah"],
        ["place of birth", "country", "employer"],
    )
    table = in_memory(
        served, lambda client: called(client, "fill_table", subjects=subjects, relations=relations)
    )
    filled = sample.fill([{"subject": subject} for subject in subjects], relations, values="many")
    wanted = {
        (claim.subject, claim.relation): claim.value
        for claim in reversed(filled.claims)
        if claim.accepted
    }
    values = {
        (row["subject"], relation): fact["value"]
        for row in table["rows"]
        for relation, fact in row["cells"].items()
        if fact
    }
    assert values == wanted
    assert (table["cells"], table["filled"]) == (9, len(wanted))
    assert [list(row["cells"]) for row in table["rows"]] == [relations] * 3
    assert table["rows"][2]["cells"] == dict.fromkeys(relations)


def test_pages_are_found_and_read(served: ServedKb) -> None:
    async def work(client: Client) -> None:
        found = (await called(client, "search", query="Who wrote War and Peace?", limit=2))[
            "results"
        ]
        assert (found[0]["id"], found[0]["title"], found[0]["answer"]) == (
            "S083",
            "War and Peace",
            "Leo Tolstoy",
        )
        assert found[0]["url"] == "kbq://page/S083"
        assert found[0]["answer"] in found[0]["text"]
        assert len(found) == 2
        page = await called(client, "fetch", id="S083")
        assert (page["id"], page["title"], page["url"], page["metadata"]) == (
            "S083", "War and Peace", "kbq://page/S083", {},
        )  # fmt: skip
        (resource,) = (await client.read_resource(found[0]["url"])).contents
        assert isinstance(resource, TextResourceContents)
        assert resource.text == page["text"]
        assert page["text"].count("\n\n") + 1 == len(served.kb.page("S083").paragraphs)
        (template,) = (await client.list_resource_templates()).resource_templates
        assert template.uri_template == "kbq://page/{+id}"
        with pytest.raises(MCPError, match="sample has no page"):
            await client.read_resource("kbq://page/../../etc/passwd")

    in_memory(served, work)


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("fill_slot", {"subject": "", "relation": "x"}, 'has nothing on one side of "[SEP]"'),
        ("fill_slot", {"subject": "x", "relation": " "}, "relation '' is asked as '': write words"),
        ("fill_slot", {"subject": "x [SEP] y", "relation": "z"}, 'has 2 "[SEP]"'),
        ("fill_slot", {"subject": "x", "relation": "[SEP]"}, "write words, without [SEP]"),
        ("fill_slot", {"subject": "x " * 2000, "relation": "y"}, "tokens, the encoder reads"),
        (
            "fill_slot",
            {"subject": "x" * 5000, "relation": "y"},
            "subject has more than 4,096 characters: shorten it",
        ),
        ("fill_slot", {"subject": "x", "relation": "y", "limit": 99}, "limit must be 10 or less"),
        ("fill_slot", {"subject": "x"}, "relation is missing: give it"),
        (
            "fill_table",
            {"subjects": [], "relations": ["x"]},
            "subjects has no items: give at least 1",
        ),
        (
            "fill_table",
            {"subjects": ["x"] * 51, "relations": ["x"]},
            "subjects has more than 50 items: give fewer",
        ),
        (
            "fill_table",
            {"subjects": ["x"] * 50, "relations": list("abcde")},
            "has 250 cells, at most 200 are filled",
        ),
        ("fill_table", {"subjects": ["x", ""], "relations": ["a"]}, "query 2: the query"),
        ("search", {"query": "?"}, "the query is empty"),
        ("search", {"query": "x", "limit": 0}, "limit must be 1 or more"),
        ("search", {"query": "x", "limit": "many"}, "limit must be a whole number"),
        ("search", {"query": ["x"]}, "query must be a text"),
        ("search", {"query": None}, "query is missing: give it"),
        ("search", {"query": "x", "k": 3}, "k is unknown: choose from query, limit"),
        ("fill_table", {"subjects": ["x", None], "relations": ["a"]}, "subjects[1] must be a text"),
        (
            "fetch",
            {"id": "none"},
            "sample has no page 'none': take the id of one that search has found",
        ),
        ("fetch", {"id": "../S001"}, "sample has no page '../S001'"),
    ],
)
def test_the_model_reads_why_it_is_refused(
    tool: str, arguments: dict[str, Any], said: str, served: ServedKb
) -> None:
    text = in_memory(served, lambda client: refusal(client, tool, **arguments))
    assert said in text
    assert "Traceback" not in text
    assert "pydantic" not in text
    assert str(served.kb.folder.parent) not in text


def test_arguments_are_taken_as_models_write_them(model: Model, tmp_path: Path) -> None:
    pages = [
        Page("1", "1984", ["1984 is a novel by George Orwell."]),
        Page("2", "Ann Aal", ["Ann Aal was born in Bergen."]),
    ]
    KnowledgeBase.build(pages, tmp_path / "kb", model)
    served = ServedKb("numbers", Folder(tmp_path / "kb", device="cpu"))

    async def work(client: Client) -> None:
        default = await called(client, "search", query="1984")
        for limit in (None, 5, 5.0, "5"):
            assert await called(client, "search", query=1984, limit=limit) == default
        assert (
            (await called(client, "fetch", id=1))["title"]
            == (await called(client, "fetch", id=1.0))["title"]
            == "1984"
        )
        slot = await called(client, "fill_slot", subject=1984, relation="author", limit=None)
        assert slot == await called(client, "fill_slot", subject="1984", relation="author")
        for subjects in ([1984, "Ann Aal"], '["1984", "Ann Aal"]'):
            table = await called(client, "fill_table", subjects=subjects, relations="author")
            assert [row["subject"] for row in table["rows"]] == ["1984", "Ann Aal"]
        for tool in (await client.list_tools()).tools:
            assert 'Example: {"' in (tool.description or "")

    in_memory(served, work)


def test_strange_pages(model: Model, tmp_path: Path) -> None:
    pages = [
        Page(
            "a/b?c#d%",
            "Slashes",
            ["The river."],
            metadata={"url": "https://example.org/1", "year": 1815},
        ),
        Page("long", "Long", ["word " * 20_000]),
        Page("empty", "Empty"),
    ]
    KnowledgeBase.build(pages, tmp_path / "kb", model)
    served = ServedKb("strange", Folder(tmp_path / "kb", device="cpu"))

    async def work(client: Client) -> None:
        page = await called(client, "fetch", id="a/b?c#d%")
        assert (page["url"], page["metadata"]) == (
            "https://example.org/1",
            {"url": "https://example.org/1", "year": 1815},
        )
        long = await called(client, "fetch", id="long")
        assert (
            long["text"]
            == "word " * 10_000 + f"\n\n[cut after {LONGEST_PAGE:,} of 100,000 characters]"
        )
        assert (await called(client, "fetch", id="empty"))["text"] == ""
        # Nothing says how likely answers are, so that the best guess is the answer.
        slot = await called(client, "fill_slot", subject="Slashes", relation="x", limit=1)
        assert [one["probability"] for one in slot["answers"]] == [None]

    in_memory(served, work)


def test_nothing_is_found_where_there_is_nothing(model: Model, tmp_path: Path) -> None:
    KnowledgeBase.build([Page("empty", "Empty")], tmp_path / "kb", model)
    served = ServedKb("nothing", Folder(tmp_path / "kb", device="cpu"))

    async def work(client: Client) -> None:
        assert await called(client, "search", query="river") == {"results": []}
        slot = await called(client, "fill_slot", subject="a", relation="b")
        assert slot == {
            "subject": "a",
            "relation": "b",
            "answers": [],
            "best_guess": None,
            "note": NOTHING,
        }

    in_memory(served, work)


def test_mcp_over_http_is_guarded_as_the_service(sample: KnowledgeBase, serve: Serve) -> None:
    key = "a-key-of-sixteen-letters"
    service = serve({"sample": sample.folder}, keys=(key,))
    call = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    headers = {"Accept": "application/json, text/event-stream"}
    assert service.client.post("/mcp", json=call, headers=headers).status_code == 401
    assert (
        service.client.post(
            "/mcp", json=call, headers=headers | {"Host": "evil.example"}
        ).status_code
        == 421
    )
    too_much = service.client.post(
        "/mcp", content=b"[" * 2_000_000, headers=headers | {"Authorization": f"Bearer {key}"}
    )
    assert too_much.status_code == 413

    async def run() -> None:
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=300) as http,
            Client(streamable_http_client(f"{service.address}/mcp", http_client=http)) as client,
        ):
            await three_slots(client)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("", "error: no-kb does not exist: make a knowledge base with `kbq build CORPUS no-kb`\n"),
        (
            "mcp",
            "error: kbq mcp needs further packages: pip install '.[serve]' in the checkout of "
            "kbq\n",
        ),
    ],
)
def test_what_cannot_be_opened_is_one_sentence(
    missing: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if missing:
        for name in ("app", "tools"):
            monkeypatch.delitem(sys.modules, f"kbq.serve.{name}", raising=False)
        monkeypatch.setitem(sys.modules, missing, None)
        monkeypatch.setitem(sys.modules, f"{missing}.server", None)
    monkeypatch.setattr(sys, "argv", ["kbq", "mcp", "no-kb"])
    with pytest.raises(SystemExit) as end:
        main()
    assert (end.value.code, *capsys.readouterr()) == (1, "", said)
