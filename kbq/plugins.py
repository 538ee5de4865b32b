"""Plugins: what reads files of other programs is loaded by its name when one is met; the core imports none of it."""

from importlib import import_module
from typing import Any


def plugin(name: str) -> Any:
    """Return a module of kbq/importing/, such as `codes`."""
    return import_module(f"kbq.importing.{name}")
