"""Computed figures: values of tables that follow from results. `tables.toml` names each as it names results."""

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from rendering import earlier, figures

Figures = dict[str, Any]
SCORES = ("accuracy", "em", "f1", "Rprec", "recall@5", "KILT-accuracy", "KILT-f1")
OF_PAGES = ("queries", "Rprec", "recall@5")
SETS = {
    "trex": "T-REx dev",
    "sample": "sample",
    "redocred": "Re-DocRED, unseen pages",
    "squad": "SQuAD dev, open",
    "linking": "entity linking",
}


# Scores


def pages_by_bm25() -> Figures:
    """Return the scores of the pages that BM25 finds; it finds no answers."""
    found = figures("bm25_trex") | figures("bm25_wiki")
    return {name: _of_pages(one) for name, one in found.items() if isinstance(one, dict)}


def _of_pages(scores: Figures) -> Figures:
    return {name: scores[name] if name in OF_PAGES else None for name in ("queries", *SCORES)}


def reranked() -> Figures:
    """Return the scores with ten phrases reranked."""
    found = {}
    for name, one in figures("second_look").items():
        scores = one["looks"]["10"]
        found[name] = {score: scores[score][0] if score in scores else None for score in SCORES}
    return found


def words_and_vectors() -> Figures:
    """Return the scores of words, vectors, and both, on the same queries."""
    sets = {"hybrid_trex": "trex-dev-kilt", "hybrid_trex_tuned": "trex-dev-kilt", "hybrid_wiki_part": "unseen"}
    found: Figures = {}
    for result, name in sets.items():
        found[result] = {"earlier": earlier(result)}
        for system, scores in figures(result)[name].items():
            if system.startswith(("BM25", "SPARTA")):
                shown = "vectors alone" if system == "BM25 0, SPARTA 0" else system
                found[result][shown] = _of_pages(scores) if "alone" in system else scores
    return found


def index_kinds_reached() -> Figures:
    """Return the figures of each index, with the recall that its cells reach if that is below the target."""
    found = {name: figures(name) for name in ("index_kinds", "index_kinds_all")}
    for kinds in found.values():
        for one in kinds.values():
            if isinstance(one, dict):
                most, asked = (one[f"recall@10 of phrases{of}"] for of in (", calibration queries", " asked for"))
                one["reached"] = "" if most >= asked else f" ({most:g} with all cells)"
    return found


# Tuning


def tuned() -> Figures:
    """Return mean scores and confidence intervals by result and number of queries."""
    names = ("trex", "unseen_relations", "redocred", "redocred_fresh", "linking_page", "linking_phrase")
    return {name: _by_size(f"finetuning_{name}") for name in names}


def _by_size(name: str) -> Figures:
    sizes = runs_by_size(figures(name))
    found: Figures = {"earlier": earlier(name)}
    for count, runs in sizes.items():
        seeds = f" ({len(runs)} seeds)" if len(runs) > 1 else ""
        found[f"{count:,}" if count else "before"] = {"seeds": seeds} | {
            score: _means([run[score] for run in runs]) for score in SCORES
        }
    return found


def runs_by_size(runs: Figures) -> dict[int, list[Figures]]:
    """Return the runs by the number of queries that they were tuned on."""
    sizes: dict[int, list[Figures]] = {}
    for run in runs.values():
        if isinstance(run, dict):
            sizes.setdefault(run.get("queries tuned on", 0), []).append(run)
    return dict(sorted(sizes.items()))


def _means(values: Sequence[Sequence[float]]) -> list[float]:
    return [statistics.mean(column) for column in zip(*values, strict=True)]


def gains_by_relation() -> Figures:
    """Say which relations gain most and least by the largest run, of those with at least ten queries."""
    sizes = runs_by_size(figures("finetuning_trex"))
    before, after = sizes[0][0]["by relation"], sizes[max(sizes)][0]["by relation"]
    changes = sorted((after[name][1] - before[name][1], name) for name in before if before[name][0] >= 10)

    def said(some: Sequence[tuple[float, str]]) -> str:
        return ", ".join(f"{name} {before[name][1]:.0f} → {after[name][1]:.0f}" for _, name in some)

    return {
        "queries": max(sizes),
        "most": said(changes[:-7:-1]),
        "least": said(changes[3::-1]),
        "earlier": earlier("finetuning_trex"),
    }


