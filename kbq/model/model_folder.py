"""Model folder: a model's checked files, found by its name.

kbq.json      of models, and of query encoders that were tuned
sparta.json   of SPARTA models
seal.json     of readers, which are checkpoints of transformers otherwise

Weights are stored by name, in float32, or in int8 with a scale per row, a quarter of the bytes: a
matrix NAME of shape (rows, columns) then comes with NAME.scale, of shape (rows, 1).

Of a pickle, PyTorch builds tensors and plain values alone. A child process tries it first, as it
may take very long.
"""

import dataclasses
import hashlib
import json
import math
import stat
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, TypeVar

import torch
from msgspec import Meta
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from kbq.answers import WeightType
from kbq.errors import ModelError
from kbq.model.bert import CONFIG as BERT_CONFIG
from kbq.model.tokenizer import WindowShape
from kbq.storage import records, seals
from kbq.storage.folders import is_in_hub_cache, refuse_strange_files
from kbq.storage.limited import MEMORY, LimitedProcess, LimitExceeded
from kbq.storage.paths import PACKAGE
from kbq.storage.reading import reading_from, reading_problem
from kbq.storage.writing import replacing
from kbq.text.queries import relation_key, slot_of

Record = TypeVar("Record")
CONFIG = "kbq.json"
SPARTA = "sparta.json"
RECORDS = {CONFIG: 3, SPARTA: 2, seals.SEAL: seals.SEAL_FORMAT}  # format versions
# The endings of a model's files; a README is not one of them.
PARTS = (".json", ".safetensors", ".txt", ".model")
FACTS = "training.json"  # how a model without a kbq.json was trained
OFFICIAL_WEIGHTS = "pytorch_model.bin"
DEFAULT_MODEL = Path(__file__).parents[1] / "models" / "default"
Threshold = Annotated[float, Meta(le=1e6)]  # a logit

WEIGHTS = "model.safetensors"
# Parts of a safetensors file: bytes that say how long its header is; facts there.
HEADER_LENGTH = 8
METADATA = "__metadata__"
NamedTensors = dict[str, Tensor]

SECONDS = 30.0  # time of computing, torch's import included


@dataclasses.dataclass(frozen=True, slots=True)
class ModelConfig:
    """The configuration of a model: everything but its weights."""

    window: WindowShape = dataclasses.field(default_factory=WindowShape)
    max_query_tokens: Annotated[int, Meta(ge=1, le=2**20)] = 128
    shared_query_encoder: bool = True
    # A token is kept if one of its filter logits is above; -inf keeps all.
    filter_threshold: Threshold = -math.inf
    # A kept token opens, or closes, phrases if that filter logit is above.
    edge_threshold: Threshold = -math.inf
    length_penalty: float = 0.0  # subtracted from a phrase's score for each token after the first
    marker_tokens: dict[str, str] = dataclasses.field(default_factory=dict)
    # Digest of the phrase encoder's weights, which a knowledge base names, too.
    phrase_fingerprint: str = ""
    query_fingerprint: str = ""  # digest of the query encoder's weights
    # command, data, seed, versions.
    training: dict[str, object] = dataclasses.field(default_factory=dict)
    base: str = ""  # a tuned query encoder's base: the model with its phrase encoder
    # Multiplies the weights of BM25 and SPARTA, as the scale of dense scores differs.
    lexical_factor: Annotated[float, Meta(ge=0, le=1e6)] = 1.0
    value_offset: Threshold = 0.0  # the meaning of the value 0 in a row, in each dimension
    # The original code's way: it cuts long queries and keeps a question mark.
    official_queries: bool = False

    def __post_init__(self) -> None:
        # A negative penalty would silently break the bounds of exact search.
        if (
            not isinstance(self.length_penalty, int | float)
            or not 0 <= self.length_penalty < math.inf
        ):
            raise ValueError(
                f"length_penalty is {self.length_penalty!r}, must be a number, 0 or more"
            )

    @property
    def tuned_relations(self) -> list[str]:
        """The relations on which a query encoder was fine-tuned; none if it was not."""
        facts = self.training.get("finetuning")
        named = None
        if isinstance(facts, dict):
            named = facts.get("relations")
        if isinstance(named, list | tuple):
            return list(map(str, named))
        return []

    def untuned_relations(self, queries: Iterable[str]) -> list[str]:
        """Return the relations of slot queries on which a fine-tuned query encoder was not trained;
        else none.
        """
        tuned = {relation_key(relation) for relation in self.tuned_relations}
        relations = {slot[1] for slot in map(slot_of, queries) if slot}
        return (
            sorted(name for name in relations if relation_key(name) not in tuned) if tuned else []
        )


