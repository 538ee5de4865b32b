"""Config: what a model folder says of itself (`kbq.json`), and where the folder lies."""

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path

from kbq.encoding.windows import WindowShape
from kbq.errors import ModelError, first_line
from kbq.text.markers import slot_of

FORMAT = 2
CONFIG = "kbq.json"
DEFAULT_MODEL = Path(__file__).parents[1] / "models" / "default"


@dataclasses.dataclass(frozen=True, slots=True)
class ModelConfig:
    """What the weights alone do not say."""

    window: WindowShape = dataclasses.field(default_factory=WindowShape)
    max_query_tokens: int = 128
    shared_query_encoder: bool = True
    filter_threshold: float = float("-inf")  # a token is kept when one of its filter logits is above; -inf keeps all
    edge_threshold: float = float("-inf")  # a kept token opens, or closes, phrases when that filter logit is above
    length_penalty: float = 0.0  # what each token of a phrase after the first takes from its score
    marker_tokens: dict[str, str] = dataclasses.field(default_factory=dict)
    phrase_fingerprint: str = ""  # of the phrase side's weights: a knowledge base names the one it was built with
    query_fingerprint: str = ""  # of the query side's weights
    training: dict[str, object] = dataclasses.field(default_factory=dict)  # command, data, seed, versions
    base: str = ""  # of a query-encoder folder: the model that has the phrase side
    lexical_factor: float = 1.0  # what the weights of words beside the vectors are multiplied by: scores differ in size

    def __post_init__(self) -> None:
        # A negative one would silently break the bounds of exact search.
        if not isinstance(self.length_penalty, int | float) or not self.length_penalty >= 0:
            raise ValueError(f"length_penalty is {self.length_penalty!r}, must be a number, 0 or more")

    def untuned_relations(self, queries: Iterable[str]) -> list[str]:
        """Relations of slot queries that the query encoder was not tuned on, where it was tuned on slots at all."""
        facts = self.training.get("finetuning")
        tuned = set(facts["relations"]) if isinstance(facts, dict) else set()
        relations = {slot[1] for slot in map(slot_of, queries) if slot}
        return sorted(relations - tuned) if tuned else []


def write_config(folder: Path, config: ModelConfig) -> None:
    """Write the `kbq.json` of a model folder."""
    written = {"format": FORMAT} | dataclasses.asdict(config)
    (folder / CONFIG).write_text(json.dumps(written, indent=1, ensure_ascii=False) + "\n", "utf-8")


def read_config(folder: Path) -> ModelConfig:
    """The `kbq.json` of a model folder. Raises ModelError where it is not one, or of another format."""
    try:
        written = json.loads((folder / CONFIG).read_text("utf-8"))
    except FileNotFoundError:
        raise ModelError(f"{folder} is no kbq model (it has no {CONFIG}): make one with `kbq train`") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{folder / CONFIG} cannot be read: {first_line(error)}") from None
    if not isinstance(written, dict):
        raise ModelError(f"{folder / CONFIG} is not whole: it holds no object")
    version = written.pop("format", None)
    if version != FORMAT:
        raise ModelError(f"model folder {folder} is of another format than {FORMAT}: use the kbq version that wrote it")
    try:
        return ModelConfig(**written | {"window": WindowShape(**written["window"])})
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{folder / CONFIG} is not whole: {first_line(error)}") from None


def local_folder(source: str | Path) -> Path:
    """The folder of a local model: `default` stands for the one that ships with kbq."""
    return DEFAULT_MODEL if str(source) == "default" else Path(source)


def lasting_name(source: str) -> str:
    """A folder by its whole path, so that it is found from anywhere; other names as they are."""
    return str(Path(source).resolve()) if source != "default" and Path(source).is_dir() else source


def model_folder(source: str | Path) -> Path:
    """Where a model lies: `default`, a folder, or a hub name that leads to one.

    Raises:
        ModelError: there is none.
    """
    folder = local_folder(source)
    if folder.is_dir():
        return folder
    if folder.exists() or str(source).count("/") != 1 or str(source).startswith((".", "/", "~")):
        raise ModelError(f"model folder {source} does not exist")
    from kbq.encoding.backbone import hugging_face  # only here: a hub name is the rare case

    hugging_face()  # makes the hub's library quiet, too
    import huggingface_hub

    try:
        return Path(huggingface_hub.snapshot_download(str(source)))
    except Exception as error:  # the hub library raises errors of many families
        raise ModelError(f"model {source} is no folder, and the hub does not give it: {first_line(error)}") from None
