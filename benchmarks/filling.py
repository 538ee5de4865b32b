"""What is filled at which threshold, as tables."""

from typing import Any

from rendering import figures, table

SHOWN = ("0.0", "0.3", "0.5", "0.7")
SETTINGS = {"all pages": "all pages are searched", "without three in ten": "three in ten of the pages are not"}
SCORES = ("coverage", "micro_precision", "micro_recall", "micro_f1", "precision", "recall", "f1")
NAMES = ("filled", "right of these", "found", "F1", "macro P", "macro R", "macro F1")


def fill_short() -> str:
    """What a user gets, in a few sentences."""
    found = figures("fill")
    usual, promised = "0.5", str(found["threshold of 0.9"])
    known, hidden = (found[setting]["one value"] for setting in SETTINGS)
    table_speed, single_speed = (
        found["cells per CPU second"][f"{way}, with a second look"] for way in ("table", "one by one")
    )
    return (
        f"On T-REx ({found['gold cells']:,} cells whose values are known), {percent(known[usual]['coverage'])} of the "
        f"cells are filled at 0.5, and {percent(known[usual]['micro_precision'])} of their values are right;\n"
        f"with `--precision 0.9`, {percent(known[promised]['coverage'])}, and "
        f"{percent(known[promised]['micro_precision'])}. Where three in ten of their pages are missing, "
        f"{percent(hidden[usual]['micro_precision'])} and {percent(hidden[promised]['micro_precision'])} are right.\n"
        f"{table_speed:.0f} cells are asked for in a second of one CPU, {table_speed / single_speed:.1f} times as many "
        "as one by one: "
        "[what is filled](../results/filling.md)."
    )


def fill() -> str:
    """Scores by threshold, and speed."""
    found = figures("fill")
    promised = str(found["threshold of 0.9"])
    rows = []
    for setting, label in SETTINGS.items():
        for values, curve in found[setting].items():
            for least in sorted({*SHOWN, promised}, key=float):
                one = curve[least]
                rows.append([label, values, named(least, promised), *scores_of(one)])
                label = values = ""
    scores = table([f"T-REx subset, {found['gold cells']:,} cells", "", "threshold", *NAMES], rows)
    speed = found["cells per CPU second"]
    ways = [[way, *(f"{speed[f'{way}, {look}']:.1f}" for look in LOOKED)] for way in WAYS]
    return f"{scores}\n\n{table(['cells per CPU second', *LOOKED.values()], ways)}"


LOOKED = {"with a second look": "with reranking", "without": "without"}
WAYS = ("table", "queries in batches", "one by one")


def fill_annotated() -> str:
    """The same where text is annotated exhaustively, with one value a cell; then KnowledgeNet's relations."""
    redocred, annotated = figures("fill_redocred"), figures("fill_knowledgenet")
    every, of_trex = redocred["all relations"], figures("fill")["all relations"]
    cells, empty = annotated["cells"], annotated["of these, annotated as empty"]
    sets = {
        f"Re-DocRED, unseen pages, {redocred['gold cells']:,} cells": redocred["all pages"],
        "three in ten of their pages are not searched": redocred["without three in ten"],
        f"every relation of 20 subjects: {every['cells']:,} cells, {every['gold cells']} with values": every,
        f"T-REx, every relation: {of_trex['cells']:,} cells, {of_trex['gold cells']} with values": of_trex,
        f"KnowledgeNet, {cells - empty:,} cells with values": annotated["cells with values"],
        f"the same and {empty} annotated as empty": annotated["all cells"],
    }
    promised = str(redocred["threshold of 0.9"])
    rows = []
    for label, curve in sets.items():
        for least in ("0.5", promised):
            rows.append([label, named(least, promised), *scores_of(curve["one value"][least])])
            label = ""
    return table(["one value a cell", "threshold", *NAMES], rows)


def fill_knowledgenet() -> str:
    """KnowledgeNet by relation: scores of all values together, AUROC, and cells that should have stayed empty."""
    found = figures("fill_knowledgenet")
    promised = str(found["threshold of 0.9"])
    rows = []
    for relation, one in found["by relation"].items():
        empty = one["of these, empty"]
        usual, sure = one["0.5"], one[promised]
        counts = [f"{one['cells'] - empty}", f"{empty}", f"{one['AUROC']:.3f}"]
        scores = [f"{100 * each[name]:.1f}" for each in (usual, sure) for name in ("precision", "recall", "F1")]
        filled = [f"{round(each['false answers'] * empty)}" for each in (usual, sure)]
        rows.append([relation, *counts, *scores[:3], filled[0], *scores[3:], filled[1]])
    head = ["relation", "cells with values", "empty ones", "AUROC", "P at 0.5", "R", "F1", "empty ones filled"]
    by_relation = table([*head, "P at `--precision 0.9`", "R", "F1", "empty ones filled"], rows)
    false = [found["false answers"][least] for least in ("0.5", promised)]
    said = " and ".join(f"{100 * one['cells']:.1f} %" for one in false)
    silent = " and ".join(f"{100 * one['from an annotated passage']:.1f} %" for one in false)
    return (
        f"{by_relation}\n\nAUROC of the best guesses of all cells: {found['AUROC']:.3f}. Of the cells annotated as "
        f"empty,\n{said} are filled at 0.5 and with `--precision 0.9`; {silent} from a passage that is annotated so."
    )


