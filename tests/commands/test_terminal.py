"""Terminal: whatever corpora, predictions, folders and arguments hold, none of it controls where it
is shown.
"""

import ast
import dataclasses
import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kbq
from kbq import progress
from kbq.__main__ import main
from kbq.commands.terminal import Styled, note, show
from kbq.corpus.pages import Page, Paragraph
from kbq.model.model import Model

COMMANDS = Path(kbq.__file__).parent / "commands"
# Whatever a terminal obeys, reorders or hides; without NUL, which no argument can hold. ESC, \r and
# \n are also ours.
CHARACTERS = [
    *(
        chr(code)
        for code in (*range(0x01, 0x20), *range(0x7F, 0xA0))
        if chr(code) not in "\t\n\r\x1b"
    ),
    *"\u061c\u200b\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2060\u2064\u2066\u2067\u2068\u2069\u206f\ufeff",
    *"\U000e0001\U000e0041\U000e007f\ufff9",
]
WITH_BARS = {
    "build", "index", "merge-kb", "predict", "finetune", "train", "augment", "update", "sync", "compact", "verify",
}  # fmt: skip
SEQUENCES = [
    "\x1b]0;renamed", "\x1b[5m", "\x1b[2J", "\x1b#8", "\nFORGED", "\rFORGED", "u\u200dv",
    "w\u200cx",
]  # fmt: skip
BAD = "Bad" + "".join(CHARACTERS) + "".join(SEQUENCES) + "[red]e[/red]"
NAME = BAD.replace("/", "|")  # of a file
OWN_STYLES = re.compile(r"\x1b\[(?:0|1|2|31|32)m")


class Screen(io.TextIOWrapper):
    """Standard output or standard error of a terminal."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), "utf-8", "backslashreplace", newline="", write_through=True)

    def isatty(self) -> bool:
        return True

    @property
    def text(self) -> str:
        buffer = self.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue().decode("utf-8")


@dataclasses.dataclass(frozen=True)
class Shown:
    status: object
    out: str
    err: str


Kbq = Callable[..., Shown]


@pytest.fixture
def kbq_at_terminal(monkeypatch: pytest.MonkeyPatch) -> Kbq:
    """Runs a command at a terminal."""

    def run(*words: object) -> Shown:
        screens = Screen(), Screen()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["kbq", *map(str, words)])
            patch.setattr(sys, "stdout", screens[0])
            patch.setattr(sys, "stderr", screens[1])
            status: object = 0
            try:
                main()
            except SystemExit as end:
                status = end.code or 0
        return Shown(status, screens[0].text, screens[1].text)

    return run


def found_in(text: str) -> list[str]:
    """What a text holds that must not reach a terminal."""
    return [part for part in [*CHARACTERS, *SEQUENCES] if part in text]


def check(shown: Shown, has_bar: bool = False) -> None:
    assert found_in(shown.out) == found_in(shown.err) == []
    for text in (shown.out, "" if has_bar else shown.err):
        assert "\r" not in text
        assert "\x1b" not in OWN_STYLES.sub("", text)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a name that controls terminals."""
    folder = tmp_path / NAME
    folder.mkdir()
    return folder


def write_lines(path: Path, *records: object) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return path


TEXTS = [f"the river {BAD} was born in Paris", f"Marie {BAD} city of Warsaw"]


@pytest.fixture
def corpus(place: Path) -> Path:
    """Pages with such ids, titles and texts, and a bad line."""
    pages = [
        {"id": f"{BAD} {number}", "title": f"{BAD} title", "paragraphs": TEXTS}
        for number in range(3)
    ]
    return write_lines(place / f"{NAME}.jsonl", *pages, {"id": BAD})


@pytest.fixture
def kb(place: Path, new_model: Callable[..., Model]) -> Path:
    """A knowledge base of such pages, made with a model whose folder has such a name and such
    facts.
    """
    from kbq.kb import KnowledgeBase

    paragraphs = tuple(Paragraph(number, text) for number, text in enumerate(TEXTS))
    pages = [Page(f"{BAD} {number}", f"{BAD} title", paragraphs) for number in range(3)]
    model = new_model()
    model.config = dataclasses.replace(
        model.config, training={"command": BAD, BAD: BAD, "settings": {BAD: BAD}}
    )
    model.save(place / "model")
    KnowledgeBase.build(pages, place / "kb", place / "model", device="cpu")
    return place / "kb"


