"""Review: claims become one HTML file in which a person accepts and rejects them, without server and network."""

import base64
import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path

from kbq.filling.claims import Claim, Source, write_lines
from kbq.filling.relations import Relation

TEMPLATE = Path(__file__).with_name("review.html")
_ENDS_A_SCRIPT = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&\u2028\u2029"}


def write_review(path: Path, claims: Iterable[Claim], source: Source, relations: Iterable[Relation] = ()) -> None:
    """Write the page on which all claims are reviewed; what is downloaded from it is a file of decisions.

    The claims are data, not HTML, and the page's policy forbids every script but its own, so that no text of a corpus
    can do anything.

    Raises:
        KbqError: it cannot be written.
    """
    page = TEMPLATE.read_text("utf-8")
    for name, mark in (("style", "STYLE-HASH"), ("script", "SCRIPT-HASH")):
        found = re.search(f"<{name}>(.*?)</{name}>", page, re.DOTALL)
        digest = hashlib.sha256((found[1] if found else "").encode()).digest()
        page = page.replace(mark, f"sha256-{base64.b64encode(digest).decode()}")
    before, behind = page.split(">DATA<")
    write_lines(path, [f"{before}>{described(claims, source)}<{behind}".removesuffix("\n")])


def described(claims: Iterable[Claim], source: Source) -> str:
    """The data of the page: JSON without any character by which HTML could end it."""
    content = {
        "source": dataclasses.asdict(source),
        "claims": [{"id": claim.digest} | claim.to_dict() for claim in claims],
    }
    return json.dumps(content, ensure_ascii=False).translate(_ENDS_A_SCRIPT)