def fill_worst() -> str:
    """The relations of T-REx whose values are right the least often, and what is wrong with them."""
    rows = []
    for relation, (cells, coverage, precision) in list(figures("fill")["by relation, at 0.5"].items())[: len(WRONG)]:
        filled = round(cells * coverage)
        rows.append([relation, str(cells), str(filled), str(round(filled * precision)), WRONG[relation]])
    return table(["relation", "cells", "filled", "right", "what the others are"], rows)


WRONG = {  # all of them were read
    "has part": "substances, where gold has their elements; a synonym, a product or a user of the subject instead (7)",
    "named after": "an earlier name of the subject (2), another thing's name (2), the right one with more words (1)",
    "occupation": "another occupation that the text states, often the first one (14); a word beside it: film (3)",
    "instance of": "a word from beside the kind, or the kind of another thing: house, old, owned, list (10); "
    "another kind that is true (3)",
    "position held": "the right office with its see, archbishop of Lima (7); another that was held (3); wrong (3)",
    "country of citizenship": "the adjective, where gold has the country alone: Egyptian (8); a group of countries (1)",
    "instrument": "the music instead: jazz (4); another instrument that they play, or the same with more words (5); "
    "wrong (3)",
    "member of": "another membership that is true (1)",
    "field of work": "a profession or a narrower field that is true (3), several fields together (2), a topic (2)",
    "owned by": "the architect, and what the subject owns (2); the right one with more words (1)",
}


def fill_faults() -> str:
    """Kills, and memory by cells."""
    found = figures("fill_faults")
    killed = found["killed"]
    few, many = (found[f"{times} times"] for times in (1, 10))
    same, begun = killed["resumed with the same bytes"], killed["when some cells were done"]
    return (
        f"{same} of {killed['kills']} runs that were killed with SIGKILL at random moments, {begun} of them with some "
        f"cells done, resumed and ended with the same bytes.\nFilling {few['cells']:,} cells of the sample takes "
        f"{few['own, MB']} MB of memory beside mapped files, {many['cells']:,} cells {many['own, MB']} MB."
    )


def scores_of(one: Any) -> list[str]:
    return [f"{100 * one[score]:.1f}" for score in SCORES]


def named(least: str, promised: str) -> str:
    return f"{float(least):.2f}" + (", `--precision 0.9`" if least == promised else "")


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def whole_way() -> str:
    """The steps from a folder of texts to facts for Wikidata."""
    found = figures("whole_way")
    rows = [
        [f"`{one['step']}`" if one["step"].startswith(("kbq", "--")) else one["step"], f"{one['seconds']:.0f}",
         f"{one['of a CPU']:.0f}", outcome(one["outcome"], found)]
        for one in found["steps"]
    ]  # fmt: skip
    return table(["step", "seconds", "of a CPU", "outcome"], rows)


def outcome(facts: Any, found: Any) -> str:
    """What a step has made, in words."""
    if isinstance(facts, int):
        return f"{facts} of {found['names without a Q-number']} names have a page in what stands for Wikidata"
    if "said" in facts:
        return f"{facts['said']}; axe finds {facts['axe']} faults, {facts['wider than the window']} of 4 views overflow"
    if "pages" in facts:
        return f"{facts['pages']} pages"
    if facts["commands"] or facts["left_out"]:
        return (
            f"{facts['commands']} commands, {facts['left_out']} claims left out, {facts['lacking']} names to look up; "
            f"{facts['asked']} queries asked"
        )
    return f"{facts['filled']} of {facts['cells']} cells; {facts['asked']} of {facts['queries']} queries asked"


def corrections() -> str:
    """What the next table gains by the review of another."""
    found = figures("corrections")
    keys = [key for key in found if key.endswith("reviewed")]
    labels: dict[str, Any] = {"before": found["before"]}
    for key in keys:
        labels |= {f"{key}, tuned": found[key]["tuned"], "and calibrated": found[key]["tuned and calibrated"]}
    scores = ("right, % of filled", "right, % of said", "F1")
    rows = [
        [label, str(one["filled"]), *(f"{one[score]:.1f}" for score in scores), str(one["unsaid cells filled"])]
        for label, one in labels.items()
    ]
    head = [f"{found['cells of the next table']} cells of other subjects", "filled", "right of these", "found", "F1"]
    return table([*head, f"filled of {found['of these, not said']} not said"], rows)


def review_page() -> str:
    """What the page for review bears."""
    found = figures("review_page")
    (many, opened), (decisions, kept) = found.items()
    return (
        f"A page for review with {many} ({opened['MB']:g} MB) opens in {opened['seconds to open']:.1f} seconds; a "
        f"decision takes {opened['ms of a decision']:.0f} ms, all of them at once "
        f"{opened['seconds to accept all']:.1f} seconds, the next hundred {opened['seconds to turn a page']:.1f}.\n"
        f"Of {decisions} browsers that decide on one table at once, {kept['kept']:,} are kept, in "
        f"{kept['seconds']:.0f} seconds, and each browser shows those of the other."
    )
