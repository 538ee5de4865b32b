"""The package stays light: predictions of other systems are scored without a model library."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "faiss", "transformers", "ir_measures", "matplotlib", "kbq.kb")


@pytest.mark.parametrize("module", ["kilt.evaluation", "kilt.submission", "dump.page_directory"])
def test_no_heavy_library_is_imported(module: str) -> None:
    code = f"import sys, kbq.{module}; print(*set({HEAVY!r}) & set(sys.modules))"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (found.stdout, found.stderr) == ("\n", "")
