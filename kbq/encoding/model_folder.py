"""Model folder: finding one by name; its configuration, `kbq.json`; and its weights, `model.safetensors`.

Weights are stored by name, in float32, or in int8 with a scale per row, a quarter of the bytes: a matrix NAME of shape
(rows, columns) then comes with NAME.scale, of shape (rows, 1).
"""

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from kbq.answers import WeightType
from kbq.encoding.windows import WindowShape
from kbq.errors import ModelError, first_line
from kbq.special_tokens import slot_of

FORMAT = 2
CONFIG = "kbq.json"
WEIGHTS = "model.safetensors"
FACTS = "training.json"  # how a model without a kbq.json was trained
DEFAULT_MODEL = Path(__file__).parents[1] / "models" / "default"
NamedTensors = dict[str, Tensor]


@dataclasses.dataclass(frozen=True, slots=True)
class ModelConfig:
    """The configuration of a model: everything but the weights."""

    window: WindowShape = dataclasses.field(default_factory=WindowShape)
    max_query_tokens: int = 128
    shared_query_encoder: bool = True
    filter_threshold: float = float("-inf")  # a token is kept if one of its filter logits is above; -inf keeps all
    edge_threshold: float = float("-inf")  # a kept token opens, or closes, phrases if that filter logit is above
    length_penalty: float = 0.0  # subtracted from a phrase's score for each token after the first
    marker_tokens: dict[str, str] = dataclasses.field(default_factory=dict)
    phrase_fingerprint: str = ""  # of the phrase encoder's weights; a knowledge base names the one it was built with
    query_fingerprint: str = ""  # of the query encoder's weights
    training: dict[str, object] = dataclasses.field(default_factory=dict)  # command, data, seed, versions
    base: str = ""  # of a tuned query encoder: the model with its phrase encoder
    lexical_factor: float = 1.0  # multiplies the weights of BM25 and SPARTA, as the scale of dense scores differs

    def __post_init__(self) -> None:
        # A negative penalty would silently break the bounds of exact search.
        if not isinstance(self.length_penalty, int | float) or not self.length_penalty >= 0:
            raise ValueError(f"length_penalty is {self.length_penalty!r}, must be a number, 0 or more")

    def untuned_relations(self, queries: Iterable[str]) -> list[str]:
        """The relations of slot queries on which a fine-tuned query encoder was not trained; none if not fine-tuned."""
        facts = self.training.get("finetuning")
        tuned = set(facts["relations"]) if isinstance(facts, dict) else set()
        relations = {slot[1] for slot in map(slot_of, queries) if slot}
        return sorted(relations - tuned) if tuned else []


def write_config(folder: Path, config: ModelConfig) -> None:
    """Write the configuration of a model folder."""
    written = {"format": FORMAT} | dataclasses.asdict(config)
    (folder / CONFIG).write_text(json.dumps(written, indent=1, ensure_ascii=False) + "\n", "utf-8")


def read_config(folder: Path) -> ModelConfig:
    """Read the configuration of a model folder.

    Raises:
        ModelError: it is missing, damaged, or of another format.
    """
    try:
        written = json.loads((folder / CONFIG).read_text("utf-8"))
    except FileNotFoundError:
        raise ModelError(f"{folder} is not a kbq model (no {CONFIG}): make one with `kbq train encoders`") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{folder / CONFIG} cannot be read: {first_line(error)}") from None
    if not isinstance(written, dict):
        raise ModelError(f"{folder / CONFIG} is damaged: it does not hold an object")
    version = written.pop("format", None)
    if version != FORMAT:
        raise ModelError(
            f"model folder {folder} has format version {version}, this kbq reads {FORMAT}: "
            "use the kbq version that wrote it"
        )
    try:
        return ModelConfig(**written | {"window": WindowShape(**written["window"])})
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{folder / CONFIG} is damaged: {first_line(error)}") from None


def local_folder(source: str | Path) -> Path:
    """The folder of a local model; `default` is the one that comes with kbq."""
    return DEFAULT_MODEL if str(source) == "default" else Path(source)


def lasting_name(source: str) -> str:
    """The name to record for a model: the absolute path of a folder; any other name unchanged."""
    return str(Path(source).resolve()) if source != "default" and Path(source).is_dir() else source