def forgotten() -> Figures:
    """Say how the first run with distillation, and the first without, score before and after, without reranking."""
    runs = list(figures("forgetting").values())
    chosen = {
        "kept": next(run for run in runs if run["keep"]),
        "not kept": next(run for run in runs if not run["keep"]),
    }
    return {name: ", ".join(_gains(run["second look 0"])) for name, run in chosen.items()}


def _gains(scores: Figures) -> Iterator[str]:
    for name, label in SETS.items():
        mean, gain, *_ = scores[name]["em" if name in ("sample", "squad") else "KILT-accuracy"]
        yield f"{label} {mean - gain:.1f} → {mean:.1f}"


# Confidence and tables


def trusted() -> Figures:
    """Return the figures of probabilities, with the feature that alone tells right from wrong best."""
    found = figures("trust")
    for one in found.values():
        name, best = max(one["features"].items(), key=lambda feature: feature[1]["AUROC"] or 0)
        one["best feature"] = f"{best['AUROC']:.3f} ({name})"
    return found  # type: ignore[no-any-return]


def promises() -> Figures:
    """Return how often a calibration promised a precision, and broke the promise."""
    found = figures("promise")
    for one in found.values():
        for precision in (one["0.9"], one["0.95"]):
            broken = precision["promised"] - precision["kept"]
            precision["not kept"] = (
                f"{broken} ({100 * broken / precision['promised']:.1f} %)" if precision["promised"] else "0"
            )
            for name in ("answered", "right"):
                low, middle, high = precision.get(name, (None,) * 3)
                precision[name] = None if middle is None else f"{middle:.0f} % ({low:.0f}–{high:.0f})"
    return found  # type: ignore[no-any-return]


def stated_relations() -> Figures:
    """Return the relations of Re-DocRED's tables with ten stated cells or more."""
    found = sorted(figures("unsaid")["tables"]["by relation"].items())
    return {name: one for name, one in found if one["stated"] * one["cells"] >= 9.5}


def filled() -> Figures:
    """Return the scores of a table by setting, values a cell, and threshold."""
    found, shown = figures("fill"), ("0.0", "0.3", "0.5", "0.7")
    settings = ("all pages", "without three in ten")
    return {
        setting: {values: _by_threshold(curve, found, shown) for values, curve in found[setting].items()}
        for setting in settings
    }


def annotated() -> Figures:
    """Return the scores of tables whose text is annotated exhaustively, one value a cell, by threshold."""
    redocred, knowledgenet, trex = figures("fill_redocred"), figures("fill_knowledgenet"), figures("fill")
    every, of_trex = redocred["all relations"], trex["all relations"]
    cells, empty = knowledgenet["cells"], knowledgenet["of these, annotated as empty"]
    sets = {
        f"Re-DocRED, unseen pages, {redocred['gold cells']:,} cells": (redocred, redocred["all pages"]),
        "three in ten of their pages are not searched": (redocred, redocred["without three in ten"]),
        f"every relation of 20 subjects: {every['cells']:,} cells, {every['gold cells']} with values": (
            redocred,
            every,
        ),
        f"T-REx, every relation: {of_trex['cells']:,} cells, {of_trex['gold cells']} with values": (trex, of_trex),
        f"KnowledgeNet, {cells - empty:,} cells with values": (knowledgenet, knowledgenet["cells with values"]),
        f"the same and {empty} annotated as empty": (knowledgenet, knowledgenet["all cells"]),
    }
    return {label: _by_threshold(curve["one value"], found, ("0.5",)) for label, (found, curve) in sets.items()}


def _by_threshold(curve: Figures, found: Figures, shown: Sequence[str]) -> Figures:
    promised = str(found["threshold of 0.9"])
    names = {least: f"{float(least):.2f}" for least in shown} | {promised: f"{float(promised):.2f}, `--precision 0.9`"}
    return {names[least]: curve[least] for least in sorted(names, key=float)}


