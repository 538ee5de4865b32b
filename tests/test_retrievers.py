"""Retrievers: the classes that the documentation shows for LangChain and Haystack run with the real
packages.
"""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "guides" / "language-models.md"


@pytest.mark.parametrize(
    ("package", "module"), [("langchain-core", "langchain_core"), ("haystack-ai", "haystack")]
)
def test_a_retriever_of_the_documentation_finds_an_answer(package: str, module: str) -> None:
    if find_spec(module) is None:
        pytest.skip(f"{package} is not installed: pip install {package}")
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (example,) = (block for block in blocks if f"from {module}" in block)
    quiet = {"HAYSTACK_TELEMETRY_ENABLED": "False", "LANGSMITH_TRACING": "false"}
    command = [sys.executable, "-c", example]
    told = subprocess.run(
        command, env=os.environ | quiet, capture_output=True, text=True, check=False
    )
    assert (told.returncode, told.stdout) == (0, "Warsaw - Marie Curie\n"), told.stderr
