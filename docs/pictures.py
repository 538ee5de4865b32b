"""The pictures of the documentation, of the sample: a folder that becomes a table, pages of
`kbq serve`, a notebook.

    python docs/pictures.py [FOLDER]        writes docs/images/*.png, or into FOLDER

Needs Chromium, playwright, nbclient and ipykernel.
"""

import csv
import json
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
PEOPLE = (
    "Marie Curie",
    "Isaac Newton",
    "Ada Lovelace",
    "Charles Darwin",
    "Emmy Noether",
    "Niels Bohr",
)
RELATIONS = ("place of birth", "date of birth", "educated at", "spouse")
GIVEN = {"Emmy Noether": {"date of birth": "23 March 1882"}}  # what a table has before
EMPTY_CELL = "·"
FOLDER_STYLE = """
* { box-sizing: border-box }
body { margin: 0; padding: 30px 34px; width: 1240px; background: #faf9f6; color: #1c1b19; font: 15px/1.45
  system-ui, sans-serif }
h2 { font: 600 19px/1.2 Georgia, serif; margin: 0 0 12px }
.row { display: grid; grid-template-columns: 215px 330px 1fr; gap: 54px; align-items: start }
.row > * { position: relative }
.row > * + *::before { content: "→"; position: absolute; left: -40px; top: 86px; font-size: 26px; color: #8d887d
  }
ul { list-style: none; margin: 0; padding: 0 }
li { padding: 3px 0 3px 26px; position: relative; white-space: nowrap }
li::before { content: ""; position: absolute; left: 3px; top: 7px; width: 12px; height: 15px; border: 1.5px
  solid #8d887d; border-radius: 2px }
table { border-collapse: collapse; width: 100%; background: #fff; font-size: 14px }
th, td { border: 1px solid #e4e0d7; padding: 6px 10px; text-align: left }
th { color: #67635b; font-weight: 500 }
.empty { color: #b9b4a9 }
.sure { background: #d3ecdc }
.likely { background: #f8e8c2 }
small { color: #67635b; display: block }
.chosen { outline: 2.5px solid #0b5f58; outline-offset: -2px }
.card { margin-top: 18px; background: #fff; border-radius: 12px; border: 1px solid #e4e0d7; padding: 14px 18px }
.card p { margin: 6px 0 0; font: 16px/1.5 Georgia, serif }
mark { background: #ffe9a6; border-radius: 3px; padding: 0 2px }
.card small { margin-top: 6px }
"""
NOTEBOOK = (
    "import kbq\n\nkb = kbq.KnowledgeBase.sample()\nkb.query('Marie Curie [SEP] place of birth', "
    "k=3)",
    f"people = {list(PEOPLE[:4])}\nkb.fill([{{'subject': name}} for name in people], "
    f"{list(RELATIONS[:3])})",
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
    chromium = (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )
    with TemporaryDirectory() as work, sync_playwright() as playwright, served(work) as address:
        browser = playwright.chromium.launch(executable_path=chromium)
        picture_of_the_folder(browser, Path(work), out)
        tab = browser.new_page()
        tab.set_default_timeout(300_000)  # a slow machine has the pictures, too
        picture_of_the_preview(tab, Path(work), address, out)
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
        review, table, filled = (
            Path(work, name) for name in ("people.html", "people.csv", "filled.csv")
        )
        table.write_text("subject\n" + "\n".join(PEOPLE) + "\n", "utf-8")
        subprocess.run(
            [*KBQ, "fill", table, "--relations", *RELATIONS, "--out", filled], check=True
        )
        claims = filled.with_suffix(".claims.jsonl")
        subprocess.run([*KBQ, "export", claims, "--to", "review", "--out", review], check=True)
        tab.goto(review.as_uri())
        tab.locator("#cells .cell").first.click()
        tab.mouse.move(0, 0)
        tab.screenshot(path=out / "review.png")
        # Without the rules of the page for review, which permits its own styles alone.
        tab = browser.new_page()
        tab.set_viewport_size({"width": 1048, "height": 400})
        tab.set_content(notebook(work))
        tab.screenshot(path=out / "notebook.png", full_page=True)
        browser.close()


def picture_of_the_folder(browser: Any, work: Path, out: Path) -> None:
    """A folder, a table before and after, and the sentence of a cell, as the commands make them."""
    folder, table, filled = letters(work), work / "before.csv", work / "after.csv"
    people, relations = PEOPLE[:1:-1], ("place of birth", "date of birth", "date of death")
    rows = [
        [name, *(GIVEN.get(name, {}).get(relation, "") for relation in relations)]
        for name in people
    ]
    with table.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["subject", *relations], *rows])
    subprocess.run([*KBQ, "build", folder, work / "kb"], check=True)
    command = [*KBQ, "fill", table, "--kb", work / "kb", "--relations", *relations, "--out", filled]
    subprocess.run(command, check=True)
    claims = [
        json.loads(line)
        for line in filled.with_suffix(".claims.jsonl").read_text("utf-8").splitlines()
    ]
    accepted = {(one["subject"], one["relation"]): one for one in claims if one["accepted"]}
    tab = browser.new_page(viewport={"width": 1240, "height": 300}, device_scale_factor=2)
    tab.set_content(folder_page(folder, rows, relations, accepted))
    tab.screenshot(path=out / "folder-to-table.png", full_page=True)


