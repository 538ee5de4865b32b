"""The pictures of the documentation: the pages of `kbq serve`, the page for review, and a notebook, of the sample.

    python docs/pictures.py [FOLDER]        writes docs/images/*.png, or into FOLDER

Needs Chromium, playwright, nbclient and ipykernel.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[1]
KBQ = [sys.executable, "-m", "kbq"]
PEOPLE = ("Marie Curie", "Isaac Newton", "Ada Lovelace", "Charles Darwin", "Emmy Noether", "Niels Bohr")
RELATIONS = ("place of birth", "date of birth", "educated at", "spouse")
NOTEBOOK = (
    "import kbq\n\nkb = kbq.KnowledgeBase.sample()\nkb.query('Marie Curie [SEP] place of birth', k=3)",
    f"people = {list(PEOPLE[:4])}\nkb.fill([{{'subject': name}} for name in people], {list(RELATIONS[:3])})",
    "kb.predict(queries, 'slot_filling', 'predictions.jsonl')\n"
    "kbq.evaluate('predictions.jsonl', queries, 'slot_filling', ci=True, ks=[1, 5])",
)
STYLE = """
body { margin: 24px; font: 14px/1.45 system-ui, sans-serif; color: #1d2129; background: #fff; width: 1000px }
pre { background: #f5f6f8; padding: 10px 14px; border-left: 3px solid #3b82c4; margin: 20px 0 10px; font-size: 12.5px }
table { border-collapse: collapse; margin: 8px 0 } td, th { padding: 3px 10px } caption { text-align: left }
"""


def main() -> None:
    from playwright.sync_api import sync_playwright

    out = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images"
    out.mkdir(parents=True, exist_ok=True)
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with TemporaryDirectory() as work, sync_playwright() as playwright, served() as address:
        browser = playwright.chromium.launch(executable_path=chromium)
        tab = browser.new_page()
        tab.set_default_timeout(300_000)  # a slow machine has the pictures, too
        tab.set_viewport_size({"width": 1000, "height": 560})
        tab.goto(f"{address}/?q=Marie+Curie+%5BSEP%5D+place+of+birth")
        tab.screenshot(path=out / "serve-answer.png")
        tab.set_viewport_size({"width": 1400, "height": 720})
        query = "&".join(f"relation={name}" for name in RELATIONS)
        tab.goto(f"{address}/table?subjects={'%0A'.join(PEOPLE)}&{query}")
        tab.get_by_text("cells filled").wait_for()
        tab.locator("#cells .cell").first.click()
        tab.locator(".document mark").wait_for()
        tab.mouse.move(0, 0)
        tab.evaluate("scrollTo(0, 0)")
        tab.screenshot(path=out / "serve-table.png")
        review, table, filled = (Path(work, name) for name in ("people.html", "people.csv", "filled.csv"))
        table.write_text("subject\n" + "\n".join(PEOPLE) + "\n", "utf-8")
        subprocess.run([*KBQ, "fill", table, "--relations", *RELATIONS, "--out", filled], check=True)
        claims = filled.with_suffix(".claims.jsonl")
        subprocess.run([*KBQ, "export", claims, "--to", "review", "--out", review], check=True)
        tab.goto(review.as_uri())
        tab.locator("#cells .cell").first.click()
        tab.mouse.move(0, 0)
        tab.screenshot(path=out / "review.png")
        tab = browser.new_page()  # without the rules of the page for review, which permits its own styles alone
        tab.set_viewport_size({"width": 1048, "height": 400})
        tab.set_content(notebook(work))
        tab.screenshot(path=out / "notebook.png", full_page=True)
        browser.close()


@contextmanager
def served() -> Iterator[str]:
    """The address of a service of the sample."""
    command = [*KBQ, "serve", "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as service:
        assert service.stdout is not None
        line = next(line for line in service.stdout if "http://" in line)
        try:
            yield next(word for word in line.split() if word.startswith("http://")).rstrip("/.,:")
        finally:
            service.terminate()


def notebook(folder: str) -> str:
    """The cells of a notebook that was run, and what they show."""
    import nbclient
    import nbformat

    os.environ["PYTHONPATH"] = str(ROOT)
    cells: list[Any] = [nbformat.v4.new_code_cell(cell) for cell in NOTEBOOK]
    queries = nbformat.v4.new_code_cell(f"queries = {str(ROOT / 'kbq' / 'sample' / 'queries.jsonl')!r}")
    book = nbformat.v4.new_notebook(cells=[queries, *cells])
    nbclient.NotebookClient(
        book, timeout=600, kernel_name="python3", resources={"metadata": {"path": folder}}
    ).execute()
    shown = [f"<pre>{escape(cell.source)}</pre>{cell.outputs[-1].data['text/html']}" for cell in cells]
    return f"<!doctype html><meta charset=utf-8><style>{STYLE}</style>{''.join(shown)}"


if __name__ == "__main__":
    main()