def record(number: int, answer: str, page: str, **more: Any) -> dict[str, Any]:
    provenance = [
        {"wikipedia_id": page, "title": f"{BAD} page", "text": f"{BAD} text", "section": BAD}
    ]
    return {
        "id": f"{BAD} {number}",
        "output": [{"answer": answer, "provenance": provenance}],
        **more,
    }


@pytest.fixture
def gold(place: Path) -> Path:
    records = (
        record(
            n,
            f"{BAD} answer",
            f"{BAD} {n}",
            input=f"{BAD} [SEP] {BAD} relation",
            meta={"fold": BAD},
        )
        for n in range(3)
    )
    return write_lines(place / "gold.jsonl", *records)


@pytest.fixture
def guess(place: Path) -> Path:
    """Right, wrong, on another page, with texts and with surprises."""
    return write_lines(
        place / "guess.jsonl",
        record(0, f"{BAD} answer", f"{BAD} 0"),
        record(1, f"no {BAD}", f"{BAD} 9"),
        record(2, f" {BAD} answer ", f"{BAD} 2", surprise=BAD),
    )


ASKED: list[tuple[str, ...]] = [
    ("query", "the river", "--kb", "KB"),
    ("query", f"the river {BAD}", "--kb", "KB", "-k", "9"),
    ("query", "the river", "--kb", "KB", "--json"),
    ("query", "Marie", "--kb", "KB", "--unit", "page", "--backend", "bm25"),
    ("query", f"{BAD} [SEP]", "--kb", "KB"),
    ("explain", f"the river {BAD}", "--kb", "KB"),
    ("explain", "the river", "--kb", "KB", "--json"),
    ("info", "KB"),
    ("info", "KB", "--json"),
    ("info", "MODEL"),
    ("info", "MODEL", "--json"),
    ("index", "bm25", "KB"),
    ("index", "vectors", "KB", "--kind", "disk"),
    ("merge-kb", "OUT", "KB"),
    ("update", "KB", "CORPUS"),
    ("sync", "KB", "CORPUS", "--dry-run"),
    ("delete", "KB", BAD),
    ("delete", "KB", "--file", "GUESS"),
    ("delete", "KB", "--file", "GUESS", "--missing-ok"),
    ("compact", "KB"),
    ("verify", "KB"),
    ("verify", "KB", "--json"),
    ("verify", "MODEL"),
    ("query", "the river", "--kb", "KB", "--pages", "GUESS"),
    ("build", "CORPUS", "OUT", "--model", "MODEL"),
    ("build", "CORPUS", "OUT", "--model", "MODEL", "--skip-bad-lines"),
    ("predict", "GOLD", "--task", "slot_filling", "--out", "OUT", "--kb", "KB"),
    ("errors", "GUESS", "GOLD", "--kb", "KB"),
    ("validate", "GUESS", "--inputs", "GOLD", "--kb", "KB"),
    ("finetune", "GOLD", "--kb", "KB", "--dev", "GOLD", "--out", "OUT", "--epochs", "1"),
]


@pytest.mark.parametrize(
    "words", ASKED, ids=lambda words: " ".join(word for word in words if len(word) < 30)
)
def test_nothing_of_a_knowledge_base_controls_the_terminal(
    words: tuple[str, ...],
    kbq_at_terminal: Kbq,
    kb: Path,
    corpus: Path,
    gold: Path,
    guess: Path,
    place: Path,
) -> None:
    names = {
        "KB": kb,
        "MODEL": place / "model",
        "CORPUS": corpus,
        "GOLD": gold,
        "GUESS": guess,
        "OUT": place / "out",
    }
    shown = kbq_at_terminal(*(names.get(word, word) for word in words))
    assert r"\u202e" in shown.out + shown.err  # it is shown, and harmless
    check(shown, words[0] in WITH_BARS)


