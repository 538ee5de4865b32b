"""Official: the cost of importing and searching files that DensePhrases wrote, by size.

    OMP_NUM_THREADS=1 python benchmarks/official.py FIXTURES WORK

FIXTURES has a folder public/ (checkpoint, corpus, dump), which the unmodified official code wrote. Its documents are
copied, with a little noise in their vectors. CPU seconds and memory are those of a process of its own for each step.
"""

import json
import pickle
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
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


# Each step, in a process of its own


def imported(work: Path, size: int, name: str, bm25: bool) -> dict[str, object]:
    """Import a dump (`dump`), or an index of this name."""
    source, folder = work / f"dump-{size}", work / f"kb-{name}-{size}{'-words' * bm25}"
    shutil.rmtree(folder, ignore_errors=True)
    if name == "dump":
        from kbq.importing.dump import import_dump  # here, as in all steps: what a step loads is measured, too

        kb = import_dump(source, folder, work / "model", bm25=bm25)
    else:
        from kbq.importing.index import import_index

        kb = import_index(source, folder, work / "model", f"start/{name}", bm25=bm25)
    counts = kb.manifest.counts
    return {"vectors": counts.rows, "tokens": counts.tokens, "pages": counts.pages, "bytes": _bytes(folder)}


def search(work: Path, kb: str, queries: Path) -> dict[str, object]:
    """Return searches per CPU second for the ten best phrases, of encoded queries, one and 64 at a time."""
    from kbq.kb import KnowledgeBase

    opened, texts = KnowledgeBase.open(work / kb, device="cpu"), _texts(queries)
    begun = time.process_time()
    starts, ends = opened.model.encode_queries(texts)
    encoding = time.process_time() - begun
    searched(opened, starts, ends, len(texts))  # reads the files
    found: dict[str, object] = {"vectors": opened.counts.rows, "queries encoded": round(len(texts) / encoding)}
    for together, count in ((1, len(texts)), (64, 64)):
        some_starts, some_ends = (np.resize(side, (count, side.shape[1])) for side in (starts, ends))
        seconds = cpu_seconds(partial(searched, opened, some_starts, some_ends, together))
        found[f"searches, {together} at a time"] = round(count / seconds, 1)
    return found


def official_step(work: Path, kbs: Sequence[str], queries: Path) -> dict[str, object]:
    """Do what the official figures time: ask all queries for four units in both indexes, loading included."""
    from kbq.kb import KnowledgeBase

    texts, searches = _texts(queries), 0
    for kb in kbs:
        opened = KnowledgeBase.open(work / kb, device="cpu")
        for unit in UNITS:
            searches += len(opened.query(texts, 10, unit, backend="dense"))  # type: ignore[call-overload]
    return {"searches": searches}


def _texts(queries: Path) -> list[str]:
    return [one["question"] for one in json.loads(queries.read_text())["data"]]


def _bytes(folder: Path) -> int:
    """Return the size of a folder without the official file, which is only linked."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.suffix != ".faiss")


def measured(step: Callable[..., dict[str, Any]], *given: object) -> dict[str, Any]:
    """Return the facts of a step, with its CPU seconds and peak memory in a process of its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(_step, step, *given).result()


def _step(step: Callable[..., dict[str, Any]], *given: object) -> dict[str, Any]:
    facts = step(*given)
    used = resource.getrusage(resource.RUSAGE_SELF)
    peak = round(megabytes(what="VmHWM") / 1.024)
    return facts | {"cpu_seconds": round(used.ru_utime + used.ru_stime, 2), "MiB": peak}


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
    (out / "meta_compressed.pkl").write_bytes(pickle.dumps(dict(sorted(metadata.items())), protocol=3))
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
        group["doc"] = np.concatenate([np.full(len(chosen[name]), int(name), np.int32) for name in order])
        group["word"] = np.concatenate([chosen[name] for name in order]).astype(np.int32)


