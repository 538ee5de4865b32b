"""Checkpoint: a checkpoint of DensePhrases becomes a model, or a query encoder of one. `kbq import checkpoint`."""

import dataclasses
from pathlib import Path

import torch

from kbq.errors import ModelError
from kbq.importing.official_checkpoint import TABLE, OfficialCheckpoint, read_checkpoint
from kbq.model.backbone import model_folder
from kbq.model.model import Model
from kbq.model.weights import load_weights
from kbq.storage.files import as_path
from kbq.training.output_folder import output_folder, versions


@dataclasses.dataclass(frozen=True, slots=True)
class ImportedModel:
    """A model that was imported. `base`: the model with its phrase encoder; empty: it has its own."""

    folder: Path
    dim: int
    layers: int
    pieces: int
    phrase_fingerprint: str
    query_fingerprint: str
    base: str


def import_checkpoint(
    source: str | Path,
    out: str | Path,
    *,
    vocabulary: str | Path | None = None,
    base: str | Path | None = None,
    command: str = "",
) -> ImportedModel:
    """Make a model folder of an official checkpoint; its vectors are those of the official code.

    Args:
        source: a folder or a hub name.
        vocabulary: folder or hub name of a network with the same word pieces, where the checkpoint has none.
        base: the model whose query encoder this is, where the checkpoint has no phrase encoder.

    Raises:
        ModelError: a file is missing or damaged, the weights are not those of a checkpoint, or nothing can be encoded
            with them.
        TrainingError: `out` exists or cannot be written.
    """
    folder = model_folder(as_path(source, "a checkpoint"))
    checkpoint = read_checkpoint(folder)
    facts: dict[str, object] = {"command": command, "imported": Path(source).name, "versions": versions()}
    if base is not None:
        model = Model.open(as_path(base, "a model"), "cpu")
        _take_queries(model, checkpoint)
    else:
        model = Model.of_official(checkpoint, folder if vocabulary is None else model_folder(vocabulary), "cpu")
    with output_folder(as_path(out, "out")) as work:
        if base is not None:
            model.save_query_encoder(work / "model", facts)
        else:
            model.config = dataclasses.replace(model.config, training=facts)
            model.save(work / "model")
    shape, config = checkpoint.shape, model.config
    return ImportedModel(
        Path(out), shape.hidden_size, shape.num_hidden_layers, shape.vocab_size, config.phrase_fingerprint,
        config.query_fingerprint, config.base,
    )  # fmt: skip


def _take_queries(model: Model, checkpoint: OfficialCheckpoint) -> None:
    """Encode queries with an official checkpoint that was tuned from the one that the model was made of.

    Raises ModelError if the model is not of such a checkpoint, or of one with other sizes or word embeddings.
    """
    folder, source, own = checkpoint.folder, model.source, model.queries.start.config
    if model.config.base or not model.config.official_queries:
        kind = "is a query encoder itself" if model.config.base else "was not made of a checkpoint of DensePhrases"
        raise ModelError(f"{source} {kind}: give the model of the checkpoint that {folder} was tuned from")
    weights = {name: value for name, value in checkpoint.weights.items() if name.startswith("queries.")}
    tables = [weights.pop(f"queries.{side}.{TABLE}", None) for side in ("start", "end")]
    table = model.word_embeddings
    shared = table.detach().cpu()
    if own.written != checkpoint.shape.written or not all(one is None or torch.equal(one, shared) for one in tables):
        raise ModelError(
            f"the query encoders of {folder} have other sizes or word embeddings than the model {source}: give the "
            "model of the checkpoint that they were tuned from"
        )
    load_weights(model.queries, weights, "queries.", folder, given=table)