def named_weights(network: nn.Module, prefix: str, without: Tensor | None = None) -> NamedTensors:
    """The parameters of a network by name, without `without`; a shared parameter appears under its first name only."""
    seen = set() if without is None else {without.data_ptr()}
    named = {}
    for name, tensor in network.state_dict().items():
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            named[prefix + name] = tensor.detach().cpu().contiguous()
    return named


def pack(weights: NamedTensors, weight_type: WeightType) -> NamedTensors:
    """The tensors to store: float32, or int8 with scales."""
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


def read_weights(path: Path, prefix: str = "") -> NamedTensors:
    """Read the weights of a file whose names begin with `prefix`; int8 becomes float32.

    Raises:
        OSError, SafetensorError: the file is missing or damaged.
        ValueError: a scale is missing, or a weight holds what is no number.
    """
    stored = {name: tensor for name, tensor in load_file(path).items() if name.startswith(prefix)}
    refuse_not_finite(stored)
    weights = {name: tensor for name, tensor in stored.items() if not name.endswith(".scale")}
    return {
        name: tensor.float() * _scale_of(stored, name) if tensor.dtype == torch.int8 else tensor
        for name, tensor in weights.items()
    }


def refuse_not_finite(weights: Mapping[str, Tensor]) -> None:
    """Refuse NaN and infinity, with which every answer is as good as any other.

    Raises:
        ValueError: the first weight that holds one.
    """
    for name, tensor in weights.items():
        # A pass without a copy, 20 times faster than `isfinite` of all elements; NaN is both the least and the most.
        if tensor.is_floating_point() and tensor.numel() and not all(map(math.isfinite, map(float, tensor.aminmax()))):
            raise ValueError(f"its weight {name} holds NaN or infinity")


def _scale_of(stored: NamedTensors, name: str) -> Tensor:
    if f"{name}.scale" not in stored:
        raise ValueError(f"it lacks {name}.scale")
    return stored[f"{name}.scale"]


def load_weights(
    network: nn.Module, weights: NamedTensors, prefix: str, folder: Path, given: Tensor | None = None
) -> None:
    """Load all parameters of a network except `given`; none may be missing, or it would stay uninitialised.

    Raises:
        ModelError: weights of the model in `folder` are missing or surplus, or have other shapes.
    """
    tensors = {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}
    surplus = _surplus(network, tensors, given)
    if surplus:
        raise ModelError(
            f"model folder {folder} has {len(surplus)} weights that its config has no place for, the first is "
            f"{prefix}{surplus[0]}: put back the config that belongs to them"
        )
    shared = {tensor.data_ptr() for name, tensor in network.state_dict().items() if name in tensors}
    shared |= set() if given is None else {given.data_ptr()}
    missing = []
    for name, tensor in network.state_dict().items():
        if name not in tensors and tensor.data_ptr() not in shared:
            missing.append(name)
    if missing:
        raise ModelError(f"model folder {folder} lacks {len(missing)} weights, the first is {prefix}{missing[0]}")
    try:
        network.load_state_dict(tensors, strict=False)
    except RuntimeError as error:
        raise ModelError(
            f"the weights in {folder} do not fit its config: {str(error).splitlines()[-1].strip()}"
        ) from None


def _surplus(network: nn.Module, tensors: NamedTensors, given: Tensor | None) -> list[str]:
    """The names of weights that a network has no place for, or whose place another one with other values has taken."""
    places = network.state_dict()
    taken = {} if given is None else {given.data_ptr(): given}
    surplus = [name for name in tensors if name not in places]
    for name, place in places.items():
        if name in tensors and not torch.equal(taken.setdefault(place.data_ptr(), tensors[name]), tensors[name]):
            surplus.append(name)
    return surplus


def refuse_other_weights(weights: NamedTensors, prefixes: tuple[str, ...], folder: Path) -> None:
    """Refuse weights of none of the networks of a folder.

    Raises:
        ModelError: there are some.
    """
    others = [name for name in weights if not name.startswith(prefixes)]
    if others:
        raise ModelError(f"model folder {folder} has {len(others)} weights of no network, the first is {others[0]}")


def fingerprint(weights: NamedTensors) -> str:
    """A digest that identifies these weights."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(name.encode())
        digest.update(weights[name].numpy().tobytes())
    return digest.hexdigest()[:16]
