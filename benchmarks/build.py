"""Build: time, memory and size of a knowledge base; then once more, killed half-way with SIGKILL and resumed.

    python benchmarks/build.py CORPUS KB [--model MODEL] [--name build]

KB is kept; the killed and resumed build goes to KB-resumed, must consist of the same bytes, and is deleted.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import reporting

from kbq.dump.manifest import STATE, read_manifest


def run(command: list[str]) -> dict[str, float]:
    """Wall seconds, CPU seconds and peak memory of a command that must succeed."""
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command} ended with status {status}")
    return {
        "seconds": round(time.perf_counter() - begun, 1),
        "CPU seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "peak memory, MB": round(usage.ru_maxrss / 1000),
    }


def kill_half_way(command: list[str], folder: Path, pages: int) -> int:
    """Start a build and kill it when half of its pages are on the disk; returns how many are."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        time.sleep(0.2)
        state = folder / STATE
        done = json.loads(state.read_text())["pages"] if state.exists() else 0
        if done >= pages / 2:
            process.kill()
            process.wait()
            return int(done)
    raise SystemExit("the build ended before it could be killed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("kb", type=Path)
    parser.add_argument("--model", default="default")
    parser.add_argument("--name", default="build")
    options = parser.parse_args()
    command = [sys.executable, "-m", "kbq", "build", str(options.corpus), str(options.kb), "--model", options.model]
    whole = run(command)
    counts = read_manifest(options.kb).counts
    resumed = options.kb.with_name(options.kb.name + "-resumed")
    command[5] = str(resumed)
    killed_at = kill_half_way(command, resumed, counts.pages)
    rest = run(command)
    files = sorted(path.relative_to(options.kb) for path in options.kb.rglob("*") if path.is_file())
    same = files == sorted(path.relative_to(resumed) for path in resumed.rglob("*") if path.is_file()) and all(
        (options.kb / name).read_bytes() == (resumed / name).read_bytes() for name in files
    )
    shutil.rmtree(resumed)
    size = sum((options.kb / name).stat().st_size for name in files)
    figures = {
        "pages": counts.pages,
        "paragraphs": counts.paragraphs,
        "tokens": counts.tokens,
        "kept vectors": counts.rows,
        "MB": round(size / 1e6, 1),
        "bytes per kept vector": round(size / counts.rows, 1),
        **whole,
        "tokens per second": round(counts.tokens / whole["seconds"]),
        "tokens per CPU second": round(counts.tokens / whole["CPU seconds"]),
        "killed after pages": killed_at,
        "resumed": rest,
        "same bytes as the build that was not killed": same,
    }
    reporting.write(options.name, figures, [options.corpus])


if __name__ == "__main__":
    main()