MEASURED: list[tuple[str, ...]] = [
    ("evaluate", "GUESS", "GOLD", "--by", "relation"),
    ("evaluate", "GUESS", "GOLD", "--by", "relation", "--csv"),
    ("evaluate", "GUESS", "GOLD", "--by", "meta.fold", "--json"),
    ("evaluate", "GUESS", "GOLD", "--by", f"meta.{BAD}"),
    ("evaluate", "GUESS", "GOLD", "--ks", BAD),
    ("evaluate", "GUESS", "GOLD", "--task", BAD),
    ("evaluate", "GUESS", "OTHER"),
    ("errors", "GUESS", "GOLD"),
    ("errors", "GUESS", "GOLD", "--json"),
    ("errors", "GUESS", "GOLD", "--kind", BAD),
    ("validate", "GUESS"),
    ("validate", "GUESS", "--inputs", "GOLD", "--strict"),
    ("validate", "BROKEN"),
    ("submit", "GUESS", "--tasks", "trex", "--out", "OUT"),
    ("submit", "GUESS", "--tasks", "trex", "--inputs", "GOLD", "--out", "OUT", "--strict"),
    ("passages", "GUESS", "MISSING"),
    ("query", "the river", "--kb", "MISSING"),
    ("query", "--file", "MISSING"),
    ("query", "--file", "BROKEN", "--kb", "MISSING"),
    ("info", "MISSING"),
    ("build", "MISSING", "OUT"),
    ("build", "BROKEN", "OUT"),
    ("build", "BROKEN", f"{NAME}.gz"),
    ("train", "reader", "MISSING", "--out", "OUT", "--init", "MISSING"),
    ("train", BAD),
    ("augment", "MISSING", "--out", "OUT", "--triples", "MISSING"),
    ("query", "--backend", BAD),
    (BAD,),
    (f"--{BAD}",),
    ("query", f"--{BAD}"),
]


@pytest.mark.parametrize(
    "words", MEASURED, ids=lambda words: " ".join(word for word in words if len(word) < 30)
)
def test_nothing_of_files_and_arguments_controls_the_terminal(
    words: tuple[str, ...], kbq_at_terminal: Kbq, gold: Path, guess: Path, place: Path
) -> None:
    broken = write_lines(
        place / "broken.jsonl", {"id": BAD, "output": BAD, "title": BAD}, BAD, [BAD], {"id": 3}
    )
    with broken.open("a") as file:
        file.write(f'{{"id": "{BAD}')
    names = {
        "GOLD": gold,
        "GUESS": guess,
        "OUT": place / "out",
        "MISSING": place / "missing",
        "BROKEN": broken,
    }
    names |= {"OTHER": write_lines(place / "other.jsonl", record(7, BAD, BAD, input="a [SEP] b"))}
    shown = kbq_at_terminal(*(names.get(word, word) for word in words))
    assert r"\u202e" in shown.out + shown.err
    check(shown, words[0] in WITH_BARS)


def test_json_holds_every_character(
    kbq_at_terminal: Kbq, guess: Path, gold: Path, place: Path
) -> None:
    shown = kbq_at_terminal("evaluate", guess, gold, "--by", "meta.fold", "--json")
    groups = json.dumps(json.loads(shown.out), ensure_ascii=False)
    assert json.dumps(BAD, ensure_ascii=False)[1:-1] in groups


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_bar_shows_names_as_they_are(is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(screen, "isatty", lambda: is_terminal)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(progress, "LINE_SECONDS", -1.0)
    monkeypatch.setenv("COLUMNS", "2000")
    with progress.Bar(f"building {BAD}") as bar:
        bar.stage(f"{BAD} stage", 1, 2)
    assert found_in(screen.text) == []
    assert "[red]e[/red] stage: 1 of 2" in screen.text
    assert r"\u202e" in screen.text


def test_styles_are_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    show(("a\x1b[1m ", Styled("b\x1b[0m", bold=True), " می‌خواهم 👩‍🚀"), Styled("c\n", fg="red"))
    assert screen.text == "a\\x1b[1m \x1b[1mb\\x1b[0m\x1b[0m می‌خواهم 👩‍🚀\n\x1b[31mc\\n\x1b[0m\n"


def test_a_log_has_no_styles(capsys: pytest.CaptureFixture[str]) -> None:
    note("a\x1b[1m")
    assert capsys.readouterr().err == "a\\x1b[1m\n"


def printing_calls(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in ("print", "typer.echo", "typer.secho", "typer.style") or called.endswith(
                ".write"
            ):
                yield called


@pytest.mark.parametrize("path", sorted(COMMANDS.glob("*.py")), ids=lambda path: path.name)
def test_commands_print_in_one_place(path: Path) -> None:
    expected = {"terminal.py": {"typer.echo", "typer.style"}, "progress.py": {"sys.stderr.write"}}
    assert set(printing_calls(path)) == expected.get(path.name, set())


@pytest.mark.parametrize(
    ("variables", "is_styled"),
    [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_styles_are_left_out_where_they_are_not_wanted(
    variables: dict[str, str], is_styled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    shown: list[str] = []
    monkeypatch.setattr("typer.echo", lambda text, **options: shown.append(text))
    show(Styled("bold", bold=True))
    assert shown == ["\x1b[1mbold\x1b[0m" if is_styled else "bold"]
