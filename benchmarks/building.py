"""Building: measure time, memory and size of a knowledge base, and of parts of its corpus, each
four times as long.

    OMP_NUM_THREADS=1 python benchmarks/building.py CORPUS.jsonl WORK [--megabytes 0.5]

WORK is a folder for the parts, and for knowledge bases, which are deleted. "Own" memory leaves out
mapped files, whose pages the system takes back when it needs them. Writes `build_trex` and
`memory`. Linux only.
"""

import shutil
from pathlib import Path
from typing import Any

import reporting
from measuring import arguments, run

from kbq.dump.manifest import read_manifest
from kbq.errors import CorpusError
from kbq.storage.folders import folder_bytes
from kbq.storage.lines import read_lines

TIMES = (1, 4, 16)


def built(corpus: Path, kb: Path, *options: str) -> dict[str, Any]:
    """Build a knowledge base, delete it, and return its cost and size."""
    used = run("build", corpus, kb, *options)
    counts, size = read_manifest(kb).counts, folder_bytes(kb)
    vectors = sum(path.stat().st_size for path in kb.glob("shard-*/vectors.npy"))
    shutil.rmtree(kb)
    return {
        "pages": counts.pages,
        "tokens": counts.tokens,
        "vectors, MB": round(vectors / 1e6, 1),
        "MB": round(size / 1e6, 1),
        **used,
    }


def main() -> None:
    options = arguments(__doc__, corpus=Path, work=Path, megabytes=0.5)
    options.work.mkdir(parents=True, exist_ok=True)
    reporting.write("build_trex", built(options.corpus, options.work / "kb"), [options.corpus])
    figures = {}
    for times in TIMES:
        part, size = options.work / f"{times}.jsonl", 0
        with part.open("w", encoding="utf-8") as file:
            for _, line in read_lines(str(options.corpus), CorpusError):
                size += file.write(line.rstrip("\n") + "\n")
                if size >= times * options.megabytes * 1e6:
                    break
        found = built(part, options.work / "kb", "--index", "exact")
        figures[f"{times} times"] = {"text, MB": round(size / 1e6, 1), **found}
        reporting.write("memory", figures, [options.corpus])


if __name__ == "__main__":
    main()
