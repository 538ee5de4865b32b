"""Tables: the figures in README.md and docs/ come from results/*.json.

    python benchmarks/tables.py

Rewrites what stands between `<!-- figures:NAME -->` and `<!-- /figures -->`; each table of results says what makes it.
"""

import statistics
from typing import Any

import cluster_tables
import confidence
import filling
import keeping
import official
import reconciled
import rendering
import scale
import served
from rendering import ROOT, earlier, figures, interval, table

from kbq.answers import RETRIEVAL_WEIGHT


def first_answer() -> str:
    return f"```text\n{figures('first_answer')['output'].rstrip()}\n```"


def quality() -> str:
    reading, sample = figures("reading"), figures("sample")["all"]
    trex = figures("slot_filling_trex")["all"]
    first = table(
        ["default model (35 MB, its reader 11 MB; 6 layers, 384-d), exact search, vectors alone", "", ""],
        [
            ["SQuAD 1.1 dev, gold paragraph given", f"EM {reading['gold_em']:.1f}", f"F1 {reading['gold_f1']:.1f}"],
            [
                f"SQuAD 1.1 dev, all {reading['passages']:,} paragraphs searched",
                f"EM {reading['open_em']:.1f}",
                f"F1 {reading['open_f1']:.1f}",
            ],
            [
                f"sample, {sample['queries']} slot queries",
                f"answer right {sample['answer right']:.1f}",
                f"page right {sample['page right']:.1f}",
            ],
            [
                f"T-REx dev subset, {trex['queries']:,} slot queries, zero-shot",
                f"answer in the top 10 {trex['answer in top 10']:.1f}",
                f"in the top 100 {trex['answer in top 100']:.1f}",
            ],
        ],
    )
    rows = []
    for name, label, systems in DATA_SETS:
        shown = label
        for system, result in systems:
            values = figures(result)[name]
            cells = [interval(values[key]) if system != "BM25" or key in PAGE_SCORES else "–" for key in COLUMNS]
            made = system if system == "BM25" else system + earlier(result)
            rows.append([f"{shown} ({values['queries']:,})" if shown else "", made, *cells])
            shown = ""
        if label in JUDGED:
            judged = confidence.scores(JUDGED[label])
            cells = [interval(judged[key]) if key in judged else "–" for key in COLUMNS]
            rows.append(["", "vectors, BM25 and reranking, the default", *cells])
    read = figures("open_reading")
    ways = {
        "vectors alone": "dense",
        "vectors and BM25": "hybrid",
        "and reranking, the default": confidence.JUDGED,
        "vectors and BM25, read by `--reader default`": f"hybrid, read, the search counts {RETRIEVAL_WEIGHT:g}",
        "the gold paragraph, read by it": "read in the gold paragraph",
    }
    second = table(
        [
            f"SQuAD 1.1 dev, {read['questions']} questions, all {read['paragraphs']:,} paragraphs searched"
            f"{earlier('open_reading')}",
            "EM",
            "F1",
        ],
        [[label, *(f"{read[name][score]:.1f}" for score in ("em", "f1"))] for label, name in ways.items()],
    )
    return "\n\n".join([first, second, table(["data set (queries)", "scored by", *COLUMNS], rows)])


def quality_short() -> str:
    """The scores that matter most, for README.md."""
    read = figures("open_reading")
    rows = []
    for label, score, data_set, results, judged in SHORT_QUALITY:
        dense, hybrid, by_reader = (interval(figures(result)[data_set][score]) if result else "–" for result in results)
        cells = [dense, hybrid, interval(judged()) if judged else "–", by_reader]
        queries = next(figures(result)[data_set]["queries"] for result in results if result)
        rows.append([f"{label} ({queries:,})", score, *cells])
    systems = ("dense", "hybrid", confidence.JUDGED, f"hybrid, read, the search counts {RETRIEVAL_WEIGHT:g}")
    searched = f"SQuAD dev, all {read['paragraphs']:,} paragraphs searched ({read['questions']})"
    rows.append([searched, "EM", *(f"{read[name]['em']:.1f}" for name in systems)])
    head = [
        "data set (queries)",
        "score",
        "vectors alone",
        "and BM25",
        "and reranking, the default",
        "`--reader default`",
    ]
    return table(head, rows)