@dataclasses.dataclass(frozen=True, slots=True)
class ModelRecord:
    """The content of `kbq.json`: the configuration of a model, and the other files of its folder by
    name.
    """

    config: ModelConfig
    files: dict[str, seals.FileSeal]


def write_config(folder: Path, config: ModelConfig) -> None:
    """Write the configuration of a model folder, last of all its files, as they are sealed by it.
    Raises OSError.
    """
    config = dataclasses.replace(config, training=plain_facts(config.training))
    records.write_record(
        folder / CONFIG, ModelRecord(config, sealed_files(folder)), RECORDS[CONFIG]
    )


def plain_facts(facts: dict[str, object]) -> dict[str, object]:
    """Return facts as JSON has them; NaN becomes null."""
    constants = {"NaN": None, "Infinity": math.inf, "-Infinity": -math.inf}
    plain: dict[str, object] = json.loads(json.dumps(facts), parse_constant=constants.get)
    return plain


def read_config(folder: Path) -> ModelConfig:
    """Read the configuration of a model folder. Raises ModelError if it is missing, damaged, or of
    another format.
    """
    return _read_record(folder).config


def digest_of(folder: Path, name: str) -> str:
    """Return the digest of a file of a model, as its record has it."""
    return _read_record(folder).files[name].digest


def _read_record(folder: Path) -> ModelRecord:
    try:
        return read_model_record(folder, CONFIG, ModelRecord)
    except FileNotFoundError:
        raise ModelError(
            f"{folder} is not a kbq model (no {CONFIG}): make one with `kbq train encoders`"
        ) from None


def read_whole_config(folder: Path) -> ModelConfig:
    """Read the same from a folder whose files are all as they were written; see `refuse_changes`."""
    record = _read_record(folder)
    refuse_changes(folder, record.files)
    return record.config


def local_folder(source: str | Path) -> Path:
    """Return the folder of a local model; `default` is the one that comes with kbq."""
    if str(source) == "default":
        return DEFAULT_MODEL
    return Path(source)


def lasting_name(source: str) -> str:
    """Return the name to record for a model: the absolute path of a folder; any other name
    unchanged.
    """
    if source != "default" and Path(source).is_dir():
        return str(Path(source).resolve())
    return source


def is_official(folder: Path) -> bool:
    if (folder / CONFIG).exists() or not (folder / OFFICIAL_WEIGHTS).is_file():
        return False
    try:
        return records.read_object(folder / BERT_CONFIG).get("architectures") == ["Encoder"]
    except (OSError, ValueError):
        return False


# The record of the files


@dataclasses.dataclass(frozen=True, slots=True)
class _Listed:
    """The field that all records have."""

    files: dict[str, seals.FileSeal]


def record_name(folder: Path) -> str | None:
    """Return the name of the record of a model, a tuned query encoder or another network of kbq;
    else None.
    """
    # Indexes are sealed, too.
    name = next((name for name in RECORDS if (folder / name).is_file()), None)
    is_network = (folder / BERT_CONFIG).is_file() or any(folder.glob("*.safetensors"))
    if name != seals.SEAL or is_network:
        return name
    return None


def sealed_files(folder: Path) -> dict[str, seals.FileSeal]:
    """Seal the files of a model as they are now, for its record. Raises OSError."""
    return {path.name: seals.seal_of(path) for path in _parts(folder)}


