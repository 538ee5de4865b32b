"""A browser for tests: it waits as long as a busy machine takes."""

import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

PATIENCE = 120_000  # milliseconds
# The first is Chromium without its windows, whose tabs take a quarter of the time.
PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
SWITCHES = (  # of Chromium, without which it asks hosts of its own
    *("headless", "no-sandbox", "disable-gpu", "no-first-run", "disable-sync"),
    *("disable-background-networking", "disable-component-update"),
)


class Browser:
    """Chromium, whose tabs are patient."""

    def __init__(self, started: Any, program: str) -> None:
        self._chromium = started.chromium.launch(
            executable_path=program, args=[f"--{one}" for one in SWITCHES], timeout=PATIENCE
        )

    def new_context(self, **settings: Any) -> Any:
        context = self._chromium.new_context(**settings)
        context.set_default_timeout(PATIENCE)
        return context

    def new_page(self, **settings: Any) -> Any:
        page = self._chromium.new_page(**settings)
        page.context.set_default_timeout(PATIENCE)
        return page

    def close(self) -> None:
        self._chromium.close()


def expect(found: Any) -> Any:
    """What must hold of a tab, or of what it shows, before patience ends."""
    playwright = import_module("playwright.sync_api")
    playwright.expect.set_options(timeout=PATIENCE)
    return playwright.expect(found)


def reload(tab: Any, begin: Callable[[], object] = bool) -> None:
    """Load a tab again, until it has the session storage that it had; `begin` is called before.

    A busy Chromium now and then gives the documents of a new tab session storages of their own, in
    turns.
    """
    tab.evaluate("sessionStorage.setItem('mark', 'set')")
    for _ in range(20):
        begin()
        tab.reload()
        if tab.evaluate("sessionStorage.getItem('mark')") == "set":
            tab.evaluate("sessionStorage.removeItem('mark')")
            return
    raise AssertionError("the tab has lost its session storage")


def wait_until(tab: Any, script: str) -> None:
    """Until a script in the tab gives true."""
    end = time.monotonic() + PATIENCE / 1000
    while not tab.evaluate(script):
        assert time.monotonic() < end, f"never true: {script}"
        tab.wait_for_timeout(20)
