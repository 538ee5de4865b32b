"""Quantisation: a knowledge base whose rows are replaced by what a product quantiser keeps of them.

    python benchmarks/quantisation.py KB OUT [--factory OPQ48_384,PQ48]

OUT can be searched and tuned on like any other: its exact search is what an index of these codes finds without
rescoring. `benchmarks/finetuning.py` on it is quantisation-aware; a query encoder tuned on KB and asked on OUT is not.
"""

import argparse
import os
import shutil
from pathlib import Path

import faiss
import numpy as np

from kbq.dump.shards import Shard

SAMPLE = 65536  # rows that the quantiser is trained on
CHUNK = 65536


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kb", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--factory", default="OPQ48_384,PQ48", help="of faiss")
    options = parser.parse_args()
    shutil.copytree(options.kb, options.out, copy_function=os.link)
    for folder in sorted(options.out.glob("shard-*")):
        rows = Shard(folder).vectors
        picked = np.sort(np.random.default_rng(0).choice(len(rows), min(SAMPLE, len(rows)), replace=False))
        codec = faiss.index_factory(rows.shape[1], options.factory)
        codec.train(rows[picked].astype(np.float32))
        kept = np.empty_like(rows)
        error = total = 0.0
        for first in range(0, len(rows), CHUNK):
            part = rows[first : first + CHUNK].astype(np.float32)
            decoded = codec.sa_decode(codec.sa_encode(part))
            error += float(((part - decoded) ** 2).sum())
            total += float((part**2).sum())
            kept[first : first + CHUNK] = np.clip(np.rint(decoded), -127, 127)
        (folder / "vectors.npy").unlink()
        np.save(folder / "vectors.npy", kept)
        print(f"{folder}: {codec.sa_code_size()} bytes a row, squared error {error / total:.3f} of the squared length")


if __name__ == "__main__":
    main()
