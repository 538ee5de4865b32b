"""Backbone: load a pretrained encoder from a model folder, a checkpoint or a hub name.

BERT runs in kbq's own code (`bert.py`), without transformers in folders that kbq wrote. Other
encoders, and checkpoints from elsewhere, are read by transformers.
"""

import logging
import os
import pickle
import shutil
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from kbq.errors import ModelError, first_line
from kbq.model.bert import CONFIG as BERT_CONFIG
from kbq.model.bert import Bert, BertConfig, is_bert
from kbq.model.model_folder import (
    CONFIG,
    SPARTA,
    WEIGHTS,
    local_folder,
    read_config,
    read_weights,
    record_name,
    refuse_bombs,
    refuse_damage,
    refuse_links,
    remedy,
)
from kbq.model.tokenizer import FILE, FastTokenizer, is_panic
from kbq.storage.limited import LimitedProcess, LimitExceeded
from kbq.storage.reading import reading_problem, refuse_large
from kbq.storage.records import LARGEST, digest_of_record, read_object
from kbq.storage.writing import writing_to

# Bytes that may be stored for a number of a network, and beside them.
MOST_STORED = 16
ADVICE = ": give `default`, a folder, or a name on the hub such as owner/name"
NO_SEQUENCES = "is not a sequence-to-sequence checkpoint that transformers can read"
BESIDE = 2**24
# Prefix of the names of an encoder's weights.
ENCODERS = {CONFIG: "phrases.backbone.", SPARTA: "backbone."}


@contextmanager
def readable_checkpoint(source: str | Path) -> Iterator[str]:
    """Yield a checkpoint that transformers can read: the source or, for a kbq model, a temporary
    copy of its encoder.

    Raises ModelError if the model is damaged, does not fit its weights, or is a query encoder,
    which has no phrase encoder of its own, or if there is no space for temporary files.
    """
    folder = Path(source)
    refuse_damage(folder)
    record = record_name(folder)
    if record not in ENCODERS:
        for path in [] if list(folder.glob("*.safetensors")) else sorted(folder.glob("*.bin")):
            try:
                refuse_bombs(path)  # transformers would read it
            except (OSError, ValueError) as error:
                raise ModelError(
                    reading_problem(path, error, "use a checkpoint with safetensors")
                ) from None
        if _stored(folder):  # a name of the hub has no folder yet
            refuse_other_size(folder)
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
        refuse_other_size(Path(copy))
        yield copy


@cache
def hugging_face() -> Any:
    """Import transformers on demand, as that takes seconds, so that it prints nothing and asks
    nothing.
    """
    # It would ask a service to publish a safetensors copy of a checkpoint that has none.
    os.environ.setdefault("DISABLE_SAFETENSORS_CONVERSION", "1")
    import transformers

    # Without this it asks on standard output whether to run a checkpoint's code, and reads the
    # answer from standard input, even where all its callers say no: it does not hand their answer
    # on to the parts of a checkpoint.
    transformers.dynamic_module_utils.TIME_OUT_REMOTE_CODE = 0
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    # kbq itself reports an unknown name.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    return transformers


