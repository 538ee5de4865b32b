"""Model folder: find a model by name, read its configuration, and check that its files are whole.

kbq.json      of models, and of query encoders that were tuned
sparta.json   of SPARTA models
seal.json     of readers, which are checkpoints of transformers otherwise
"""

import dataclasses
import json
import math
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeVar

from msgspec import Meta
from safetensors import SafetensorError

from kbq.errors import ModelError
from kbq.model.bert import CONFIG as BERT_CONFIG
from kbq.model.windows import WindowShape
from kbq.storage.files import PACKAGE, reading_from, reading_problem
from kbq.storage.records import (
    SEAL,
    SEAL_FORMAT,
    Damage,
    FileSeal,
    OtherFormatError,
    all_damage,
    first_damage,
    read_object,
    read_record,
    seal_of,
    write_record,
)
from kbq.storage.writing import is_in_hub_cache, refuse_strange_files
from kbq.text.markers import relation_key, slot_of

Record = TypeVar("Record")
CONFIG, SPARTA = "kbq.json", "sparta.json"
RECORDS = {CONFIG: 3, SPARTA: 2, SEAL: SEAL_FORMAT}  # format versions
PARTS = (".json", ".safetensors", ".txt", ".model")  # the endings of a model's files; a README is not one of them
FACTS = "training.json"  # how a model without a kbq.json was trained
OFFICIAL_WEIGHTS = "pytorch_model.bin"
DEFAULT_MODEL = Path(__file__).parents[1] / "models" / "default"
Threshold = Annotated[float, Meta(le=1e6)]  # of a logit


@dataclasses.dataclass(frozen=True, slots=True)
class ModelConfig:
    """The configuration of a model: everything but its weights."""

    window: WindowShape = dataclasses.field(default_factory=WindowShape)
    max_query_tokens: Annotated[int, Meta(ge=1, le=2**20)] = 128
    shared_query_encoder: bool = True
    filter_threshold: Threshold = -math.inf  # a token is kept if one of its filter logits is above; -inf keeps all
    edge_threshold: Threshold = -math.inf  # a kept token opens, or closes, phrases if that filter logit is above
    length_penalty: float = 0.0  # subtracted from a phrase's score for each token after the first
    marker_tokens: dict[str, str] = dataclasses.field(default_factory=dict)
    phrase_fingerprint: str = ""  # of the phrase encoder's weights; a knowledge base names the one it was built with
    query_fingerprint: str = ""  # of the query encoder's weights
    training: dict[str, object] = dataclasses.field(default_factory=dict)  # command, data, seed, versions
    base: str = ""  # of a tuned query encoder: the model with its phrase encoder
    # Multiplies the weights of BM25 and SPARTA, as the scale of dense scores differs.
    lexical_factor: Annotated[float, Meta(ge=0, le=1e6)] = 1.0
    value_offset: Threshold = 0.0  # the meaning of the value 0 in a row, in each dimension
    official_queries: bool = False  # as the original code asks them: long ones are cut, and a question mark is kept

    def __post_init__(self) -> None:
        # A negative penalty would silently break the bounds of exact search.
        if not isinstance(self.length_penalty, int | float) or not 0 <= self.length_penalty < math.inf:
            raise ValueError(f"length_penalty is {self.length_penalty!r}, must be a number, 0 or more")

    @property
    def tuned_relations(self) -> list[str]:
        """The relations on which a query encoder was fine-tuned; none if it was not."""
        facts = self.training.get("finetuning")
        named = facts.get("relations") if isinstance(facts, dict) else None
        return list(map(str, named)) if isinstance(named, list | tuple) else []

    def untuned_relations(self, queries: Iterable[str]) -> list[str]:
        """Return the relations of slot queries on which a fine-tuned query encoder was not trained; else none."""
        tuned = {relation_key(relation) for relation in self.tuned_relations}
        relations = {slot[1] for slot in map(slot_of, queries) if slot}
        return sorted(name for name in relations if relation_key(name) not in tuned) if tuned else []


