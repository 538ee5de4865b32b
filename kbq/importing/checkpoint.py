"""Checkpoint: a checkpoint of DensePhrases becomes a model, or a query encoder of one. `kbq import checkpoint`."""

import dataclasses
from pathlib import Path

from kbq.model.backbone import model_folder
from kbq.model.model import Model
from kbq.model.official_checkpoint import read_checkpoint
from kbq.storage.paths import as_path
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
        model.take_queries_of(checkpoint)
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
