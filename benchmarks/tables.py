"""Tables: the figures in README.md and docs/ come from results/*.json, as tables.toml says.

    python benchmarks/tables.py

Rewrites what stands between `<!-- figures:NAME -->` and `<!-- /figures -->`; each place of docs/results/ says what
makes it.
"""

import re
import tomllib
from pathlib import Path

import rendering

ROOT = Path(__file__).parents[1]
PLACE = re.compile(r"<!-- figures:(.+?) -->\n.*?<!-- /figures -->", re.DOTALL)


def main() -> None:
    for page, text in pages().items():
        page.write_text(text, "utf-8")


def pages() -> dict[Path, str]:
    """Return the pages that have places for figures, with the figures of today's results."""
    places = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    texts = {page: page.read_text("utf-8") for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))}
    has = {page: PLACE.findall(text) for page, text in texts.items()}
    if difference := {name for names in has.values() for name in names} ^ set(places):
        raise SystemExit(f"these are in tables.toml or on a page alone: {', '.join(sorted(difference))}")
    return {page: filled(page, texts[page], places) for page, names in has.items() if names}


def filled(page: Path, text: str, places: dict[str, list[rendering.Part]]) -> str:
    """Fill the places of a page."""

    def place(found: re.Match[str]) -> str:
        rendering.read.clear()
        made = rendering.render(found[1], places)
        maker = f"\n\nMade by {rendering.made_by()}." if page.parent.name == "results" else ""
        return f"<!-- figures:{found[1]} -->\n{made}{maker}\n<!-- /figures -->"

    return PLACE.sub(place, text)


if __name__ == "__main__":
    main()
