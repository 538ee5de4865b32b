"""Problems: an error becomes a problem document (RFC 9457), with its sentence, and nothing of the server's machine."""

import json
import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import PurePath

from starlette.responses import Response

from kbq.errors import MOST_PROBLEMS, KbqError, KnowledgeBaseError, ModelError
from kbq.text.letters import without_surrogates

TYPE = "application/problem+json"
_TEXTS = {name: {"type": "string"} for name in ("title", "detail")}
_ERROR = {"type": "object", "properties": {name: {"type": "string"} for name in ("field", "problem")}}
SCHEMA = {
    "type": "object",
    "properties": {**_TEXTS, "status": {"type": "integer"}, "errors": {"type": "array", "items": _ERROR}},
}
DESCRIBED = {"description": "A problem (RFC 9457).", "content": {TYPE: {"schema": SCHEMA}}}  # in OpenAPI
PHRASES = {413: "Content Too Large", 422: "Unprocessable Content"}  # of RFC 9110; Python has older ones
_PATH = re.compile(r"(?<![\w.:/<])/(?:[\w.@+~-]+/)+[\w.@+~-]*")


class RefusedError(KbqError):
    """A request that is refused; `status` is that of HTTP."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        fields: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`fields`: what is wrong with each field of the request; `headers`: of the response."""
        super().__init__(message)
        self.status, self.fields, self.headers = status, dict(fields or {}), dict(headers or {})


class OverloadedError(RefusedError):
    """More queries wait than the service takes on."""

    def __init__(self, seconds: int) -> None:
        super().__init__(
            503,
            f"too many queries wait: try again in {seconds} second{'s' * (seconds > 1)}",
            headers={"Retry-After": str(seconds)},
        )


class LateError(RefusedError):
    """A request that was not answered in time."""

    def __init__(self, seconds: float) -> None:
        super().__init__(504, f"there was no answer within {seconds:g} seconds: try again later, or ask for less")


def status_of(error: KbqError) -> int:
    """Return the status of an error: the request is at fault, or the server's files are."""
    if isinstance(error, RefusedError):
        return error.status
    is_ours = isinstance(error, KnowledgeBaseError | ModelError) and not error.is_usage
    return 500 if is_ours else 422


def document(error: KbqError, hidden: Callable[[str], str]) -> dict[str, object]:
    """Make the problem document of an error: its sentence and, where there are several, all problems and their fields.

    `hidden`: gives a text without the places on this machine that are in it.
    """
    status = status_of(error)
    found: dict[str, object] = {"title": title_of(status), "status": status, "detail": hidden(str(error))}
    fields = error.fields.items() if isinstance(error, RefusedError) else ()
    errors = [{"field": name, "problem": problem} for name, problem in fields]
    errors += [{"problem": hidden(problem)} for problem in error.problems]
    return found | ({"errors": errors[:MOST_PROBLEMS]} if errors else {})


def title_of(status: int) -> str:
    """Return the name of a status."""
    return PHRASES.get(status) or HTTPStatus(status).phrase


def response_to(error: KbqError, hidden: Callable[[str], str] = str, for_reconciliation: bool = False) -> Response:
    """Answer with an error: a problem document (see `document`), or what clients of reconciliation look for."""
    told = {"status": "error", "message": hidden(str(error))} if for_reconciliation else document(error, hidden)
    headers = error.headers if isinstance(error, RefusedError) else None
    media_type = "application/json" if for_reconciliation else TYPE
    return Response(without_surrogates(json.dumps(told, ensure_ascii=False)), status_of(error), headers, media_type)


def without_paths(text: str) -> str:
    """Leave only the last part of every absolute path in a text, so that nobody learns where a file of the server lies.

    >>> without_paths("/srv/kbs/people has no words, see https://example.org/a/b: add them to '/srv/kbs'")
    "people has no words, see https://example.org/a/b: add them to 'kbs'"
    """
    return _PATH.sub(lambda found: PurePath(found[0]).name, text)
