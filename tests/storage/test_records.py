"""Records and seals: a changed digit, a missing field, a damaged file are found."""

import errno
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from kbq.storage.reading import reading_problem
from kbq.storage.records import (
    OtherFormatError,
    Summed,
    digest_of_record,
    read_object,
    read_record,
    write_record,
)
from kbq.storage.seals import FileSeal, all_damage, first_damage, read_seal, seal_folder, seal_of


@dataclass(frozen=True, slots=True)
class Tally(Summed):
    right: int
    wrong: int


def test_counts_are_added_field_by_field() -> None:
    assert Tally(1, 2) + Tally(3, 5) == Tally(4, 7)


@dataclass(frozen=True, slots=True)
class Probe:
    kind: str
    probes: int
    recall: float = 1.0


PROBE = Probe("tiny", 3, 0.5)


def test_a_record_comes_back(tmp_path: Path) -> None:
    write_record(tmp_path / "probe.json", PROBE, version=4)
    assert read_record(tmp_path / "probe.json", Probe, 4) == PROBE
    assert json.loads((tmp_path / "probe.json").read_text())["digest"] == digest_of_record(PROBE)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"probes": 3', '"probes": 8', "it has changed since it was written"),
        ('"probes": 3', '"probes": "3"', "Expected `int`, got `str` - at `$.probes`"),
        ('"probes": 3,', "", "Object missing required field `probes`"),
        ('"recall": 0.5', '"recall": NaN', "it holds NaN, which is not a number"),
        (
            '"recall": 0.5',
            '"recall": ' + 100_000 * "[" + 100_000 * "]",
            "its lists are nested more than 100 deep",
        ),
        ('"kind"', '"find"', "Object missing required field `kind`"),
    ],
)
def test_a_changed_record_is_damaged(tmp_path: Path, old: str, new: str, problem: str) -> None:
    path = tmp_path / "probe.json"
    write_record(path, PROBE, version=4)
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        read_record(path, Probe, 4)
    assert str(caught.value) == problem


def test_another_format_is_not_damage(tmp_path: Path) -> None:
    write_record(tmp_path / "probe.json", PROBE, version=3)
    with pytest.raises(OtherFormatError) as caught:
        read_record(tmp_path / "probe.json", Probe, 4)
    assert caught.value.found == 3


@pytest.mark.parametrize("content", ["[1]", "7", '"text"'])
def test_a_file_without_an_object(tmp_path: Path, content: str) -> None:
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(ValueError, match="it does not hold a JSON object"):
        read_object(tmp_path / "x.json")


def sealed(folder: Path) -> dict[Path, FileSeal]:
    (folder / "small.bin").write_bytes(b"small")
    (folder / "large.bin").write_bytes(bytes(1000))
    (folder / "inner").mkdir()
    seal_folder(folder)
    return {folder / name: seal for name, seal in read_seal(folder).files.items()}


def test_a_seal_lists_the_files_of_its_folder(tmp_path: Path) -> None:
    files = sealed(tmp_path)
    assert {path.name: seal.bytes for path, seal in files.items()} == {
        "large.bin": 1000,
        "small.bin": 5,
    }
    assert first_damage(files) is None
    assert list(all_damage(files, lambda read: None)) == []


def test_what_a_killed_run_left_of_a_seal_is_not_sealed(tmp_path: Path) -> None:
    (tmp_path / "seal.json.0123456789ab.tmp").write_text("{")
    assert sorted(path.name for path in sealed(tmp_path)) == ["large.bin", "small.bin"]


def test_little_reading_finds_sizes_and_small_changes(tmp_path: Path) -> None:
    files = sealed(tmp_path)
    (tmp_path / "large.bin").write_bytes(b"x" + bytes(999))
    assert first_damage(files, at_most=100) is None
    assert str(first_damage(files)) == f"{tmp_path / 'large.bin'}: its content has changed"
    assert [damage.path.name for damage in all_damage(files, lambda read: None)] == ["large.bin"]
    (tmp_path / "small.bin").write_bytes(b"smell")
    assert (
        str(first_damage(files, at_most=100))
        == f"{tmp_path / 'small.bin'}: its content has changed"
    )
    (tmp_path / "large.bin").write_bytes(bytes(999))
    assert (
        str(first_damage(files, at_most=0))
        == f"{tmp_path / 'large.bin'}: it has 999 of 1,000 bytes"
    )
    (tmp_path / "large.bin").unlink()
    assert [damage.path.name for damage in all_damage(files, lambda read: None)] == [
        "large.bin",
        "small.bin",
    ]


def test_the_digest_of_a_seal_stands_for_the_files(tmp_path: Path) -> None:
    sealed(tmp_path)
    before = read_seal(tmp_path).digest
    assert seal_folder(tmp_path).digest == before
    (tmp_path / "small.bin").write_bytes(b"smell")
    assert seal_folder(tmp_path).digest != before
    assert seal_folder(tmp_path, of="rows").digest != read_seal(tmp_path).files["small.bin"].digest
    assert seal_of(tmp_path / "small.bin").bytes == 5


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            OSError(errno.EMFILE, "Too many open files"),
            "kb cannot be read (Too many open files): raise the limit",
        ),
        (
            PermissionError(errno.EACCES, "Permission denied"),
            "kb cannot be read (Permission denied): ask for permission",
        ),
        (FileNotFoundError(errno.ENOENT, "No such file"), "kb is missing: build it again"),
        (ValueError("odd header"), "kb is damaged (odd header): build it again"),
        (MemoryError(), "kb cannot be read, memory is short: end other programs"),
    ],
)
def test_faults_are_told_apart(error: Exception, sentence: str) -> None:
    assert reading_problem(Path("kb"), error, "build it again").startswith(sentence)
