"""Manifest: what a reconciliation service can do, and where, for those that register it."""

from typing import Any
from urllib.parse import quote

import kbq

MOST_NAMES = 25  # of one request
TYPE = {"id": "page", "name": "Page"}
WIDTH, HEIGHT = 430, 300  # of a preview, in pixels
CONTENTS = {
    "value": "Value",
    "probability": "Probability",
    "sentence": "Sentence",
    "place": "Page, paragraph, characters",
}


def manifest(name: str, root: str, path: str, key: str, min_probability: float) -> dict[str, Any]:
    """The manifest of the knowledge base `name`.

    Args:
        root: address of the service, without a slash at its end.
        path: of the reconciliation service, below it.
        key: with which the manifest was asked for; a preview needs it, too. Empty: none is needed.
        min_probability: of a value, below which a cell stays empty.
    """
    with_key = f"&api_key={quote(key, safe='')}" if key else ""

    def at(rest: str) -> dict[str, str]:
        return {"service_url": root, "service_path": path + rest}

    return {
        "versions": ["0.1", "0.2"],
        "name": f"{name} (kbq)",
        "identifierSpace": f"{root}{path}/pages/",
        "schemaSpace": f"{root}{path}/relations/",
        "documentation": f"{root}/",
        "serviceVersion": kbq.__version__,
        "batchSize": MOST_NAMES,
        "defaultTypes": [TYPE],
        "view": {"url": f"{root}/page/{{{{id}}}}?kb={name}"},
        "preview": {"url": f"{root}{path}/preview?id={{{{id}}}}{with_key}", "width": WIDTH, "height": HEIGHT},
        "suggest": {
            "entity": at("/suggest/entity")
            | {"flyout_service_url": root, "flyout_service_path": f"{path}/flyout?id=${{id}}"},
            "property": at("/suggest/property"),
            "type": at("/suggest/type"),
        },
        "extend": {"propose_properties": at("/properties"), "property_settings": _settings(min_probability)},
    } | ({"authentication": {"type": "apiKey", "name": "api_key", "in": "query"}} if key else {})


def _settings(min_probability: float) -> list[dict[str, Any]]:
    """What may be chosen for a column; see `extension.Settings`."""
    return [
        {
            "name": "limit",
            "label": "Values",
            "type": "number",
            "default": 1,
            "help_text": "How many values a cell has at most; 0 for all that are likely enough",
        },
        {
            "name": "probability",
            "label": "Probability",
            "type": "number",
            "default": min_probability,
            "help_text": "From 0 to 1: cells whose values are less likely right stay empty",
        },
        {
            "name": "content",
            "label": "Content",
            "type": "select",
            "default": "value",
            "help_text": "The value, or what is known of it",
            "choices": [{"value": value, "name": name} for value, name in CONTENTS.items()],
        },
    ]
