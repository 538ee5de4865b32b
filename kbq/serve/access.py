"""Access: who may ask: by the Host that is named, by key, and from which other origins.

Starlette's TrustedHostMiddleware takes no address of IPv6, its CORSMiddleware no path of which any origin may ask.
"""

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


def refuse_host(settings: ServeSettings, host: str) -> None:
    """Refuse other names than those of the service: a page elsewhere may have given its own to this address.

    Raises:
        RefusedError: the name is missing or another one.
    """
    name = _name_of(f"//{host}")
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
    """Refuse what the page of another site makes a browser ask; a link that somebody follows is none of that.

    Pages of this machine, such as OpenRefine's, are not foreign.

    Args:
        is_read_only: whether the request is a GET, which a link may be.

    Raises:
        RefusedError: another site asks, which is not one of those allowed.
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
    if not _is_one_of(given, settings.keys):
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


def _is_one_of(given: bytes, keys: Sequence[str]) -> bool:
    """Whether a key is one of these; how long this takes tells nothing of them."""
    return sum(hmac.compare_digest(given, key.encode()) for key in keys) > 0


def is_reconciliation(path: str) -> bool:
    """Whether a path is one of the reconciliation service."""
    return path == RECONCILE or path.startswith(f"{RECONCILE}/")


def origin_headers(settings: ServeSettings, path: str, origin: str) -> dict[str, str]:
    """What allows scripts of another origin to ask, and tells caches that others may not."""
    if not is_reconciliation(path) and origin not in settings.allow_origin:
        return {"Vary": "Origin"} if settings.allow_origin else {}
    return {
        "Access-Control-Allow-Origin": "*" if is_reconciliation(path) else origin,
        "Access-Control-Allow-Methods": "GET, POST, OPTIONS",
        "Access-Control-Allow-Headers": "Authorization, Content-Type, Accept-Language",
        "Access-Control-Max-Age": "600",
        "Vary": "Origin",
    }
