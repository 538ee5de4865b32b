"""Pretrained: what a training starts from: an encoder that transformers can read, or the one within a model of kbq."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from safetensors import SafetensorError
from safetensors.torch import save_file

from kbq.encoding.weights import WEIGHTS, read_weights
from kbq.errors import ModelError, first_line
from kbq.system.files import writing_to

ENCODERS = {"kbq.json": "phrases.backbone.", "sparta.json": "backbone."}  # how the weights of a model's encoder begin


@contextmanager
def readable_checkpoint(source: str | Path) -> Iterator[str]:
    """A checkpoint that transformers reads: the source itself or, of a kbq model, its encoder, in a folder that is
    removed afterwards.

    Raises:
        ModelError: the model is damaged, or a query encoder, which has no phrase encoder of its own; or there is no
            room for temporary files.
    """
    folder = Path(source)
    config_name = next((name for name in ENCODERS if (folder / name).is_file()), None)
    if config_name is None:
        yield str(source)
        return
    try:
        base = json.loads((folder / config_name).read_text("utf-8")).get("base")
        if base:
            raise ModelError(f"{source} holds a query encoder for the model {base}: start from that")
        stored = read_weights(folder / WEIGHTS)
    except (OSError, ValueError, SafetensorError) as error:
        raise ModelError(f"model folder {source} is damaged: {first_line(error)}") from None
    prefix = ENCODERS[config_name]
    weights = {
        name.removeprefix(prefix): tensor.contiguous() for name, tensor in stored.items() if name.startswith(prefix)
    }
    with TemporaryDirectory() as place:
        with writing_to(Path(place), ModelError, "make room, or set TMPDIR to another folder", also=(SafetensorError,)):
            for path in folder.glob("*.json"):
                shutil.copy(path, place)
            save_file(weights, Path(place) / WEIGHTS, {"format": "pt"})
        yield place
