"""The page for review with many claims, and two people who decide at once on the page of `kbq serve`.

    python benchmarks/review_page.py WORK [--claims 10000] [--decisions 1000]

Chromium opens a file of claims three times; a decision is a key that is pressed. Then two browsers fill the same table
of the sample, and decide on its cells as fast as they can, one on each from the front, the other from the back. What
the server has kept is counted. WORK is a new folder.
"""

import shutil
import statistics
import time
from pathlib import Path
from typing import Any

import reporting
from measuring import arguments, of_tests
from playwright.sync_api import Browser, sync_playwright

from kbq.kb import KnowledgeBase
from kbq.tables.claims import Alternative, Claim, Source
from kbq.tables.decisions import read_decisions
from kbq.tables.outputs import write_review

SENTENCE = "She was born on 7 November 1867 in Warsaw, then in the Russian Empire, to a family of teachers."
RELATIONS = "place of birth, country, occupation, inception"
PRESS = """() => {
  const begun = performance.now();
  for (let n = 0; n < 50; n++) document.dispatchEvent(new KeyboardEvent('keydown', {key: n % 2 ? 'r' : 'a'}));
  return (performance.now() - begun) / 50;
}"""
DECIDE = """([back, most]) => {
  const cells = lines.flatMap(row => row.filter(Boolean)).filter(line => line.claims.length);
  const order = back ? cells.reverse() : cells;
  let count = 0;
  window.result = new Promise(done => {
    const go = () => {
      const line = order[count];
      if (!line || count === most) return done(count);
      count++;
      decisions.decide(cellOf(line), back ? line.claims[0].value : `by hand ${count}`, back ? 'reject' : 'accept');
      setTimeout(go, 4);
    };
    go();
  });
}"""


def main() -> None:
    options = arguments(__doc__, work=Path, claims=10_000, decisions=1_000)
    options.work.mkdir(parents=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        figures = {
            f"{options.claims:,} claims": opened(browser, options.work / "many.html", options.claims),
            f"{options.decisions:,} decisions of two": together(browser, options.work / "kept", options.decisions),
        }
        browser.close()
    reporting.write("review_page", figures, [])


def claims(count: int) -> list[Claim]:
    others = tuple(Alternative(f"other {n}", 0.2, f"P{n}", "Title", 0, 0, 5, SENTENCE, 0) for n in range(3))
    return [
        Claim(
            subject=f"subject {n // 4}", relation=f"relation {n % 4}", value="Warsaw", probability=n % 100 / 100,
            accepted=n % 100 >= 50, page_id=f"S{n}", title=f"title {n // 4}", paragraph=2, start=35, end=41,
            sentence=SENTENCE, sentence_start=0, alternatives=others,
        )
        for n in range(count)
    ]  # fmt: skip


def opened(browser: Browser, path: Path, count: int) -> dict[str, float]:
    """Return medians of three: seconds to open the page, milliseconds of a decision, seconds of all at once."""
    write_review(path, claims(count), Source("0.2", "m", "kb", "kbq fill", "2026-11-26T00:00:00Z"))
    times: dict[str, list[float]] = {}
    for _ in range(3):
        context = browser.new_context()
        tab = context.new_page()
        begun = time.monotonic()
        tab.goto(path.as_uri())
        tab.locator("#place").wait_for()
        times.setdefault("seconds to open", []).append(time.monotonic() - begun)
        times.setdefault("ms of a decision", []).append(tab.evaluate(PRESS))
        begun = time.monotonic()
        tab.locator("#accept-all").click()
        tab.get_by_text(f"{count:,} reviewed").wait_for()
        times.setdefault("seconds to accept all", []).append(time.monotonic() - begun)
        begun = time.monotonic()
        tab.locator("#after").click()
        tab.locator("#rows tr").first.wait_for()
        times.setdefault("seconds to turn a page", []).append(time.monotonic() - begun)
        context.close()
    size = {"MB": round(path.stat().st_size / 1e6, 1)}
    return size | {name: round(statistics.median(found), 3) for name, found in times.items()}


def together(browser: Browser, folder: Path, count: int) -> dict[str, Any]:
    """Count decisions that two browsers made, that were kept, and that the first has seen."""
    running = of_tests("serve/conftest").running
    kb = KnowledgeBase.sample(device="cpu")
    titles = [page.title for _, page in zip(range(count // 2), kb.pages(), strict=False)]
    with running({"sample": kb.folder}, decisions=folder) as service:
        tabs = []
        for name in ("Ada", "Bob"):
            tab = browser.new_context().new_page()
            tab.goto(f"{service.address}/table")
            tab.locator("#subjects").fill("\n".join(titles[: count // 8]))
            tab.locator("#others").fill(RELATIONS)
            tab.get_by_role("button", name="Fill").click()
            tab.locator("#downloads").wait_for(timeout=600_000)
            tab.locator("#reviewer").fill(name)
            tabs.append(tab)
        begun = time.monotonic()
        for tab, back in zip(tabs, (False, True), strict=True):
            tab.evaluate(DECIDE, [back, count // 2])
        made = sum(tab.evaluate("window.result") for tab in tabs)
        path = folder / "sample.decisions.jsonl"
        while time.monotonic() - begun < 300 and len(path.read_bytes().splitlines()) < made:
            time.sleep(0.1)
        seconds = time.monotonic() - begun
        tabs[0].evaluate("dispatchEvent(new Event('focus'))")
        for _ in range(100):
            if (seen := tabs[0].evaluate("decisions.lines(place).length")) >= made:
                break
            time.sleep(0.1)
    kept = sum(len(values) for values in read_decisions(path).values())
    return {"made": made, "kept": kept, "seen by the first": seen, "seconds": round(seconds, 1)}


if __name__ == "__main__":
    main()