@dataclasses.dataclass(frozen=True, slots=True)
class ModelRecord:
    """The content of `kbq.json`: the configuration of a model, and the other files of its folder by name."""

    config: ModelConfig
    files: dict[str, FileSeal]


def write_config(folder: Path, config: ModelConfig) -> None:
    """Write the configuration of a model folder, last of all its files, as they are sealed by it. Raises OSError."""
    config = dataclasses.replace(config, training=plain_facts(config.training))
    write_record(folder / CONFIG, ModelRecord(config, sealed_files(folder)), RECORDS[CONFIG])


def plain_facts(facts: dict[str, object]) -> dict[str, object]:
    """Return facts as JSON has them; NaN becomes null."""
    constants = {"NaN": None, "Infinity": math.inf, "-Infinity": -math.inf}
    plain: dict[str, object] = json.loads(json.dumps(facts), parse_constant=constants.get)
    return plain


def read_config(folder: Path) -> ModelConfig:
    """Read the configuration of a model folder. Raises ModelError if it is missing, damaged, or of another format."""
    return _read_record(folder).config


def digest_of(folder: Path, name: str) -> str:
    """Return the digest of a file of a model, as its record has it."""
    return _read_record(folder).files[name].digest


def _read_record(folder: Path) -> ModelRecord:
    try:
        return read_model_record(folder, CONFIG, ModelRecord)
    except FileNotFoundError:
        raise ModelError(f"{folder} is not a kbq model (no {CONFIG}): make one with `kbq train encoders`") from None


def read_whole_config(folder: Path) -> ModelConfig:
    """Read the same from a folder whose files are all as they were written; see `refuse_changes`."""
    record = _read_record(folder)
    refuse_changes(folder, record.files)
    return record.config


def local_folder(source: str | Path) -> Path:
    """Return the folder of a local model; `default` is the one that comes with kbq."""
    return DEFAULT_MODEL if str(source) == "default" else Path(source)


def lasting_name(source: str) -> str:
    """Return the name to record for a model: the absolute path of a folder; any other name unchanged."""
    return str(Path(source).resolve()) if source != "default" and Path(source).is_dir() else source


def is_official(folder: Path) -> bool:
    """Whether a folder holds a checkpoint that the official code wrote."""
    if (folder / CONFIG).exists() or not (folder / OFFICIAL_WEIGHTS).is_file():
        return False
    try:
        return read_object(folder / BERT_CONFIG).get("architectures") == ["Encoder"]
    except (OSError, ValueError):
        return False


# The record of the files


@dataclasses.dataclass(frozen=True, slots=True)
class _Listed:
    """The field that all records have."""

    files: dict[str, FileSeal]


def record_name(folder: Path) -> str | None:
    """Return the name of the record of a model, a tuned query encoder or another network of kbq; else None."""
    name = next((name for name in RECORDS if (folder / name).is_file()), None)  # indexes are sealed, too
    is_network = (folder / BERT_CONFIG).is_file() or any(folder.glob("*.safetensors"))
    return name if name != SEAL or is_network else None


def sealed_files(folder: Path) -> dict[str, FileSeal]:
    """Seal the files of a model as they are now, for its record. Raises OSError."""
    return {path.name: seal_of(path) for path in _parts(folder)}


def read_model_record(folder: Path, name: str, kind: type[Record]) -> Record:
    """Read the record of a model. Raises FileNotFoundError, or ModelError if it is damaged or of another version."""
    try:
        return _record(folder, name, kind)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, MemoryError) as error:
        raise ModelError(reading_problem(folder / name, error, remedy(folder))) from None


