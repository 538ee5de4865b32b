"""OpenRefine itself, driven by its HTTP commands: names become pages, columns are added, an export
is a file of ids.
"""

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from kbq.corpus.pages import Page
from kbq.corpus.readers import read_corpus
from kbq.kb import KnowledgeBase
from kbq.sample_kb import ARTICLES
from kbq.tables.relations import number_of, read_ids

from .conftest import Running, running

PROGRAM = shutil.which("openrefine")
PAGES, NAMES = 10, 100
ENGINE = json.dumps({"facets": [], "mode": "row-based"})
pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("modest"),
    pytest.mark.skipif(PROGRAM is None, reason="OpenRefine is not installed"),
]


class Refine:
    """An OpenRefine that runs, and one project in it."""

    def __init__(self, address: str) -> None:
        self._client = httpx2.Client(base_url=address, timeout=300)
        self.project = ""

    def is_ready(self) -> bool:
        try:
            return self._client.get("/command/core/get-version").status_code == 200
        except httpx2.TransportError:
            return False

    def close(self) -> None:
        self._client.close()

    def command(self, name: str, **fields: str) -> httpx2.Response:
        """POST a command, as the page of OpenRefine does."""
        token = self._client.get("/command/core/get-csrf-token").json()["token"]
        data = {"engine": ENGINE, **fields}
        answer = self._client.post(
            f"/command/core/{name}",
            params={"project": self.project, "csrf_token": token},
            data=data,
        )
        assert answer.status_code == 200, answer.text
        return answer

    def create(self, content: bytes) -> None:
        token = self._client.get("/command/core/get-csrf-token").json()["token"]
        options = json.dumps({"separator": ",", "headerLines": 1, "encoding": "UTF-8"})
        answer = self._client.post(
            "/command/core/create-project-from-upload",
            params={"csrf_token": token, "options": options, "format": "text/line-based/*sv"},
            data={"project-name": "names"},
            files={"project-file": ("names.csv", content, "text/csv")},
        )
        self.project = answer.headers["location"].rpartition("project=")[2]

    def wait(self) -> None:
        """Until nothing is under way."""
        for _ in range(1500):
            if not self._client.get(
                "/command/core/get-processes", params={"project": self.project}
            ).json()["processes"]:
                return
            time.sleep(0.2)
        pytest.fail("OpenRefine is still at work")

    def reconcile(self, service: Running) -> dict[str, str]:
        """Match the column `name` with the pages of a service; returns its address and spaces."""
        manifest = service.client.get("/reconcile").json()
        spaces = {one: manifest[one] for one in ("identifierSpace", "schemaSpace")}
        address = f"{service.address}/reconcile"
        config: dict[str, Any] = {
            "mode": "standard-service",
            "service": address,
            **spaces,
            "autoMatch": True,
        }
        config |= {"type": manifest["defaultTypes"][0], "columnDetails": [], "limit": 0}
        self.command("reconcile", columnName="name", config=json.dumps(config))
        self.wait()
        return {"endpoint": address, **spaces}


@contextmanager
def opened(folder: Path) -> Iterator[Refine]:
    """An OpenRefine that keeps its projects in a folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [str(PROGRAM), "-p", str(port), "-d", str(folder), "-x", "refine.headless=true"]
    process = subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    started = Refine(f"http://127.0.0.1:{port}")
    try:
        for _ in range(1500):
            if started.is_ready():
                break
            time.sleep(0.2)
        else:
            pytest.fail("OpenRefine has not begun within five minutes")
        yield started
    finally:
        started.close()
        os.killpg(process.pid, 15)
        process.wait(300)


@pytest.fixture
def refine(tmp_path: Path) -> Iterator[Refine]:
    with opened(tmp_path / "refine") as started:
        yield started


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    """Pages whose ids are Q-numbers, as those of a corpus made from Wikidata are."""
    pages = [page for _, page in zip(range(PAGES), read_corpus(ARTICLES), strict=False)]
    numbered = [
        Page(f"Q{number}", page.title, page.paragraphs)
        for number, page in enumerate(pages, start=1)
    ]
    KnowledgeBase.build(numbered, tmp_path / "kb", device="cpu")
    with running({"kb": tmp_path / "kb"}) as started:
        yield started


def test_a_column_is_reconciled_extended_exported_and_names_values(
    refine: Refine, service: Running, tmp_path: Path
) -> None:
    titles = [page.title for _, page in zip(range(PAGES), read_corpus(ARTICLES), strict=False)]
    names = [
        *titles,
        *(title.upper() for title in titles),
        *(f"{title} of nowhere {n}" for n in range(8) for title in titles),
    ]
    assert len(names) == NAMES
    refine.create("\n".join(["name", *(f'"{name}"' for name in names)]).encode())
    spaces = refine.reconcile(service)
    properties = [
        {"id": name, "name": name} for name in ("place of birth", "date of birth", "occupation")
    ]
    refine.command(
        "extend-data", baseColumnName="name", columnInsertIndex="1", **spaces,
        extension=json.dumps({"properties": properties}),
    )  # fmt: skip
    refine.wait()
    refine.command(
        "add-column", baseColumnName="name", newColumnName="id", columnInsertIndex="1",
        expression="grel:if(cell.recon.matched, cell.recon.match.id, '')", onError="set-to-blank", repeat="false",
        repeatCount="0",
    )  # fmt: skip
    export = tmp_path / "export.csv"
    export.write_bytes(refine.command("export-rows", format="csv").content)
    header, *rows = export.read_text("utf-8").splitlines()
    assert header.startswith("name,id,place of birth,date of birth,occupation")
    assert (len(rows), sum(",Q" in row for row in rows)) == (NAMES, 2 * PAGES)
    assert any("Warsaw" in row for row in rows)
    # A date, not a text.
    assert any(row.startswith("Marie Curie,") and ",1867-11-07T00:00:00Z," in row for row in rows)
    ids = read_ids(export)
    assert [number_of(title, ids) for title in titles] == [
        f"Q{number}" for number in range(1, PAGES + 1)
    ]
