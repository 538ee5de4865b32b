"""Without Ray: what asks for it says what to install."""

import importlib
import sys

import pytest

from kbq.errors import ClusterError


def test_ray_that_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "kbq.cluster", raising=False)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        ClusterError, match=r"^ray=… needs Ray \(import of ray halted; .*\): pip install ray$"
    ):
        importlib.import_module("kbq.cluster")