def _record(folder: Path, name: str, kind: type[Record]) -> Record:
    """Read a record. Raises OSError or ValueError, or ModelError for another format version or links."""
    refuse_links(folder)
    try:
        return read_record(folder / name, kind, RECORDS[name])
    except OtherFormatError as error:
        raise ModelError(
            f"model folder {folder} has format version {error.found}, this kbq reads {RECORDS[name]}: "
            "use the kbq version that wrote it"
        ) from None


def refuse_links(folder: Path) -> None:
    """Raise ModelError for a folder with links, other than those of the hub's cache, or with devices or pipes."""
    refuse_strange_files(folder, "a model", ModelError, is_in_hub_cache, deep=False)


def refuse_damage(folder: Path) -> None:
    """Raise ModelError if a file of a model is damaged; a folder without a record is not kbq's and has no digests."""
    refuse_links(folder)
    name = record_name(folder)
    if name is not None:
        refuse_changes(folder, read_model_record(folder, name, _Listed).files)


def refuse_changes(folder: Path, files: Mapping[str, FileSeal]) -> None:
    """Raise ModelError if a file of a model is missing, is not listed, or has another digest than its record lists."""
    placed = {folder / name: seal for name, seal in files.items()}
    damage = _strange(folder, placed) or first_damage(placed, at_most=sys.maxsize)
    if damage is not None:
        what_to_do = remedy(folder) if damage.path in placed else "take it out of the folder, or make the model again"
        raise ModelError(reading_problem(damage.path, damage.problem, what_to_do))


def model_files(folder: Path) -> dict[Path, FileSeal]:
    """Return the files of a model as its record lists them. Raises OSError, ValueError or ModelError, as `_record`."""
    listed = _record(folder, record_name(folder) or CONFIG, _Listed)
    return {folder / name: seal for name, seal in listed.files.items()}


def model_damage(folder: Path, report: Callable[[int], None]) -> Iterator[Damage]:
    """Yield all damage in the folder of a model; `report` is called with the bytes of each file that has been read.

    Raises ModelError if it is of another format version.
    """
    try:
        files = model_files(folder)
    except (OSError, ValueError) as error:
        yield Damage(folder / (record_name(folder) or CONFIG), error)
        return
    strange = _strange(folder, files)
    if strange is not None:
        yield strange
        files.pop(strange.path, None)
    yield from all_damage(files, report)


@contextmanager
def explained(path: Path, advice: str = "") -> Iterator[None]:
    """Raise ModelError with one sentence if a file of a model cannot be read: `reading_from`, also for safetensors.

    `advice`: what to do about damage; by default the `remedy` of its folder.
    """
    with reading_from(path, ModelError, advice or remedy(path.parent)):
        try:
            yield
        except SafetensorError as error:
            raise ValueError(str(error)) from None


def remedy(folder: Path) -> str:
    """Return advice about a damaged model."""
    if folder.resolve().is_relative_to(PACKAGE.resolve()):
        return "install kbq again"
    if record_name(folder) == SEAL:
        return f"restore it, make the network again, or delete {folder / SEAL} if you changed it yourself"
    return "restore it, or make the model again"


def _parts(folder: Path) -> list[Path]:
    names = sorted(path.name for path in folder.iterdir() if path.name.endswith(PARTS))
    # macOS leaves ._NAME beside NAME on other file systems, and in archives.
    return [folder / name for name in names if name not in RECORDS and name[:2] != "._" and (folder / name).is_file()]


def _strange(folder: Path, files: Mapping[Path, FileSeal]) -> Damage | None:
    """Find a listed file that lies elsewhere or is no file, or a file that would be read but is not listed."""
    for path in files:
        if path.parent != folder:
            return Damage(folder, ValueError(f"it lists {path}, which is elsewhere"))
        if path.exists() and not stat.S_ISREG(path.stat().st_mode):
            return Damage(path, ValueError("it is not a file"))
    for path in _parts(folder):
        if path not in files:
            return Damage(path, ValueError("it has come into the folder since the model was written"))
    return None