def sizes(fixtures: Path, work: Path, names: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the costs of importing and searching, by step."""
    queries = fixtures / "public" / "corpus" / "questions.json"
    for size in SIZES:
        for bm25 in (False, True):
            words = ", words" * bm25
            for name in ("dump", *(names if not bm25 else names[:1])):
                label = "dump" if name == "dump" else "filtered index" if "_ft" in name else "index"
                yield f"import {label}{words} ×{size}", measured(imported, work, size, name, bm25)
        for kind in ("dump", names[0]):
            label = "dump" if kind == "dump" else "index"
            yield f"search {label} ×{size}", measured(search, work, f"kb-{kind}-{size}", queries)
    yield "the official step", measured(official_step, work, [f"kb-{name}-1" for name in names], queries)


# Arithmetic for the published index, from slopes

WIKIPEDIA = {"tokens": 3.0e9, "vectors": 480e6, "pages": 5.1e6}
LISTS, DIM, CODE, ID, PROBES = 2**20, 768, 96, 8, 256
SMALL_CODE = 12  # bytes, in the index that was measured


def slopes(found: dict[str, Any], measure: str) -> tuple[float, float]:
    """Return the cost of a token and of a vector, from three sizes of two indexes, without the constant part."""
    from scipy.optimize import nnls

    points = [found[f"import {kind} ×{size}"] for kind in ("index", "filtered index") for size in SIZES]
    columns = np.array([[point["tokens"], point["vectors"], 1e6] for point in points])
    (token, vector, _), _ = nnls(columns, np.array([point[measure] for point in points], float))
    return float(token), float(vector)


def comparing_means(part: int = 16) -> float:
    """Return CPU seconds to find the best means for a start and an end, from a part of as many."""
    import faiss

    random = np.random.default_rng(0)
    means = faiss.IndexFlatIP(DIM)
    means.add(random.normal(size=(LISTS // part, DIM)).astype(np.float32))
    query = random.normal(size=(2, DIM)).astype(np.float32)
    return part * cpu_seconds(lambda: means.search(query, PROBES), repeat=3)


def wikipedia(found: dict[str, Any]) -> dict[str, float]:
    """Return hours, GB and seconds for the published index of Wikipedia, on one thread."""
    tokens, vectors = WIKIPEDIA["tokens"], WIKIPEDIA["vectors"]
    seconds = slopes(found, "cpu_seconds")
    size = slopes(found, "bytes")
    large = SIZES[-1]
    with_words, without = (found[f"import index{words} ×{large}"] for words in (", words", ""))
    word_seconds, word_bytes = (
        (with_words[measure] - without[measure]) / without["tokens"] for measure in ("cpu_seconds", "bytes")
    )
    probed, largest = PROBES * vectors / LISTS, found[f"search index ×{large}"]
    scanned = 2 * largest["vectors"] * SMALL_CODE * largest["searches, 64 at a time"]  # bytes of codes in a CPU second
    return {
        "CPU hours to import": (seconds[0] * tokens + seconds[1] * vectors) / 3600,
        "and the words": word_seconds * tokens / 3600,
        "GB on disk beside index.faiss": (size[0] * tokens + size[1] * vectors) / 1e9,
        "GB of words": word_bytes * tokens / 1e9,
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
    written = given.fixtures / "public" / "dump"
    names = sorted(path.name for path in (written / "start").iterdir())
    for size in SIZES:
        enlarge(written, given.work / f"dump-{size}", size, names)
    if not (given.work / "model").exists():
        import_checkpoint(given.fixtures / "public" / "checkpoint", given.work / "model")
    found: dict[str, Any] = {}
    for name, facts in sizes(given.fixtures, given.work, names):
        found[name] = facts
        print(name, facts, file=sys.stderr)
    found["Wikipedia, by arithmetic"] = wikipedia(found)
    weights = given.fixtures / "public" / "checkpoint" / "pytorch_model.bin"
    reporting.write("official", found, [written / "meta_compressed.pkl", weights], seed=0)


if __name__ == "__main__":
    main()
