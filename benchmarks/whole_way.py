"""The whole way: a folder of texts becomes a table, is corrected in a browser, and is written for Wikidata; with times.

    python benchmarks/whole_way.py TITLES.jsonl WORK [--axe axe.min.js]

24 biographies of the sample are Markdown, HTML, DOCX and PDF. `kbq` is called as a person would call it. Chromium opens
the page for review, where keys alone decide. OpenRefine names what lacks a Q-number; TITLES, whose page ids are
Q-numbers (T-REx), stands for Wikidata. WORK is a new folder; pictures of the page are in it.
"""

import json
import resource
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import reporting
from measuring import arguments, of_tests

from kbq.corpus.pages import Page
from kbq.corpus.readers import read_corpus
from kbq.kb import KnowledgeBase
from kbq.sample_kb import ARTICLES
from kbq.text.letters import normalised

ROOT = Path(__file__).parents[1]
PEOPLE = 24
RELATIONS = (
    "place of birth", "date of birth", "place of death", "date of death", "educated at", "employer", "spouse",
    "field of work",
)  # fmt: skip
KEYS = ("a", "r", "1", "n", "c:Kraków", "a", "u")  # what a reviewer presses, after accepting all above 0.9


def main() -> None:
    options = arguments(__doc__, titles=Path, work=Path, axe=None)
    work: Path = options.work
    work.mkdir(parents=True)
    names = texts(work / "texts")
    (work / "people.csv").write_text("name\n" + "".join(f"{name}\n" for name in names), "utf-8")
    way = Way(work)
    known = [f"@{relation}" for relation in RELATIONS]
    fill = ["fill", "people.csv", "--subject", "name", "--kb", "kb", "--relations"]
    way.step("kbq build texts kb", ["build", "texts", "kb"])
    way.step("kbq fill people.csv --relations … --out facts.csv", [*fill, *known, "--out", "facts.csv"])
    export = ["export", "facts.claims.jsonl", "--to"]
    way.step("kbq export --to review", [*export, "review", "--out", "facts.html"])
    review = way.timed(
        "corrected in Chromium, with keys alone", lambda: reviewed(work, options.axe and Path(options.axe))
    )
    decided = ["--decisions", "decisions.jsonl"]
    way.step("--decisions decisions.jsonl --out facts.csv", [*fill, *known, *decided, "--out", "facts.csv"])
    more = [*fill, *known, "@occupation", *decided]
    way.step("another threshold, one more column", [*more, "--min-probability", "0.7", "--out", "facts.csv"])
    way.step("kbq export --to quickstatements", [*export, "quickstatements", "--out", "facts.qs"])
    lacking = [line.split("\t")[0] for line in (work / "facts.qs.ids-todo.tsv").read_text("utf-8").splitlines()[1:]]
    matched = way.timed(
        "the names without a Q-number, in OpenRefine", lambda: reconciled(options.titles, lacking, work)
    )
    for to in ("quickstatements", "rdf"):
        way.step(f"kbq export --to {to} --ids ids.csv", [*export, to, "--ids", "ids.csv", "--out", f"facts.{to}"])
    way.step("--out facts.xlsx", [*more, "--out", "facts.xlsx"])
    figures = {
        "files": PEOPLE, "review": review, "names without a Q-number": len(lacking), "of these, matched": matched,
        "steps": way.steps,
    }  # fmt: skip
    reporting.write("whole_way", figures, [options.titles])


class Way:
    """The steps of the way, with their times."""

    def __init__(self, work: Path) -> None:
        self._work, self.steps = work, list[dict[str, Any]]()

    def step(self, name: str, words: list[str]) -> None:
        """Call kbq; its last report is the outcome."""
        command = [sys.executable, "-m", "kbq", *words, "--json"]

        def called() -> dict[str, Any]:
            told = subprocess.run(command, cwd=self._work, capture_output=True, text=True, check=True)
            report: dict[str, Any] = json.loads(told.stdout)
            return {key: report[key] for key in KEPT if key in report}

        self.timed(name, called)

    def timed(self, name: str, work: Any) -> Any:
        """Do some work, and return its outcome."""
        begun, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        outcome = work()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        seconds = time.monotonic() - begun
        self.steps.append({"step": name, "seconds": round(seconds, 1), "of a CPU": round(cpu, 1), "outcome": outcome})
        print(self.steps[-1], flush=True)
        return outcome


KEPT = ("pages", "cells", "filled", "queries", "asked", "commands", "left_out", "lacking")


