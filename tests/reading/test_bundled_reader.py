"""Bundled reader: it reads as the checkpoint did that it was made of, stores nothing twice, fits
one model alone.
"""

import copy
import dataclasses
import importlib.util
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from average_models import average_readers
from bundle_reader import question_answering, save_reader
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from kbq.answers import WeightType
from kbq.errors import ModelError
from kbq.model.model import Model
from kbq.reading.reader import READER, Reader, open_reader

ROOT = Path(__file__).parents[2]
QUESTION, TEXT = [2, 8, 9, 3], [12, 13, 14, 11, 7]


def train_a_little(reader: Reader) -> None:
    """Stands for a training: whatever may learn, moves."""
    torch.manual_seed(4)
    with torch.no_grad():
        for parameter in reader.network.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn_like(parameter))
    reader.network.eval()


@pytest.fixture(params=["float32", "int8"])
def folder(request: Any, new_model: Callable[..., Model], tmp_path: Path) -> Path:
    weights: WeightType = request.param
    new_model().save(tmp_path / "m", weights)
    return tmp_path / "m"


@pytest.fixture
def trained(folder: Path) -> Reader:
    reader = Reader.new(str(folder), "cpu")
    train_a_little(reader)
    save_reader(reader.network, folder)
    return reader


def test_it_reads_as_before(folder: Path, trained: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "kbq.reading.reader.autocast", lambda device: torch.autocast("cpu", enabled=False)
    )
    bundled = Reader.open(str(folder), "cpu")
    expected, found = (
        reader.score([reader.windows(QUESTION, TEXT)])[0] for reader in (trained, bundled)
    )
    assert found.shape == (2, len(TEXT))
    assert found == pytest.approx(expected, abs=0.1 * float(np.abs(expected).max()))  # rows of int8
    assert bundled.windows(QUESTION, TEXT) == trained.windows(QUESTION, TEXT)
    bundled.check_tokenizer(trained.tokenizer)
    Model.open(folder, "cpu")  # is none the worse


def test_whether_it_reads_earlier_mentions_is_kept(folder: Path, trained: Reader) -> None:
    assert not open_reader(folder).reads_mentions
    network = question_answering(trained.network)
    network.reads_mentions = True
    save_reader(network, folder)
    assert open_reader(folder).reads_mentions


def test_an_average_reads_earlier_mentions_if_one_of_its_readers_does(trained: Reader) -> None:
    other = copy.copy(trained)
    network: Any = copy.deepcopy(trained.network)
    network.reads_mentions = True
    other.network = network
    assert average_readers([trained, other]).network.reads_mentions
    assert not getattr(average_readers([trained, trained]).network, "reads_mentions", False)


def test_the_models_word_embeddings_are_not_stored_again(folder: Path, trained: Reader) -> None:
    stored = load_file(folder / READER)
    assert "backbone.embeddings.position_embeddings.weight" in stored
    assert not [name for name in stored if "word_embeddings" in name]
    backbone: Any = Reader.open(str(folder), "cpu").network.get_submodule("backbone")
    own = backbone.get_input_embeddings().weight
    assert torch.equal(own, trained.network.get_input_embeddings().weight)  # type: ignore[operator]


def test_default_is_the_reader_of_the_default_model(
    folder: Path, trained: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbq.model.model_folder.DEFAULT_MODEL", folder)
    reader = Reader.open("default", "cpu")
    assert reader.source == "default"
    assert reader.fingerprint() == Reader.open(str(folder), "cpu").fingerprint()


def test_a_model_without_one_says_so(folder: Path) -> None:
    with pytest.raises(
        ModelError, match=r"the model .*m has no reader: train one with `kbq train reader`"
    ):
        Reader.open(str(folder), "cpu")


def test_one_of_other_weights_is_refused(
    folder: Path, trained: Reader, new_model: Callable[..., Model]
) -> None:
    other = new_model()
    with torch.no_grad():
        other.phrases.filter.weight.add_(1)
    other.save(folder)
    with pytest.raises(
        ModelError,
        match=r"reader.safetensors belongs to the phrase encoder \w+, but the model has \w+",
    ):
        Reader.open(str(folder), "cpu")


def test_a_damaged_one_is_refused(folder: Path, trained: Reader) -> None:
    (folder / READER).write_bytes(b"")
    with pytest.raises(ModelError, match=r"reader.safetensors is damaged"):
        Reader.open(str(folder), "cpu")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"head.bias": torch.tensor([0, math.nan])},
            r"reader.safetensors is damaged \(its weight head.bias holds NaN",
        ),
        (
            {"other": torch.ones(2)},
            r"has 1 weights that its config has no place for, the first is other",
        ),
    ],
)
def test_weights_that_cannot_be_used_are_refused(
    change: dict[str, torch.Tensor],
    message: str,
    folder: Path,
    trained: Reader,
    seal_again: Callable[[Path], None],
) -> None:
    with safe_open(folder / READER, "pt") as file:
        metadata = file.metadata()
    save_file(load_file(folder / READER) | change, folder / READER, metadata)
    seal_again(folder)
    with pytest.raises(ModelError, match=message):
        Reader.open(str(folder), "cpu")