SHORT_QUALITY = [
    (
        "T-REx subset, zero-shot",
        "KILT-accuracy",
        "trex-dev-kilt",
        ("kilt_trex", "kilt_trex_hybrid", "kilt_trex_reader"),
        lambda: confidence.scores("trex")["KILT-accuracy"],
    ),
    (
        "the same, tuned on 5,000 queries",
        "KILT-accuracy",
        "trex-dev-kilt",
        ("", "kilt_trex_hybrid_tuned", ""),
        lambda: figures("kilt_trex_judged_tuned")["trex-dev-kilt"]["KILT-accuracy"],
    ),
    (
        "Re-DocRED, unseen pages",
        "KILT-accuracy",
        "redocred-unseen",
        ("kilt_wiki", "kilt_wiki_hybrid", ""),
        lambda: confidence.scores("redocred")["KILT-accuracy"],
    ),
    ("entity linking", "accuracy", "el-dev-kilt", ("kilt_wiki", "kilt_wiki_hybrid", ""), None),
]


COLUMNS = ["accuracy", "em", "f1", "Rprec", "recall@5", "KILT-accuracy", "KILT-f1"]
PAGE_SCORES = {"Rprec", "recall@5"}
WIKI = [("vectors alone", "kilt_wiki"), ("BM25", "bm25_wiki")]
JUDGED = {"T-REx subset, zero-shot": "trex", "Re-DocRED, unseen pages": "redocred"}  # in results/second_look.json
DATA_SETS = [
    (
        "trex-dev-kilt",
        "T-REx subset, zero-shot",
        [
            ("vectors alone", "kilt_trex"),
            ("vectors and BM25", "kilt_trex_hybrid"),
            ("vectors and BM25, read by `--reader default`", "kilt_trex_reader"),
            ("BM25", "bm25_trex"),
        ],
    ),
    (
        "trex-dev-kilt",
        "the same, tuned on 5,000 queries",
        [("vectors and BM25", "kilt_trex_hybrid_tuned"), ("and reranking, the default", "kilt_trex_judged_tuned")],
    ),
    ("redocred-unseen", "Re-DocRED, unseen pages", [*WIKI, ("vectors and BM25", "kilt_wiki_hybrid")]),
    ("redocred-seen", "Re-DocRED, pages seen in training", WIKI),
    ("squad-dev-kilt", "SQuAD dev, open", WIKI),
    (
        "squad-dev-kilt",
        "SQuAD dev, open, at random",
        [("vectors alone", "kilt_squad_dense"), ("vectors and BM25", "kilt_squad_hybrid")],
    ),
    ("el-dev-kilt", "entity linking", [*WIKI, ("vectors and BM25", "kilt_wiki_hybrid")]),
    (
        "el-dev-kilt",
        "the same, tuned on 1,167 mentions",
        [("vectors and BM25", "kilt_linking_hybrid_tuned")],
    ),
]


PARTS = [
    ("hybrid_trex", "trex-dev-kilt", "T-REx dev, all pages, untuned"),
    ("hybrid_trex_tuned", "trex-dev-kilt", "the same, tuned on 5,000 queries"),
    ("hybrid_wiki_part", "unseen", "Re-DocRED, 400 queries about unseen pages among 1,200"),
]


def words() -> str:
    """ReQA, how many terms are worth keeping, and what words and vectors find together."""
    squad = figures("reqa_squad")["squad-dev"]
    trained = squad["SPARTA"]
    systems = {
        "BM25, the sentence": squad["BM25, sentence"],
        "BM25, its paragraph behind it": squad["BM25, sentence and paragraph"],
        "SPARTA, untrained, 500 terms": squad["untrained"]["500 terms"],
    }
    systems |= {f"SPARTA, {name}": row for name, row in trained.items() if name.endswith("terms")}
    rows = [
        [name, f"{row['MRR']:.1f}", f"{row['R@1']:.1f}", f"{row['bytes per sentence']:,}" if len(row) > 2 else "–"]
        for name, row in systems.items()
    ]
    first = table([f"SQuAD dev, {squad['sentences']:,} sentences", "MRR", "R@1", "bytes per sentence"], rows)
    return "\n\n".join((first, elsewhere(), together(), cost())).rstrip()


