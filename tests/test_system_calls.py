"""System calls: what kbq and its libraries in C, C++ and Rust ask of the kernel follows no link.
Needs strace.
"""

import re
import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(which("strace") is None, reason="strace is not installed"),
]
TRACED = "open,openat,creat,rename,renameat,renameat2,unlink,unlinkat,link,linkat,symlink,symlinkat,truncate"
CALL = re.compile(r"^\d+ +(\w+)\((.*)\) += (-?\d+)")
PATH = re.compile(r'(AT_FDCWD|\d+)(?:<([^>]*)>)?, "((?:[^"\\]|\\.)*)"|^"((?:[^"\\]|\\.)*)"')
PARTIAL = re.compile(r"[./][0-9a-f]{12}\.tmp(/[^/]*)?$")
WRITES = """
import sys
from pathlib import Path
from kbq.corpus.pages import Page
from kbq.model.model import Model
from kbq.kb import KnowledgeBase
from kbq.training.checkpoint import write_checkpoint

work = Path(sys.argv[2])
model = Model.open(sys.argv[1], "cpu")
pages = [Page(f"P{n}", f"Page {n}", [f"Marie was born in the city {n}.", "The river of Paris."]) for n in range(6)]
kb = KnowledgeBase.build(pages, work / "kb", model, index="disk")
kb = kb.update([Page("P1", "Other", ["Warsaw is a city."])]).delete("P2").index_vectors("tiny").compact()
model.save(work / "saved", "int8")
model.save_query_encoder(work / "tuned", {})
write_checkpoint(work / "checkpoint.pt", {"weights": next(model.queries.parameters())})
kb.fill([{"s": "Marie"}], ["birth"], work / "out.csv", subject="s", min_probability=0)
kb.predict([{"id": "1", "input": "Marie [SEP] birth"}], "trex", work / "out.jsonl")
"""


def test_no_write_follows_a_link(model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    traced = [
        "strace", "-f", "--seccomp-bpf", "-y", "-s", "4096", "-e",
        f"trace={TRACED}",
        "-o",
        str(tmp_path / "calls"),
    ]  # fmt: skip
    run = [sys.executable, "-c", WRITES, str(model_folder), str(tmp_path / "made")]
    done = subprocess.run([*traced, *run], capture_output=True, text=True, check=False)
    if "ptrace" in done.stderr.lower():
        pytest.skip("strace may not trace here")
    assert done.returncode == 0, done.stderr
    wrong, written = [], 0
    for line in (tmp_path / "calls").read_text(errors="replace").splitlines():
        call = CALL.match(line)
        if call is None or int(call[3]) < 0:
            continue
        name, arguments = call[1], call[2]
        path = _target(arguments)
        if not path.startswith(f"{tmp_path}/made/") or (
            "open" in name and not re.search("O_WRONLY|O_RDWR", arguments)
        ):
            continue
        written += 1
        follows_none = (
            "O_NOFOLLOW" in arguments or "O_EXCL" in arguments
            if "open" in name
            else name != "truncate"
        )
        if not (follows_none or PARTIAL.search(path)):
            wrong.append(line)
    assert wrong == []
    assert written > 200
    print(f"\n{written} calls that write")  # noqa: T201


def _target(arguments: str) -> str:
    """The last path in a call."""
    found = list(PATH.finditer(arguments))
    if not found:
        return ""
    last = found[-1]
    name = last[3] if last[3] is not None else last[4]
    return name if name.startswith("/") else f"{last[2] or ''}/{name}"
