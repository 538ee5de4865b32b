"""Backbone: a model folder, a checkpoint or a hub name becomes a pretrained encoder and its tokenizer.

BERT runs in kbq's own code (`bert.py`), without transformers in folders that kbq wrote. Other encoders, and checkpoints
from elsewhere, are read by transformers.
"""

import logging
import os
import pickle
import shutil
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from kbq.errors import ModelError, first_line
from kbq.model.bert import CONFIG as BERT_CONFIG
from kbq.model.bert import Bert, BertConfig, is_bert
from kbq.model.model_folder import (
    CONFIG,
    SPARTA,
    local_folder,
    read_config,
    record_name,
    refuse_damage,
    refuse_links,
    remedy,
)
from kbq.model.pickled_weights import BombError, refuse_bombs
from kbq.model.tokenizer import FILE, MOST_GROWTH, FastTokenizer, growth, is_panic
from kbq.model.weights import WEIGHTS, read_weights
from kbq.storage.files import reading_problem
from kbq.storage.folders import files_for
from kbq.storage.records import read_object
from kbq.storage.seals import seal_folder
from kbq.storage.writing import writing_to

MAKERS = {torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.arange, torch.empty_like}
TIMES, BUFFERS = 4, 2**24  # numbers that may be made for a byte that is stored, and beside them
ENCODERS = {CONFIG: "phrases.backbone.", SPARTA: "backbone."}  # prefix of the names of an encoder's weights


@contextmanager
def readable_checkpoint(source: str | Path) -> Iterator[str]:
    """Yield a checkpoint that transformers can read: the source or, for a kbq model, a temporary copy of its encoder.

    What is read from it meanwhile must be no larger than its weights.

    Raises:
        ModelError: the model is damaged, or is a query encoder, which has no phrase encoder of its own; or there is no
            space for temporary files.
    """
    folder = Path(source)
    refuse_damage(folder)
    record = record_name(folder)
    if record not in ENCODERS:
        for path in [] if list(folder.glob("*.safetensors")) else sorted(folder.glob("*.bin")):
            try:
                refuse_bombs(path)  # transformers would read it
            except (OSError, BombError) as error:
                raise ModelError(reading_problem(path, error, "use a checkpoint with safetensors")) from None
        with _Bounded(folder) if folder.is_dir() else nullcontext():  # a name of the hub has no folder yet
            yield str(source)
        return
    if record == CONFIG and (base := read_config(folder).base):
        raise ModelError(f"{source} holds a query encoder for the model {base}: start from that")
    prefix = ENCODERS[record]
    stored = read_weights(folder / WEIGHTS, prefix)
    weights = {name.removeprefix(prefix): tensor.contiguous() for name, tensor in stored.items()}
    with TemporaryDirectory() as copy:
        advice = "free disk space, or set TMPDIR to another folder"
        with writing_to(Path(copy), ModelError, advice, also=(SafetensorError,)):
            for path in folder.glob("*.json"):
                shutil.copy(path, copy)
            save_file(weights, Path(copy) / WEIGHTS, {"format": "pt"})
        with _Bounded(Path(copy)):
            yield copy


@cache
def hugging_face() -> Any:
    """Import transformers on demand, as that takes seconds, so that it prints nothing and asks nothing."""
    # It would ask a service to publish a safetensors copy of a checkpoint that has none.
    os.environ.setdefault("DISABLE_SAFETENSORS_CONVERSION", "1")
    import transformers

    # Without this it asks on standard output whether to run a checkpoint's code, and reads the answer from standard
    # input, even where all its callers say no: it does not hand their answer on to the parts of a checkpoint.
    transformers.dynamic_module_utils.TIME_OUT_REMOTE_CODE = 0
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # kbq itself reports an unknown name
    return transformers


