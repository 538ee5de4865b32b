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
    places = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    texts = {page: page.read_text("utf-8") for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))}
    has = {page: PLACE.findall(text) for page, text in texts.items()}
    if difference := {name for names in has.values() for name in names} ^ set(places):
        raise SystemExit(f"these are in tables.toml or on a page alone: {', '.join(sorted(difference))}")
    for page, names in has.items():
        made = iter([place(name, places, page.parent.name == "results") for name in names])
        if names:
            page.write_text(PLACE.sub(lambda _: next(made), texts[page]), "utf-8")  # noqa: B023 - called at once


def place(name: str, places: dict[str, list[rendering.Part]], says_what_makes_it: bool) -> str:
    """Return a place of a page with its figures."""
    rendering.read.clear()
    made = rendering.render(name, places)
    maker = f"\n\nMade by {rendering.made_by()}." if says_what_makes_it else ""
    return f"<!-- figures:{name} -->\n{made}{maker}\n<!-- /figures -->"


if __name__ == "__main__":
    main()