@contextmanager
def reading(
    source: str | Path, problem: str = "is not a checkpoint that transformers can read"
) -> Iterator[None]:
    """Turn the many kinds of errors that transformers raises for a bad checkpoint into a ModelError
    of one sentence.
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
            f"the weights of {source} are damaged, or hold more than tensors: use a checkpoint "
            "with safetensors"
        ) from None
    except BaseException as error:
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        if "trust_remote_code" in str(error):
            needs = "needs code of its own, and kbq runs none"
            raise ModelError(
                f"{source} {needs}: use a checkpoint that transformers itself can read"
            ) from None
        raise ModelError(f"{source} {problem}: {first_line(error)}") from None


def model_folder(source: str | Path, kind: str = "model") -> Path:
    """Return the folder of a model: `default`, a folder, or a hub name, which is downloaded.
    Messages call it by its `kind`.

    Raises ModelError if there is none, or it has links.
    """
    folder = local_folder(source)
    if folder.is_dir():
        refuse_links(folder)
        return folder

    if folder.exists() or str(source).count("/") != 1 or str(source).startswith((".", "/", "~")):
        if folder.is_file():
            raise ModelError(f"{source} is a file: give the folder that holds it, {folder.parent}")
        raise ModelError(f"{kind} folder {source} does not exist{ADVICE}")

    hugging_face()  # also turns off the messages of huggingface_hub
    import huggingface_hub  # imported on demand: hub names are rare

    try:
        return Path(huggingface_hub.snapshot_download(str(source)))
    except Exception as error:  # huggingface_hub raises many kinds of errors
        raise ModelError(
            f"{kind} {source} is not a folder, nor found on the hub: {first_line(error)}"
        ) from None


def load_tokenizer(source: str | Path) -> Any:
    """Read the tokenizer of a checkpoint: a fast one, which gives character offsets, with [CLS],
    [SEP] and [PAD].

    Raises ModelError if there is none, it is not fast, or one of the three tokens is missing.
    """
    for path in Path(source).glob("*.*") if Path(source).is_dir() else ():
        if path.suffix in (".json", ".txt"):
            refuse_large(str(path), path.stat().st_size, ModelError, LARGEST)

    with reading(source, "has no tokenizer that transformers can read"):
        tokenizer = hugging_face().AutoTokenizer.from_pretrained(
            str(source), trust_remote_code=False, use_fast=True
        )

    if not tokenizer.is_fast:
        raise ModelError(
            f"the tokenizer of {source} gives no character offsets: "
            "use a checkpoint with a fast tokenizer (tokenizer.json)"
        )

    return _with_special_tokens(tokenizer, source)


def saved_tokenizer(folder: Path) -> Any:
    if not (folder / FILE).is_file():  # transformers would make one with an empty vocabulary
        raise ModelError(f"the tokenizer of {folder} is missing: the folder has no {FILE}")
    refuse_large(str(folder / FILE), (folder / FILE).stat().st_size, ModelError, LARGEST)
    tokenizer = FastTokenizer.read(folder)
    if tokenizer is None:
        return load_tokenizer(folder)
    return _with_special_tokens(tokenizer, folder)


def _with_special_tokens(tokenizer: Any, source: str | Path) -> Any:
    missing = [
        name for name in ("cls", "sep", "pad") if getattr(tokenizer, f"{name}_token_id") is None
    ]
    if missing:
        raise ModelError(
            f"the tokenizer of {source} has no {' and no '.join(missing)} token: use a BERT-like "
            "checkpoint"
        )
    return tokenizer


def pretrained_backbone(source: str | Path) -> Any:
    """Read the encoder of a checkpoint (a hub name or a folder); of a kbq model, its phrase or
    sentence encoder.
    """
    with reading(source):
        with readable_checkpoint(source) as checkpoint:
            pretrained, facts = hugging_face().AutoModel.from_pretrained(
                checkpoint, trust_remote_code=False, weights_only=True, output_loading_info=True
            )

        refuse_random(
            source, [name for name in facts["missing_keys"] if not name.startswith("pooler.")]
        )
        network = without_pooler(pretrained)
        config = network.config.to_dict()
        if not is_bert(config):
            return network
        bert = Bert(BertConfig(config))
        bert.load_state_dict(network.state_dict())

    return bert.eval()


def refuse_random(source: str | Path, missing: Collection[str]) -> None:
    """Raise ModelError if a checkpoint lacks weights, which would stay random."""
    if missing:
        raise ModelError(
            f"{source} lacks {len(missing)} weights of its encoder, the first is {min(missing)}: "
            "start from another checkpoint"
        )


def empty_backbone(folder: Path) -> Any:
    """Make the encoder that a model folder describes, with uninitialised or random weights, to be
    loaded afterwards.
    """
    refuse_other_size(folder)
    written = read_object(folder / BERT_CONFIG)
    if is_bert(written):
        return Bert(BertConfig(written))
    library = hugging_face()
    with reading(folder, f"has a damaged {BERT_CONFIG}"):
        described = library.AutoConfig.from_pretrained(str(folder), trust_remote_code=False)
        return without_pooler(library.AutoModel.from_config(described, trust_remote_code=False))


def sequence_to_sequence(checkpoint: str, source: str) -> tuple[Any, Any]:
    """Return the network and the tokenizer of a sequence-to-sequence checkpoint: a folder or a hub
    name, which messages call `source`.

    Raises ModelError if it is damaged, of another kind, or does not say how a text begins.
    """
    library = hugging_face()
    with reading(source, NO_SEQUENCES):
        network, facts = library.AutoModelForSeq2SeqLM.from_pretrained(
            checkpoint, trust_remote_code=False, weights_only=True, output_loading_info=True
        )
        tokenizer = library.AutoTokenizer.from_pretrained(checkpoint, trust_remote_code=False)

    if facts["missing_keys"]:
        raise ModelError(
            f"{source} lacks weights, the first is {min(facts['missing_keys'])}: fetch it again"
        )

    configs = network.generation_config, network.config
    if all(getattr(config, "decoder_start_token_id", None) is None for config in configs):
        raise ModelError(
            f"{source} names no decoder start token, with which an answer begins: add "
            "decoder_start_token_id to its config.json"
        )

    return network.eval(), tokenizer


def refuse_other_size(folder: Path) -> None:
    """Raise ModelError if a configuration is damaged, or has more or far fewer weights than lie
    beside it.

    So neither takes memory before it is known to fit the other.
    """
    path = folder / BERT_CONFIG
    stored = _stored(folder)
    try:
        config = read_object(path)
        numbers = (
            BertConfig(config).weights
            if is_bert(config)
            else _numbers(folder, digest_of_record(config))
        )
        if not numbers <= stored <= MOST_STORED * numbers + BESIDE:  # a number has a byte at least
            raise ValueError(
                f"it is of a network of {numbers:,} numbers, and the weights have {stored:,} bytes"
            )
    except (OSError, ValueError, RuntimeError) as error:
        raise ModelError(reading_problem(path, error, remedy(folder))) from None


def _stored(folder: Path) -> int:
    """Return the size of the weights in a folder, in bytes."""
    return sum(
        path.stat().st_size for form in ("*.safetensors", "*.bin") for path in folder.glob(form)
    )


@lru_cache(16)
def _numbers(folder: Path, digest: str) -> int:
    """Return how many numbers the network of a folder's configuration has, which is not BERT.
    Raises ValueError.
    """
    try:
        with LimitedProcess() as process:
            return process.call(_counted, folder)
    except LimitExceeded as problem:
        raise ValueError(f"its network cannot be made: {problem}") from None


def _counted(folder: Path) -> int:
    """In a child: count the numbers of a network without making them."""
    library = hugging_face()
    with reading(folder, f"has a damaged {BERT_CONFIG}"):
        described = library.AutoConfig.from_pretrained(str(folder), trust_remote_code=False)
        with torch.device("meta"):
            network = library.AutoModel.from_config(described, trust_remote_code=False)
    return sum(parameter.numel() for parameter in network.parameters())


def without_pooler(backbone: Any) -> Any:
    """Remove BERT's pooler: kbq uses the hidden states only."""
    if getattr(backbone, "pooler", None) is not None:
        backbone.pooler = None
    return backbone


def hidden_states(
    backbone: nn.Module, ids: Tensor, mask: Tensor, segments: Tensor | None
) -> Tensor:
    """Return last hidden states. Shapes: ids, mask, segments (texts, tokens); result (texts,
    tokens, dim), float32.
    """
    inputs = {"input_ids": ids, "attention_mask": mask}
    if segments is not None:
        inputs["token_type_ids"] = segments
    states: Tensor = backbone(**inputs).last_hidden_state
    return states.float()
