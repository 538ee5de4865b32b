"""Services: the objects that every route needs, made once for the application."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from kbq.serve.access import ServeSettings
from kbq.serve.batcher import Batcher
from kbq.serve.filling import TableFiller
from kbq.serve.knowledge_bases import KnowledgeBases
from kbq.serve.monitoring import Metrics


@dataclass(frozen=True, slots=True)
class Services:
    """The knowledge bases, the thread that searches them, and the metrics."""

    kbs: KnowledgeBases
    batcher: Batcher
    filler: TableFiller
    settings: ServeSettings
    metrics: Metrics

    def address(self, request: Request) -> str:
        """Return the address of the service, without a slash at the end."""
        return self.settings.public_url.rstrip("/") or str(request.base_url).rstrip("/")


async def _of(request: Request) -> Services:  # a plain function would be run in a thread
    services: Services = request.app.state.services
    return services


WithServices = Annotated[Services, Depends(_of)]
