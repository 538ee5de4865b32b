"""Lines: their texts and numbers, and the errors of damaged files."""

import bz2
import gzip
import io
import lzma
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbq.errors import CorpusError, KbqError
from kbq.storage.lines import read_any_lines, read_bytes, read_json_lines, read_lines
from kbq.text.normal_forms import clean_text

LINES = "first\nzwölf\n\n第三\n"
NUMBERED = [(1, "first"), (2, "zwölf"), (3, ""), (4, "第三")]
COMPRESSIONS: list[Callable[[bytes], bytes]] = [bytes, gzip.compress, lzma.compress, bz2.compress]


def write(folder: Path, content: bytes) -> str:
    path = folder / "lines"
    path.write_bytes(content)
    return str(path)


def give_standard_input(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content))))


@pytest.mark.parametrize("compress", COMPRESSIONS)
def test_a_file_is_read_as_a_whole(compress: Callable[[bytes], bytes], tmp_path: Path) -> None:
    assert read_bytes(write(tmp_path, compress(b"\x00ab\n"))) == b"\x00ab\n"


@pytest.mark.parametrize("compress", COMPRESSIONS)
def test_lines_of_plain_and_compressed_files(
    tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    assert list(read_lines(write(tmp_path, compress(LINES.encode())))) == NUMBERED


@pytest.mark.parametrize("compress", COMPRESSIONS)
def test_lines_of_standard_input(
    monkeypatch: pytest.MonkeyPatch, compress: Callable[[bytes], bytes]
) -> None:
    give_standard_input(monkeypatch, compress(LINES.encode()))
    assert list(read_lines("-")) == NUMBERED
    assert not sys.stdin.closed


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [(1, "")]),
        (b"no end", [(1, "no end")]),
        (b"\xef\xbb\xbfmark\r\nnext\r\n", [(1, "mark"), (2, "next")]),
        ("one\u2028line\x0bof\x85text\n".encode(), [(1, "one\u2028line\x0bof\x85text")]),
        (gzip.compress(b"a\n", mtime=0) + gzip.compress(b"b\n", mtime=0), [(1, "a"), (2, "b")]),
        (gzip.compress(b"", mtime=0), []),
        (bz2.compress(b""), []),
        (b"BZh is how this line begins", [(1, "BZh is how this line begins")]),
    ],
)
def test_line_ends_marks_and_empty_files(
    tmp_path: Path, content: bytes, lines: list[tuple[int, str]]
) -> None:
    assert list(read_lines(write(tmp_path, content))) == lines


@pytest.mark.parametrize("compress", COMPRESSIONS[1:])
def test_truncated_file(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    source = write(tmp_path, compress(LINES.encode())[:-5])
    with pytest.raises(
        CorpusError, match=r"lines:\d: compressed data is damaged \(.*\): download it again"
    ):
        list(read_lines(source, CorpusError))


@pytest.mark.parametrize("compress", COMPRESSIONS[1:])
def test_corrupt_file(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    content = bytearray(compress(LINES.encode() * 100))
    content[-6] ^= 0xFF  # inside the check sum or the footer of all three
    with pytest.raises(KbqError, match=r"lines:\d+: compressed data is damaged"):
        list(read_lines(write(tmp_path, bytes(content))))


def test_line_that_is_not_utf8(tmp_path: Path) -> None:
    source = write(tmp_path, "a\nzwölf\nc\n".encode("latin-1"))
    with pytest.raises(
        KbqError, match=r"lines:2: not UTF-8 \(byte 3 is 0xf6\): convert the file to UTF-8"
    ):
        list(read_lines(source))
    problems: list[KbqError] = []
    assert list(read_lines(source, on_bad_line=problems.append)) == [(1, "a"), (3, "c")]
    assert len(problems) == 1


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(KbqError, match=r"nothing: cannot be read \(No such file or directory\)"):
        list(read_lines(str(tmp_path / "nothing")))
    with pytest.raises(KbqError, match=r"is a folder: give a file"):
        list(read_lines(str(tmp_path)))


def test_json_lines(tmp_path: Path) -> None:
    source = write(tmp_path, '{"a": 1}\n\n  \n{"b": "第"}'.encode())
    assert list(read_json_lines(source)) == [(1, {"a": 1}), (4, {"b": "第"})]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"a": 1', "not JSON (Expecting ',' delimiter, column 8)"),
        ("[1, 2]", "'[1, 2]' is not a JSON object"),
        ("null", "'null' is not a JSON object"),
        ('{"a": 1} {"b": 2}', "not JSON (Extra data, column 10)"),
        ("[" * 100_000, "JSON that cannot be parsed (its lists are nested more than 100 deep)"),
        (
            '{"a": ' + "1" * 5000 + "}",
            "JSON that cannot be parsed (it holds a number of thousands of digits)",
        ),
    ],
)
def test_bad_json_lines(tmp_path: Path, line: str, problem: str) -> None:
    source = write(tmp_path, f'{{"a": 0}}\n{line}\n{{"a": 2}}\n'.encode())
    problems: list[KbqError] = []
    assert list(read_json_lines(source, CorpusError, problems.append)) == [
        (1, {"a": 0}),
        (3, {"a": 2}),
    ]
    assert [type(found) for found in problems] == [CorpusError]
    assert str(problems[0]).startswith(f"{source}:2: {problem}")
    with pytest.raises(KbqError, match="lines:2: "):
        list(read_json_lines(source))


