"""Short memory: ask with ever less memory; count how a command ends, which must never be a
traceback.

    python benchmarks/short_memory.py KB [--trials 20] [--least 300] [--most 2500]

Each trial limits the addresses that the process may use (RLIMIT_AS), from the most to the least MB,
evenly.
"""

import os
import resource
import subprocess
import sys
from collections import Counter
from pathlib import Path

import reporting
from measuring import arguments

ASKED = "Marie [SEP] place of birth"


def main() -> None:
    options = arguments(__doc__, kb=Path, trials=20, least=300, most=2500)
    ends: Counter[str] = Counter()
    for trial in range(options.trials):
        megabytes = options.most - (options.most - options.least) * trial // max(
            1, options.trials - 1
        )
        end = ended(options.kb, megabytes)
        ends[end.partition(":")[0]] += 1
        print(f"{megabytes} MB: {end}", flush=True)
    reporting.write("short_memory", {"asked with too little memory": dict(ends)}, [options.kb])


def ended(kb: Path, megabytes: int) -> str:
    """Return how a command ends: answered, one sentence, traceback, or killed, and what it says."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (megabytes * 2**20, -1))

    command = [sys.executable, "-m", "kbq", "query", ASKED, "--kb", str(kb), "--device", "cpu"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, preexec_fn=limited, check=False
    )
    if done.returncode == 0:
        return "answered"
    last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1][:200]
    if "Traceback" in done.stderr:
        return f"traceback: {last}"
    return (
        f"one sentence: {last}"
        if done.returncode == 1 and "error: " in done.stderr
        else f"ended: {last}"
    )


if __name__ == "__main__":
    main()
