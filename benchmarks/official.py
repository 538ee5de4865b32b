"""Official: what DensePhrases wrote, imported and asked, beside what its own code answers; time and memory with size.

    OMP_NUM_THREADS=1 python benchmarks/official.py FIXTURES WORK

FIXTURES has folders like public/ (checkpoint, corpus, dump, reference) and public-query/ (checkpoint, reference), which
the unmodified official code wrote. For the sizes, the documents of the first are copied, with a little noise in their
vectors. CPU seconds and memory are those of a process of its own for each step.
"""

import argparse
import json
import pickle
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import reporting
from measuring import cpu_seconds
from rendering import figures, table

SIZES = (1, 10, 100)
UNITS = ("phrase", "sentence", "paragraph", "page")
Place = tuple[str, int, int]


# Each step, in a process of its own


def import_dump(work: Path, size: int, bm25: bool) -> dict[str, object]:
    from kbq.importing.dump import import_dump as run

    folder = work / f"kb-dump-{size}{'-words' * bm25}"
    counts = run(work / f"dump-{size}", folder, work / "model", bm25=bm25).manifest.counts
    return {"vectors": counts.rows, "tokens": counts.tokens, "pages": counts.pages, "bytes": _bytes(folder)}


def import_index(work: Path, size: int, name: str, bm25: bool) -> dict[str, object]:
    from kbq.importing.index import import_index as run

    folder = work / f"kb-{name}-{size}{'-words' * bm25}"
    counts = run(work / f"dump-{size}", folder, work / "model", f"start/{name}", bm25=bm25).manifest.counts
    return {"vectors": counts.rows, "tokens": counts.tokens, "pages": counts.pages, "bytes": _bytes(folder)}


def search(work: Path, kb: str, queries: Path) -> dict[str, object]:
    """Searches per CPU second for the ten best phrases, one and 64 at a time, of queries that are encoded."""
    from kbq.kb import KnowledgeBase

    opened, texts = KnowledgeBase.open(work / kb, device="cpu"), _texts(queries)
    begun = time.process_time()
    starts, ends = opened.model.encode_queries(texts)
    encoding = time.process_time() - begun
    opened.search_vectors(starts, ends, 10)  # reads the files
    found: dict[str, object] = {"vectors": opened.counts.rows, "queries encoded": round(len(texts) / encoding)}
    many = np.resize(np.arange(len(texts)), 64)
    for together, batches in ((1, [[place] for place in range(len(texts))]), (64, [many.tolist()])):
        begun = time.process_time()
        for batch in batches:
            opened.search_vectors(starts[batch], ends[batch], 10)
        found[f"searches, {together} at a time"] = round(sum(map(len, batches)) / (time.process_time() - begun), 1)
    return found


def official_step(work: Path, kbs: str, queries: Path) -> dict[str, object]:
    """What the official figures time: all queries, four units, both indexes, and all that is loaded for it."""
    from kbq.kb import KnowledgeBase

    texts, searches = _texts(queries), 0
    for kb in kbs.split(","):
        opened = KnowledgeBase.open(work / kb, device="cpu")
        for unit in UNITS:
            searches += len(opened.query(texts, 10, unit, backend="dense"))  # type: ignore[call-overload]
    return {"searches": searches}


def _texts(queries: Path) -> list[str]:
    return [one["question"] for one in json.loads(queries.read_text())["data"]]