def test_what_few_bytes_would_need_much_time_or_memory_for_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbq.storage.lines.SMALL", 2**16)
    path = tmp_path / "blank.gz"
    path.write_bytes(gzip.compress(bytes([10]) * 2**20))
    with pytest.raises(
        KbqError,
        match=r"blank\.gz:\d+: it unpacks to more than 1\d\d,\d{3} bytes: unpack it yourself",
    ):
        list(read_lines(str(path)))
    array = write(tmp_path, b'[{"a": 1},' + b"\n" * 2**11)
    with monkeypatch.context() as patch:
        patch.setattr("kbq.storage.reading.LARGEST", 2**10)
        with pytest.raises(KbqError, match=r"has 1,\d\d\d bytes, 1,024 at most are read"):
            list(read_json_lines(array))
    with pytest.raises(KbqError, match="not JSON"):  # in quadratic time, this would be minutes
        list(read_json_lines(write(tmp_path, b"[" + b" " * 2**18 + b"x")))


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("Cafe\u0301", "Café"),
        ("a\x00b\x7fc\x85d\re\tf\ng", "a b c d e\tf\ng"),
        ("e\x00\u0301", "e \u0301"),  # NFC first: a control character never joins its neighbours
        ("half \ud800 pair", "half \ufffd pair"),
        ("שלום\u200f עולם", "שלום\u200f עולם"),
        ("각", "각"),
    ],
)
def test_clean_text(text: str, clean: str) -> None:
    assert clean_text(text) == clean


@given(st.text(st.characters(exclude_categories=())))
def test_clean_text_is_stable_nfc_of_the_same_length(text: str) -> None:
    clean = clean_text(text)
    assert len(clean) == len(unicodedata.normalize("NFC", text))
    assert unicodedata.is_normalized("NFC", clean)
    assert clean_text(clean) == clean
    assert clean.encode().decode() == clean


@pytest.mark.parametrize(
    ("content", "expected", "said"),
    [
        (
            "Name;Müller\n".encode("cp1252"),
            ["Name;Müller\n"],
            ["t:1 is not UTF-8: the file is read as cp1252"],
        ),
        (
            "a;b\n\nÄ;ö\n".encode("cp1252"),
            ["a;b\n", "\n", "Ä;ö\n"],
            ["t:3 is not UTF-8: the file is read as cp1252"],
        ),
        ("a\tMüller\r\nb".encode("utf-16"), ["a\tMüller\r\n", "b"], []),
        ("Müller\n".encode(), ["Müller\n"], []),
    ],
)
def test_lines_of_any_encoding(
    content: bytes, expected: list[str], said: list[str], tmp_path: Path
) -> None:
    (tmp_path / "t").write_bytes(content)
    notes: list[str] = []
    assert [
        text for _, text in read_any_lines(str(tmp_path / "t"), KbqError, notes.append)
    ] == expected
    assert [one.split("/")[-1].split(",")[0] for one in notes] == said


def test_a_text_that_is_half_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes("Müller\n".encode() + b"M\xfcller\n")
    with pytest.raises(
        KbqError, match=r"t:2: not UTF-8 \(byte 2 is 0xfc\): convert the file to UTF-8"
    ):
        list(read_any_lines(str(tmp_path / "t")))
