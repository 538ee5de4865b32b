"""Services: the objects that every route needs, made once for the application."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from kbq.answers import Result, SearchOptions
from kbq.serve.access import ServeSettings
from kbq.serve.batcher import Batcher
from kbq.serve.filling import TableFiller
from kbq.serve.knowledge_bases import KnowledgeBases, ServedKb
from kbq.serve.monitoring import Metrics


@dataclass(frozen=True, slots=True)
class Services:
    """The knowledge bases, the thread that searches them, and the metrics."""

    kbs: KnowledgeBases
    batcher: Batcher
    filler: TableFiller
    settings: ServeSettings
    metrics: Metrics

    async def found(self, request: Request, kb: ServedKb, texts: Sequence[str], options: SearchOptions) -> list[Result]:
        """Search for the queries of a request, count them, and tell its log."""
        request.state.queries = list(texts)
        found = await self.batcher.found(kb, texts, options)
        for one in found:
            self.metrics.answers.labels(kb.name, "answered" if one.likely else "none").inc()
        return found

    def address(self, request: Request) -> str:
        """Return the address of the service, without a slash at the end."""
        return self.settings.public_url.rstrip("/") or str(request.base_url).rstrip("/")


async def _of(request: Request) -> Services:  # a plain function would be run in a thread
    services: Services = request.app.state.services
    return services


WithServices = Annotated[Services, Depends(_of)]