def elsewhere() -> str:
    """ReQA where SPARTA was not trained, and after short runs of several kinds."""
    rows = []
    for result, name, label in REQA:
        found = figures(result)[name]
        systems = (found["BM25, sentence"], found["untrained"]["500 terms"], found["SPARTA"]["500 terms"])
        cells = [f"{row['MRR']:.1f} / {row['R@1']:.1f}" for row in systems]
        rows.append([label, f"{found['questions']:,}", f"{found['sentences']:,}", *cells])
    head = ["MRR / R@1, 500 terms of a sentence", "questions", "sentences", "BM25", "untrained", "SPARTA"]
    return table(head, rows)


REQA = [
    ("reqa_across", "nq", "trained on SQuAD: NQ (QED)"),
    ("reqa_across", "trex", "trained on SQuAD: T-REx dev slots"),
    ("reqa_across", "redocred", "trained on SQuAD: Re-DocRED slots, unseen pages"),
    ("reqa_zh", "cmrc", "CMRC, a random encoder of two small layers: says nothing but that Chinese runs"),
    (
        "reqa_marked-3e-4",
        "squad-dev",
        "SQuAD dev, 12 articles, after 154 steps; sentences marked (the paper), rate 3e-4",
    ),
    ("reqa_shared-3e-4", "squad-dev", "the same, after 121 steps; shared encodings, rate 3e-4"),
    ("reqa_shared-1e-4", "squad-dev", "the same, after 121 steps; shared encodings, rate 1e-4"),
]


def cost() -> str:
    """What words cost at search time."""
    found = figures("words")
    rows = []
    for backend, label in (("bm25", "BM25"), ("sparta", "SPARTA"), ("dense", "vectors"), ("hybrid", "all together")):
        row = found[backend]
        size = f"{row['bytes per text']:,}" if "bytes per text" in row else "–"
        texts = f"{row['texts']:,}" if "texts" in row else "–"
        rows.append([label, texts, size, f"{row['p50, ms']:g}", f"{row['p95, ms']:g}"])
    head = [
        f"T-REx, {found['paragraphs']:,} paragraphs",
        "texts",
        "bytes a text",
        "p50, CPU ms a query",
        "p95",
    ]
    return table(head, rows)


def together() -> str:
    """Words, vectors, and both, on the same queries."""
    rows = []
    for result, name, label in PARTS:
        found = figures(result)[name]
        label += earlier(result)
        for system, values in found.items():
            cells = [interval(values[key]) if "alone" not in system or key in PAGE_SCORES else "–" for key in SHORT]
            rows.append([label, SYSTEMS.get(system, system), *cells])
            label = ""
    return table(["queries", "scored by", *SHORT], rows)


SHORT = ["accuracy", "Rprec", "recall@5", "KILT-accuracy"]
SYSTEMS = {"BM25 0, SPARTA 0": "vectors alone"}


TUNED = [
    ("T-REx subset", "finetuning_trex"),
    ("8 relations of it that were not tuned on", "finetuning_unseen_relations"),
    ("Re-DocRED, unseen pages, tuned on seen ones", "finetuning_redocred"),
    ("Re-DocRED, half of the unseen pages, tuned on the other", "finetuning_redocred_fresh"),
    ("entity linking, page (L_doc)", "finetuning_linking_page"),
    ("entity linking, phrase (L_phrase)", "finetuning_linking_phrase"),
]


def finetuning() -> str:
    rows = []
    for label, name in TUNED:
        label += earlier(name)
        for count, runs in runs_by_size(figures(name)).items():
            seeds = f" ({len(runs)} seeds)" if len(runs) > 1 else ""
            cells = [mean_interval([run[key] for run in runs]) for key in COLUMNS]
            rows.append([label, f"{count:,}{seeds}" if count else "before", *cells])
            label = ""
    text = table(["scored on", "queries tuned on", *COLUMNS], rows)
    picture = "![T-REx dev scores against the number of triples](learning_curve.png)"
    return "\n\n".join([text, gains("finetuning_trex"), quantised(), picture])


