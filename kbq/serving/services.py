"""Services: what every route needs, made once for the application."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from kbq.serving.batcher import Batcher
from kbq.serving.filling import Filler
from kbq.serving.knowledge_bases import KnowledgeBases
from kbq.serving.metrics import Metrics
from kbq.serving.settings import ServeSettings


@dataclass(frozen=True, slots=True)
class Services:
    """The knowledge bases, the thread that searches them, and what is counted."""

    kbs: KnowledgeBases
    batcher: Batcher
    filler: Filler
    settings: ServeSettings
    metrics: Metrics

    def address(self, request: Request) -> str:
        """By which the service is reached, without a slash at the end."""
        return self.settings.public_url.rstrip("/") or str(request.base_url).rstrip("/")


def _of(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


WithServices = Annotated[Services, Depends(_of)]
