"""Lines: a text file or standard input, plain or compressed, becomes numbered lines of UTF-8 text.

The caller gives the class of the errors, so that a damaged corpus is a `CorpusError` and a damaged training file a
`TrainingError`. Every message begins with the file, and the line if there is one.
"""

import bz2
import csv
import gzip
import io
import json
import lzma
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

from kbq.errors import KbqError
from kbq.system.json_text import parsed_json
from kbq.system.normal_forms import normal_form

Line: TypeAlias = tuple[int, str]  # its number, from 1, and its text without the line end
BadLine: TypeAlias = Callable[[KbqError], None]  # called with what is wrong; if it returns, the line is skipped

LONGEST = 2**26  # bytes of a line: a page, a record or a row has far fewer
XZ_MEMORY = 2**28  # bytes: `xz -9` needs 65 MB, but a file may ask for 4 GB

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def refuse(problem: KbqError) -> None:
    """Raise the problem: the default for bad lines."""
    raise problem


def clean_text(text: str) -> str:
    r"""Normalise text to NFC and replace characters that cannot be written or displayed.

    After NFC, control characters other than line feed and tab become spaces, and lone surrogates become U+FFFD, one
    for one, so that character positions stay the same.

    >>> clean_text("Cafe\u0301\x00\r\n")
    'Café  \n'
    """
    return without_surrogates(_CONTROL.sub(" ", normal_form("NFC", text)))


def without_surrogates(text: str) -> str:
    """With U+FFFD for each half of a surrogate pair, which is no character, and which no file can hold."""
    return _SURROGATE.sub("\ufffd", text)


def source_name(source: str) -> str:
    """The name of a source in messages: its path, or `standard input` for "-"."""
    return "standard input" if source == "-" else clean_text(source)


def read_lines(source: str, error: type[KbqError] = KbqError, on_bad_line: BadLine = refuse) -> Iterator[Line]:
    """Stream the lines of a file, one in memory at a time.

    gzip, xz and bzip2 are recognised by their first bytes, whatever the file name. A byte order mark and the carriage
    return of CRLF line ends are dropped. Only a line feed ends a line.

    Args:
        source: a path, or "-" for standard input.
        error: class of the errors.
        on_bad_line: called for a line that is not UTF-8; the default raises.

    Raises:
        KbqError: the file is missing, unreadable or damaged; the class is `error`.
    """
    for number, text in read_whole_lines(source, error, on_bad_line):
        yield number, text.rstrip("\r\n")


def read_text(source: str, longest: int = LONGEST, error: type[KbqError] = KbqError) -> str:
    """A whole file as text, every line end as it is; see `read_lines`.

    Raises:
        KbqError: it has more than `longest` characters, too.
    """
    parts, left = [], longest
    for _, text in read_whole_lines(source, error):
        left -= len(text)
        if left < 0:
            raise error(f"{source_name(source)} has more than {longest:,} characters: is it the right file?")
        parts.append(text)
    return "".join(parts)


def separated_values(
    lines: Iterable[str], name: str, is_tsv: bool, error: type[KbqError] = KbqError, first: int = 1
) -> Iterator[tuple[int, list[str]]]:
    """The values of each row of CSV, or of TSV, with the number of its last line.

    Args:
        lines: with their ends.
        name: of the file, for messages.
        first: the number of the first line.

    Raises:
        KbqError: a row is malformed; the class is `error`.
    """
    limit = csv.field_size_limit(sys.maxsize)
    reader = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE) if is_tsv else csv.reader(lines, strict=True)
    number = first - 1
    try:
        for values in reader:
            number = first - 1 + reader.line_num
            yield number, list(map(_unquoted, values)) if is_tsv else values
    except csv.Error as reason:
        problem = f"{reason}: is it a CSV or TSV file, and all its quotation marks closed?"
        raise error(f"{name}:{number + 1}: {problem}") from None
    finally:
        csv.field_size_limit(limit)


