"""What is filled at which threshold, as tables."""

from rendering import figures, table

SHOWN = ("0.0", "0.3", "0.5", "0.7")
SETTINGS = {"all pages": "all pages are searched", "without three in ten": "three in ten of the pages are not"}


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
                name = f"{float(least):.2f}" + (", `--precision 0.9`" if least == promised else "")
                scores = ("coverage", "micro_precision", "micro_recall", "micro_f1", "precision", "recall", "f1")
                rows.append([label, values, name, *(f"{100 * one[score]:.1f}" for score in scores)])
                label = values = ""
    head = [f"T-REx subset, {found['gold cells']:,} cells", "", "threshold", "filled", "right of these", "found", "F1"]
    scores = table([*head, "macro P", "macro R", "macro F1"], rows)
    speed = found["cells per CPU second"]
    ways = [[way, *(f"{speed[f'{way}, {look}']:.1f}" for look in LOOKED)] for way in WAYS]
    return f"{scores}\n\n{table(['cells per CPU second', *LOOKED], ways)}"


LOOKED = ("with a second look", "without")
WAYS = ("table", "queries in batches", "one by one")


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"
