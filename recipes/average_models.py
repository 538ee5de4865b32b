"""Average the weights of several models or readers, which is often better than any of them.

    python recipes/average_models.py OUT FOLDER… [--dev EXAMPLES] [--best] [--readers]

Each must have been trained from another one, or all from a common one: weights trained apart do not
fit together. --best tries the averages of the best one, two, three, … on EXAMPLES, and keeps the
one that scores best there. Length penalty and filter threshold are those of the first, or
calibrated on EXAMPLES. --readers averages the readers of models that differ in nothing else
(recipes/teach_second_look.py). Source: arXiv 2203.05482 (model soups), arXiv 2109.01903 (the
average of before and after).
"""

import argparse
import copy
import dataclasses
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from bundle_reader import save_reader
from torch import nn

from kbq.model.model import Model
from kbq.model.model_folder import CONFIG, local_folder, read_config, write_config
from kbq.reading.reader import Reader, judge_digest
from kbq.training.batches import Passage, read_examples
from kbq.training.encoders import CALIBRATION_PASSAGES
from kbq.training.quantisation import evaluate_reading, quantisation_of
from kbq.training.reader import evaluate_reader

One = TypeVar("One", Model, Reader)


def average(networks: Sequence[nn.Module]) -> nn.Module:
    """Return a network with the average of the weights of all."""
    own, *others = (network.state_dict() for network in networks)
    # Weights that are the same in all, such as frozen word embeddings, must stay the same to the
    # last bit.
    moved = {
        name: sum(other[name] - value for other in others) / len(networks)
        for name, value in own.items()
    }
    made = copy.deepcopy(networks[0])
    made.load_state_dict({name: value + moved[name] for name, value in own.items()})
    return made


def average_models(models: Sequence[Model]) -> Model:
    """Average both encoders, and the int8 step."""
    both = average([nn.ModuleList([one.phrases, one.queries]) for one in models])
    made = copy.copy(models[0])
    made.phrases, made.queries = both.children()  # they still share their word embeddings
    made.scale = sum(one.scale for one in models) / len(models)
    facts = averaged_facts([one.config.training for one in models])
    made.config = dataclasses.replace(made.config, base="", training=facts)
    return made


def averaged_facts(facts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Describe how an average came about: the facts that all share, and the facts of each.

    >>> averaged_facts([{"seed": 1, "begun": "a"}, {"seed": 2, "begun": "a"}])
    {'begun': 'a', 'averaged': [{'seed': 1}, {'seed': 2}]}
    """
    same = {
        name: value
        for name, value in facts[0].items()
        if all(name in one and one[name] == value for one in facts)
    }
    own = [{name: value for name, value in one.items() if name not in same} for one in facts]
    return same | {"averaged": own}


def average_readers(readers: Sequence[Reader]) -> Reader:
    """Average the networks."""
    made = copy.copy(readers[0])
    made.network = average([one.network for one in readers])
    made.network.reads_mentions = any(
        getattr(one.network, "reads_mentions", False) for one in readers
    )
    return made


def save_with_reader(reader: Reader, folders: Sequence[Path], out: Path) -> None:
    """Write a copy of the first model with this average of all their readers."""
    shutil.copytree(folders[0], out)
    save_reader(reader.network, out)
    facts = averaged_facts([read_config(folder).training for folder in folders])
    write_config(out, dataclasses.replace(read_config(out), training=facts))


def best_average(
    ones: Sequence[One], mix: Callable[[Sequence[One]], One], score: Callable[[One], float]
) -> One:
    """Return the best of the averages of the best one, two, three, …"""
    ordered = sorted(ones, key=score, reverse=True)
    return max((mix(ordered[:count]) for count in range(1, len(ordered) + 1)), key=score)


def score_model(model: Model, passages: Sequence[Passage]) -> float:
    """Return EM given the passage and EM of an open search, added up."""
    found = evaluate_reading(model, passages)
    return found.gold_em + found.open_em


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--dev", type=Path)
    parser.add_argument("--best", action="store_true")
    parser.add_argument("--readers", action="store_true")
    options = parser.parse_args()
    if options.best and not options.dev:
        parser.error("--best needs --dev")
    passages = read_examples([options.dev], doubtful=True)[0] if options.dev else []
    kinds = {name == "default" or (Path(name) / CONFIG).is_file() for name in options.folders}
    if len(kinds) > 1:
        parser.error("some are models and some are readers: average one kind at a time")
    folders = [local_folder(name) for name in options.folders]
    if (
        options.readers
        and len({(read_config(one).phrase_fingerprint, bool(judge_digest(one))) for one in folders})
        > 1
    ):
        parser.error(
            "they differ in more than the weights of their readers: give copies of one model"
        )
    mixed = best_average if options.best else lambda ones, mix, score: mix(ones)
    if True in kinds and not options.readers:
        models = [Model.open(name) for name in options.folders]
        model = mixed(models, average_models, lambda one: score_model(one, passages))
        if passages:
            quantisation_of(model, passages[:CALIBRATION_PASSAGES])
        model.save(options.out, "int8")
    else:
        readers = [Reader.open(name) for name in options.folders]
        reader = mixed(readers, average_readers, lambda one: evaluate_reader(one, passages)[0])
        if options.readers:
            save_with_reader(reader, folders, options.out)
        else:
            reader.save(options.out)


if __name__ == "__main__":
    main()
