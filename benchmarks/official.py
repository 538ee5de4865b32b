"""Official: measure what it costs to import and search files that DensePhrases wrote, by size.

    OMP_NUM_THREADS=1 python benchmarks/official.py FIXTURES WORK

FIXTURES has a folder public/ (checkpoint, corpus, dump), which the unmodified official code wrote.
Its documents are copied, with a little noise in their vectors. CPU seconds and memory are those of
a process of its own for each step.
"""

import json
import pickle
import resource
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import reporting
from measuring import arguments, cpu_seconds, megabytes, searched

SIZES = (1, 10, 100)
UNITS = ("phrase", "sentence", "paragraph", "page")
WIKIPEDIA = {"tokens": 3.0e9, "vectors": 480e6}  # the published index
LISTS, DIM, CODE, ID, PROBES = 2**20, 768, 96, 8, 256  # of it; bytes of a code and an id
SMALL_CODE = 12  # bytes, in the index that was measured


# Each step, in a process of its own


def imported(work: Path, size: int, name: str, bm25: bool = False) -> dict[str, Any]:
    """Import a dump (`dump`), or an index of this name."""
    source, folder = work / f"dump-{size}", work / f"kb-{name}-{size}{'-words' * bm25}"
    shutil.rmtree(folder, ignore_errors=True)
    if name == "dump":
        from kbq.importing.dump import (
            import_dump,
        )  # here, as in all steps: what a step loads is measured, too

        kb = import_dump(source, folder, work / "model", bm25=bm25)
    else:
        from kbq.importing.index import import_index

        kb = import_index(source, folder, work / "model", f"start/{name}", bm25=bm25)
    # Which is linked.
    written = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".faiss"]
    counts = kb.manifest.counts
    return {
        "vectors": counts.rows,
        "tokens": counts.tokens,
        "bytes": sum(path.stat().st_size for path in written),
    }


def search(work: Path, kb: str, texts: Sequence[str]) -> dict[str, Any]:
    """Return searches per CPU second for the ten best phrases, of encoded queries, one and 64 at a
    time.
    """
    from kbq.kb import KnowledgeBase

    opened = KnowledgeBase.open(work / kb, device="cpu")
    starts, ends = opened.model.encode_queries(texts)
    searched(opened, starts, ends, len(texts))  # reads the files
    found: dict[str, Any] = {"vectors": opened.counts.rows}
    for together, count in ((1, len(texts)), (64, 64)):
        some_starts, some_ends = (
            np.resize(side, (count, side.shape[1])) for side in (starts, ends)
        )
        seconds = cpu_seconds(partial(searched, opened, some_starts, some_ends, together))
        found[f"searches, {together} at a time"] = round(count / seconds, 1)
    return found


def official_step(work: Path, kbs: Sequence[str], texts: Sequence[str]) -> dict[str, Any]:
    """Do what the official figures time: ask all queries for four units in both indexes, loading
    included.
    """
    from kbq.kb import KnowledgeBase

    opened = (KnowledgeBase.open(work / kb, device="cpu") for kb in kbs)
    answers = [kb.query(texts, 10, unit, backend="dense") for kb in opened for unit in UNITS]  # type: ignore[call-overload]
    return {"searches": sum(map(len, answers))}