def _bytes(folder: Path) -> int:
    """Without the official file, which is only linked."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.suffix != ".faiss")


STEPS = {step.__name__: step for step in (import_dump, import_index, search, official_step)}


def measured(step: str, *arguments: object) -> dict[str, Any]:
    """CPU seconds and peak memory of a step."""
    command = [sys.executable, __file__, "--step", step, json.dumps(list(map(str, arguments)))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def run_step(step: str, arguments: list[str]) -> None:
    kinds = {"True": True, "False": False}
    values = [int(a) if a.isdecimal() else kinds.get(a, Path(a) if "/" in a else a) for a in arguments]
    facts = STEPS[step](*values)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    facts |= {"cpu_seconds": round(usage.ru_utime + usage.ru_stime, 2), "MiB": int(peak.split()[1]) // 1024}
    print(json.dumps(facts))


# Larger dumps


def enlarge(dump: Path, out: Path, copies: int, names: Sequence[str]) -> None:
    """Copies of all documents under numbers of their own, with their metadata and indexes."""
    import h5py

    from kbq.importing.pickles import pickled_items

    if out.exists():
        return
    random, metadata, rows = np.random.default_rng(0), {}, {}
    for kind in ("phrase", "filter"):
        (out / kind).mkdir(parents=True)
    with (dump / "meta_compressed.pkl").open("rb") as file:
        documents = dict(pickled_items(file))
    (source,) = (dump / "phrase").glob("*.hdf5")
    with h5py.File(source) as old, h5py.File(out / "phrase" / "all.hdf5", "w") as new:
        for copy in range(copies):
            for place, number in enumerate(old):
                name = str(copy * len(old) + place)
                old.copy(number, new, name=name)
                noise = random.integers(-1, 2, old[number]["start"].shape) * (copy > 0)
                rows[name] = np.clip(new[name]["start"][:] + noise, -128, 127).astype(np.int8)
                new[name]["start"][:] = rows[name]
                metadata[name] = documents[number]
    (out / "meta_compressed.pkl").write_bytes(pickle.dumps(dict(sorted(metadata.items())), protocol=3))
    for index in names:
        _enlarged_index(dump / "start" / index, out / "start" / index, rows)


def _enlarged_index(source: Path, out: Path, rows: dict[str, np.ndarray]) -> None:
    import faiss
    import h5py

    with h5py.File(source / "idx2id.hdf5") as file:
        documents, words = file["0/doc"][:], file["0/word"][:]
    kept = [words[documents == number] for number in range(documents.max() + 1)]
    index: Any = faiss.read_index(str(source / "index.faiss"))
    inner: Any = faiss.downcast_index(index.index)
    inner.set_direct_map_type(faiss.DirectMap.NoMap)  # type: ignore[attr-defined]
    index.reset()
    order = sorted(rows)
    chosen = {name: kept[int(name) % len(kept)] for name in order}
    for name in order:
        index.add(rows[name][chosen[name]] / np.float32(20) - 2)
    inner.set_direct_map_type(faiss.DirectMap.Hashtable)  # type: ignore[attr-defined]
    out.mkdir(parents=True)
    faiss.write_index(index, str(out / "index.faiss"))
    with h5py.File(out / "idx2id.hdf5", "w") as file:
        group = file.create_group("0")
        group.attrs["offset"] = 0
        group["doc"] = np.concatenate([np.full(len(chosen[name]), int(name), np.int32) for name in order])
        group["word"] = np.concatenate([chosen[name] for name in order]).astype(np.int32)


# Answers


def compared(kb: Any, queries: Path, reference: Path, contexts: dict[str, str]) -> dict[str, object]:
    """How the ten best answers agree with the ten best spans of brute force, which counts those that overlap."""
    texts = dict(zip([q["id"] for q in json.loads(queries.read_text())["data"]], _texts(queries), strict=True))
    first = shared = missing = explained = 0
    differences = [0.0]
    asked = json.loads(reference.read_text())["queries"]
    for query in asked:
        spans = [(str(s["doc_idx"]), s["start_pos"], s["end_pos"]) for s in query["exact_same_paragraph"]]
        scores = dict(zip(spans, (s["score"] for s in query["exact_same_paragraph"]), strict=True))
        answers = kb.query(texts[query["id"]], 10, backend="dense")
        found = {_place(answer, contexts): answer.score for answer in answers}
        first += next(iter(found)) == spans[0] and answers[0].text == query["exact_same_paragraph"][0]["answer"]
        differences += [abs(found[span] - scores[span]) for span in spans if span in found]
        lost = [span for span in spans if span not in found]
        shared, missing = shared + len(spans) - len(lost), missing + len(lost)
        explained += sum(
            any(_overlap(span, other) and score > scores[span] - 1e-4 for other, score in found.items())
            for span in lost
        )
    return {
        "queries": len(asked), "first answers equal": first, "spans of the ten best found": shared,
        "not found": missing, "of these, overlap a better answer": explained,
        "largest difference of a score": float(f"{max(differences):.1e}"),
    }  # fmt: skip


def _place(answer: Any, contexts: dict[str, str]) -> Place:
    before = contexts[answer.page_id].split(" [PAR] ")[: answer.paragraph]
    begin = sum(len(text) + len(" [PAR] ") for text in before)
    return answer.page_id, begin + answer.start, begin + answer.end


def _overlap(one: Place, other: Place) -> bool:
    return one[0] == other[0] and one[1] < other[2] and other[1] < one[2]


def vectors(folder: Path, model: Any, texts: list[str]) -> dict[str, float]:
    """The largest difference of a value from that of the official code."""
    reference = np.load(folder / "reference" / "query_vectors.npz")
    sides = zip(model.encode_queries(texts), (reference["start"], reference["end"]), strict=True)
    return {"query vectors": float(f"{max(np.abs(own - theirs).max() for own, theirs in sides):.1e}")}


def answers(fixtures: Path, work: Path, names: Sequence[str]) -> dict[str, Any]:
    """All comparisons."""
    import h5py

    from kbq.importing.checkpoint import import_checkpoint
    from kbq.kb import KnowledgeBase
    from kbq.model.model import Model

    public, tuned = fixtures / "public", fixtures / "public-query"
    for folder, model in ((public, work / "model"), (tuned, work / "tuned")):
        if not model.exists():
            import_checkpoint(folder / "checkpoint", model, vocabulary=public / "checkpoint")
    queries = public / "corpus" / "questions.json"
    with h5py.File(next((public / "dump" / "phrase").glob("*.hdf5"))) as file:
        contexts = {number: str(file[number].attrs["context"]) for number in file}
    for name in ("dump", names[0]):
        shutil.rmtree(work / f"kb-{name}-1", ignore_errors=True)
    import_dump(work, 1, bm25=False)
    import_index(work, 1, names[0], bm25=False)
    dump, exact = work / "kb-dump-1", "reference/exact.json"
    kbs = {
        "dump": (KnowledgeBase.open(dump, device="cpu"), public / exact),
        "dump, tuned queries": (KnowledgeBase.open(dump, work / "tuned", device="cpu"), tuned / exact),
        "index alone": (
            KnowledgeBase.open(work / f"kb-{names[0]}-1", device="cpu"),
            public / "reference/exact_reconstructed.json",
        ),
    }
    found: dict[str, Any] = {name: compared(kb, queries, path, contexts) for name, (kb, path) in kbs.items()}
    for folder, model in ((public, work / "model"), (tuned, work / "tuned")):
        found[folder.name] = vectors(folder, Model.open(model, "cpu"), _texts(queries))
    return found


def sizes(fixtures: Path, work: Path, names: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What importing and searching costs."""
    queries = fixtures / "public" / "corpus" / "questions.json"
    for size in SIZES:
        for bm25 in (False, True):
            words = ", words" * bm25
            shutil.rmtree(work / f"kb-dump-{size}{'-words' * bm25}", ignore_errors=True)
            yield f"import dump{words} ×{size}", measured("import_dump", work, size, bm25)
            for name in names if not bm25 else names[:1]:
                shutil.rmtree(work / f"kb-{name}-{size}{'-words' * bm25}", ignore_errors=True)
                label = "filtered index" if "_ft" in name else "index"
                yield f"import {label}{words} ×{size}", measured("import_index", work, size, name, bm25)
        for kind in ("dump", names[0]):
            label = "dump" if kind == "dump" else "index"
            yield f"search {label} ×{size}", measured("search", work, f"kb-{kind}-{size}", queries)
    both = ",".join(f"kb-{name}-1" for name in names)
    yield "the official step", measured("official_step", work, both, queries)


