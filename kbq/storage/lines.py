"""Lines: read a text file or standard input, plain or compressed, as numbered lines or JSON
objects.

Callers give the class of the errors: a damaged corpus is a `CorpusError`, a damaged training file a
`TrainingError`. Every message begins with the file, and the line if there is one.
"""

import bz2
import codecs
import gzip
import io
import json
import lzma
import math
import re
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext, suppress
from functools import partial
from itertools import chain, islice, tee
from pathlib import Path, PurePath
from typing import IO, Any, TypeAlias, TypeVar, cast

import jsonlines

from kbq.errors import KbqError
from kbq.storage.reading import LARGEST, refuse_large, unreadable
from kbq.storage.records import TOO_DEEP, is_too_deep, parsed_json
from kbq.storage.reports import Note, unheard
from kbq.text.encodings import decode, guessed
from kbq.text.normal_forms import clean_text

Part = TypeVar("Part", str, bytes)
Line: TypeAlias = tuple[int, str]  # its number, from 1, and its text without the line end
# Called with the problem; if it returns, the line is skipped.
BadLine: TypeAlias = Callable[[KbqError], None]

ZSTD_WINDOW = 28  # log2 of the bytes that a file may look back: --long and --ultra -22 have 27
# Limits of an unpacked file: bytes, or times its size; texts reach a tenth.
SMALL = 2**22
MOST_TIMES = 100

_PER_LINE = "write one object {…} per line"
HEAD = 20  # lines that tell whether a file has any of JSON
ARRAY = re.compile(r"\s*+\[\s*+(\{|\]?\s*$)")  # how an array of objects begins
MARK = "\ufeff"  # byte order mark
COMPRESSED = (".gz", ".xz", ".bz2", ".zst", ".zip")  # suffixes of compressed files


def without_compression(path: PurePath) -> PurePath:
    if path.suffix.lower() in COMPRESSED:
        return path.with_suffix("")
    return path


def refuse(problem: KbqError) -> None:
    """Raise the problem: the default for bad lines."""
    raise problem


def source_name(source: str) -> str:
    """Return the name of a source in messages: its path, or `standard input` for "-"."""
    if source == "-":
        return "standard input"
    return clean_text(source)


def read_lines(
    source: str, error: type[KbqError] = KbqError, on_bad_line: BadLine = refuse
) -> Iterator[Line]:
    """Stream the lines of a file, one in memory at a time.

    gzip, xz, bzip2, Zstandard, and zip with one file in it, are recognised by their first bytes. A
    byte order mark and the ends of lines are dropped: LF, CRLF or, where the first line ends in it,
    CR.

    `source` is a path, or "-" for standard input. `on_bad_line` is called for a line that is not
    UTF-8, and raises by default. Raises an `error` if the file is missing, unreadable or damaged.
    """
    for number, text in read_whole_lines(source, error, on_bad_line):
        if number == 1:
            text = text.removeprefix(MARK)
        yield number, text.rstrip("\r\n")


def read_text(source: str, longest: int = 0, error: type[KbqError] = KbqError) -> str:
    """Read a whole file as text, with all line ends; see `read_lines` and `refuse_large`."""
    return whole_text(read_whole_lines(source, error), source_name(source), error, longest=longest)


def whole_text(
    lines: Iterable[Line],
    name: str,
    error: type[KbqError] = KbqError,
    end: str = "",
    longest: int = 0,
) -> str:
    """Join lines, with `end` behind each, to at most `longest` characters; see `refuse_large`."""
    return "".join(_within(longest, (text + end for _, text in lines), name, error)).removeprefix(
        MARK
    )


def read_bytes(source: str, error: type[KbqError] = KbqError) -> bytes:
    """Read a whole file, decompressed; see `read_lines`."""
    return b"".join(
        _within(0, (line for _, line in _byte_lines(source, error)), source_name(source), error)
    )


