"""Reporting: write figures to results/NAME.json, with all it takes to get them again, and print
them as a table.
"""

import json
import os
import platform
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from measuring import DataSet

import kbq
from kbq.model.model_folder import DEFAULT_MODEL, read_config
from kbq.storage.machine import cpu_has
from kbq.storage.reading import file_digest

RESULTS = Path(__file__).parents[1] / "results"
PRODUCTS = ("avx512f", "avx_vnni", "avx512_vnni", "amx_int8", "avx512_bf16", "amx_bf16", "bf16")
JUDGING = ("reader.safetensors", "calibration.json", "calibration-of-cells.json")
LIBRARIES = ("numpy", "torch", "transformers", "tokenizers")


def write(
    name: str, figures: Mapping[str, object], data: Sequence[Path], seed: int | None = None
) -> None:
    """Write and print the figures of one benchmark, with command, versions, machine and data
    fingerprints.
    """
    model = read_config(DEFAULT_MODEL)
    record = {
        "command": shlex.join(
            ["python", f"benchmarks/{Path(sys.argv[0]).name}", *map(_shortened, sys.argv[1:])]
        ),
        "versions": {"kbq": kbq.__version__}  # a checkout has no installed version
        | {library: version(library) for library in LIBRARIES}
        | {"python": platform.python_version()},
        "machine": {
            "cpus": os.cpu_count(),
            "processor": _processor(),
            "multiplies": [feature for feature in PRODUCTS if cpu_has(feature)],
        },
        "seed": seed,
        "default model": f"{model.phrase_fingerprint} {model.query_fingerprint}",
        "files": {name: file_digest(DEFAULT_MODEL / name) for name in JUDGING},
        "data": {
            path.name: file_digest(path / "manifest.json" if path.is_dir() else path)
            for path in data
        },
        "figures": figures,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(
        json.dumps(record, indent=1, ensure_ascii=False) + "\n", "utf-8"
    )
    print(table(figures))


def write_sets(name: str, sets: Sequence[DataSet], measured: Callable[[DataSet], object]) -> None:
    """Measure each data set, and write the figures by its name."""
    figures: dict[str, object] = {}
    for one in sets:
        figures[one.name] = measured(one)
        print(table({one.name: figures[one.name]}), flush=True)
    write(name, figures, [path for one in sets for path in one[1:]])


def table(figures: object) -> str:
    """Return figures as a Markdown table for a page: a line for each record, labelled by the names
    above it.
    """
    rows = dict(_rows(figures, ""))
    heads = list(dict.fromkeys(head for row in rows.values() for head in row))
    lines = [["", *heads], ["---"] * (len(heads) + 1)]
    lines += [[label, *(_cell(row.get(head)) for head in heads)] for label, row in rows.items()]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _rows(found: object, label: str) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the single figures of each record below its label."""
    named = (
        dict(found)
        if isinstance(found, Mapping)
        else dict(enumerate(found))
        if isinstance(found, Sequence)
        else {}
    )
    deeper = {
        name: value
        for name, value in named.items()
        if isinstance(value, Mapping)
        or (isinstance(value, list | tuple) and value and isinstance(value[0], Mapping))
    }
    if row := {str(name): value for name, value in named.items() if name not in deeper}:
        yield label, row
    for name, value in deeper.items():
        yield from _rows(value, f"{label}, {name}" if label else str(name))


def _cell(value: object) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(_cell, value))
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _shortened(argument: str) -> str:
    """Return the last two parts of a path; the rest means nothing on another machine."""
    return "/".join(Path(argument).parts[-2:]) if "/" in argument else argument


def _processor() -> str:
    cpus = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.+)", cpus.read_text() if cpus.exists() else "")
    return found[1] if found else platform.processor()
