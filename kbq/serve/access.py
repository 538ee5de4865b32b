"""Access: the settings of a service: its address, keys, and origins."""

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from kbq.errors import KbqError
from kbq.storage.lines import read_lines

HOST, PORT = "127.0.0.1", 8000
QUEUE = 256  # queries that wait at most
SECONDS = 30.0  # after which a request is given up, and within which a service that is stopped ends
SHORTEST_KEY = 16  # characters
EVERYWHERE = ("0.0.0.0", "::", "")
OPEN = ("/healthz", "/readyz")  # for those who watch over the process: without key, whatever the Host
RECONCILE = "/reconcile"  # what OpenRefine asks: it can send no header, and is asked from any origin


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


def is_reconciliation(path: str) -> bool:
    """Whether a path is one of the reconciliation service."""
    return path == RECONCILE or path.startswith(f"{RECONCILE}/")