def finetuning_short() -> str:
    """What tuning gains, in a sentence."""
    runs = figures("finetuning_trex")
    before, some, many = (
        statistics.mean(run["KILT-accuracy"][0] for name, run in runs.items() if name.partition(":")[0] == count)
        for count in ("0", "1000", "5000")
    )
    hybrid, tuned = (
        figures(name)["trex-dev-kilt"]["KILT-accuracy"][0] for name in ("kilt_trex_hybrid", "kilt_trex_hybrid_tuned")
    )
    return (
        f"On the T-REx subset, 1,000 triples take KILT-accuracy from {before:.1f} to {some:.1f}, and 5,000 take it to "
        f"{many:.1f}; with BM25 beside the vectors, 5,000 triples take it from {hybrid:.1f} to {tuned:.1f}.\n"
        "More data sets, relations that were not tuned on, and where tuning does not help: "
        "[what fine-tuning gains](../results/finetuning.md)."
    )


def words_short() -> str:
    """What words add, in a few sentences."""
    dense, hybrid = (figures(name)["trex-dev-kilt"]["KILT-accuracy"][0] for name in ("kilt_trex", "kilt_trex_hybrid"))
    squad = figures("reqa_squad")["squad-dev"]
    bm25, sparta = squad["BM25, sentence"]["MRR"], squad["SPARTA"]["500 terms"]["MRR"]
    return (
        f"On the T-REx subset, KILT-accuracy is {dense:.1f} with vectors and {hybrid:.1f} with BM25 beside them.\n"
        f"SPARTA finds the sentence with the answer better than BM25 (SQuAD dev, MRR {sparta:.1f} against {bm25:.1f}; "
        "the paper, on its own candidates,\n78.5 and 58.0), but it adds nothing where BM25 is used beside the vectors, "
        "so no SPARTA model ships: [what words add](../results/words.md)."
    )


def runs_by_size(runs: dict[str, Any]) -> dict[int, list[Any]]:
    """Runs by the number of queries they were tuned on."""
    sizes: dict[int, list[Any]] = {}
    for run in runs.values():
        if isinstance(run, dict):
            sizes.setdefault(run.get("queries tuned on", 0), []).append(run)
    return dict(sorted(sizes.items()))


def mean_interval(values: list[list[float]]) -> str:
    """The mean of several runs, and the mean half width of their 95 % confidence intervals."""
    return interval([sum(column) / len(values) for column in zip(*values, strict=True)])


def gains(name: str) -> str:
    """Which relations gain most and least by the largest run, of those with at least 10 queries."""
    sizes = runs_by_size(figures(name))
    before, after = sizes[0][0]["by relation"], sizes[max(sizes)][0]["by relation"]
    changes = sorted((after[r][1] - before[r][1], r) for r in before if before[r][0] >= 10)
    shown = [
        f"{r} {before[r][1]:.0f} → {after[r][1]:.0f}" for _, r in (*reversed(changes[-6:]), *reversed(changes[:4]))
    ]
    return (
        f"After {max(sizes):,} queries{earlier(name)}, KILT-accuracy by relation, most gained: {', '.join(shown[:6])}; "
        f"least: {', '.join(shown[6:])}."
    )


def quantised() -> str:
    """How much of the loss by product quantisation is won back by tuning on the codes."""
    full, codes = figures("finetuning_trex"), figures("finetuning_trex_opq48")
    naive = figures("kilt_trex_opq48_naive")["trex-dev-kilt"]
    before, after, lossy, unaware, aware = (
        f"{run['KILT-accuracy'][0]:.1f}" for run in (full["0"], full["5000:0"], codes["0"], naive, codes["5000"])
    )
    return (
        f"With 48-byte codes in place of 384-byte rows (OPQ48, nothing rescored), KILT-accuracy is "
        f"{lossy} before tuning, {unaware} with the query encoder tuned on the full rows, and {aware} with one tuned "
        f"on the codes; on the full rows it is {before} and {after}."
    )