def read_model_record(folder: Path, name: str, kind: type[Record]) -> Record:
    """Read the record of a model. Raises FileNotFoundError, or ModelError if it is damaged or of
    another version.
    """
    try:
        return _record(folder, name, kind)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, MemoryError) as error:
        raise ModelError(reading_problem(folder / name, error, remedy(folder))) from None


def _record(folder: Path, name: str, kind: type[Record]) -> Record:
    """Read a record. Raises OSError or ValueError, or ModelError for another format version or
    links.
    """
    refuse_links(folder)
    try:
        return records.read_record(folder / name, kind, RECORDS[name])
    except records.OtherFormatError as error:
        raise ModelError(
            f"model folder {folder} has format version {error.found}, this kbq reads "
            f"{RECORDS[name]}: use the kbq version that wrote it"
        ) from None


def refuse_links(folder: Path) -> None:
    """Raise ModelError for a folder with links, other than those of the hub's cache, or with
    devices or pipes.
    """
    refuse_strange_files(folder, "a model", ModelError, is_in_hub_cache, deep=False)


def refuse_damage(folder: Path) -> None:
    """Raise ModelError if a file of a model is damaged; a folder without a record is not kbq's and
    has no digests.
    """
    refuse_links(folder)
    name = record_name(folder)
    if name is not None:
        refuse_changes(folder, read_model_record(folder, name, _Listed).files)


def refuse_changes(folder: Path, files: Mapping[str, seals.FileSeal]) -> None:
    """Raise ModelError if a file of a model is missing, is not listed, or has another digest than
    its record lists.
    """
    placed = {folder / name: seal for name, seal in files.items()}
    damage = _strange(folder, placed) or seals.first_damage(placed, at_most=sys.maxsize)
    if damage is not None:
        what_to_do = (
            remedy(folder)
            if damage.path in placed
            else "take it out of the folder, or make the model again"
        )
        raise ModelError(reading_problem(damage.path, damage.problem, what_to_do))


def model_files(folder: Path) -> dict[Path, seals.FileSeal]:
    """Return the files of a model as its record lists them. Raises OSError, ValueError or
    ModelError, as `_record`.
    """
    listed = _record(folder, record_name(folder) or CONFIG, _Listed)
    return {folder / name: seal for name, seal in listed.files.items()}


def model_damage(folder: Path, report: Callable[[int], None]) -> Iterator[seals.Damage]:
    """Yield all damage in the folder of a model; `report` is called with the bytes of each file
    that has been read.
    """
    try:
        files = model_files(folder)
    except (OSError, ValueError) as error:
        yield seals.Damage(folder / (record_name(folder) or CONFIG), error)
        return
    strange = _strange(folder, files)
    if strange is not None:
        yield strange
        files.pop(strange.path, None)
    yield from seals.all_damage(files, report)


@contextmanager
def explained(path: Path, advice: str = "") -> Iterator[None]:
    """Raise ModelError with one sentence if a file of a model cannot be read: `reading_from`, also
    for safetensors.

    `advice`: what to do about damage; by default the `remedy` of its folder.
    """
    with reading_from(path, ModelError, advice or remedy(path.parent)):
        try:
            yield
        except SafetensorError as error:
            raise ValueError(str(error)) from None


def remedy(folder: Path) -> str:
    if folder.resolve().is_relative_to(PACKAGE.resolve()):
        return "install kbq again"
    if record_name(folder) == seals.SEAL:
        return (
            f"restore it, make the network again, or delete {folder / seals.SEAL} if you changed "
            "it yourself"
        )
    return "restore it, or make the model again"


def _parts(folder: Path) -> list[Path]:
    names = sorted(path.name for path in folder.iterdir() if path.name.endswith(PARTS))
    # macOS leaves ._NAME beside NAME on other file systems, and in archives.
    return [
        folder / name
        for name in names
        if name not in RECORDS and name[:2] != "._" and (folder / name).is_file()
    ]