def filled_short() -> Figures:
    """Return scores at 0.5 and at the threshold that promises 0.9, with all pages and without some."""
    found = figures("fill")
    known, hidden = (found[setting]["one value"] for setting in ("all pages", "without three in ten"))
    promised, speed = str(found["threshold of 0.9"]), found["cells per CPU second"]
    times = speed["table, with a second look"] / speed["one by one, with a second look"]
    return {"known": [known["0.5"], known[promised]], "hidden": [hidden["0.5"], hidden[promised]], "times": times}


def knowledgenet() -> Figures:
    """Return scores by relation at 0.5 and at the threshold that promises 0.9, and how many empty cells are filled."""
    found = figures("fill_knowledgenet")
    leasts = ("0.5", str(found["threshold of 0.9"]))
    relations = {}
    for relation, one in found["by relation"].items():
        empty = one["of these, empty"]
        scores = [one[least] | {"filled though empty": round(one[least]["false answers"] * empty)} for least in leasts]
        relations[relation] = {"stated": one["cells"] - empty, "empty": empty, "AUROC": one["AUROC"], "scores": scores}
    return {
        "relations": relations,
        "AUROC": found["AUROC"],
        "false": [found["false answers"][least] for least in leasts],
    }


def worst_relations() -> Figures:
    """Return cells, filled cells and right ones of T-REx's relations, at 0.5."""
    found = figures("fill")["by relation, at 0.5"]
    return {
        name: [cells, round(cells * share), round(round(cells * share) * right)]
        for name, (cells, share, right) in found.items()
    }


def steps_of_the_whole_way() -> list[Figures]:
    """Return the steps from a folder of texts to facts for Wikidata, with their outcomes in words."""
    found = figures("whole_way")
    for one in found["steps"]:
        one["outcome"] = _outcome(one["outcome"], found)
        if one["step"].startswith(("kbq", "--")):
            one["step"] = f"`{one['step']}`"
    return found["steps"]  # type: ignore[no-any-return]


def _outcome(facts: Any, found: Figures) -> str:
    if isinstance(facts, int):
        return f"{facts} of {found['names without a Q-number']} names have a page in what stands for Wikidata"
    if "said" in facts:
        return f"{facts['said']}; axe finds {facts['axe']} faults, {facts['wider than the window']} of 4 views overflow"
    if "pages" in facts:
        return f"{facts['pages']} pages"
    if facts["commands"] or facts["left_out"]:
        names = f"{facts['left_out']} claims left out, {facts['lacking']} names to look up"
        return f"{facts['commands']} commands, {names}; {facts['asked']} queries asked"
    return f"{facts['filled']} of {facts['cells']} cells; {facts['asked']} of {facts['queries']} queries asked"


def corrected() -> Figures:
    """Return the scores of the next table, before and after another was reviewed."""
    found = figures("corrections")
    rows = {"before": found["before"]}
    for key in found:
        if key.endswith("reviewed"):
            rows |= {f"{key}, tuned": found[key]["tuned"], "and calibrated": found[key]["tuned and calibrated"]}
    return rows


def review() -> Figures:
    """Return the measurements of the page for review."""
    (claims, opened), (decisions, kept) = figures("review_page").items()
    return {"claims": claims, "decisions": decisions, "opened": opened, "kept": kept}


# Serving


def shares_of_batches() -> Figures:
    """Return the throughput of several clients as a share of the library's in batches, and of that one at a time."""
    found: Figures = {}
    for way, measured in figures("serving").items():
        if isinstance(measured, dict):
            rates = {kind: one["queries per CPU second"] for kind, one in measured.items() if isinstance(one, dict)}
            found[way] = {kind: rate / rates["library, 64 at a time"] for kind, rate in rates.items()}
            found[way]["times"] = rates["service, 64 clients"] / rates["library, one at a time"]
    return found