def test_a_folder_that_is_no_model_gets_none(trained: Reader, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="nowhere is not a kbq model"):
        save_reader(trained.network, tmp_path / "nowhere")


def test_a_query_encoder_leads_to_its_model(folder: Path, trained: Reader, tmp_path: Path) -> None:
    Model.open(folder, "cpu").save_query_encoder(tmp_path / "tuned", {})
    with pytest.raises(
        ModelError, match=r"tuned holds a query encoder for the model .*m: give that"
    ):
        save_reader(trained.network, tmp_path / "tuned")
    with pytest.raises(
        ModelError, match=r"tuned holds a query encoder for the model .*m: give that"
    ):
        Reader.open(str(tmp_path / "tuned"), "cpu")


def test_networks_that_do_not_fit_are_refused(
    folder: Path,
    make_checkpoint: Callable[..., Path],
    bert_config: Callable[..., Any],
    tmp_path: Path,
) -> None:
    other = make_checkpoint(tmp_path / "other", bert_config(hidden_size=32))
    with pytest.raises(ModelError, match="do not fit its config"):
        save_reader(Reader.new(str(other), "cpu").network, folder)
    assert not (folder / READER).exists()
    with pytest.raises(ModelError, match="a Linear has no layer `qa_outputs`"):
        save_reader(torch.nn.Linear(2, 2), folder)


@pytest.fixture(scope="module")
def recipe() -> Any:
    module = importlib.util.spec_from_file_location(
        "average_models", ROOT / "recipes" / "average_models.py"
    )
    assert module is not None
    assert module.loader is not None
    recipe = importlib.util.module_from_spec(module)
    module.loader.exec_module(recipe)
    return recipe


@pytest.mark.parametrize("count", [2, 3, 5])
def test_an_average_shares_the_word_embeddings_too(folder: Path, count: int, recipe: Any) -> None:
    networks: list[Any] = [Reader.new(str(folder), "cpu").network for _ in range(count)]
    heads = torch.stack([network.qa_outputs.weight.detach() for network in networks])
    average = recipe.average(networks)
    assert average.qa_outputs.weight.detach() == pytest.approx(heads.mean(dim=0), abs=1e-6)
    assert torch.equal(networks[0].qa_outputs.weight, heads[0])  # stays as it was
    save_reader(average, folder)
    assert not [name for name in load_file(folder / READER) if "embeddings" in name]


def test_word_embeddings_that_the_model_has_rounded_are_shared(
    new_model: Callable[..., Model], tmp_path: Path
) -> None:
    new_model().save(tmp_path / "before", "float32")
    reader = Reader.new(str(tmp_path / "before"), "cpu")
    train_a_little(reader)
    Model.open(tmp_path / "before", "cpu").save(tmp_path / "once", "int8")
    Model.open(tmp_path / "once", "cpu").save(tmp_path / "twice", "int8")
    for name in ("once", "twice"):
        save_reader(reader.network, tmp_path / name)
        assert "backbone.embeddings.word_embeddings.weight" not in load_file(
            tmp_path / name / READER
        )
    table = reader.network.get_input_embeddings().weight  # type: ignore[operator]
    once = Model.open(tmp_path / "once", "cpu").phrases.backbone.get_input_embeddings().weight
    with torch.no_grad():
        table[3, 2] = once[3, 2] + 0.6 * once[3].abs().max() / 127  # more than int8 rounds
    save_reader(reader.network, tmp_path / "once")
    assert "backbone.embeddings.word_embeddings.weight" in load_file(tmp_path / "once" / READER)


def test_an_average_of_models_stores_their_word_embeddings_once(
    new_model: Callable[..., Model], tmp_path: Path, recipe: Any
) -> None:
    new_model().save(tmp_path / "one", "float32")
    models: list[Any] = [Model.open(tmp_path / "one", "cpu") for _ in range(2)]
    before = models[0].queries.end_head.weight.detach().numpy()
    with torch.no_grad():
        models[1].queries.end_head.weight += 1.0
    for model, seed in zip(models, (1, 2), strict=True):
        model.config = dataclasses.replace(model.config, training={"begun": "a", "seed": seed})
    made = recipe.average_models(models)
    assert made.queries.end_head.weight.detach().numpy() == pytest.approx(before + 0.5, abs=1e-6)
    assert made.config.training == {"begun": "a", "averaged": [{"seed": 1}, {"seed": 2}]}
    made.save(tmp_path / "average", "float32")
    stored = [load_file(tmp_path / name / "model.safetensors") for name in ("one", "average")]
    assert stored[0].keys() == stored[1].keys()


@pytest.mark.parametrize(
    ("ones", "target", "best"),
    [([1.0, 2.0, 2.8, 3.2], 2.6, (2.8 + 2.0 + 3.2) / 3), ([3.0, 0.0, 2.0], 2.9, 3.0)],
    ids=["of three", "one alone"],
)
def test_the_best_average_may_leave_some_out(
    ones: list[float], target: float, best: float, recipe: Any
) -> None:
    found = recipe.best_average(ones, np.mean, lambda one: -abs(one - target))
    assert found == pytest.approx(best)