def _strange(folder: Path, files: Mapping[Path, seals.FileSeal]) -> seals.Damage | None:
    """Find a listed file that lies elsewhere or is no file, or a file that would be read but is not
    listed.
    """
    for path in files:
        if path.parent != folder:
            return seals.Damage(folder, ValueError(f"it lists {path}, which is elsewhere"))
        if path.exists() and not stat.S_ISREG(path.stat().st_mode):
            return seals.Damage(path, ValueError("it is not a file"))
    for path in _parts(folder):
        if path not in files:
            return seals.Damage(
                path, ValueError("it has come into the folder since the model was written")
            )
    return None


def named_weights(network: nn.Module, prefix: str, without: Tensor | None = None) -> NamedTensors:
    """Return the parameters of a network by name, except `without`; a shared one appears under its
    first name only.
    """
    if without is None:
        seen = set()
    else:
        seen = {without.data_ptr()}
    named = {}
    for name, tensor in network.state_dict().items():
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            named[prefix + name] = tensor.detach().cpu().contiguous()
    return named


def pack(weights: NamedTensors, weight_type: WeightType) -> NamedTensors:
    """Return the tensors to store: float32, or int8 with scales."""
    if weight_type == "float32":
        return {name: tensor.float() for name, tensor in weights.items()}
    packed = {}
    for name, tensor in weights.items():
        if tensor.ndim != 2:
            packed[name] = tensor.float()
            continue
        step = tensor.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / 127
        packed[name] = (tensor / step).round().to(torch.int8)
        packed[f"{name}.scale"] = step.float()
    return packed


def save_tensors(weights: NamedTensors, path: Path, facts: Mapping[str, str] | None = None) -> None:
    """Replace a file of weights; equal weights and facts give equal bytes. Raises OSError or
    SafetensorError.
    """
    with replacing(path) as partial:
        save_file(weights, partial, dict(facts) if facts else None)
        if not facts or len(facts) == 1:
            return
        # Safetensors writes facts in an order that differs between runs.
        with partial.open("r+b") as file:
            size = int.from_bytes(file.read(HEADER_LENGTH), "little")
            header = json.loads(file.read(size))
            header[METADATA] = dict(sorted(header[METADATA].items()))
            file.seek(HEADER_LENGTH)
            file.write(
                json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode().ljust(size)
            )


def read_weights(path: Path, prefix: str = "") -> NamedTensors:
    """Read the weights of a file whose names begin with `prefix`; int8 becomes float32. Raises
    ModelError.
    """
    with explained(path):
        stored = {
            name: tensor for name, tensor in load_file(path).items() if name.startswith(prefix)
        }
        refuse_not_finite(stored)
        return unpacked(stored)


def read_model_weights(folder: Path, config: ModelConfig) -> NamedTensors:
    """Read the weights of a model folder as they are stored.

    Raises ModelError if they are missing or damaged, or have other fingerprints than the config
    names.
    """
    with explained(folder / WEIGHTS):
        stored: NamedTensors = load_file(folder / WEIGHTS)
        parts = {
            "query": {
                name: tensor for name, tensor in stored.items() if name.startswith("queries.")
            }
        }
        if not config.base:
            parts["phrase"] = {
                name: tensor for name, tensor in stored.items() if name not in parts["query"]
            }

        for side, weights in parts.items():
            named = getattr(config, f"{side}_fingerprint")
            computed = fingerprint(weights)
            if named != computed:
                raise ValueError(f"its {side} fingerprint is {computed}, {CONFIG} names {named}")

        refuse_not_finite(stored)
        return stored


def unpacked(stored: NamedTensors) -> NamedTensors:
    """Return stored weights, with int8 as float32. Raises ValueError if a scale is missing, or of
    another shape.
    """
    weights = {name: tensor for name, tensor in stored.items() if not name.endswith(".scale")}
    for name, tensor in weights.items():
        if tensor.dtype == torch.int8:
            scale = stored.get(f"{name}.scale")
            # Any other shape could have any size.
            if scale is None or scale.shape != (*tensor.shape[:1], 1):
                raise ValueError(
                    f"it lacks {name}.scale, a number for each of {len(tensor):,} rows"
                )
            weights[name] = tensor.float() * scale
    return weights


