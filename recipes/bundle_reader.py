"""Write a reader into the folder of a model, as `reader.safetensors` without the word embeddings
that they share.

    python recipes/bundle_reader.py MODEL READER

The reader must have been trained from the model, or from the encoder that the model was trained
from. The average of several such readers is better: recipes/average_models.py.
"""

import argparse
import copy
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from kbq.errors import ModelError
from kbq.model.backbone import without_pooler
from kbq.model.model_folder import (
    load_weights,
    named_weights,
    pack,
    read_whole_config,
    save_tensors,
    write_config,
)
from kbq.reading.reader import (
    READER,
    READS_MENTIONS,
    WRITTEN_FOR,
    QuestionAnswering,
    Reader,
    new_reader,
    refuse_query_encoder,
)
from kbq.storage.writing import writing_to

HALF = 0.501  # of a step between two int8 values, and a little for rounding


def question_answering(network: Any) -> QuestionAnswering:
    """Turn a network of transformers into one of kbq, with the same weights. Raises ModelError if
    it cannot answer.
    """
    if isinstance(network, QuestionAnswering):
        return network
    if not hasattr(network, "qa_outputs"):
        raise ModelError(
            f"a {type(network).__name__} has no layer `qa_outputs`: give a reader of `kbq train "
            "reader`"
        )
    reader = QuestionAnswering(without_pooler(copy.copy(network.base_model)))
    reader.head = network.qa_outputs
    return reader


def save_reader(network: Any, folder: Path) -> None:
    """Write a question-answering network into the folder of a model that has its word embeddings.

    Raises ModelError if the network does not answer questions, or if the folder is not a kbq model,
    is damaged, has an encoder of another shape, or cannot be written.
    """
    reader = question_answering(network)
    config = read_whole_config(folder)
    refuse_query_encoder(folder, config)
    template, shared = new_reader(folder, reader.judge is not None)
    weights = named_weights(reader, "")
    load_weights(template, shared | weights, "", folder)
    differing = {
        name: tensor
        for name, tensor in weights.items()
        if name not in shared or not _same(tensor, shared[name])
    }
    with writing_to(folder, ModelError, also=(SafetensorError,)):
        told = {WRITTEN_FOR: config.phrase_fingerprint}
        if reader.reads_mentions:
            told[READS_MENTIONS] = "yes"
        save_tensors(pack(differing, "int8"), folder / READER, told)
        write_config(folder, config)


def _same(weights: Tensor, shared: Tensor) -> bool:
    """Return whether weights are the model's, which may have been rounded to int8 since the
    reader's training began.
    """
    step = shared.abs().amax(dim=-1, keepdim=True) / 127 if shared.ndim == 2 else torch.zeros(1)
    return bool(((weights - shared).abs() <= HALF * step).all())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("reader")
    options = parser.parse_args()
    save_reader(Reader.open(options.reader, "cpu").network, options.model)


if __name__ == "__main__":
    main()
