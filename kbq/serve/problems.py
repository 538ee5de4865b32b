"""Problems: report errors as problem documents (RFC 9457)."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from pathlib import PurePath
from typing import Any

from starlette.responses import Response

from kbq.errors import MOST_PROBLEMS, KbqError, KnowledgeBaseError, ModelError
from kbq.text.normal_forms import without_surrogates

TYPE = "application/problem+json"
_TEXTS = {name: {"type": "string"} for name in ("title", "detail")}
_ERROR = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in ("field", "problem")},
}
SCHEMA = {
    "type": "object",
    "properties": {
        **_TEXTS,
        "status": {"type": "integer"},
        "errors": {"type": "array", "items": _ERROR},
    },
}
# Part of the OpenAPI document.
DESCRIBED = {"description": "A problem (RFC 9457).", "content": {TYPE: {"schema": SCHEMA}}}
# Words of RFC 9110; Python has older ones.
PHRASES = {413: "Content Too Large", 422: "Unprocessable Content"}
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
        self.status = status
        self.fields = dict(fields or {})
        self.headers = dict(headers or {})


class OverloadedError(RefusedError):
    """More queries wait than the service takes on."""

    def __init__(self, seconds: int) -> None:
        sentence = f"too many queries wait: try again in {seconds} second{'s' * (seconds > 1)}"
        super().__init__(503, sentence, headers={"Retry-After": str(seconds)})


class LateError(RefusedError):
    """A request that was not answered in time."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            504, f"there was no answer within {seconds:g} seconds: try again later, or ask for less"
        )


def status_of(error: KbqError) -> int:
    """Return the status of an error, which is the request's fault or that of the server's files."""
    if isinstance(error, RefusedError):
        return error.status
    is_ours = isinstance(error, KnowledgeBaseError | ModelError) and not error.is_usage
    return 500 if is_ours else 422


def document(error: KbqError, hidden: Callable[[str], str]) -> dict[str, object]:
    """Return an error as a problem document, with all single problems and their fields.

    `hidden` takes the places on this machine out of a text.
    """
    status = status_of(error)
    found: dict[str, object] = {
        "title": title_of(status),
        "status": status,
        "detail": hidden(str(error)),
    }
    fields: Iterable[tuple[str, str]] = ()
    if isinstance(error, RefusedError):
        fields = error.fields.items()
    errors = [{"field": name, "problem": problem} for name, problem in fields]
    errors += [{"problem": hidden(problem)} for problem in error.problems]
    if errors:
        return found | {"errors": errors[:MOST_PROBLEMS]}
    return found


def title_of(status: int) -> str:
    return PHRASES.get(status) or HTTPStatus(status).phrase


def response_to(
    error: KbqError, hidden: Callable[[str], str] = str, for_reconciliation: bool = False
) -> Response:
    """Answer with a problem document (see `document`), or in the form that clients of
    reconciliation expect.
    """
    content = (
        {"status": "error", "message": hidden(str(error))}
        if for_reconciliation
        else document(error, hidden)
    )
    headers = error.headers if isinstance(error, RefusedError) else None
    media_type = "application/json" if for_reconciliation else TYPE
    return Response(
        without_surrogates(json.dumps(content, ensure_ascii=False)),
        status_of(error),
        headers,
        media_type,
    )


SAID = {  # the framework's findings in our words; names in braces are its limits
    "missing": "is missing: give it",
    "extra_forbidden": "is unknown: leave it out",
    "string_too_short": "is empty: write something",
    "string_too_long": "has more than {max_length:,} characters: shorten it",
    "too_short": "has no items: give at least {min_length:,}",
    "too_long": "has more than {max_length:,} items: give fewer",
    "greater_than_equal": "must be {ge:,} or more",
    "less_than_equal": "must be {le:,} or less",
    "string_type": "must be a text",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "greater_than": "must be more than {gt:,}",
    "less_than": "must be less than {lt:,}",
    "string_pattern_mismatch": "must have the form {pattern}",
    "string_unicode": "must be a text of whole characters: take halves of surrogate pairs out",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be an object {{…}}",
    "model_type": "must be an object {{…}}",
    "model_attributes_type": "must be an object {{…}}",
    "literal_error": "must be one of {expected}",
}


def field_problems(errors: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return pydantic's errors in our words, by field, such as queries[3]."""
    problems = {}
    for error in errors:
        parts = []
        for part in error["loc"]:
            if isinstance(part, int):
                parts.append(f"[{part}]")
            else:
                parts.append(f".{part}")
        said = SAID.get(error["type"])
        if said:
            sentence = said.format(**error.get("ctx", {}))
        else:
            sentence = str(error["msg"])
        problems["".join(parts).removeprefix(".") or "the request"] = sentence
    return problems


def without_paths(text: str) -> str:
    """Shorten every absolute path in a text to its last part, so that nobody learns where the
    server's files lie.

    >>> without_paths("/srv/kbs/people has no words, see https://example.org/a/b: add them to '/srv/kbs'")
    "people has no words, see https://example.org/a/b: add them to 'kbs'"
    """
    return _PATH.sub(lambda path: PurePath(path[0]).name, text)
