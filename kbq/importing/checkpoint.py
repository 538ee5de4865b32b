"""Checkpoint: import a checkpoint of DensePhrases as a model that gives the same vectors.
`kbq import checkpoint`.

pytorch_model.bin   phrase_encoder.*, query_start_encoder.*, query_end_encoder.*, filter_linear.*;
                    1.1 leaves out the phrase encoder after query-side fine-tuning
config.json         of the BERT that all three are; of it, only what the weights do not say is
believed
vocab.txt           often missing; tokenizer_config.json may say whether it is cased

Nothing in these files can run code: the weights are read as tensors alone.
"""

import dataclasses
import pickle
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from torch import Tensor

from kbq.errors import ModelError, first_line
from kbq.model.backbone import model_folder
from kbq.model.bert import CONFIG as BERT_CONFIG
from kbq.model.bert import Bert, BertConfig
from kbq.model.model import Model
from kbq.model.model_folder import OFFICIAL_WEIGHTS as WEIGHTS
from kbq.model.model_folder import (
    ModelConfig,
    NamedTensors,
    explained,
    fingerprint,
    load_weights,
    refuse_bombs,
    refuse_not_finite,
    refuse_unusual,
)
from kbq.model.tokenizer import BERT, FILE, FastTokenizer, WindowShape
from kbq.model.tokenizer import CONFIG as TOKENIZER_CONFIG
from kbq.storage.paths import as_path
from kbq.storage.reading import reading_problem
from kbq.storage.records import read_object
from kbq.training.output_folder import output_folder, versions

VOCABULARY = "vocab.txt"
PHRASES = "phrase_encoder."
START = "query_start_encoder."
END = "query_end_encoder."
FILTER = "filter_linear."
NAMES = {
    PHRASES: "phrases.backbone.",
    START: "queries.start.",
    END: "queries.end.",
    FILTER: "phrases.filter.",
}
# Names of the first version.
EARLIER = {"bert_start.": PHRASES, "bert_q_start.": START, "bert_q_end.": END}
TEACHER = "cross_encoder", "bert_qd", "qa_outputs"  # weights that were needed to train it
TABLE = "embeddings.word_embeddings.weight"
UNUSED = "pooler.", "embeddings.position_ids"
# Scale of the int8 values in an official dump.
OFFSET = -2.0
STEP = 1 / 20
WINDOW = 512
OVERLAP = 64
QUERY_TOKENS = 64
AGAIN = "download it again"


