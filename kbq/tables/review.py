"""Review: claims become one HTML file in which a person accepts and corrects them, without server and network."""

import base64
import dataclasses
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from kbq.tables.claims import Claim, Source, write_lines
from kbq.tables.relations import Relation

BROWSER = Path(__file__).with_name("browser")
SHARED = ("decisions.js", "evidence.js")  # with the page of `kbq serve` on which tables are filled
_ENDS_A_SCRIPT = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&\u2028\u2029"}


def write_review(path: Path, claims: Iterable[Claim], source: Source, relations: Iterable[Relation] = ()) -> None:
    """Write the page on which people review all claims, and from which they download a file of decisions.

    The claims are data, not HTML, and the page's policy forbids every script but its own, so that no text of a corpus
    can do anything.

    Raises:
        KbqError: it cannot be written.
    """
    page = (BROWSER / "review.html").read_text("utf-8")
    script = "".join((BROWSER / name).read_text("utf-8") for name in (*SHARED, "review.js"))
    for name, content in (("STYLE", (BROWSER / "review.css").read_text("utf-8")), ("SCRIPT", script)):
        digest = hashlib.sha256(content.encode()).digest()
        page = page.replace(f"{name}-HASH", f"sha256-{base64.b64encode(digest).decode()}")
        page = page.replace(f">{name}<", f">{content}<")
    before, behind = page.split(">DATA<")
    write_lines(path, [f"{before}>{described(claims, source, relations)}<{behind}".removesuffix("\n")])


def described(claims: Iterable[Claim], source: Source, relations: Iterable[Relation] = ()) -> str:
    """Return the data of the page: JSON without any character that could end it in HTML."""
    content = {
        "source": dataclasses.asdict(source),
        "relations": {one.name: {"values": one.values} for one in relations},
        "claims": [{"id": claim.digest} | claim.to_dict() for claim in claims],
    }
    return json.dumps(content, ensure_ascii=False).translate(_ENDS_A_SCRIPT)