def stopped() -> Figures:
    """Return what became of requests whenever the service was stopped."""
    ended = figures("serving_faults")["SIGTERM under load"]
    totals = {name: sum(one[name] for one in ended) for name in ("answered", "lost")}
    worst = {name: max(one[name] for one in ended) for name in ("seconds to its end", "exit status")}
    return {"times": len(ended)} | totals | worst


def soaked() -> Figures:
    """Return how many requests were answered in a long time, and how many were not."""
    counts = figures("serving_faults")["soak"]["requests by status"]
    return {"answered": counts.get("200", 0), "not": sum(counts.values()) - counts.get("200", 0)}


def crowds() -> Figures:
    """Return what many more clients saw than the queue takes; lost: requests without an answer."""
    return {
        kind: one | {"lost": one["answers by status"].get("0", 0)} for kind, one in figures("serving_crowd").items()
    }


def cells_of_known_value() -> Figures:
    """Return the share of cells that OpenRefine gets filled, and of these the share that is right."""
    found = figures("reconciliation")["cells of known value"]
    return {
        "cells": found["cells"],
        "filled": found["filled"] / found["cells"],
        "right": found["right"] / found["filled"],
    }


# Speed and size


def speed_by_machine() -> Figures:
    """Return rates per CPU second on several kinds of CPU, also as multiples of the official code's."""
    results = ("speed_avx512_bf16", "speed", "speed_avx512", "speed_avx2")
    machines = [figures(name)["per CPU second"] for name in results]
    on_gpu = _rates_of_gpu(figures("accelerator"))
    return {
        name: {
            "official": one["official"],
            "kbq": [_rate(each[name]) for each in machines],
            "GPU": f"{on_gpu[name]:,.{0 if on_gpu[name] >= 100 else 1}f}" if name in on_gpu else "–",
        }
        for name, one in machines[0].items()
    }


def _rates_of_gpu(gpu: Figures) -> dict[str, float]:
    """Return an H200's rates per second of wall time, for 1.3 million random vectors."""
    search, ask = gpu["search of 1.3 million"], gpu["text to answer"]
    return {
        "indexed tokens": gpu["encoding"]["one process, tokens per second"],
        "searches, top 10, 64 at a time": search["queries per second, 64 together"],
        "searches, top 10, one at a time": search["queries per second, one"],
        "queries, text to answer, one at a time": 1000 / ask["reranking 0, one alone, ms: median, most"][0],
        "fine-tuning steps, 12 queries, k = 100": gpu["tuning"]["steps per second"],
    }


def _rate(value: Figures) -> str:
    return (
        f"{value['kbq']:,.{0 if value['kbq'] >= 100 else 1}f} ({value['ratio']:.{0 if value['ratio'] >= 10 else 1}f}×)"
    )


VECTORS, TOKENS = 770e6, 3.1e9  # of Wikipedia: tokens that are kept, and all, as the DensePhrases papers count them
GPU_BYTES, GPU_BYTES_PER_SECOND = 139 * 2**30, 4.8e12  # of one H200
MOVED_FOR_ONE, MOVED_FOR_64 = 600, 5200  # bytes a row in GPU memory: its vector, products, their sums and maxima
NODES, CORES, NETWORK = 4, 16, 10e9 / 8  # of an example of several machines; bytes per second


def wikipedia() -> Figures:
    """Estimate from the measurements what all of English Wikipedia would cost."""
    speeds = {kind: figures(name)["wiki"]["now"]["tokens per second"] for kind, name in ENCODERS.items()}
    largest = figures("growth")["sizes"][-1]
    each = largest["dump, MB"] * 1e6 / largest["rows"]
    gpus = math.ceil(VECTORS * 384 / GPU_BYTES)
    alone, together = (VECTORS / gpus / GPU_BYTES_PER_SECOND * moved for moved in (MOVED_FOR_ONE, MOVED_FOR_64))
    on_gpus = {"ms of one": 1000 * alone, "ms of 64": 1000 * together, "queries per s": 64 / together}
    return {
        "encoding": {kind: {"speed": speed, "hours": TOKENS / speed / 3600} for kind, speed in speeds.items()},
        "dump": {"each": each, "GB": VECTORS * each / 1e9},
        "GPUs": {"number": gpus} | on_gpus,
        "indexes": {kind: _index_of_wikipedia(name) for kind, name in INDEXES.items()},
    }