def ablation() -> str:
    """What each part of the loss is worth; runs that could not be made say why."""
    found, reader = figures("ablation"), figures("reader")["outcome"]
    scale_of = found.pop("scale")
    rows = [
        [name, *(f"{values[key]:.1f}" for key in ABLATION)] if isinstance(values, dict) else [name, values, *[""] * 4]
        for name, values in found.items()
    ]
    queries = next(values["queries trained on"] for values in found.values() if isinstance(values, dict))
    text = (
        f"Every run: {queries:,} questions of SQuAD ({scale_of['share of SQuAD']:.0%} of its paragraphs), "
        f"{scale_of['epochs']:g} epoch unless stated otherwise; scored on {scale_of['dev passages']} paragraphs of "
        f"SQuAD dev, every token a candidate, no length penalty. {_generated(found)}The reader to distil from has "
        f"{reader['em']:.1f} EM and {reader['f1']:.1f} F1, given the paragraph, on all of SQuAD dev "
        f"({reader['steps']:,} steps on SQuAD and NQ)."
    )
    searched = f"all {scale_of['dev passages']} searched"
    given = ["parts of the loss", "EM, given", "F1, given"]
    head = [*given, f"EM, {searched}", f"F1, {searched}", "right paragraph in the top 5"]
    return f"{table(head, rows)}\n\n{text}"


def _generated(found: dict[str, Any]) -> str:
    last = next((values for name, values in found.items() if "generated" in name), "")
    return f"With generated ones there are {last['queries trained on']:,}. " if isinstance(last, dict) else ""


def determinism() -> str:
    """Whether a seed decides a training."""
    found = figures("determinism")
    equal = "the same bytes" if found["same weights"] else "other weights"
    return (
        f"Two trainings with the same seed on one thread ({found['passages']} passages, {found['steps']} steps; the "
        f"sum of losses goes from {found['first loss']:.1f} to {found['last loss']:.1f}) differ by "
        f"{found['largest difference, same seed']:g} in the loss of any step, and the weights are {equal}. Another "
        f"seed makes up to {found['largest difference, another seed']:.2g} of difference."
    )


ABLATION = ("gold_em", "gold_f1", "open_em", "open_f1", "open_passage_5")


def _times_official(value: dict[str, float]) -> tuple[str, str]:
    return (
        f"{value['kbq']:,.{0 if value['kbq'] >= 100 else 1}f}",
        f"({value['ratio']:.{0 if value['ratio'] >= 10 else 1}f}×)",
    )


def speed() -> str:
    build, exactness = figures("build_trex"), figures("exactness")
    machines = {
        "AVX-512 with bf16": "speed_avx512_bf16",
        "AMX": "speed",
        "AVX-512 without bf16": "speed_avx512",
        "AVX2 alone": "speed_avx2",
    }
    rates = [figures(name)["per CPU second"] for name in machines.values()]
    rows = [
        [name, f"{value['official']:g}", *(" ".join(_times_official(rate[name])) for rate in rates)]
        for name, value in rates[0].items()
    ]
    head = ["per CPU second, custom-index example", "DensePhrases", *(f"kbq, {machine}" for machine in machines)]
    first = table(head, rows)
    text = (
        f"A corpus of {build['pages']:,} pages ({build['tokens']:,} tokens) becomes a knowledge base of "
        f"{build['MB']:,.0f} MB in {build['CPU seconds'] / 60:.0f} minutes of one CPU core (AVX-512 with bf16), with "
        f"{build['peak memory, MB']:,} MB of memory at most; killed half-way and resumed, the "
        f"build gives the same bytes. Of {exactness['spans compared']:,} spans that the search returned for "
        f"{exactness['queries']} queries, {exactness['spans that differ']} differ from those of a brute-force search "
        "over all legal spans in float64."
    )
    earlier = (
        "The first column of kbq was measured with the present code, the other three with earlier versions. The "
        "figures of DensePhrases come from its official code with the same MiniLM shapes, run on a similar machine "
        "on another day."
    )
    return f"{first}\n\n{earlier}\n\n{text}"


def speed_short() -> str:
    """Speed beside DensePhrases on one kind of CPU, for README.md."""
    rows = [
        [name, f"{value['official']:g}", " ".join(_times_official(value))]
        for name, value in figures("speed_avx512_bf16")["per CPU second"].items()
        if name in SHORT_SPEED
    ]
    return table(["per CPU second, custom-index example", "DensePhrases", "kbq, AVX-512 with bf16"], rows)


