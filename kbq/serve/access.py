"""Access: who may ask: by the Host that is named, by key, and from which other origins."""

import base64
import binascii
import hmac
from collections.abc import Mapping, Sequence
from urllib.parse import parse_qs, urlsplit

from kbq.serve.problems import RefusedError
from kbq.serve.settings import ServeSettings

OPEN = ("/healthz", "/readyz")  # for those who watch over the process: without key, whatever the Host
RECONCILE = "/reconcile"  # what OpenRefine asks: it can send no header, and is asked from any origin
SCHEMES = 'Basic realm="kbq", charset="UTF-8"'


def refuse_host(settings: ServeSettings, path: str, host: str) -> None:
    """Refuse other names than those of the service: a page elsewhere may have given its own to this address.

    Raises:
        RefusedError: the name is missing or another one.
    """
    if path in OPEN:
        return
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        name = None
    if not name:
        raise RefusedError(400, "the request names no Host: send one")
    if name not in settings.hosts:
        raise RefusedError(421, f"{name!r:.80} is not a name of this service: give it with --public-url")


def refuse_key(settings: ServeSettings, path: str, headers: Mapping[str, str], query: str) -> None:
    """Refuse requests without a key, where keys are needed.

    It is a bearer token, or the password of a browser; for reconciliation alone it may be `api_key` in the address.

    Raises:
        RefusedError: there is no key, or a wrong one.
    """
    if not settings.keys or path in OPEN:
        return
    given = _key_of(headers.get("authorization", ""))
    if not given and is_reconciliation(path):
        given = parse_qs(query).get("api_key", [""])[0].encode("utf-8", "replace")
    if not _is_one_of(given, settings.keys):
        raise RefusedError(
            401, "a key is wrong" if given else "a key is needed: send it as Authorization: Bearer KEY",
            headers={"WWW-Authenticate": SCHEMES},
        )  # fmt: skip


def _key_of(authorization: str) -> bytes:
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip().encode("utf-8", "replace")
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return b""
    return b""


def _is_one_of(given: bytes, keys: Sequence[str]) -> bool:
    """Whether a key is one of these; how long this takes tells nothing of them."""
    return sum(hmac.compare_digest(given, key.encode()) for key in keys) > 0


def is_reconciliation(path: str) -> bool:
    """Whether a path is one of the reconciliation service."""
    return path == RECONCILE or path.startswith(f"{RECONCILE}/")


def origin_headers(settings: ServeSettings, path: str, origin: str) -> dict[str, str]:
    """What allows scripts of another origin to ask; nothing where they may not."""
    if is_reconciliation(path):
        allowed = "*"
    elif origin and origin in settings.allow_origin:
        allowed = origin
    else:
        return {}
    return {
        "Access-Control-Allow-Origin": allowed,
        "Access-Control-Allow-Methods": "GET, POST, OPTIONS",
        "Access-Control-Allow-Headers": "Authorization, Content-Type, Accept-Language",
        "Access-Control-Max-Age": "600",
        "Vary": "Origin",
    }