@contextmanager
def reading(source: str | Path, problem: str = "is not a checkpoint that transformers can read") -> Iterator[None]:
    """Turn the many kinds of errors that transformers raises for a bad checkpoint into one sentence.

    Raises:
        ModelError: it needs code of its own, its weights are a pickle of more than tensors, or it has another problem.
    """
    try:
        with warnings.catch_warnings():
            # PyTorch's advice to report a pickle that it does not read; the refusal is enough.
            warnings.filterwarnings("ignore", "Detected pickle protocol")
            yield
    except (ModelError, MemoryError):
        raise
    except (pickle.UnpicklingError, EOFError):
        raise ModelError(
            f"the weights of {source} are damaged, or hold more than tensors: use a checkpoint with safetensors"
        ) from None
    except BaseException as error:
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        if "trust_remote_code" in str(error):
            needs = "needs code of its own, and kbq runs none"
            raise ModelError(f"{source} {needs}: use a checkpoint that transformers itself can read") from None
        raise ModelError(f"{source} {problem}: {first_line(error)}") from None


def model_folder(source: str | Path) -> Path:
    """Return the folder of a model: `default`, a folder, or a hub name, which is downloaded.

    Raises:
        ModelError: there is none, or it has links.
    """
    folder = local_folder(source)
    if folder.is_dir():
        refuse_links(folder)
        return folder
    if folder.exists() or str(source).count("/") != 1 or str(source).startswith((".", "/", "~")):
        if folder.is_file():
            raise ModelError(f"{source} is a file: give the folder that holds it, {folder.parent}")
        raise ModelError(f"model folder {source} does not exist")
    hugging_face()  # also turns off the messages of huggingface_hub
    import huggingface_hub  # imported on demand: hub names are rare

    try:
        return Path(huggingface_hub.snapshot_download(str(source)))
    except Exception as error:  # huggingface_hub raises many kinds of errors
        raise ModelError(f"model {source} is not a folder, nor found on the hub: {first_line(error)}") from None


def load_tokenizer(source: str | Path) -> Any:
    """Read the tokenizer of a checkpoint: a fast one, which gives character offsets, with [CLS], [SEP] and [PAD].

    Raises:
        ModelError: there is none, it is not fast, or one of the three tokens is missing.
    """
    with reading(source, "has no tokenizer that transformers can read"):
        tokenizer = hugging_face().AutoTokenizer.from_pretrained(str(source), trust_remote_code=False, use_fast=True)
    if not tokenizer.is_fast:
        raise ModelError(
            f"the tokenizer of {source} gives no character offsets: "
            "use a checkpoint with a fast tokenizer (tokenizer.json)"
        )
    return _with_special_tokens(tokenizer, source)


def save_checkpoint(network: Any, tokenizer: Any, folder: Path) -> None:
    """Write an ordinary Hugging Face checkpoint. Raises ModelError if it cannot be written."""
    with writing_to(folder, ModelError, also=(SafetensorError,)):
        with files_for(folder) as partial:
            network.save_pretrained(partial)
            tokenizer.save_pretrained(partial)
        seal_folder(folder)


def saved_tokenizer(folder: Path) -> Any:
    """Read the tokenizer that kbq saved in a folder; see `load_tokenizer`."""
    if not (folder / FILE).is_file():  # transformers would make one with an empty vocabulary
        raise ModelError(f"the tokenizer of {folder} is missing: the folder has no {FILE}")
    tokenizer = FastTokenizer.read(folder)
    return load_tokenizer(folder) if tokenizer is None else _with_special_tokens(tokenizer, folder)


def _with_special_tokens(tokenizer: Any, source: str | Path) -> Any:
    missing = [name for name in ("cls", "sep", "pad") if getattr(tokenizer, f"{name}_token_id") is None]
    if missing:
        raise ModelError(
            f"the tokenizer of {source} has no {' and no '.join(missing)} token: use a BERT-like checkpoint"
        )
    with reading(source, "has a tokenizer that cannot be used"):
        if (times := growth(tokenizer)) > MOST_GROWTH:
            raise ModelError(f"the tokenizer of {source} makes a text {times:,} times as long: use another checkpoint")
    return tokenizer