SHORT_SPEED = (
    "indexed tokens",
    "searches, top 10, 64 at a time",
    "searches, top 10, one at a time",
    "queries, text to answer, one at a time",
    "fine-tuning steps, 12 queries, k = 100",
)


def main() -> None:
    pages = {
        "README.md": {
            "first-answer": first_answer,
            "quality-short": quality_short,
            "trust-short": confidence.trust_short,
            "speed-short": speed_short,
        },
        "docs/guides/ask.md": {"words-short": words_short, "second-look-short": confidence.second_look_short},
        "docs/guides/fill.md": {"fill-short": filling.fill_short},
        "docs/guides/fine-tune.md": {
            "finetuning-short": finetuning_short,
            "forgetting-short": keeping.forgetting_short,
            "merging-short": keeping.merging_short,
        },
        "docs/results/index.md": {"quality": quality},
        "docs/results/confidence.md": {
            "second-look": confidence.second_look,
            "ingredients": confidence.ingredients,
            "trust": confidence.trust,
            "unsaid": confidence.unsaid,
            "unsaid-by-relation": confidence.unsaid_by_relation,
            "promises": confidence.promises,
        },
        "docs/results/filling.md": {
            "fill": filling.fill,
            "fill-annotated": filling.fill_annotated,
            "fill-knowledgenet": filling.fill_knowledgenet,
            "fill-worst": filling.fill_worst,
            "fill-faults": filling.fill_faults,
            "whole-way": filling.whole_way,
            "corrections": filling.corrections,
            "review-page": filling.review_page,
        },
        "docs/results/official.md": {
            "official-answers": official.answers_table,
            "official-sizes": official.sizes_table,
            "official-wikipedia": official.wikipedia_table,
        },
        "docs/guides/openrefine.md": {"reconciliation-short": reconciled.reconciliation_short},
        "docs/guides/serve.md": {"serving-short": served.serving_short},
        "docs/results/serving.md": {
            "serving": served.serving,
            "in-turn": served.in_turn,
            "crowd": served.crowd,
            "faults": served.faults,
            "reconciliation": reconciled.reconciliation,
        },
        "docs/results/speed.md": {"speed": speed},
        "docs/results/words.md": {"words": words},
        "docs/results/finetuning.md": {
            "finetuning": finetuning,
            "forgetting": keeping.forgetting,
            "forgetting-curve": keeping.forgetting_curve,
            "forgetting-keep": keeping.forgetting_keep,
            "forgetting-linking": keeping.forgetting_linking,
            "merging": keeping.merging,
        },
        "docs/results/training.md": {"ablation": ablation, "determinism": determinism},
        "docs/results/cluster.md": {
            "cluster-builds": cluster_tables.cluster_builds,
            "cluster-kills": cluster_tables.cluster_kills,
            "cluster-searches": cluster_tables.cluster_searches,
            "cluster-throughput": cluster_tables.cluster_throughput,
            "cluster-wikipedia": cluster_tables.cluster_wikipedia,
        },
        "docs/results/scale.md": {
            "kinds": scale.kinds,
            "growth": scale.growth,
            "limit": scale.limit,
            "wikipedia": scale.wikipedia,
            "encoder": scale.encoder,
            "mapped": scale.mapped,
            "pages": scale.pages,
            "robustness": scale.robustness,
        },
    }
    for page, places in pages.items():
        text = (ROOT / page).read_text("utf-8")
        for name, render in places.items():
            before, marker, rest = text.partition(f"<!-- figures:{name} -->")
            if not marker:
                raise SystemExit(f"{page} has no <!-- figures:{name} -->")
            after = rest.partition("<!-- /figures -->")[2]
            rendering.read.clear()
            made = f"{render()}\n"
            made += f"\nMade by {rendering.made_by()}.\n" if page.startswith("docs/results/") else ""
            text = f"{before}<!-- figures:{name} -->\n{made}<!-- /figures -->{after}"
        (ROOT / page).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
