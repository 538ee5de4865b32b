"""Problems: an error becomes a problem document (RFC 9457), with its sentence, and nothing of the server's machine."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from pathlib import PurePath

from starlette.responses import Response

from kbq.errors import MOST_PROBLEMS, KbqError, QueryError
from kbq.system.lines import without_surrogates

TYPE = "application/problem+json"
PHRASES = {413: "Content Too Large", 422: "Unprocessable Content"}  # of RFC 9110; Python has older ones
_PATH = re.compile(r"(?<![\w.:/<])/(?:[\w.@+~-]+/)+[\w.@+~-]*")


class RefusedError(KbqError):
    """A request that is refused; `status` is that of HTTP."""

    def __init__(
        self, status: int, message: str, problems: Sequence[str] = (), headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message, problems)
        self.status, self.headers = status, dict(headers or {})


class OverloadedError(RefusedError):
    """More queries wait than the service takes on."""

    def __init__(self, seconds: int) -> None:
        super().__init__(
            503, f"too many queries wait: try again in {seconds} seconds", headers={"Retry-After": str(seconds)}
        )


class LateError(RefusedError):
    """A request that was not answered in time."""

    def __init__(self, seconds: float) -> None:
        super().__init__(504, f"there was no answer within {seconds:g} seconds: try again later, or ask for less")


def status_of(error: KbqError) -> int:
    """The status of an error: the request is at fault, or the server's files are."""
    if isinstance(error, RefusedError):
        return error.status
    return 422 if isinstance(error, QueryError) or error.is_usage else 500


def document(status: int, detail: str, errors: Iterable[Mapping[str, str]] = ()) -> dict[str, object]:
    """The problem document of a status; `errors` are single problems, each with the field that has it."""
    phrase = PHRASES.get(status) or HTTPStatus(status).phrase
    found = list(errors)[:MOST_PROBLEMS]
    return {"title": phrase, "status": status, "detail": detail} | ({"errors": found} if found else {})


def response(
    status: int, detail: str, errors: Iterable[Mapping[str, str]] = (), headers: Mapping[str, str] | None = None
) -> Response:
    """A response that is a problem document."""
    content = json.dumps(document(status, without_paths(detail), errors), ensure_ascii=False)
    return Response(without_surrogates(content), status, headers, TYPE)


def response_to(error: KbqError) -> Response:
    """The response to an error of kbq."""
    errors = [{"problem": without_paths(problem)} for problem in error.problems]
    return response(status_of(error), str(error), errors, getattr(error, "headers", None))


def without_paths(text: str) -> str:
    """A text with the last part alone of every absolute path: nobody learns where a file of the server lies.

    >>> without_paths("/srv/kbs/people has no words, see https://example.org/a/b: add them to '/srv/kbs'")
    "people has no words, see https://example.org/a/b: add them to 'kbs'"
    """
    return _PATH.sub(lambda found: PurePath(found[0]).name, text)
