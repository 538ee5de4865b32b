"""First answer: record what the README's first command prints, and how long the first and the
second query take.

    python benchmarks/first_answer.py
"""

import os
import subprocess
import sys
import tempfile
import time

import reporting

from kbq.sample_kb import ARTICLES

QUERY = "Marie Curie [SEP] place of birth"


def main() -> None:
    figures: dict[str, object] = {"query": QUERY}
    command = [sys.executable, "-m", "kbq", "query", QUERY, "-k", "2"]
    with tempfile.TemporaryDirectory() as cache:
        for call in ("first", "second"):
            begun = time.perf_counter()
            told = subprocess.run(
                command,
                env=os.environ | {"KBQ_CACHE": cache},
                capture_output=True,
                text=True,
                check=True,
            )
            figures[f"seconds, {call} call"] = round(time.perf_counter() - begun, 1)
        figures["output"] = told.stdout
    reporting.write("first_answer", figures, [ARTICLES])


if __name__ == "__main__":
    main()