def pretrained_backbone(source: str | Path) -> Any:
    """Read the encoder of a checkpoint (a hub name or a folder); of a kbq model, its phrase or sentence encoder.

    Raises:
        ModelError: there is no such checkpoint, or it is incomplete.
    """
    with reading(source):
        with readable_checkpoint(source) as checkpoint:
            pretrained, facts = hugging_face().AutoModel.from_pretrained(
                checkpoint, trust_remote_code=False, weights_only=True, output_loading_info=True
            )
        refuse_random(source, [name for name in facts["missing_keys"] if not name.startswith("pooler.")])
        network = without_pooler(pretrained)
        config = network.config.to_dict()
        if not is_bert(config):
            return network
        bert = Bert(BertConfig(config))
        bert.load_state_dict(network.state_dict())
    return bert.eval()


def refuse_random(source: str | Path, missing: Collection[str]) -> None:
    """Refuse a checkpoint that lacks weights, which would stay random. Raises ModelError if `missing` is not empty."""
    if missing:
        raise ModelError(
            f"{source} lacks {len(missing)} weights of its encoder, the first is {min(missing)}: "
            "start from another checkpoint"
        )


def empty_backbone(folder: Path) -> Any:
    """Make the encoder that a model folder describes, with uninitialised or random weights, to be loaded afterwards.

    Raises:
        ModelError: the configuration is missing or damaged.
    """
    try:
        written = read_object(folder / BERT_CONFIG)
        if is_bert(written):
            config = BertConfig(written)
            _refuse_larger(folder, config.weights)
            return Bert(config)
    except (OSError, ValueError, RuntimeError) as error:
        raise ModelError(reading_problem(folder / BERT_CONFIG, error, remedy(folder))) from None
    library = hugging_face()
    with reading(folder, f"has a damaged {BERT_CONFIG}"):
        described = library.AutoConfig.from_pretrained(str(folder), trust_remote_code=False)
        with torch.device("meta"), _Bounded(folder):  # which takes no memory
            library.AutoModel.from_config(described, trust_remote_code=False)
        return without_pooler(library.AutoModel.from_config(described, trust_remote_code=False))


def _refuse_larger(folder: Path, weights: int) -> None:
    """Refuse a configuration of a larger network than is stored, before memory is taken for it.

    Raises:
        ValueError: it is.
    """
    stored = _stored(folder)
    if stored < weights:  # a number has a byte at least
        raise ValueError(f"it is of a network of {weights:,} numbers, and the weights have {stored:,} bytes")


def _stored(folder: Path) -> int:
    """Return the size of the weights in a folder, in bytes."""
    return sum(path.stat().st_size for form in ("*.safetensors", "*.bin") for path in folder.glob(form))


class _Bounded(TorchFunctionMode):
    """Let a library make no larger network than is stored, however many layers its configuration has.

    What makes more raises ValueError; of a network in two bytes a number, each may be made and initialised eight times.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._bytes = _stored(folder)
        self._left = TIMES * self._bytes + BUFFERS

    def __torch_function__(self, make: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = make(*args, **(kwargs or {}))
        if make in MAKERS:
            self._left -= made.numel()
            if self._left < 0:
                raise ValueError(f"it is of a larger network than weights of {self._bytes:,} bytes are")
        return made


def without_pooler(backbone: Any) -> Any:
    """Remove BERT's pooler: kbq uses the hidden states only."""
    if getattr(backbone, "pooler", None) is not None:
        backbone.pooler = None
    return backbone


def hidden_states(backbone: nn.Module, ids: Tensor, mask: Tensor, segments: Tensor | None) -> Tensor:
    """Return last hidden states. Shapes: ids, mask, segments (texts, tokens); result (texts, tokens, dim), float32."""
    inputs = {"input_ids": ids, "attention_mask": mask}
    if segments is not None:
        inputs["token_type_ids"] = segments
    states: Tensor = backbone(**inputs).last_hidden_state
    return states.float()
