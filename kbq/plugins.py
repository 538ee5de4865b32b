"""Plugins: load readers of other programs' files by name, on demand, so that the core imports none
of them.
"""

from importlib import import_module
from typing import Any


def plugin(name: str) -> Any:
    """Return a module of kbq/importing/, such as `codes`."""
    return import_module(f"kbq.importing.{name}")