def _within(most: int, parts: Iterable[Part], name: str, error: type[KbqError]) -> Iterator[Part]:
    """Yield the parts of a text or a file, and refuse more than `most` characters or bytes; see
    `refuse_large`.
    """
    size = 0
    for part in parts:
        size += len(part)
        refuse_large(name, size, error, most)
        yield part


def read_whole_lines(
    source: str, error: type[KbqError] = KbqError, on_bad_line: BadLine = refuse
) -> Iterator[Line]:
    """Stream the lines of a file with their ends, and with a byte order mark if there is one; see
    `read_lines`.
    """
    return decoded(_byte_lines(source, error), source_name(source), error, on_bad_line)


def read_growing_lines(
    source: str, error: type[KbqError] = KbqError, note: Note = unheard
) -> Iterator[Line]:
    """Stream the JSON lines of a file that somebody may be writing to, with their ends; see
    `read_whole_lines`.

    An unfinished last line is left out, with a `note`: whoever writes is not done, was killed, or
    lost power, which leaves zeros.
    """
    name = source_name(source)
    return decoded(_finished(_byte_lines(source, error), name, note), name, error)


def _finished(
    lines: Iterable[tuple[int, bytes]], name: str, note: Note
) -> Iterator[tuple[int, bytes]]:
    """Yield lines up to one that another program has not finished."""
    is_array: bool | None = None
    for number, line in lines:
        if is_array is None and line.strip():
            is_array = line.lstrip().startswith(b"[")  # an array may have one object a line
        if line.strip() and not is_array and not line.endswith(b"\n") and not _is_json(line):
            note(f"{name}:{number}: the last line is unfinished, and left out")
            return
        yield number, line


def _is_json(line: bytes) -> bool:
    with suppress(ValueError):  # errors of UTF-8, or of JSON
        parsed_json(line.decode("utf-8").removeprefix(MARK))
        return True
    return False


def decoded(
    lines: Iterable[tuple[int, bytes]],
    name: str,
    error: type[KbqError] = KbqError,
    on_bad_line: BadLine = refuse,
) -> Iterator[Line]:
    """Decode numbered lines of UTF-8 of the file `name`."""
    for number, line in lines:
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as reason:
            byte = f"byte {reason.start + 1} is 0x{line[reason.start]:02x}"
            if number == 1 and line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                byte = "it is UTF-16"
            on_bad_line(error(f"{name}:{number}: not UTF-8 ({byte}): convert the file to UTF-8"))
        else:
            yield number, text


def read_any_lines(
    source: str, error: type[KbqError] = KbqError, note: Note = unheard
) -> Iterator[Line]:
    """Stream the lines of a file with their ends, and guess the encoding of one that is not UTF-8,
    with a `note`.

    Raises KbqError as `read_lines`, also for a text that begins as UTF-8 and does not go on so, as
    it is damaged.
    """
    name = source_name(source)
    lines = _byte_lines(source, error)
    guess = ""
    is_ascii = True

    for number, line in lines:
        if number == 1 and line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            text, _ = decode(b"".join([line, *(other for _, other in lines)]))
            yield from enumerate(io.StringIO(text, newline=""), start=1)
            return

        if not guess and is_ascii and not line.isascii():
            try:
                line.decode("utf-8")
                is_ascii = False
            except UnicodeDecodeError:
                guess = guessed(line)
                note(f"{name}:{number} is not UTF-8: the file is read as {guess}, which is a guess")

        if guess:
            yield number, line.decode(guess, "replace")
        else:
            yield from decoded([(number, line)], name, error)


