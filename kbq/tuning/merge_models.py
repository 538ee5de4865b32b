"""Merge models: query encoders that were tuned apart become one that knows what each of them knows. `kbq merge-models`.

All changes by tuning are added to the weights that it began with. Source: arXiv 2212.04089 (task arithmetic). The
taught judges are averaged: they have learned much the same, which must not be added twice.
"""

import copy
import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from torch import nn

from kbq.errors import ModelError
from kbq.model.model import Model
from kbq.model.model_folder import local_folder, write_config
from kbq.reading.network import RelationJudge, judge_digest
from kbq.training.output_folder import output_folder, versions

Network = TypeVar("Network", bound=nn.Module)


@dataclass(frozen=True, slots=True)
class MergeOutcome:
    """A merged query encoder; usable as the path of its folder."""

    out: Path
    relations: list[str]  # one of the models was tuned on each
    judged: list[str]  # relations that the reranker has learned

    def __fspath__(self) -> str:
        return str(self.out)


def merge_models(
    models: Sequence[str | Path], out: str | Path, *, device: str = "auto", command: str = ""
) -> MergeOutcome:
    """Merge several query encoders into one, without a calibration: `kbq calibrate` makes one.

    Args:
        models: folders of `kbq finetune`, at least two, each tuned from the same model and not from one another.
        out: a new folder.

    Raises:
        ModelError: one is missing or is not such a folder, or they were not tuned from the same model.
        TrainingError: `out` exists, or cannot be written.
    """
    if len(models) < 2:
        raise ModelError(f"{len(models)} query encoder is given: give two or more", is_usage=True)
    with output_folder(Path(out)) as folder:
        tuned = [Model.open(model, device) for model in models]
        base = _base(tuned, device)
        made = copy.copy(base)
        made.queries = _with_all_changes(base.queries, [one.queries for one in tuned])
        factors = [one.config.lexical_factor for one in tuned]
        made.config = dataclasses.replace(base.config, lexical_factor=math.prod(factors) ** (1 / len(factors)))
        relations = sorted({relation for one in tuned for relation in one.config.tuned_relations})
        facts = {
            "command": command,
            "begun_with": base.config.query_fingerprint,
            "relations": relations,
            "merged": [one.config.training.get("finetuning") for one in tuned],
            "versions": versions(),
        }
        made.save_query_encoder(folder / "model", facts)
        judge = _judge(base, tuned)
        if judge:
            judge.save(folder / "model")
            write_config(folder / "model", made.config)  # it names all files
    return MergeOutcome(Path(out), relations, sorted(judge.relations) if judge else [])


def _base(tuned: Sequence[Model], device: str) -> Model:
    """Open the model that all were tuned from."""
    for one in tuned:
        if not one.config.base:
            raise ModelError(f"{one.source} is not a tuned query encoder: give folders of `kbq finetune`")
    base = Model.open(tuned[0].config.base, device)
    for one in tuned:
        begun_with = one.config.begun_with
        if begun_with != base.config.query_fingerprint:
            raise ModelError(
                f"{one.source} was tuned from the query encoder {begun_with or 'of an earlier version'}, not from "
                f"{base.config.query_fingerprint}, that of {base.source}: only what was tuned from it can be merged"
            )
    return base


def _with_all_changes(before: Network, after: Sequence[nn.Module]) -> Network:
    """Return a network with all differences from it; what is the same in all stays so to the last bit."""
    own, others = before.state_dict(), [network.state_dict() for network in after]
    made = copy.deepcopy(before)
    made.load_state_dict({name: value + sum(other[name] - value for other in others) for name, value in own.items()})
    return made


def _judge(base: Model, tuned: Sequence[Model]) -> RelationJudge | None:
    """Return the judge of all relations that were taught, None where there is none."""
    reader = judge_digest(local_folder(base.source))
    opened = [RelationJudge.open(local_folder(one.source), reader, base.device) for one in tuned]
    taught = [one for one in opened if one]
    if not taught:
        return None
    judge = copy.deepcopy(taught[0].judge)
    states = [one.judge.state_dict() for one in taught]
    judge.load_state_dict({name: sum(state[name] for state in states) / len(states) for name in states[0]})
    return RelationJudge(judge, frozenset[str]().union(*(one.relations for one in taught)), reader)
