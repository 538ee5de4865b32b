"""The API as it describes itself: somebody else's tester makes requests of its description and
judges the answers.

`KBQ_REQUESTS=100` makes as many requests of each kind for each address.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from .conftest import Serve

REQUESTS = os.environ.get("KBQ_REQUESTS", "4")
# Whether a page exists, only the knowledge base knows: a request may fit its description and be
# refused.
LEFT_OUT = "positive_data_acceptance"
SETTINGS = """
[checks.negative_data_rejection]
expected-statuses = ["400", "404", "405", "413", "415", "422"]
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("schemathesis") is None, reason="schemathesis is not installed")
def test_every_answer_is_as_described(serve: Serve, kb_folder: Path, tmp_path: Path) -> None:
    service = serve({"tiny": kb_folder}, decisions=tmp_path)
    (tmp_path / "settings.toml").write_text(SETTINGS)
    program = Path(sys.executable).with_name("schemathesis")
    command: list[str | Path] = [
        *(
            program,
            "--config-file",
            tmp_path / "settings.toml",
            "run",
            f"{service.address}/openapi.json",
        ),
        *(
            "--checks",
            "all",
            "--exclude-checks",
            LEFT_OUT,
            "--max-examples",
            REQUESTS,
            "--seed",
            "0",
        ),
        *("--phases", "examples,coverage,fuzzing", "--wait-for-schema", "60"),
        *("--request-timeout", "300", "--max-response-time", "300"),
        *("--generation-database", "none", "--no-color"),
    ]
    told = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    said = "\n".join(line[:300] for line in told.stdout.splitlines())
    assert told.returncode == 0, said + told.stderr[-2000:]
