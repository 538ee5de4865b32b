"""Memory: the peak of a build, for a corpus and for 4 and 16 times as much text.

    python benchmarks/memory.py CORPUS.jsonl WORK [--megabytes 0.5]

CORPUS is JSON lines; its first lines are the smallest corpus. WORK is a folder for corpora and knowledge bases.
"""

import argparse
import shutil
import sys
from pathlib import Path

import reporting
from build import run

from kbq.errors import CorpusError
from kbq.indexing.manifest import read_manifest
from kbq.reading import read_lines

TIMES = (1, 4, 16)


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
        usage = run([sys.executable, "-m", "kbq", "build", str(part), str(kb), "--index", "exact"])
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
