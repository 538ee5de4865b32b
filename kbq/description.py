"""Description: what a knowledge base or a network is, with its costs. `kbq info`."""

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from kbq.dump.manifest import (
    NEITHER,
    STATE,
    IndexEntry,
    Manifest,
    is_knowledge_base,
    read_manifest,
)
from kbq.errors import KbqError, ModelError, first_line
from kbq.index.factory import choose_place
from kbq.model.devices import choose_device
from kbq.model.model_folder import (
    CONFIG,
    FACTS,
    SPARTA,
    ModelConfig,
    local_folder,
    read_config,
    refuse_damage,
)
from kbq.reading.probability import CALIBRATION, CALIBRATION_OF_CELLS
from kbq.reading.reader import has_reader, judge_digest
from kbq.storage.folders import folder_bytes
from kbq.storage.records import read_object
from kbq.words.sparta import read_record_of

KINDS = {  # kinds of networks, by the suffix of their classes
    "ForQuestionAnswering": "reader",
    "ForConditionalGeneration": "sequence-to-sequence model",
}


@dataclass(frozen=True, slots=True)
class IndexFacts:
    """The cost of an index beyond the dump, and the share of exact search's ten best phrases that
    it finds.
    """

    kind: str
    bytes_per_vector: float
    probes: int
    recall: float
    target: float
    queries: int  # queries that measured the recall; 0 for exact search, which needs none
    filter: float | None  # threshold of the rows in it


def describe(folder: Path) -> dict[str, object]:
    """Describe a knowledge base, a model or another network by named facts; `default` is the
    bundled model.

    Raises KbqError if the folder is none of them, or damaged.
    """
    if not folder.exists():
        folder = local_folder(folder)
    if is_knowledge_base(folder):
        return _knowledge_base(folder)
    refuse_damage(folder)
    if (folder / CONFIG).exists():
        return _model(folder)
    if (folder / SPARTA).exists():
        facts = dataclasses.asdict(read_record_of(folder).config)
        return {"kind": "SPARTA model", "bytes": folder_bytes(folder), **facts}
    if (folder / "config.json").exists():
        return _network(folder)
    if (folder / STATE).exists():
        return _knowledge_base(folder)  # raises: its build has not ended
    raise KbqError(NEITHER.format(folder=folder))


def _model(folder: Path) -> dict[str, object]:
    """Describe a model or, if it belongs to one, a tuned query encoder."""
    config = read_config(folder)
    if config.base:
        try:
            facts = _tuning(config)
        except (KeyError, TypeError, AttributeError):
            raise ModelError(
                f"{folder / CONFIG} does not say how it was tuned: tune it again"
            ) from None
        kind = {"kind": "query encoder", "bytes": folder_bytes(folder)}
        return kind | _calibrations(folder) | facts

    fields = dataclasses.asdict(config)
    return {
        "kind": "model",
        "bytes": folder_bytes(folder),
        "reader": has_reader(folder),
        "judges_phrases": bool(judge_digest(folder)),
        **_calibrations(folder),
        **fields,
        **{name: _finite(fields[name]) for name in ("filter_threshold", "edge_threshold")},
    }


def _calibrations(folder: Path) -> dict[str, object]:
    """Say which calibrations are in a folder; without one of cells, that of queries holds for them."""
    return {
        "calibration": (folder / CALIBRATION).is_file(),
        "calibration_of_cells": (folder / CALIBRATION_OF_CELLS).is_file(),
    }