def ended(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield lines that end in LF or CRLF or, if the first ends in CR, in any of these."""
    ends_in_cr: bool | None = None
    for line in lines:
        if ends_in_cr is None:
            ends_in_cr = b"\r" in line.removesuffix(b"\n").removesuffix(b"\r") or line.endswith(
                b"\r"
            )
        if ends_in_cr:
            yield from line.splitlines(keepends=True)
        else:
            yield line


def _byte_lines(source: str, error: type[KbqError]) -> Iterator[tuple[int, bytes]]:
    """Yield the decompressed lines of a file with their ends, numbered from 1."""
    name = source_name(source)
    number = 0
    size = 0
    try:
        with nullcontext(sys.stdin.buffer) if source == "-" else Path(source).open("rb") as stream:
            readable = _decompressed(cast(io.BufferedReader, stream), name, error)
            most = math.inf
            # A few kilobytes may stand for days of blank lines.
            if readable is not stream and Path(source).is_file():
                most = max(SMALL, MOST_TIMES * Path(source).stat().st_size)
            for number, line in enumerate(
                ended(iter(partial(readable.readline, LARGEST + 1), b"")), start=1
            ):
                if len(line) > LARGEST:
                    refuse_large(f"{name}:{number}: the line", len(line), error)
                size += len(line)
                if size > most:
                    raise error(
                        f"{name}:{number}: it unpacks to more than {most:,} bytes: unpack it "
                        "yourself first"
                    )
                yield number, line
    except _damage() as reason:
        if isinstance(reason, OSError) and reason.strerror:
            raise error(unreadable(name, reason)) from reason
        if "requires too much memory" in str(reason):
            what = (
                f"it needs a window of more than {2**ZSTD_WINDOW >> 20} MB: unpack it with zstd "
                "-d --long=31"
            )
            raise error(f"{name}: {what}") from reason
        raise error(
            f"{name}:{number + 1}: compressed data is damaged ({reason}): download it again"
        ) from reason


def read_json_lines(
    source: str, error: type[KbqError] = KbqError, on_bad_line: BadLine = refuse
) -> Iterator[tuple[int, dict[str, object]]]:
    """Stream the JSON objects of a file, one per line, with their line numbers; see `read_lines`."""
    return parse_json_lines(read_lines(source, error, on_bad_line), source, error, on_bad_line)


def with_json(
    lines: Iterable[Line], source: str, error: type[KbqError] = KbqError, advice: str = _PER_LINE
) -> Iterator[Line]:
    """Return the same lines, or raise an error if none of the first begins as JSON does: then the
    file is of another kind, and one sentence says so.
    """
    several = iter(lines)
    begun: list[Line] = []
    for line in islice(several, HEAD):
        begun.append(line)
        if line[1].lstrip(f"{MARK} \t\r\n").startswith(("{", "[")):
            break
    else:
        first = next((text for _, text in begun if text.strip()), "")
        if first:
            what = f"{source_name(source)} has no lines of JSON, as it begins with {first[:30]!r}"
            raise error(f"{what}: {advice}")

    return chain(begun, several)


def parse_json_lines(
    lines: Iterable[Line],
    source: str,
    error: type[KbqError] = KbqError,
    on_bad_line: BadLine = refuse,
) -> Iterator[tuple[int, dict[str, object]]]:
    """Parse each line that is not blank as a JSON object, or all as one array of objects; errors
    name `source`.
    """
    lines = with_json(lines, source, error)
    numbered = ((number, line) for number, line in lines if line.strip())
    begun = list(islice(numbered, 1))
    if begun and ARRAY.match(begun[0][1]):
        yield from _parsed_array(chain(begun, lines), source, error, on_bad_line)
        return

    pairs, twins = tee(chain(begun, numbered))
    reader = jsonlines.Reader((line for _, line in pairs), loads=_parsed)
    for number, line in twins:
        try:
            yield number, reader.read(type=dict)
        except jsonlines.InvalidLineError as reason:
            problem = (
                _problem(reason.__cause__)
                if reason.__cause__
                else f"{line[:40]!r:.40} is not a JSON object"
            )
            on_bad_line(error(f"{source_name(source)}:{number}: {problem}: {_PER_LINE}"))


def _parsed(line: str | bytes) -> Any:
    if isinstance(line, bytes):
        line = line.decode()
    return parsed_json(line)


def _problem(reason: BaseException) -> str:
    if isinstance(reason, json.JSONDecodeError):
        return f"not JSON ({reason.msg}, column {reason.colno})"
    return (
        f"JSON that cannot be parsed ({TOO_DEEP if isinstance(reason, RecursionError) else reason})"
    )


def _parsed_array(
    lines: Iterable[Line], source: str, error: type[KbqError], on_bad_line: BadLine
) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield the objects of an array, each with the line where it begins, up to what cannot be
    parsed.
    """
    first, *others = lines
    text = whole_text([first, *others], source_name(source), error, "\n")
    blank = re.compile(r"\s*")
    decode = json.JSONDecoder().raw_decode

    def behind(position: int) -> int:
        return cast(re.Match[str], blank.match(text, position)).end()

    number = first[0]
    counted = 0
    position = behind(text.index("[") + 1)
    while text[position : position + 1] != "]":
        number = number + text.count("\n", counted, position)
        counted = position
        try:
            fields, end = decode(text, position)
            problem = TOO_DEEP if is_too_deep(fields) else ""
        except (RecursionError, ValueError) as reason:
            fields = None
            end = position
            problem = _problem(reason)

        if not problem and not isinstance(fields, dict):
            problem = f"{fields!r:.40} is not a JSON object"
        last = behind(end)
        if problem or text[last : last + 1] not in (",", "]"):
            problem = problem or "not JSON (',' or ']' is missing)"
            on_bad_line(
                error(
                    f"{source_name(source)}:{number}: {problem}: write an array [{{…}}, {{…}}] of "
                    "objects"
                )
            )
            return

        yield number, cast(dict[str, object], fields)
        position = behind(last + 1) if text[last] == "," else last


def _decompressed(stream: io.BufferedReader, name: str, error: type[KbqError]) -> IO[bytes]:
    """Return what a stream holds, whatever it was compressed with."""
    head = stream.peek(10)
    if head.startswith(b"\x1f\x8b"):
        return cast(IO[bytes], gzip.GzipFile(fileobj=stream))
    if head.startswith(b"\xfd7zXZ\x00"):
        return lzma.LZMAFile(stream)
    if re.match(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)", head):
        return bz2.BZ2File(stream)
    # A file may begin with frames to skip, such as an index of its parts (0x184D2A5?).
    if head.startswith(b"\x28\xb5\x2f\xfd") or re.match(rb"[\x50-\x5f]\x2a\x4d\x18", head):
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
        options: Any = {zstd.DecompressionParameter.window_log_max: ZSTD_WINDOW}
        return cast(IO[bytes], zstd.ZstdFile(stream, options=options))

    if head.startswith(b"PK\x03\x04"):
        return _only_member(stream, name, error)
    return stream


def _only_member(stream: io.BufferedReader, name: str, error: type[KbqError]) -> IO[bytes]:
    """Open the one file of an archive. Raises the error if there are several."""
    archive = zipfile.ZipFile(stream if stream.seekable() else io.BytesIO(stream.read()))
    names = [entry.filename for entry in archive.infolist() if is_member(entry)]
    if len(names) != 1:
        raise error(
            f"{name} is an archive {f'of {len(names)} files' if names else 'without a file'}: "
            "unpack it"
        )
    return archive.open(names[0])


def is_member(member: zipfile.ZipInfo) -> bool:
    """Return whether a person put this into an archive: it is neither a folder nor hidden."""
    name = member.filename
    return not name.endswith("/") and not any(
        part.startswith((".", "__MACOSX")) for part in name.split("/")
    )


def _damage() -> tuple[type[Exception], ...]:
    """Return the exceptions that damaged files raise, and zips with a password or odd names."""
    loaded = [
        sys.modules[name] for name in ("compression.zstd", "backports.zstd") if name in sys.modules
    ]
    zstd: list[type[Exception]] = [module.ZstdError for module in loaded]
    return (
        OSError,
        EOFError,
        lzma.LZMAError,
        zlib.error,
        zipfile.BadZipFile,
        RuntimeError,
        ValueError,
        *zstd,
    )