def letters(work: Path) -> Path:
    """A folder with a document for each person."""
    folder = work / "letters"
    folder.mkdir()
    articles = (ROOT / "kbq" / "sample" / "articles.jsonl").read_text("utf-8").splitlines()
    for page in map(json.loads, articles):
        if page["title"] in PEOPLE:
            text = "\n\n".join([page["title"], *page["paragraphs"]])
            (folder / f"{page['title']}.txt").write_text(text, "utf-8")
    return folder


def folder_page(
    folder: Path, rows: list[list[str]], relations: tuple[str, ...], accepted: dict[Any, Any]
) -> str:
    """The picture as HTML; the first cell that was filled is the chosen one."""
    chosen = next(iter(accepted.values()))
    files = "".join(f"<li>{escape(path.name)}</li>" for path in sorted(folder.iterdir()))

    def cell(name: str, relation: str, value: str, is_after: bool) -> str:
        claim = accepted.get((name, relation)) if is_after and not value else None
        if claim is None:
            return f"<td>{escape(value)}</td>" if value else f'<td class="empty">{EMPTY_CELL}</td>'
        look = f"{'sure' if claim['probability'] >= 0.75 else 'likely'}{' chosen' if claim is chosen else ''}"
        percent = f"{100 * claim['probability']:.0f} %"
        return f'<td class="{look}">{escape(claim["value"])}<small>{percent}</small></td>'

    def table(is_after: bool) -> str:
        shown = relations if is_after else relations[:2]
        head = "".join(f"<th>{escape(name)}</th>" for name in ("subject", *shown))
        lines = [
            f"<tr><td>{escape(name)}</td>"
            + "".join(cell(name, one, values[place], is_after) for place, one in enumerate(shown))
            + "</tr>"
            for name, *values in rows
        ]
        return f"<table><tr>{head}</tr>{''.join(lines)}</table>"

    start, end = (chosen[name] - chosen["sentence_start"] for name in ("start", "end"))
    sentence = chosen["sentence"]
    said = f"{escape(sentence[:start])}<mark>{escape(sentence[start:end])}</mark>{escape(sentence[end:])}"
    source = (
        f"{chosen['subject']} — {chosen['relation']}, {100 * chosen['probability']:.0f} %: "
        f"{chosen['page_id']}"
    )
    card = f'<div class="card"><b>{escape(chosen["value"])}</b><p>{said}</p><small>{escape(source)}</small></div>'
    return (
        f"<!doctype html><meta charset=utf-8><style>{FOLDER_STYLE}</style><div "
        f"class=row><div><h2>your folder</h2><ul>{files}</ul></div><div><h2>your "
        f"table</h2>{table(False)}</div><div><h2>filled, with "
        f"evidence</h2>{table(True)}{card}</div></div>"
    )


def picture_of_the_preview(tab: Any, work: Path, address: str, out: Path) -> None:
    """A folder that has been dropped on the page."""
    tab.set_viewport_size({"width": 1100, "height": 760})
    tab.goto(f"{address}/new")
    tab.locator("#folder").set_input_files(str(work / "letters"))
    tab.locator(".card").first.wait_for()
    tab.evaluate("document.querySelector('.new code').textContent = '~/knowledge-bases'")
    tab.mouse.move(0, 0)
    tab.screenshot(path=out / "new-preview.png")


@contextmanager
def served(work: str) -> Iterator[str]:
    """The address of a service of the sample, which takes documents, too."""
    command = [*KBQ, "serve", "--port", "0", "--edit", "--folder", f"{work}/kbs"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as service:
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
    queries = nbformat.v4.new_code_cell(
        f"queries = {str(ROOT / 'kbq' / 'sample' / 'queries.jsonl')!r}"
    )
    book = nbformat.v4.new_notebook(cells=[queries, *cells])
    nbclient.NotebookClient(
        book, timeout=600, kernel_name="python3", resources={"metadata": {"path": folder}}
    ).execute()
    shown = [
        f"<pre>{escape(cell.source)}</pre>{cell.outputs[-1].data['text/html']}" for cell in cells
    ]
    return f"<!doctype html><meta charset=utf-8><style>{STYLE}</style>{''.join(shown)}"


if __name__ == "__main__":
    main()