ENCODERS = {"bf16": "encoder_bf16", "AMX": "encoder"}
INDEXES = {
    "compact": "compact, recall 0.99",
    "tiny": "tiny, recall 0.99",
    "disk": "disk, recall 0.99",
    "exact": "exact",
}


def _index_of_wikipedia(name: str) -> Figures:
    """Estimate size, build and search of an index: shards of one size are asked in turn, so time grows with rows."""
    measured = figures("index_kinds_all")
    found, times = measured[name], VECTORS / measured["vectors"]
    size, build = found["bytes per vector, beside the dump"], found["build and calibration, CPU seconds"]
    own = {
        "each": size,
        "GB": VECTORS * size / 1e9,
        "build of a million": build * 1e6 / measured["vectors"],
        "build, hours": build * times / 3600,
    }
    alone, together = (times / found[f"queries per CPU second, {count} at a time"] for count in ("one", "64"))
    search = {"seconds of one": alone, "seconds of one of 64": together, "rate": 1 / together}
    return (own if size else dict.fromkeys(own)) | search | {"times": times, "millions": measured["vectors"] / 1e6}


def wikipedia_on_nodes() -> Figures:
    """Estimate what all of English Wikipedia would cost on several machines."""
    found, compact, cores = figures("cluster_head"), _index_of_wikipedia("compact, recall 0.99"), NODES * CORES
    speed = round(found["tokens"] / found["encoding_cpu_seconds"])
    received, head = (TOKENS / found["tokens"] * found[name] for name in ("bytes_received", "head_cpu_seconds"))
    return {
        "speed": speed,
        "encoding, hours": TOKENS / speed / cores / 3600,
        "head, µs a token": 1e6 * head / TOKENS,
        "head, hours": head / 3600,
        "received, GB": received / 1e9,
        "received, minutes": received / NETWORK / 60,
        "build of a million": compact["build of a million"],
        "build, minutes": compact["build, hours"] * 60 / cores,
        "GB": compact["GB"],
        "GB of a node": compact["GB"] / NODES,
        "rate of a core": compact["rate"],
        "rate": compact["rate"] * cores,
    }


def builds_on_nodes() -> Figures:
    """Return CPU seconds of builds by one process and on nodes, those of a further million tokens, and equal files."""
    sizes = figures("cluster_build")["sizes"]
    alone = _slope([(size["tokens"], size["one_process"]["cpu_seconds"]) for size in sizes])
    spent = [f"{size['one_process']['cpu_seconds']:.1f}" for size in sizes]
    found: Figures = {"one process, no Ray": {"spent": spent, "slope": f"{alone:.0f}", "beside": "", "files": ""}}
    for nodes in (1, 2, 3):
        of_size = {size["tokens"]: each for size in sizes for each in size["clusters"] if each["nodes"] == nodes}
        files, same = (sum(each["files"] * each.get(key, 1) for each in of_size.values()) for key in ("", "same_bytes"))
        spent = [f"{each['cpu_seconds']:.1f} ({each['of_rays_processes']:.1f})" for each in of_size.values()]
        row = {
            "spent": spent + [""] * (len(sizes) - len(spent)),
            "slope": "",
            "beside": "",
            "files": f"{same} of {files}",
        }
        if len(of_size) > 1:
            whole, rays = (
                _slope([(tokens, each[key]) for tokens, each in of_size.items()])
                for key in ("cpu_seconds", "of_rays_processes")
            )
            row |= {"slope": f"{whole:.0f} ({rays:.0f})", "beside": f"{whole / alone:.2f}× ({rays / alone:.2f}×)"}
        found[f"{nodes} node{'s' * (nodes > 1)}"] = row
    return found


def _slope(points: Sequence[tuple[int, float]]) -> float:
    """Return the CPU seconds of a further million tokens, between the smallest and the largest corpus."""
    (few, less), (many, more) = points[0], points[-1]
    return 1e6 * (more - less) / (many - few)
