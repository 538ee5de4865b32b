"""Access: how a service is reached, and who may ask: which Host, which keys, and which other origins.

Starlette's TrustedHostMiddleware takes no address of IPv6, its CORSMiddleware no path that any origin may ask.
"""

import base64
import binascii
import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from kbq.errors import KbqError
from kbq.serve.problems import RefusedError
from kbq.storage.lines import read_lines

HOST, PORT = "127.0.0.1", 8000
QUEUE = 256  # queries that wait at most
SECONDS = 30.0  # after which a request is given up, and within which a service that is stopped ends
SHORTEST_KEY = 16  # characters
EVERYWHERE = ("0.0.0.0", "::", "")
OPEN = ("/healthz", "/readyz")  # for those who watch over the process: without key, whatever the Host
RECONCILE = "/reconcile"  # what OpenRefine asks: it can send no header, and is asked from any origin
SCHEMES = 'Basic realm="kbq", charset="UTF-8"'


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """How a service is reached, and how much it takes on; see `kbq serve --help`.

    Raises:
        KbqError: a value has no meaning, or others would reach the service without a key.
    """

    host: str = HOST
    port: int = PORT  # 0: any that is free
    public_url: str = ""  # the address that others use, where that is not host and port
    allow_origin: tuple[str, ...] = ()  # whose scripts may call the API from a browser
    keys: tuple[str, ...] = ()  # a request needs one of them; none: every request is answered
    queue: int = QUEUE
    seconds: float = SECONDS
    log_queries: bool = False
    decisions: Path | None = None  # the folder that keeps what people decide on the page; None: their browsers do

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and not self.keys:
            raise KbqError(
                f"{self.host or 'every address'} can be reached by others: give an --api-key-file", is_usage=True
            )
        if self.host in EVERYWHERE and not self.public_url:
            raise KbqError("a service at every address needs --public-url, the address that others use", is_usage=True)
        for name, url in (("public-url", self.public_url), *(("allow-origin", one) for one in self.allow_origin)):
            parts = urlsplit(url)
            if url and (parts.scheme not in ("http", "https") or not parts.netloc or parts.path.strip("/")):
                raise KbqError(
                    f"--{name} is {url!r}: write scheme and host, such as https://kbq.example", is_usage=True
                )

    @property
    def hosts(self) -> frozenset[str]:
        """The names that requests may use for the service, without ports."""
        public = {urlsplit(self.public_url).hostname or ""} if self.public_url else set()
        return frozenset({"127.0.0.1", "localhost", "::1", self.host.lower(), *public} - set(EVERYWHERE))


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from its own machine alone.

    >>> is_loopback("localhost"), is_loopback("127.0.0.2"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_keys(path: Path) -> tuple[str, ...]:
    """Read the keys of a file, one a line, without blank lines and comments behind #.

    Raises:
        KbqError: it cannot be read, has no key, or one that could be guessed.
    """
    keys = []
    for number, line in read_lines(str(path)):
        key = line.partition("#")[0].strip()
        if key and (len(key) < SHORTEST_KEY or not (key.isascii() and key.isprintable())):
            raise KbqError(f"{path}:{number}: a key has at least {SHORTEST_KEY} letters and digits: make it longer")
        keys += [key] if key else []
    if not keys:
        raise KbqError(f"{path} has no key: write one, of at least {SHORTEST_KEY} letters and digits")
    return tuple(keys)


def refuse_host(settings: ServeSettings, host: str) -> None:
    """Refuse names other than the service's own: a page elsewhere may have given its own to this address.

    Raises:
        RefusedError: the name is missing or another one.
    """
    name = "" if set(host) & set("/?#@\\") else _name_of(f"//{host}")  # only a name and a port
    if not name:
        raise RefusedError(400, "the request names no Host: send one")
    if name not in settings.hosts:
        raise RefusedError(421, f"{name!r:.80} is not a name of this service: give it with --public-url")


def _name_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def refuse_foreign(settings: ServeSettings, headers: Mapping[str, str], is_read_only: bool) -> None:
    """Refuse what the page of another site makes a browser ask, except where somebody follows a link.

    Pages of this machine, such as OpenRefine's, are not foreign.

    Args:
        is_read_only: whether the request is a GET, which a link may be.

    Raises:
        RefusedError: another site asks that is not allowed.
    """
    origin = headers.get("origin", "")
    if origin and (origin in settings.allow_origin or _name_of(origin) in settings.hosts):
        return
    is_link = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    if origin or (headers.get("sec-fetch-site") == "cross-site" and not (is_read_only and is_link)):
        raise RefusedError(403, f"a page of {origin or 'another site'!r:.80} asks: allow it with --allow-origin")


def refuse_key(settings: ServeSettings, path: str, headers: Mapping[str, str], query: str) -> None:
    """Refuse requests without a key, where keys are needed.

    It is a bearer token, or the password of a browser; for reconciliation alone it may be `api_key` in the address.

    Raises:
        RefusedError: there is no key, or a wrong one.
    """
    if not settings.keys:
        return
    given = _key_of(headers.get("authorization", ""))
    if not given and is_reconciliation(path):
        given = parse_qs(query).get("api_key", [""])[0].encode("utf-8", "replace")
    # All are compared, whole: how long this takes tells nothing of them.
    if not sum(hmac.compare_digest(given, key.encode()) for key in settings.keys):
        raise RefusedError(
            401, "a key is wrong" if given else "a key is needed: send it as Authorization: Bearer KEY",
            headers={"WWW-Authenticate": SCHEMES},
        )  # fmt: skip


def _key_of(authorization: str) -> bytes:
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip(" \t").encode("utf-8", "replace")
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return b""
    return b""


def is_reconciliation(path: str) -> bool:
    """Whether a path is one of the reconciliation service."""
    return path == RECONCILE or path.startswith(f"{RECONCILE}/")


def origin_headers(settings: ServeSettings, path: str, origin: str) -> dict[str, str]:
    """Return the headers that allow scripts of another origin to ask, and tell caches that others may not."""
    if not is_reconciliation(path) and origin not in settings.allow_origin:
        return {"Vary": "Origin"} if settings.allow_origin else {}
    return {
        "Access-Control-Allow-Origin": "*" if is_reconciliation(path) else origin,
        "Access-Control-Allow-Methods": "GET, POST, OPTIONS",
        "Access-Control-Allow-Headers": "Authorization, Content-Type, Accept-Language",
        "Access-Control-Max-Age": "600",
        "Vary": "Origin",
    }
