"""Fuzzed files: a spreadsheet, Parquet file or document with wrong bytes, or wrong XML within, is
read or one sentence.

`KBQ_MUTATIONS=2000` makes as many trials of each kind.
"""

import io
import os
import random
import re
import resource
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from test_mutations import MUTATIONS, in_a_process

from kbq.corpus.readers import read_corpus
from kbq.errors import KbqError
from kbq.storage import rows

pytestmark = pytest.mark.slow
TRIALS = int(os.environ.get("KBQ_MUTATIONS", "40"))
TEXT = (
    "# Marie Curie\n\nShe was born in *Warsaw*.\n\n- one\n- two\n\n|a|b|\n|-|-|\n|1|2|\n\n## "
    "Life\n\nA [link](http://a.b).\n"
)
NUMBERS = ("-1", "0", "99999999999", "1e999", "NaN", "A1:XFD1048576", "", "\u0000", "é" * 3000)


def in_xml(content: bytes, chance: random.Random) -> bytes:
    """Drop, double or move an element's tag, or give an attribute a value at the edge of its type."""
    text = content.decode("utf-8", "replace")
    tags = [found.span() for found in re.finditer(r"<[^>]*>", text)]
    values = [found.span(1) for found in re.finditer(r'"([^"<>]*)"', text)]
    if values and chance.random() < 0.5:
        begin, end = chance.choice(values)
        return (text[:begin] + chance.choice(NUMBERS) + text[end:]).encode()
    if not tags:
        return content
    begin, end = chance.choice(tags)
    other, _ = chance.choice(tags)
    kind = chance.choice(("dropped", "doubled", "moved"))
    if kind == "dropped":
        return (text[:begin] + text[end:]).encode()
    if kind == "doubled":
        return (text[:end] + text[begin:end] * chance.choice((1, 50)) + text[end:]).encode()
    return (text[:other] + text[begin:end] + text[other:]).encode()


def fuzzed(content: bytes, chance: random.Random) -> bytes:
    """A file with some wrong bytes or, if it is a ZIP, with a wrong member that has the right
    checksum.
    """
    if content.startswith(b"PK") and chance.random() < 0.7:
        source, made = zipfile.ZipFile(io.BytesIO(content)), io.BytesIO()
        chosen = chance.choice(source.namelist())
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in source.namelist():
                member = source.read(name)
                if name == chosen and chance.random() < 0.1:
                    continue  # it is missing
                if name == chosen and member:
                    member = (
                        in_xml(member, chance)
                        if chance.random() < 0.7
                        else with_wrong_bytes(member, chance)
                    )
                archive.writestr(name, member)
        return made.getvalue()
    return with_wrong_bytes(content, chance)


def with_wrong_bytes(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.choice((1, 1, 3))):
        if changed:
            chance.choice(MUTATIONS)(changed, chance)
    return bytes(changed)


def is_sentence(told: str) -> bool:
    return "\n" not in told and "Traceback" not in told and len(told) < 1000


def spreadsheet(path: Path) -> None:
    import datetime

    import openpyxl

    book = openpyxl.Workbook()
    sheet = book.active
    for row in (
        ["subject", "born", "n"],
        ["Marie Curie", datetime.date(1867, 11, 7), 1],
        ["Ada", None, 2.5],
    ):
        sheet.append(row)
    sheet.merge_cells("A3:B3")
    book.save(path)


def parquet(path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(
        {
            "subject": ["Marie Curie", "Ada", None] * 20,
            "n": [1, None, 3] * 20,
            "list": [["a"], [], None] * 20,
            "record": [{"a": 1}, None, {"a": 2}] * 20,
        }
    )
    pq.write_table(table, path, compression="zstd", use_dictionary=["subject"])


TABLES: dict[str, Callable[[Path], None]] = {".xlsx": spreadsheet, ".parquet": parquet}


@pytest.mark.parametrize("suffix", TABLES)
def test_a_fuzzed_table_is_read_or_one_sentence(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    TABLES[suffix](tmp_path / f"whole{suffix}")
    # The trial has a process of its own.
    monkeypatch.setattr(rows, "_in_child", lambda read, source: read(source))
    whole, path = (tmp_path / f"whole{suffix}").read_bytes(), tmp_path / f"table{suffix}"
    outcomes, wrong = Counter[str](), []

    def read() -> tuple[str, str]:
        resource.setrlimit(resource.RLIMIT_CPU, (30, 30))
        return "read", str(len(list(rows.read_rows(str(path)).numbered)))

    for seed in range(TRIALS):
        path.write_bytes(fuzzed(whole, random.Random(seed)))
        outcome, told = in_a_process(read)
        outcomes[outcome] += 1
        if outcome == "failed" or not is_sentence(told):
            wrong.append((seed, told))
    print(f"\n{suffix}: {dict(outcomes)}")  # noqa: T201
    assert wrong == []
    assert min(outcomes["read"], outcomes["refused"]) > 0


@pytest.mark.parametrize("suffix", [".docx", ".odt", ".epub", ".pptx", ".rtf"])
def test_a_fuzzed_document_is_read_or_one_sentence(suffix: str, tmp_path: Path) -> None:
    pypandoc = pytest.importorskip("pypandoc")
    pypandoc.convert_text(
        TEXT, suffix[1:], "markdown", outputfile=str(tmp_path / f"whole{suffix}"), extra_args=["-s"]
    )
    whole, folder = (tmp_path / f"whole{suffix}").read_bytes(), tmp_path / "documents"
    folder.mkdir()
    for seed in range(TRIALS):
        (folder / f"{seed}{suffix}").write_bytes(fuzzed(whole, random.Random(seed)))
    told: list[str] = []
    problems: list[KbqError] = []
    pages = list(read_corpus(str(folder), on_bad_line=problems.append, note=told.append))
    print(f"\n{suffix}: {len(pages)} pages, {len(problems)} refused")  # noqa: T201
    assert pages
    assert [str(one) for one in problems if not is_sentence(str(one))] == []
    assert [one for one in told if not is_sentence(one)] == []