def _knowledge_base(folder: Path) -> dict[str, object]:
    """Return the facts of a knowledge base that `kbq info` prints."""
    manifest = read_manifest(folder)
    shards = manifest.open_shards(folder)  # raises if one is missing or damaged
    contents: dict[str, object] = {
        "kind": "knowledge base",
        **manifest.counts.facts,
        "dimension": manifest.dim,
        "shards": len(manifest.shards),
        "bm25": manifest.bm25,
        "learned_impacts": bool(manifest.sparta),
    }
    total = folder_bytes(folder)
    size: dict[str, object] = {
        "bytes": total,
        "bytes_per_kept_vector": round(total / max(1, manifest.counts.rows), 1),
    }
    origin: dict[str, object] = {
        "model": manifest.model,
        "model_fingerprint": manifest.model_fingerprint,
        "filter_threshold": _finite(manifest.filter_threshold),
        "built_by": f"kbq {manifest.kbq}",
    }
    place = choose_place(shards, manifest.available, None, choose_device("auto"))
    indexes = [dataclasses.asdict(index) for index in describe_indexes(folder)]

    return contents | size | origin | {"searched": place.why, "indexes": indexes}


def describe_indexes(folder: Path) -> list[IndexFacts]:
    """Describe the indexes of a knowledge base, the one that answers first; exact search is always
    among them.
    """
    manifest = read_manifest(folder)
    return [index_facts(folder, manifest, entry) for entry in manifest.available]


def index_facts(folder: Path, manifest: Manifest, entry: IndexEntry) -> IndexFacts:
    """Return the size of an index, and how it was chosen."""
    size = sum(folder_bytes(shard / entry.part) for shard in manifest.shard_folders(folder))
    per_vector = round(size / max(1, manifest.counts.rows), 1)
    return IndexFacts(
        entry.kind,
        per_vector,
        entry.probes,
        round(entry.recall, 4),
        entry.target,
        entry.queries,
        entry.filter,
    )


def _tuning(config: ModelConfig) -> dict[str, object]:
    """Return what an encoder was tuned on, and what that gained."""
    facts = cast(dict[str, Any], config.training["finetuning"])
    prints = {
        name: getattr(config, name) for name in ("base", "phrase_fingerprint", "query_fingerprint")
    }
    if "imported" in facts:  # it was tuned elsewhere
        return prints | facts
    outcome = facts["outcome"]
    files = facts["triples"]
    if isinstance(files, dict):  # one file alone
        files = [files]
    lesson = {
        "task": facts["task"],
        "triples": ", ".join(file["name"] for file in files),
        "queries_tuned_on": outcome["reach"]["queries"],
        "relations_tuned_on": len(facts["relations"]),
    }
    scores = {
        "dev_queries": outcome["dev_queries"],
        "dev_measure": outcome["measure"],
        "dev_scores": outcome["scores"],  # scores before tuning, and after each epoch
        "dev_scores_with_words": [outcome.get(name) for name in ("hybrid_before", "hybrid_score")],
        # Percent, before tuning, and after; or none.
        "dev_right_with_reranking": outcome.get("reranker", []),
    }
    changes = {
        # Answers; 0: the probabilities are the model's own.
        "probabilities_learned_from": outcome.get("calibrated_on", 0),
        # Percent of other queries answered as before; as often as there are scores.
        "agreements": outcome.get("agreements", []),
    }

    return prints | lesson | scores | changes | {"command": facts["command"]}


def _network(folder: Path) -> dict[str, object]:
    """Describe a folder with weights alone: a reader, a question generator, or any other
    checkpoint.
    """
    try:
        paths = folder / "config.json", folder / FACTS
        config, training_facts = (read_object(path) if path.exists() else {} for path in paths)
    except (OSError, ValueError) as error:
        raise KbqError(f"{folder} is damaged: {first_line(error)}") from None

    architectures = config.get("architectures")
    architecture = (
        str(architectures[0]) if isinstance(architectures, list) and architectures else "unknown"
    )
    kind = next((kind for end, kind in KINDS.items() if architecture.endswith(end)), "network")

    return {
        "kind": kind,
        "architecture": architecture,
        "bytes": folder_bytes(folder),
    } | training_facts


def _finite(number: float) -> float | None:
    """Return a threshold, or None if it is infinite, which JSON cannot say: that filter keeps
    everything.
    """
    return number if math.isfinite(number) else None