def refuse_not_finite(weights: Mapping[str, Tensor]) -> None:
    """Raise ValueError for NaN and infinity, with which all answers are equally good, and for
    unusual types.
    """
    for name, tensor in weights.items():
        if tensor.is_complex() or (tensor.is_floating_point() and tensor.itemsize < 2):
            raise ValueError(f"its weight {name} holds {tensor.dtype}, which kbq does not read")
        # A pass without a copy, 20 times faster than `isfinite` of all elements; NaN is both the
        # least and the most.
        if (
            tensor.is_floating_point()
            and tensor.numel()
            and not all(map(math.isfinite, map(float, tensor.aminmax())))
        ):
            raise ValueError(f"its weight {name} holds NaN or infinity")


def load_weights(
    network: nn.Module,
    weights: NamedTensors,
    prefix: str,
    folder: Path,
    given: Tensor | None = None,
) -> None:
    """Load all parameters of a network except `given` from the weights, float32 or as stored, that
    begin with `prefix`.

    Raises ModelError if weights of the model in `folder` are missing, and would stay uninitialised,
    have other shapes or no place, or the place of another weight with other values.
    """
    own = {
        name.removeprefix(prefix): tensor
        for name, tensor in weights.items()
        if name.startswith(prefix)
    }
    with explained(folder / WEIGHTS):
        tensors = unpacked(own)
    places = network.state_dict()
    taken = {} if given is None else {given.data_ptr(): given}
    surplus = [name for name in tensors if name not in places]
    for name, parameter in places.items():
        if name in tensors:
            there = taken.setdefault(parameter.data_ptr(), tensors[name])
            if there is not tensors[name] and not torch.equal(there, tensors[name]):
                surplus.append(name)

    if surplus:
        raise ModelError(
            f"model folder {folder} has {len(surplus)} weights that its config has no place for, "
            f"the first is {prefix}{surplus[0]}: put back the config that belongs to them"
        )

    missing = [name for name, parameter in places.items() if parameter.data_ptr() not in taken]
    if missing:
        raise ModelError(
            f"model folder {folder} lacks {len(missing)} weights, the first is {prefix}{missing[0]}"
        )

    try:
        network.load_state_dict(tensors, strict=False)
    except RuntimeError as error:
        raise ModelError(
            f"the weights in {folder} do not fit its config: {str(error).splitlines()[-1].strip()}"
        ) from None


def refuse_other_weights(weights: Iterable[str], prefixes: tuple[str, ...], folder: Path) -> None:
    """Raise ModelError for weights that belong to none of the networks of a folder."""
    others = [name for name in weights if not name.startswith(prefixes)]
    if others:
        raise ModelError(
            f"model folder {folder} has {len(others)} weights of no network, the first is "
            f"{others[0]}"
        )


def fingerprint(weights: NamedTensors) -> str:
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(name.encode())
        # NumPy does not have every type.
        digest.update(weights[name].reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


def refuse_bombs(path: Path) -> None:
    """Raise ValueError for a pickle that would take far more time or memory than its size allows.

    PyTorch says all else that is wrong with it when it loads it.
    """
    size = path.stat().st_size
    with suppress(zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
        if sum(part.file_size for part in archive.infolist()) > size:
            raise ValueError("its parts are compressed, which PyTorch does not do")
    try:
        with LimitedProcess() as process:
            process.call(_try, path, seconds=SECONDS, memory=MEMORY + size)
    except LimitExceeded as problem:
        raise ValueError(str(problem)) from None


def _try(path: Path) -> None:
    with suppress(Exception):
        torch.load(path, "meta", weights_only=True, mmap=zipfile.is_zipfile(path))


def refuse_unusual(weights: Mapping[str, Tensor]) -> None:
    """Raise ValueError for tensors that are not plain: without values, sparse, quantised, larger
    than their storage.
    """
    for name, tensor in weights.items():
        is_plain = tensor.layout == torch.strided and tensor.device.type == "cpu"
        if not is_plain or tensor.is_quantized or tensor.is_nested or tensor.is_complex():
            raise ValueError(f"its weight {name:.100} is not a plain tensor")
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise ValueError(f"its weight {name:.100} has more values than are stored")