def texts(folder: Path) -> list[str]:
    """Write files of four formats, a biography each; return their titles."""
    import docx

    folder.mkdir()
    pages = [page for _, page in zip(range(PEOPLE), read_corpus(ARTICLES), strict=False)]
    for number, page in enumerate(pages):
        said, name = [paragraph.text for paragraph in page.paragraphs], folder / page.title.replace(" ", "_")
        if number % 4 == 0:
            name.with_suffix(".md").write_text(f"# {page.title}\n\n" + "\n\n".join(said), "utf-8")
        elif number % 4 == 1:
            body = "".join(f"<p>{text}</p>" for text in said)
            html = f"<title>{page.title}</title><script>x()</script><h1>{page.title}</h1>{body}"
            name.with_suffix(".html").write_text(html, "utf-8")
        elif number % 4 == 2:
            document = docx.Document()
            document.add_heading(page.title, 0)
            for text in said:
                document.add_paragraph(text)
            document.save(name.with_suffix(".docx"))
        else:
            lines = [line for text in said for line in textwrap.wrap(plain(text), 90)]
            name.with_suffix(".pdf").write_bytes(of_tests("corpus/test_office").pdf(lines, title=page.title))
    return [page.title for page in pages]


def plain(text: str) -> str:
    """Return a text as a PDF that is written by hand can hold it."""
    return text.encode("ascii", "replace").decode().translate({ord("("): "[", ord(")"): "]", ord("\\"): "/"})


@contextmanager
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        yield opened
        opened.close()


def reviewed(work: Path, axe: Path | None) -> Mapping[str, Any]:
    """Decide with keys alone, download the decisions, and look at the page in two widths and colours."""
    found: dict[str, Any] = {}
    with browser() as opened:
        tab = opened.new_page(accept_downloads=True)
        tab.goto((work / "facts.html").as_uri())
        tab.locator("#from").focus()
        tab.keyboard.type("0.9")
        tab.locator("#accept-all").focus()
        tab.keyboard.press("Enter")
        tab.locator("#from").focus()
        tab.keyboard.press("Control+A")
        tab.keyboard.type("0.3")
        tab.locator("#to").focus()
        tab.keyboard.type("0.9")
        tab.locator("#rows .value button").first.focus()
        for key in KEYS:
            tab.keyboard.press(key[0])
            if key[1:]:
                tab.keyboard.type(key[2:])
                tab.keyboard.press("Enter")
        found["said"] = tab.locator("#done").text_content()
        tab.locator("#download").focus()
        with tab.expect_download() as download:
            tab.keyboard.press("Enter")
        download.value.save_as(work / "decisions.jsonl")
        found["decisions"] = len((work / "decisions.jsonl").read_text("utf-8").splitlines())
        for scheme in ("light", "dark"):
            for width in (1300, 390):
                page = opened.new_page(color_scheme=scheme, viewport={"width": width, "height": 844})
                page.goto((work / "facts.html").as_uri())
                page.keyboard.press("j")
                page.screenshot(path=work / f"review-{scheme}-{width}.png")
                found["wider than the window"] = found.get("wider than the window", 0) + page.evaluate(
                    "+(document.documentElement.scrollWidth > innerWidth)"
                )
                if axe:
                    page.evaluate(axe.read_text("utf-8"))
                    faults = page.evaluate("axe.run().then(found => found.violations.length)")
                    found["axe"] = found.get("axe", 0) + faults
    return found


def reconciled(titles: Path, names: list[str], work: Path) -> int:
    """Let OpenRefine ask a service whose page ids are Q-numbers; return how many names have one."""
    conftest, refine = of_tests("serve/conftest"), of_tests("serve/test_openrefine")
    wanted = {normalised(name) for name in names}
    pages = [page for page in read_corpus(titles) if normalised(page.title) in wanted or page.id.endswith("77")]
    KnowledgeBase.build((Page(page.id, page.title, [page.title]) for page in pages), work / "titles", device="cpu")
    with conftest.running({"titles": work / "titles"}) as service, refine.opened(work / "refine") as program:
        quoted = ['"' + name.replace('"', '""') + '"' for name in names]
        program.create("\n".join(["name", *quoted]).encode())
        program.reconcile(service)
        program.command(
            "add-column", baseColumnName="name", newColumnName="id", columnInsertIndex="1", onError="set-to-blank",
            expression="grel:if(cell.recon.matched, cell.recon.match.id, '')", repeat="false", repeatCount="0",
        )  # fmt: skip
        export = program.command("export-rows", format="csv").content
    (work / "ids.csv").write_bytes(export)
    return sum(",Q" in line for line in export.decode().splitlines())


if __name__ == "__main__":
    main()
