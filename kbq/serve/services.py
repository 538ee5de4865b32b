"""Services: what every route needs, made once for the application."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from kbq.answers import Result, SearchOptions
from kbq.serve.batcher import Batcher
from kbq.serve.knowledge_bases import KnowledgeBases, ServedKb
from kbq.serve.metrics import Metrics
from kbq.serve.settings import ServeSettings
from kbq.serve.table_stream import Filler


@dataclass(frozen=True, slots=True)
class Services:
    """The knowledge bases, the thread that searches them, and what is counted."""

    kbs: KnowledgeBases
    batcher: Batcher
    filler: Filler
    settings: ServeSettings
    metrics: Metrics

    async def found(self, request: Request, kb: ServedKb, texts: Sequence[str], options: SearchOptions) -> list[Result]:
        """What is found for the queries of a request, which are counted, and known to its log."""
        request.state.queries = list(texts)
        found = await self.batcher.found(kb, texts, options)
        for one in found:
            self.metrics.answers.labels(kb.name, "answered" if one.likely else "none").inc()
        return found

    def address(self, request: Request) -> str:
        """By which the service is reached, without a slash at the end."""
        return self.settings.public_url.rstrip("/") or str(request.base_url).rstrip("/")


async def _of(request: Request) -> Services:  # a plain function would be run in a thread
    services: Services = request.app.state.services
    return services


WithServices = Annotated[Services, Depends(_of)]