# Arithmetic for the published index, from slopes

WIKIPEDIA = {"tokens": 3.0e9, "vectors": 480e6, "pages": 5.1e6}
LISTS, DIM, CODE, ID, PROBES = 2**20, 768, 96, 8, 256
SMALL_CODE = 12  # bytes, in the index that was measured


def slopes(found: dict[str, Any], measure: str, label: str = "index", words: str = "") -> tuple[float, float]:
    """What a token and a vector cost, from three sizes of two indexes: the constant part is left out."""
    from scipy.optimize import nnls

    kinds = ("index", "filtered index") if not words else (label,)
    points = [found[f"import {kind}{words} ×{size}"] for kind in kinds for size in SIZES]
    columns = np.array([[point["tokens"], point["vectors"], 1e6] for point in points])
    (token, vector, _), _ = nnls(columns, np.array([point[measure] for point in points], float))
    return float(token), float(vector)


def comparing_means(part: int = 16) -> float:
    """CPU seconds to find the best means for a start and an end, from a part of as many."""
    import faiss

    random = np.random.default_rng(0)
    means = faiss.IndexFlatIP(DIM)
    means.add(random.normal(size=(LISTS // part, DIM)).astype(np.float32))
    query = random.normal(size=(2, DIM)).astype(np.float32)
    return part * cpu_seconds(lambda: means.search(query, PROBES), repeat=3)


def wikipedia(found: dict[str, Any]) -> dict[str, float]:
    """Hours, GB and seconds for the published index of Wikipedia, on one thread."""
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


# Tables


def answers_table() -> str:
    found = figures("official")
    names = {
        "dump": "phrase dump",
        "dump, tuned queries": "the same, tuned query encoders",
        "index alone": "index alone",
    }
    columns = list(found["dump"])
    rows = [[label, *(str(found[name][column]) for column in columns)] for name, label in names.items()]
    vectors = ", ".join(f"{found[name]['query vectors']} ({name})" for name in ("public", "public-query"))
    return table(["", *columns], rows) + f"\n\nQuery vectors differ from the official ones by at most {vectors}."


def sizes_table() -> str:
    found = figures("official")
    rows = []
    for name, facts in found.items():
        if name.startswith("import"):
            cells = (
                f"{facts['vectors']:,}",
                f"{facts['cpu_seconds']:.1f}",
                str(facts["MiB"]),
                f"{facts['bytes'] / 1e6:.1f}",
            )
            rows.append([name, *cells])
    searches = []
    for name, facts in found.items():
        if name.startswith("search"):
            rates = [f"{facts[f'searches, {together} at a time']:,.0f}" for together in (1, 64)]
            searches.append([name, f"{facts['vectors']:,}", *rates, str(facts["MiB"])])
    step = found["the official step"]
    taken = f"takes {step['cpu_seconds']:.1f} CPU seconds and {step['MiB']} MiB"
    official = (
        f"What the official figures call the search step, {step['searches']} searches for four units in both indexes\n"
        f"with all that is loaded for them, {taken}; the official code took 3 and 370\non a similar machine."
    )
    imports = table(["step", "vectors", "CPU seconds", "MiB", "MB written"], rows)
    asked = table(["step", "vectors", "per CPU second, one at a time", "64 at a time", "MiB"], searches)
    return f"{imports}\n\n{asked}\n\n{official}"


def wikipedia_table() -> str:
    found = figures("official")["Wikipedia, by arithmetic"]
    return table(
        ["the published index, 480 million vectors", ""], [[name, f"{value:,.2f}"] for name, value in found.items()]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fixtures", type=Path)
    parser.add_argument("work", type=Path)
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    dump = given.fixtures / "public" / "dump"
    names = sorted(path.name for path in (dump / "start").iterdir())
    for size in SIZES:
        enlarge(dump, given.work / f"dump-{size}", size, names)
    found = answers(given.fixtures, given.work, names)
    for name, facts in sizes(given.fixtures, given.work, names):
        found[name] = facts
        print(name, facts, file=sys.stderr)
    found["Wikipedia, by arithmetic"] = wikipedia(found)
    weights = (given.fixtures / name / "checkpoint" / "pytorch_model.bin" for name in ("public", "public-query"))
    data = [dump / "meta_compressed.pkl", *weights]
    reporting.write("official", found, data, seed=0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--step"]:
        run_step(sys.argv[2], json.loads(sys.argv[3]))
    else:
        main()