def _unquoted(value: str) -> str:
    """A value of TSV, where a quotation mark is a letter like any other: "Heroes" is a song.

    What other programs, and kbq, put in quotation marks has them doubled inside, and is meant without.

    >>> [_unquoted(value) for value in ('"Heroes"', '"the ""Heroes"" tour"', '""')]
    ['"Heroes"', 'the "Heroes" tour', '']
    """
    if value[:1] != '"' or value[-1:] != '"' or len(value) < 2:
        return value
    inner = value[1:-1]
    is_quoted = '"' not in inner.replace('""', "") and ('"' in inner or not inner)
    return inner.replace('""', '"') if is_quoted else value


def read_whole_lines(source: str, error: type[KbqError] = KbqError, on_bad_line: BadLine = refuse) -> Iterator[Line]:
    """The lines of a file with their ends; see `read_lines`."""
    name = source_name(source)
    number = 0
    try:
        with nullcontext(sys.stdin.buffer) if source == "-" else Path(source).open("rb") as stream:
            readable = _decompressed(cast(io.BufferedReader, stream))
            for number, line in enumerate(iter(partial(readable.readline, LONGEST + 1), b""), start=1):
                if len(line) > LONGEST:
                    raise error(f"{name}:{number}: the line has more than {LONGEST:,} bytes: divide it")
                try:
                    text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as reason:
                    byte = f"byte {reason.start + 1} is 0x{line[reason.start]:02x}"
                    on_bad_line(error(f"{name}:{number}: not UTF-8 ({byte}): convert the file to UTF-8"))
                else:
                    yield number, text
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as reason:
        if isinstance(reason, OSError) and reason.strerror:
            raise error(f"{name}: cannot be read ({reason.strerror}): check its path and permissions") from reason
        raise error(f"{name}:{number + 1}: compressed data is damaged ({reason}): download it again") from reason


def read_json_lines(
    source: str, error: type[KbqError] = KbqError, on_bad_line: BadLine = refuse
) -> Iterator[tuple[int, dict[str, object]]]:
    """Stream the JSON objects of a file, one per line, with their line numbers; see `read_lines`."""
    return parse_json_lines(read_lines(source, error, on_bad_line), source, error, on_bad_line)


def parse_json_lines(
    lines: Iterable[Line], source: str, error: type[KbqError] = KbqError, on_bad_line: BadLine = refuse
) -> Iterator[tuple[int, dict[str, object]]]:
    """Parse every non-blank line as a JSON object; `source` is named in the errors."""
    for number, line in lines:
        if not line.strip():
            continue
        try:
            fields = parsed_json(line)
            problem = "" if isinstance(fields, dict) else f"{line[:40]!r:.40} is not a JSON object"
        except json.JSONDecodeError as reason:
            problem = f"not JSON ({reason.msg}, column {reason.colno})"
        except ValueError as reason:
            problem = f"JSON that cannot be parsed ({reason})"
        if problem:
            on_bad_line(error(f"{source_name(source)}:{number}: {problem}: write one object {{…}} per line"))
        else:
            yield number, fields


def _decompressed(stream: io.BufferedReader) -> IO[bytes]:
    head = stream.peek(10)
    if head.startswith(b"\x1f\x8b"):
        return cast(IO[bytes], gzip.GzipFile(fileobj=stream))
    if head.startswith(b"\xfd7zXZ\x00"):
        return io.BufferedReader(_Xz(stream), io.DEFAULT_BUFFER_SIZE)
    if re.match(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)", head):
        return bz2.BZ2File(stream)
    return stream


class _Xz(io.RawIOBase):
    """What an xz file holds, in bounded memory, which `lzma.LZMAFile` cannot be asked for."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._decoder = self._new()

    def _new(self) -> lzma.LZMADecompressor:
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, XZ_MEMORY)

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer; 0 at the end. Raises EOFError or LZMAError."""
        while True:
            if self._decoder.eof:  # another part may follow
                rest = (self._decoder.unused_data or self._stream.read(io.DEFAULT_BUFFER_SIZE)).lstrip(b"\0")
                if not rest:
                    return 0
                self._decoder, given = self._new(), rest
            else:
                given = self._stream.read(io.DEFAULT_BUFFER_SIZE) if self._decoder.needs_input else b""
                if self._decoder.needs_input and not given:
                    raise EOFError("it ends in the middle")
            if plain := self._decoder.decompress(given, len(buffer)):
                buffer[: len(plain)] = plain
                return len(plain)
