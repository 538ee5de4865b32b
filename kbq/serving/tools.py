"""Tools: a knowledge base becomes an MCP server, with which a language model looks up facts and their evidence."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any, ParamSpec, TypeVar
from urllib.parse import quote

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
from mcp.types import ToolAnnotations
from pydantic import Field

import kbq
from kbq.answers import SearchOptions
from kbq.corpus.pages import Page
from kbq.encoding.queries import refuse_unreadable
from kbq.errors import KbqError
from kbq.filling.claims import Claim
from kbq.filling.relations import relation_named
from kbq.filling.slots import Slot, subject_of
from kbq.serving.batcher import Batcher
from kbq.serving.knowledge_bases import ServedKb
from kbq.serving.slot_filling import SlotFiller

P, T = ParamSpec("P"), TypeVar("T")
NAMED = 5  # titles by which a model is told what the knowledge base is about
MOST_TEXT = 50_000  # characters of a page
MOST_CELLS = 200
READS = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)


@dataclass(frozen=True, slots=True)
class Fact:
    """What the text says, and where it does."""

    value: str
    probability: float | None  # that it is right, from 0 to 1; null where that is not known
    sentence: str
    page_id: str  # for `fetch`
    title: str
    paragraph: int
    start: int  # characters of the paragraph
    end: int

    @classmethod
    def of(cls, claim: Claim) -> "Fact":
        """The same as a claim of `kbq fill`."""
        names = cls.__slots__
        return cls(*(getattr(claim, name) for name in names))
