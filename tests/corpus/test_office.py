"""Office: RTF, DOCX, ODT and PPTX are read as their programs show them."""

import io
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from kbq.corpus.reading import read_document

pytest.importorskip("pypandoc", reason="it reads RTF")
pytest.importorskip("pptx", reason="it reads PPTX")


def texts(content: bytes, suffix: str) -> list[str]:
    return [text for _, several in read_document(content, suffix).pages for text in several]


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (rb"\u352?koda", "Škoda"), (rb"\uc1\u352?koda", "Škoda"), (rb"\uc0\u352 koda", "Škoda"),
        (rb"\uc2\u352??koda", "Škoda"), (rb"\u352\'8akoda", "Škoda"), (rb"\f1 P\'f8\'edbram", "Příbram"),
        (rb"\f2 \'cc\'ee\'f1\'ea\'e2\'e0", "Москва"), (rb"{\f1 \'f8}\'f8", "řø"), (rb"a {\deleted b }c", "a c"),
        (rb"a {\v b }c", "a c"), (rb"\u-10179 ?\u-8704 ?", "😀"),
    ],
)  # fmt: skip
def test_letters_of_rtf(written: bytes, shown: str) -> None:
    fonts = rb"{\fonttbl{\f0\fnil\fcharset0 Arial;}{\f1\fnil\fcharset238 Arial;}{\f2\fswiss\fcharset204 Arial;}}"
    made = rb"{\rtf1\ansi\ansicpg1252\deff0" + fonts + rb"\pard\f0 " + written + rb"\par}"
    assert texts(made, ".rtf") == [shown]


def presentation() -> bytes:
    from pptx import Presentation
    from pptx.util import Inches

    made = Presentation()
    slide = made.slides.add_slide(made.slide_layouts[5])
    slide.shapes.title.text = "Orr Hall"
    box = slide.shapes.add_textbox(0, 0, Inches(1), Inches(1)).text_frame.paragraphs[0]
    for text, baseline in (
        ("It is 10", ""),
        ("6", "30000"),
        (" km", ""),
        ("2", "30000"),
        (" lar", ""),
        ("ge.", ""),
    ):
        run = box.add_run()
        run.text = text
        if baseline:
            run.font._element.set("baseline", baseline)
    group = slide.shapes.add_group_shape().shapes.add_group_shape()
    group.shapes.add_textbox(0, 0, Inches(1), Inches(1)).text_frame.text = "In a group"
    table = slide.shapes.add_table(2, 3, 0, 0, Inches(3), Inches(1)).table
    for number, text in enumerate(("Year", "Head", "Clerk", "1901", "", "Ann Orr")):
        table.cell(number // 3, number % 3).text = text
    buffer = io.BytesIO()
    made.save(buffer)
    return buffer.getvalue()


def test_slides_with_runs_groups_and_tables() -> None:
    assert texts(presentation(), ".pptx") == [
        "Orr Hall – It is 10^6 km2 large.", "In a group", "Year: 1901 · Head: – · Clerk: Ann Orr",
    ]  # fmt: skip


@pytest.mark.slow
def test_rtf_reads_as_in_libreoffice(tmp_path: Path) -> None:
    """KBQ_CASES sets how many random paragraphs have the letters that LibreOffice finds in them."""
    program = shutil.which("soffice")
    if not program:
        pytest.skip("it needs LibreOffice")
    draw = random.Random(5)
    fonts = {0: ("0", "cp1252"), 1: ("238", "cp1250"), 2: ("204", "cp1251"), 3: ("161", "cp1253")}
    table = "".join(
        f"{{\\f{font}\\fnil\\fcharset{charset} Arial;}}" for font, (charset, _) in fonts.items()
    )
    lines = []
    for number in range(int(os.environ.get("KBQ_CASES", "100"))):
        line = f"w{number} "
        for _ in range(draw.randint(1, 6)):
            font = draw.choice(list(fonts))
            letters = "".join(
                f"\\'{draw.randint(0xE0, 0xFE):02x}" for _ in range(draw.randint(1, 4))
            )
            unicode = draw.choice(
                ["\\u352?", "\\uc0\\u352 ", "\\uc2\\u352??", "\\uc1\\u322\\'b3", "{\\uc0\\u8211 }"]
            )
            line += draw.choice(
                [
                    f"{{\\f{font} {letters}}}",
                    f"\\f{font} {letters}",
                    f"{{{unicode}a}}",
                    "b",
                    "\\u233?",
                ]
            )
        lines.append(f"\\pard\\f0\\uc1 {line}\\par")
    made = f"{{\\rtf1\\ansi\\ansicpg1252\\deff0{{\\fonttbl{table}}}\n{''.join(lines)}}}".encode()
    (tmp_path / "a.rtf").write_bytes(made)
    command = [
        program,
        f"-env:UserInstallation=file://{tmp_path}/user",
        "--headless",
        "--convert-to",
        "txt:Text (encoded):UTF8",
    ]
    subprocess.run(
        [*command, "--outdir", str(tmp_path), str(tmp_path / "a.rtf")],
        check=True,
        capture_output=True,
    )
    shown = (tmp_path / "a.txt").read_text("utf-8-sig").split("\n")
    wanted = [" ".join(line.split()) for line in shown if line.strip()]
    read = texts(made, ".rtf")
    assert [(one, other) for one, other in zip(read, wanted, strict=True) if one != other] == []
