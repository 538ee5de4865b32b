"""Strange files: what a folder from elsewhere must not hold."""

import os
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from kbq.errors import KnowledgeBaseError
from kbq.storage.folders import refuse_strange_files


def refused(folder: Path) -> str:
    try:
        refuse_strange_files(folder, "a model", KnowledgeBaseError, lambda path: False)
    except KnowledgeBaseError as error:
        return str(error).replace(f"{folder}/", "")
    return ""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "outside").write_text("outside")
    (tmp_path / "model" / "deep" / "deeper").mkdir(parents=True)
    (tmp_path / "model" / "plain").write_text("plain")
    return tmp_path / "model"


def listen(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        os.chdir(path.parent)  # an address is short
        made.bind(path.name)


@pytest.mark.parametrize(
    ("leave", "message"),
    [
        (lambda path: path.symlink_to("../../outside"), "is a link"),
        (lambda path: path.symlink_to("plain"), "is a link"),
        (lambda path: path.symlink_to("nowhere"), "is a link"),
        (lambda path: path.symlink_to("."), "is a link"),
        (lambda path: path.symlink_to("/dev/zero"), "is a link"),
        (os.mkfifo, "is a device or a pipe"),
        (listen, "is a device or a pipe"),
    ],
)
@pytest.mark.parametrize("place", ["x", "deep/x", "deep/deeper/x"])
def test_links_and_devices_are_refused_wherever_they_are(
    leave: Callable[[Path], None],
    message: str,
    place: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    leave(folder / place)
    assert (
        refused(folder)
        == f"{place} {message}, and a model has none: put a copy in its place, or remove it"
    )


def test_plain_files_and_a_folder_that_is_a_link_itself_are_fine(folder: Path) -> None:
    (folder.parent / "linked").symlink_to(folder)
    os.link(folder / "plain", folder / "deep" / "second")  # of one's own, as merging makes them
    assert refused(folder) == refused(folder.parent / "linked") == refused(folder / "plain") == ""


def test_a_folder_that_cannot_be_listed_but_entered_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: str) -> list[SimpleNamespace]:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", denied)
    assert refused(folder).endswith(
        "model cannot be listed (Permission denied): ask for permission, or remove it"
    )
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert refused(folder) == ""
