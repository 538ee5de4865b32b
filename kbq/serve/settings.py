"""Settings: how a service is reached, and how much it takes on."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from kbq.errors import KbqError
from kbq.options import Option, check

EVERYWHERE = ("0.0.0.0", "::", "")


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """What `kbq serve` hands on to the service as it is given."""

    host: Annotated[
        str, Option("Address to listen at; other machines need a key.", env="KBQ_HOST")
    ] = "127.0.0.1"
    port: Annotated[
        int, Option("Port to listen at; 0: any free one.", 0, 65_535, env="KBQ_PORT")
    ] = 8000
    public_url: Annotated[
        str,
        Option(
            "Address at which others reach the service, such as https://kbq.example.",
            env="KBQ_PUBLIC_URL",
        ),
    ] = ""
    queue: Annotated[
        int, Option("How many queries may wait; more are refused.", 1, 100_000, env="KBQ_QUEUE")
    ] = 256
    seconds: Annotated[
        float,
        Option("Time to answer a request, and to shut down.", 0.1, 3600, env="KBQ_SECONDS"),
    ] = 30.0
    log_queries: Annotated[
        bool,
        Option("Also log the text of queries.", flag="--log-queries", env="KBQ_LOG_QUERIES"),
    ] = False


SERVICE = ServiceOptions()


@dataclass(frozen=True, slots=True)
class ServeSettings(ServiceOptions):
    """How a service is reached, and how much it takes on; see `kbq serve --help`.

    Raises KbqError if a value has no meaning, or others would reach the service without a key.
    """

    allow_origin: tuple[str, ...] = ()  # origins whose scripts may call the API from a browser
    keys: tuple[str, ...] = ()  # a request needs one of them; none: every request is answered
    # The folder that keeps decisions made on the page, or None if browsers keep them.
    decisions: Path | None = None
    # The folder of knowledge bases that are made on the page, or None if none are.
    edit: Path | None = None

    def __post_init__(self) -> None:
        check(self, KbqError)
        if self.edit is not None and (
            self.public_url or self.allow_origin or not is_loopback(self.host)
        ):
            others = self.public_url or ", ".join(self.allow_origin) or self.host or "every address"
            raise KbqError(
                f"--edit takes documents from this machine alone, and {others} is not this "
                "machine: leave one of them out, or build with `kbq build`",
                is_usage=True,
            )

        if not is_loopback(self.host) and not self.keys:
            raise KbqError(
                f"{self.host or 'every address'} can be reached by others: give an --api-key-file",
                is_usage=True,
            )

        if self.host in EVERYWHERE and not self.public_url:
            raise KbqError(
                "a service at every address needs --public-url, the address that others use",
                is_usage=True,
            )

        for name, url in (
            ("public-url", self.public_url),
            *(("allow-origin", origin) for origin in self.allow_origin),
        ):
            parts = urlsplit(url)
            if url and (
                parts.scheme not in ("http", "https") or not parts.netloc or parts.path.strip("/")
            ):
                raise KbqError(
                    f"--{name} is {url!r}: write scheme and host, such as https://kbq.example",
                    is_usage=True,
                )

    @property
    def hosts(self) -> frozenset[str]:
        """The names that requests may use for the service, without ports."""
        public = set()
        if self.public_url:
            public = {urlsplit(self.public_url).hostname or ""}
        return frozenset(
            {"127.0.0.1", "localhost", "::1", self.host.lower(), *public} - set(EVERYWHERE)
        )


def is_loopback(host: str) -> bool:
    """Whether an address can be reached only from its own machine.

    >>> is_loopback("localhost"), is_loopback("127.0.0.2"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
