"""Memory: the peaks of a build, for a corpus and for 4 and 16 times as much text.

    OMP_NUM_THREADS=1 python benchmarks/memory.py CORPUS.jsonl WORK [--megabytes 0.5]

CORPUS is JSON lines; its first lines are the smallest corpus. WORK is a folder for corpora and knowledge bases. "Own"
memory leaves out files that are mapped: the system takes these pages back when it needs them. Linux only.
"""

import argparse
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import reporting

from kbq.dump.manifest import read_manifest
from kbq.errors import CorpusError
from kbq.storage.lines import read_lines

TIMES = (1, 4, 16)


def peaks(command: list[str]) -> dict[str, int]:
    """The largest memory, in MB, that a command that must succeed has at any time: all of it, and its own."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    everything = own = 0
    while process.poll() is None:
        status = Path(f"/proc/{process.pid}/status").read_text()
        found = dict(re.findall(r"^(VmHWM|RssAnon):\s+(\d+) kB$", status, re.MULTILINE))
        everything, own = max(everything, int(found.get("VmHWM", 0))), max(own, int(found.get("RssAnon", 0)))
        time.sleep(0.05)
    if process.returncode:
        raise SystemExit(f"{command} ended with status {process.returncode}")
    return {"peak memory, MB": round(everything / 1000), "own, MB": round(own / 1000)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--megabytes", type=float, default=0.5)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    figures = {}
    for times in TIMES:
        part, kb = options.work / f"{times}.jsonl", options.work / f"kb{times}"
        size = 0
        with part.open("w", encoding="utf-8") as file:
            for _, line in read_lines(str(options.corpus), CorpusError):
                size += file.write(line.rstrip("\n") + "\n")
                if size >= times * options.megabytes * 1e6:
                    break
        usage = peaks([sys.executable, "-m", "kbq", "build", str(part), str(kb), "--index", "exact"])
        counts = read_manifest(kb).counts
        vectors = (kb / "shard-00000" / "vectors.npy").stat().st_size
        figures[f"{times} times"] = {
            "text, MB": round(size / 1e6, 1),
            "tokens": counts.tokens,
            "vectors, MB": round(vectors / 1e6, 1),
            **usage,
        }
        reporting.write("memory", figures, [options.corpus])
        shutil.rmtree(kb)
        part.unlink()


if __name__ == "__main__":
    main()