def measured(step: Callable[..., dict[str, Any]], *given: object) -> dict[str, Any]:
    """Return what a step finds, with its CPU seconds and peak memory in a process of its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        found = pool.submit(with_costs, step, *given).result()
    print(step.__name__, given[1], found, file=sys.stderr)
    return found


def with_costs(step: Callable[..., dict[str, Any]], *given: object) -> dict[str, Any]:
    found, used = step(*given), resource.getrusage(resource.RUSAGE_SELF)
    seconds = round(used.ru_utime + used.ru_stime, 2)
    return found | {"cpu_seconds": seconds, "MiB": round(megabytes(what="VmHWM") / 1.024)}


# Larger dumps


def enlarge(source: Path, out: Path, copies: int, names: Sequence[str]) -> None:
    """Write copies of all documents under numbers of their own, with their metadata and indexes."""
    import h5py

    from kbq.importing.metadata import pickled_items

    if out.exists():
        return
    random, metadata, rows = np.random.default_rng(0), {}, {}
    for kind in ("phrase", "filter"):
        (out / kind).mkdir(parents=True)
    with (source / "meta_compressed.pkl").open("rb") as file:
        documents = dict(pickled_items(file))
    (phrases,) = (source / "phrase").glob("*.hdf5")
    with h5py.File(phrases) as old, h5py.File(out / "phrase" / "all.hdf5", "w") as new:
        for copy in range(copies):
            for place, number in enumerate(old):
                name = str(copy * len(old) + place)
                old.copy(number, new, name=name)
                noise = random.integers(-1, 2, old[number]["start"].shape) * (copy > 0)
                rows[name] = np.clip(new[name]["start"][:] + noise, -128, 127).astype(np.int8)
                new[name]["start"][:] = rows[name]
                metadata[name] = documents[number]
    (out / "meta_compressed.pkl").write_bytes(
        pickle.dumps(dict(sorted(metadata.items())), protocol=3)
    )
    for name in names:
        _enlarged_index(source / "start" / name, out / "start" / name, rows)


def _enlarged_index(source: Path, out: Path, rows: dict[str, np.ndarray]) -> None:
    import faiss
    import h5py

    with h5py.File(source / "idx2id.hdf5") as file:
        documents, words = file["0/doc"][:], file["0/word"][:]
    kept = [words[documents == number] for number in range(documents.max() + 1)]
    larger: Any = faiss.read_index(str(source / "index.faiss"))
    inner: Any = faiss.downcast_index(larger.index)
    inner.set_direct_map_type(faiss.DirectMap.NoMap)  # type: ignore[attr-defined]
    larger.reset()
    order = sorted(rows)
    chosen = {name: kept[int(name) % len(kept)] for name in order}
    for name in order:
        larger.add(rows[name][chosen[name]] / np.float32(20) - 2)
    inner.set_direct_map_type(faiss.DirectMap.Hashtable)  # type: ignore[attr-defined]
    out.mkdir(parents=True)
    faiss.write_index(larger, str(out / "index.faiss"))
    with h5py.File(out / "idx2id.hdf5", "w") as file:
        group = file.create_group("0")
        group.attrs["offset"] = 0
        group["doc"] = np.concatenate(
            [np.full(len(chosen[name]), int(name), np.int32) for name in order]
        )
        group["word"] = np.concatenate([chosen[name] for name in order]).astype(np.int32)


# Arithmetic for the published index, from slopes


def slopes(found: Mapping[str, Any], measure: str) -> tuple[float, float]:
    """Return the cost of a token and of a vector, from three sizes of two indexes, without the
    constant part.
    """
    from scipy.optimize import nnls

    points = [
        found[f"import {kind} ×{size}"] for kind in ("index", "filtered index") for size in SIZES
    ]
    columns = np.array([[point["tokens"], point["vectors"], 1e6] for point in points])
    (token, vector, _), _ = nnls(columns, np.array([point[measure] for point in points], float))
    return float(token), float(vector)


def comparing_means(part: int = 16) -> float:
    """Return CPU seconds to find the best means for a start and an end, from a part of the means."""
    import faiss

    random = np.random.default_rng(0)
    means = faiss.IndexFlatIP(DIM)
    means.add(random.normal(size=(LISTS // part, DIM)).astype(np.float32))
    query = random.normal(size=(2, DIM)).astype(np.float32)
    return part * cpu_seconds(lambda: means.search(query, PROBES), repeat=3)


def wikipedia(found: Mapping[str, Any]) -> dict[str, float]:
    """Return hours, GB and seconds for the published index of Wikipedia, on one thread."""
    tokens, vectors = WIKIPEDIA["tokens"], WIKIPEDIA["vectors"]
    largest = {
        name: found[f"{name} ×{SIZES[-1]}"]
        for name in ("import index", "import index, words", "search index")
    }

    def cost(measure: str) -> float:
        token, vector = slopes(found, measure)
        return token * tokens + vector * vectors

    def of_words(measure: str) -> float:
        difference = largest["import index, words"][measure] - largest["import index"][measure]
        return difference / largest["import index"]["tokens"] * tokens

    probed, of_search = PROBES * vectors / LISTS, largest["search index"]
    # Bytes in a CPU second.
    scanned = 2 * of_search["vectors"] * SMALL_CODE * of_search["searches, 64 at a time"]
    return {
        "CPU hours to import": cost("cpu_seconds") / 3600,
        "and the words": of_words("cpu_seconds") / 3600,
        "GB on disk beside index.faiss": cost("bytes") / 1e9,
        "GB of words": of_words("bytes") / 1e9,
        "GB of memory that must be free": 4 * LISTS * DIM / 1e9,
        "GB of codes that are mapped": vectors * (CODE + ID) / 1e9,
        "MB of lists read for a query": 2 * probed * (CODE + ID) / 1e6,
        "CPU seconds to compare a query with the means": comparing_means(),
        "CPU seconds to compare it with codes": 2 * probed * CODE / scanned,
    }


def main() -> None:
    from kbq.importing.checkpoint import import_checkpoint

    given = arguments(__doc__, fixtures=Path, work=Path)
    given.work.mkdir(parents=True, exist_ok=True)
    public, work = given.fixtures / "public", given.work
    indexes = sorted(path.name for path in (public / "dump" / "start").iterdir())
    if not (work / "model").exists():
        import_checkpoint(public / "checkpoint", work / "model")
    questions = json.loads((public / "corpus" / "questions.json").read_text())["data"]
    texts = [one["question"] for one in questions]
    names = {"dump": "dump"} | {
        name: "filtered index" if "_ft" in name else "index" for name in indexes
    }
    found: dict[str, Any] = {}
    for size in SIZES:
        enlarge(public / "dump", work / f"dump-{size}", size, indexes)
        for name, label in names.items():
            found[f"import {label} ×{size}"] = measured(imported, work, size, name)
        for name, label in list(names.items())[:2]:
            found[f"import {label}, words ×{size}"] = measured(imported, work, size, name, True)
            found[f"search {label} ×{size}"] = measured(search, work, f"kb-{name}-{size}", texts)
    found["the official step"] = measured(
        official_step, work, [f"kb-{name}-1" for name in indexes], texts
    )
    found["Wikipedia, by arithmetic"] = wikipedia(found)
    data = [public / "dump" / "meta_compressed.pkl", public / "checkpoint" / "pytorch_model.bin"]
    reporting.write("official", found, data, seed=0)


if __name__ == "__main__":
    main()