@dataclass(frozen=True, slots=True)
class OfficialCheckpoint:
    """The weights of an official checkpoint, by the names that they have in a model."""

    folder: Path
    shape: BertConfig
    weights: NamedTensors
    has_phrases: bool  # or it can only encode queries

    def config(self) -> ModelConfig:
        """Return the configuration of a model that gives the same vectors as the official code."""
        longest = self.shape.max_position_embeddings
        queries = {
            name: tensor for name, tensor in self.weights.items() if name.startswith("queries.")
        }
        phrases = {name: tensor for name, tensor in self.weights.items() if name not in queries}

        return ModelConfig(
            window=WindowShape(min(WINDOW, longest), min(OVERLAP, longest // 4), title_segment=1),
            max_query_tokens=min(QUERY_TOKENS, longest),
            shared_query_encoder=False,
            marker_tokens={"[SEP]": "[SEP]"},
            phrase_fingerprint=fingerprint(phrases),
            query_fingerprint=fingerprint(queries),
            value_offset=OFFSET,
            official_queries=True,
        )


def read_checkpoint(folder: Path) -> OfficialCheckpoint:
    """Read an official checkpoint, with or without a phrase encoder.

    Raises ModelError if a file is missing or damaged, or weights are missing or of other shapes.
    """
    stored = _current_names(_read_tensors(folder / WEIGHTS))
    table = stored.get(START + TABLE)
    if table is None or table.ndim != 2:
        raise ModelError(
            f"{folder / WEIGHTS} is not a checkpoint of DensePhrases: it has no weight "
            f"{START + TABLE}"
        )

    shape = _shape(folder, stored)
    has_phrases = any(name.startswith(PHRASES) for name in stored)
    if not has_phrases:
        stored = {name: tensor for name, tensor in stored.items() if not name.startswith(FILTER)}
    encoders: tuple[str, ...] = (START, END)
    if has_phrases:
        encoders = (PHRASES, START, END)
    _refuse_misfits(folder, stored, shape, encoders)
    weights = {_own_name(name): tensor.float().contiguous() for name, tensor in stored.items()}
    with explained(folder / WEIGHTS, AGAIN):
        refuse_not_finite(weights)
    if has_phrases:
        for encoder in (START, END):
            if not torch.equal(
                weights.pop(_own_name(encoder + TABLE)), weights[_own_name(PHRASES + TABLE)]
            ):
                raise ModelError(
                    f"the word embeddings of {encoder}* and {PHRASES}* differ in {folder}, where "
                    "the official training keeps them equal: kbq shares one table and cannot use "
                    "this checkpoint"
                )
        weights["scale"] = torch.full((shape.hidden_size,), STEP)

    return OfficialCheckpoint(folder, shape, weights, has_phrases)


def read_vocabulary(folder: Path, size: int) -> FastTokenizer:
    """Read the tokenizer of a folder that has `vocab.txt`, or the tokenizer of a model.

    A vocabulary that does not say its case is cased if it has a capital letter: the tokenizer's own
    default would read it in lower case, without an error. Raises ModelError if there is none, or it
    is damaged or not of `size` pieces.
    """
    with explained(folder / VOCABULARY, AGAIN):
        tokenizer = (
            _from_pieces(folder) if (folder / VOCABULARY).is_file() else FastTokenizer.read(folder)
        )

    if tokenizer is None:
        raise ModelError(
            f"{folder} has no vocabulary ({VOCABULARY} or {FILE}): import it with `kbq import "
            f"checkpoint {folder} --vocabulary FOLDER`, where FOLDER has that of the network it "
            "was trained from"
        )

    pieces = len(tokenizer.get_vocab())
    if pieces != size:
        raise ModelError(
            f"the vocabulary of {folder} has {pieces:,} pieces, the weights are for {size:,}: "
            "give the one of the network that the checkpoint was trained from with --vocabulary"
        )

    return tokenizer


def _read_tensors(path: Path) -> NamedTensors:
    """Read a file of weights, as tensors alone."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Detected pickle protocol")
            refuse_bombs(path)
            content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        advice = (
            "give the folder of an official checkpoint"
            if isinstance(error, FileNotFoundError)
            else AGAIN
        )
        raise ModelError(reading_problem(path, error, advice)) from None
    except pickle.UnpicklingError:
        raise ModelError(
            f"{path} holds more than tensors, or is damaged: reading the rest could run code, so "
            "nothing is read; use a checkpoint from a source that you know"
        ) from None
    except Exception as error:  # PyTorch raises many kinds of errors
        raise ModelError(f"{path} is damaged ({first_line(error)[:100]}): {AGAIN}") from None

    if (
        not isinstance(content, Mapping)
        or not content
        or not all(isinstance(one, Tensor) for one in content.values())
    ):
        raise ModelError(
            f"{path} does not hold named weights: give the folder of an official checkpoint"
        )

    weights = {str(name): tensor.detach() for name, tensor in content.items()}
    with explained(path, AGAIN):
        refuse_unusual(weights)
    return weights


def _current_names(stored: Mapping[str, Tensor]) -> NamedTensors:
    """Return weights by the names of version 1.0, without those that only training needs."""
    current = {}
    for name, tensor in stored.items():
        if name.startswith(TEACHER):
            continue
        old = next((prefix for prefix in EARLIER if name.startswith(prefix)), "")
        if old:
            name = EARLIER[old] + name.removeprefix(old)
        if not name.partition(".")[2].startswith(UNUSED):
            current[name] = tensor
    return current


def _own_name(name: str) -> str:
    """Return the name of a weight in a model."""
    prefix = next(prefix for prefix in NAMES if name.startswith(prefix))
    return NAMES[prefix] + name.removeprefix(prefix)


def _shape(folder: Path, stored: Mapping[str, Tensor]) -> BertConfig:
    """Return the shape of the encoders: the sizes of the weights, and what the configuration says
    of the rest.
    """
    names = [name.removeprefix(START) for name in stored if name.startswith(START)]
    layers = {name.split(".")[2] for name in names if name.startswith("encoder.layer.")}
    tables = [
        stored.get(START + f"embeddings.{kind}_embeddings.weight")
        for kind in ("word", "position", "token_type")
    ]
    inner = stored.get(START + "encoder.layer.0.intermediate.dense.bias")
    shapes = [tuple(table.shape) for table in tables if table is not None and table.ndim == 2]
    if inner is None or len(shapes) < len(tables):
        raise ModelError(
            f"{folder / WEIGHTS} lacks the embeddings or the first layer of {START}*: {AGAIN}"
        )

    (words, hidden), (places, _), (kinds, _) = shapes
    sizes = {
        "vocab_size": words,
        "max_position_embeddings": places,
        "type_vocab_size": kinds,
        "hidden_size": hidden,
        "intermediate_size": len(inner),
        "num_hidden_layers": len(layers),
    }
    with explained(folder / BERT_CONFIG, "put back the one of this checkpoint"):
        written = read_object(folder / BERT_CONFIG)
        for name, size in sizes.items():
            if written.get(name, size) != size:
                raise ValueError(f"{name} is {written[name]!r}, the weights have {size}")

        if written.get("hidden_act", "gelu") != "gelu":
            raise ValueError(f"hidden_act is {written['hidden_act']!r}, only 'gelu' is supported")
        heads = written.get("num_attention_heads")
        if not isinstance(heads, int):
            raise ValueError(f"num_attention_heads is {heads!r}, must be a number")
        eps = {"layer_norm_eps": written.get("layer_norm_eps", 1e-12)}
        own = {"model_type": "bert", "full_precision": True, "num_attention_heads": heads}
        return BertConfig(own | sizes | eps)


def _refuse_misfits(
    folder: Path, stored: Mapping[str, Tensor], shape: BertConfig, encoders: Iterable[str]
) -> None:
    """Refuse missing weights, which would stay random without an error, and others that have no
    place.
    """
    with torch.device("meta"):
        places = {name: tuple(tensor.shape) for name, tensor in Bert(shape).state_dict().items()}
    expected = {}
    for encoder in encoders:
        for name, size in places.items():
            expected[encoder + name] = size
    if PHRASES in encoders:
        expected |= {FILTER + "weight": (2, shape.hidden_size), FILTER + "bias": (2,)}
    for what, names in (
        ("lacks", set(expected) - set(stored)),
        ("has no place for", set(stored) - set(expected)),
    ):
        if names:
            raise ModelError(
                f"{folder / WEIGHTS} {what} {len(names)} weights, the first is {min(names)}: "
                f"{AGAIN}"
            )

    for name, size in expected.items():
        found = tuple(stored[name].shape)
        if found != size:
            raise ModelError(
                f"the weight {name} in {folder / WEIGHTS} has the shape {found}, not {size}: "
                f"{AGAIN}"
            )


def _from_pieces(folder: Path) -> FastTokenizer:
    """Read the tokenizer that `vocab.txt` describes. Raises OSError or ValueError."""
    pieces = (folder / VOCABULARY).read_text("utf-8").removesuffix("\n").split("\n")
    numbers = {piece.rstrip("\r"): number for number, piece in enumerate(pieces)}
    if len(numbers) < len(pieces):
        raise ValueError("a piece occurs twice")
    path = folder / TOKENIZER_CONFIG
    lower = None
    if path.is_file():
        lower = read_object(path).get("do_lower_case")
    if not isinstance(lower, bool):
        lower = not any(piece != piece.lower() for piece in numbers if not piece.startswith("["))
    inner = Tokenizer(WordPiece(numbers, unk_token="[UNK]", max_input_chars_per_word=100))
    inner.normalizer = BertNormalizer(lowercase=lower)
    inner.pre_tokenizer = BertPreTokenizer()
    special = [token for name, token in BERT.items() if name.endswith("_token")]
    missing = [token for token in special if token not in numbers]
    if missing:
        raise ValueError(f"it has no {missing[0]}")
    inner.add_special_tokens(special)

    return FastTokenizer(inner, {"tokenizer_class": "BertTokenizer"} | BERT)


@dataclass(frozen=True, slots=True)
class ImportedModel:
    """An imported model; `base` is the model with its phrase encoder, or empty if it has its own."""

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
        vocabulary: folder or hub name of a network with the same word pieces, where the checkpoint
            has none.
        base: the model whose query encoder this is, where the checkpoint has no phrase encoder.

    Raises:
        ModelError: a file is missing or damaged, the weights are not those of a checkpoint, or
            nothing can be encoded with them.
        TrainingError: `out` exists or cannot be written.
    """
    folder = model_folder(as_path(source, "a checkpoint"))
    checkpoint = read_checkpoint(folder)
    facts: dict[str, object] = {
        "command": command,
        "imported": Path(source).name,
        "versions": versions(),
    }
    if base is not None:
        model = Model.open(as_path(base, "a model"), "cpu")
        _take_queries(model, checkpoint)
    else:
        model = Model.of_official(
            checkpoint, folder if vocabulary is None else model_folder(vocabulary), "cpu"
        )

    with output_folder(as_path(out, "out")) as work:
        if base is not None:
            model.save_query_encoder(work / "model", facts)
        else:
            model.config = dataclasses.replace(model.config, training=facts)
            model.save(work / "model")

    shape = checkpoint.shape
    config = model.config
    return ImportedModel(
        Path(out),
        shape.hidden_size,
        shape.num_hidden_layers,
        shape.vocab_size,
        config.phrase_fingerprint,
        config.query_fingerprint,
        config.base,
    )


def _take_queries(model: Model, checkpoint: OfficialCheckpoint) -> None:
    """Encode queries with an official checkpoint that was tuned from the one that the model was
    made of.
    """
    folder = checkpoint.folder
    source = model.source
    own = model.queries.start.config
    if model.config.base or not model.config.official_queries:
        kind = (
            "is a query encoder itself"
            if model.config.base
            else "was not made of a checkpoint of DensePhrases"
        )
        raise ModelError(
            f"{source} {kind}: give the model of the checkpoint that {folder} was tuned from"
        )

    weights = {
        name: value for name, value in checkpoint.weights.items() if name.startswith("queries.")
    }
    tables = [weights.pop(f"queries.{side}.{TABLE}", None) for side in ("start", "end")]
    table = model.word_embeddings
    shared = table.detach().cpu()
    if own.written != checkpoint.shape.written or not all(
        one is None or torch.equal(one, shared) for one in tables
    ):
        raise ModelError(
            f"the query encoders of {folder} have other sizes or word embeddings than the model "
            f"{source}: give the model of the checkpoint that they were tuned from"
        )

    load_weights(model.queries, weights, "queries.", folder, given=table)
