"""Model: a saved model is read back unchanged, and everything else is refused."""

import dataclasses
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from kbq.encoding.model import Model
from kbq.encoding.model_folder import ModelConfig, read_config
from kbq.encoding.phrases import encode_windows
from kbq.encoding.windows import WindowShape, tokenize, windows
from kbq.errors import ModelError

TEXT = "Marie Curie was born in Warsaw, the city of the river Vistula."
QUERIES = ["Marie Curie [SEP] place of birth", "the river?"]


def phrase_vectors(model: Model) -> np.ndarray:
    title, paragraph = tokenize(model.tokenizer, ["Marie", TEXT])
    cut = windows(model.tokenizer, title.ids, paragraph, model.config.window)
    parts = {
        index: np.concatenate([vectors, logits], axis=1)
        for index, vectors, logits in encode_windows(
            model.phrases, cut, model.tokenizer.pad_token_id, model.uses_segments
        )
    }
    return np.concatenate([parts[index] for index in range(len(cut))])


@pytest.mark.parametrize("shared", [True, False])
def test_float32_comes_back_exactly(new_model: Callable[..., Model], tmp_path: Path, shared: bool) -> None:
    model = new_model(shared_query_encoder=shared)
    if not shared:
        with torch.no_grad():
            next(model.queries.end.encoder.parameters()).add_(0.1)
    model.save(tmp_path / "model")
    opened = Model.open(tmp_path / "model", "cpu")
    assert opened.config == model.config
    assert opened.config.marker_tokens == {
        "[SEP]": "[SEP]",
        "[START_ENT]": "[unused1]",
        "[END_ENT]": "[unused2]",
    }
    assert (opened.queries.start is opened.queries.end) == shared
    assert (phrase_vectors(opened) == phrase_vectors(model)).all()
    for read, kept in zip(opened.encode_queries(QUERIES), model.encode_queries(QUERIES), strict=True):
        assert (read == kept).all()
    assert (opened.scale == model.scale).all()


def test_two_query_encoders_differ_and_cost_a_second_backbone(new_model: Callable[..., Model], tmp_path: Path) -> None:
    for shared in (True, False):
        new_model(shared_query_encoder=shared).save(tmp_path / str(shared))
    names = {shared: load_file(tmp_path / str(shared) / "model.safetensors").keys() for shared in (True, False)}
    assert any(name.startswith("queries.start_head.") for name in names[True])
    assert not any(name.startswith("queries.end.") for name in names[True])
    assert any(name.startswith("queries.end.") for name in names[False])
    assert not any("_head" in name for name in names[False])
    assert sum("word_embeddings" in name for name in [*names[True], *names[False]]) == 2  # one table each


def test_int8_is_close_and_a_third_of_the_bytes(new_model: Callable[..., Model], tmp_path: Path) -> None:
    model = new_model()
    model.save(tmp_path / "whole")
    model.save(tmp_path / "small", "int8")
    opened = Model.open(tmp_path / "small", "cpu")
    assert np.abs(phrase_vectors(opened) - phrase_vectors(model)).mean() < 0.1
    weights = [tmp_path / name / "model.safetensors" for name in ("small", "whole")]
    stored = load_file(weights[0])
    whole = load_file(weights[1])
    for name, tensor in whole.items():
        if tensor.ndim == 2:
            assert stored[name].dtype == torch.int8
            steps = stored[f"{name}.scale"]
            assert (torch.abs(stored[name].float() * steps - tensor) <= steps / 2 * 1.001).all()
    assert sum(tensor.nbytes for tensor in stored.values()) < 0.55 * sum(tensor.nbytes for tensor in whole.values())


def test_the_fingerprint_is_of_the_phrase_side_alone(new_model: Callable[..., Model], tmp_path: Path) -> None:
    model = new_model()
    prints = []
    changes: list[torch.Tensor | None] = [
        None,
        model.queries.start_head.get_parameter("weight"),
        model.phrases.filter.bias,
    ]
    for change in changes:
        with torch.no_grad():
            if change is not None:
                change.add_(1.0)
        model.save(tmp_path / "model")
        prints.append(model.config.phrase_fingerprint)
    assert prints[0] == prints[1] != prints[2]
    assert len(prints[0]) == 16


def without(name: str) -> Callable[[Path], None]:
    """Leaves one tensor out of the weights."""

    def damage(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        save_file({key: value for key, value in weights.items() if key != name}, folder / "model.safetensors")

    return damage


def changed(change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> Callable[[Path], None]:
    """Adds tensors to the weights, or replaces them."""

    def damage(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        save_file(weights | change(weights), folder / "model.safetensors")

    return damage


def holding(name: str, value: float) -> Callable[[Path], None]:
    """Writes a value into one tensor."""

    def change(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        tensor = weights[name].clone()
        tensor.view(-1)[-1] = value
        return {name: tensor}

    return changed(change)


def shallower(folder: Path) -> None:
    written = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(written | {"num_hidden_layers": 1}))


def with_config(**fields: object) -> Callable[[Path], None]:
    """Writes other values into kbq.json; None takes one out."""

    def damage(folder: Path) -> None:
        written = json.loads((folder / "kbq.json").read_text()) | fields
        (folder / "kbq.json").write_text(json.dumps({k: v for k, v in written.items() if v is not None}))

    return damage


def wider(folder: Path) -> None:
    written = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(written | {"intermediate_size": 64}))


WEIGHTS = "model.safetensors"
EMBEDDINGS = "phrases.backbone.embeddings.word_embeddings.weight"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (shutil.rmtree, "does not exist"),
        (lambda folder: (folder / "kbq.json").unlink(), "is not a kbq model .no kbq.json.: make one with"),
        (lambda folder: (folder / "kbq.json").write_text("{"), "kbq.json cannot be read"),
        (lambda folder: (folder / "kbq.json").write_text("[]"), "kbq.json"),
        (with_config(length_penalty="x"), "kbq.json is damaged: length_penalty is 'x', must be a number, 0 or more"),
        (
            with_config(length_penalty=-0.1),
            "kbq.json is damaged: length_penalty is -0.1, must be a number, 0 or more",
        ),
        (with_config(format=0), "has format version 0, this kbq reads 2: use the kbq version that wrote it"),
        (with_config(window=None), "kbq.json is damaged"),
        (with_config(window={"length": 19, "overlap": 6, "max_title": 10}), "kbq.json is damaged.*19"),
        (with_config(surprise=1), "kbq.json is damaged"),
        (lambda folder: (folder / WEIGHTS).unlink(), "is damaged"),
        (lambda folder: (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-9]), "is damaged"),
        (lambda folder: (folder / WEIGHTS).write_bytes(b""), "is damaged"),
        (lambda folder: (folder / "config.json").unlink(), "is damaged"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer"),
        (without("phrases.filter.bias"), "lacks 1 weights, the first is phrases.filter.bias"),
        (without("queries.end_head.weight"), "lacks 1 weights, the first is queries.end_head.weight"),
        (without(EMBEDDINGS), "lacks 1 weights, the first is " + EMBEDDINGS),
        (without("scale"), "lacks"),
        (wider, "do not fit its config"),
        (holding(EMBEDDINGS, math.nan), f"is damaged: its weight {EMBEDDINGS} holds NaN or infinity"),
        (holding("queries.end_head.bias", -math.inf), "is damaged: its weight queries.end_head.bias holds NaN"),
        (holding("scale", math.nan), "is damaged: its weight scale holds NaN or infinity"),
        (
            shallower,
            r"has 16 weights that its config has no place for, the first is "
            r"phrases\.backbone\.encoder\.layer\.1\.\S+: put back the config that belongs to them",
        ),
        (
            # The two query encoders are one: what it says for the end would be the start's, too.
            changed(lambda weights: {"queries.end.embeddings.LayerNorm.bias": torch.ones(16)}),
            r"has 1 weights that its config has no place for, the first is queries\.end\.embeddings\.LayerNorm\.bias",
        ),
        (
            changed(lambda weights: {"queries.start.embeddings.word_embeddings.weight": weights[EMBEDDINGS] + 1}),
            r"has 1 weights .*, the first is queries\.start\.embeddings\.word_embeddings\.weight",
        ),
        (
            changed(lambda weights: {"reader.head": torch.ones(2)}),
            "has 1 weights of no network, the first is reader.h",
        ),
    ],
)
def test_what_is_no_whole_model_is_refused(
    damage: Callable[[Path], None], message: str, model_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(model_folder, folder)
    damage(folder)
    with pytest.raises(ModelError, match=message) as refusal:
        Model.open(folder, "cpu")
    assert str(refusal.value).count("\n") == 0


def test_a_weight_may_be_stored_under_each_of_its_names(model_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(model_folder, tmp_path / "model")
    changed(
        lambda weights: (
            {
                name.replace("queries.start.", "queries.end."): tensor.clone()
                for name, tensor in weights.items()
                if name.startswith("queries.start.")
            }
            | {"queries.start.embeddings.word_embeddings.weight": weights[EMBEDDINGS].clone()}
        )
    )(folder)
    one, other = (Model.open(place, "cpu").encode_queries(QUERIES) for place in (folder, model_folder))
    assert all((mine == theirs).all() for mine, theirs in zip(one, other, strict=True))


def test_an_int8_weight_without_its_scale_is_refused(model: Model, tmp_path: Path) -> None:
    copy = Model(model.config, model.tokenizer, model.phrases, model.queries, model.scale)
    copy.save(tmp_path / "model", "int8")
    without("phrases.filter.weight.scale")(tmp_path / "model")
    with pytest.raises(ModelError, match=r"phrases\.filter\.weight\.scale"):
        Model.open(tmp_path / "model", "cpu")


def test_a_folder_that_cannot_be_written_is_said(model: Model, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match=r"file/model cannot be written \(.*Not a directory.*\): choose another name"):
        model.save(tmp_path / "file" / "model")


def test_a_checkpoint_is_no_model(checkpoint: Path) -> None:
    with pytest.raises(ModelError, match="is not a kbq model"):
        Model.open(checkpoint)


def test_a_hub_name_that_cannot_be_fetched_is_refused() -> None:
    with pytest.raises(ModelError, match="model nobody/nothing is not a folder, nor found on the hub"):
        Model.open("nobody/nothing")


def test_config_survives_the_file(new_model: Callable[..., Model], tmp_path: Path) -> None:
    model = new_model(window=WindowShape(50, 20, 5), training={"seed": 7}, filter_threshold=float("-inf"))
    model.save(tmp_path / "model")
    config = read_config(tmp_path / "model")
    assert config == model.config
    assert config == dataclasses.replace(config)
    assert (config.window, config.training, config.filter_threshold) == (
        WindowShape(50, 20, 5),
        {"seed": 7},
        float("-inf"),
    )


BACKBONES = {
    "roberta": transformers.RobertaConfig(
        vocab_size=220,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=96,
        pad_token_id=0,
        type_vocab_size=1,
    ),
    "distilbert": transformers.DistilBertConfig(
        vocab_size=220, dim=16, n_layers=1, n_heads=2, hidden_dim=32, max_position_embeddings=96
    ),
    "electra": transformers.ElectraConfig(
        vocab_size=220,
        embedding_size=8,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=96,
    ),
    "modernbert": transformers.ModernBertConfig(
        vocab_size=220,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        pad_token_id=0,
        cls_token_id=2,
        sep_token_id=3,
        bos_token_id=2,
        eos_token_id=3,
    ),
}


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("name", BACKBONES)
def test_other_bert_like_backbones_work_without_segments(
    name: str,
    shared: bool,
    make_checkpoint: Callable[..., Path],
    new_model: Callable[..., Model],
    tmp_path: Path,
) -> None:
    source = make_checkpoint(
        tmp_path / "checkpoint", BACKBONES[name], model_input_names=["input_ids", "attention_mask"]
    )
    model = new_model(source=source, shared_query_encoder=shared)
    assert not model.uses_segments
    model.save(tmp_path / "model")
    opened = Model.open(tmp_path / "model", "cpu")
    assert (phrase_vectors(opened) == phrase_vectors(model)).all()
    for read, kept in zip(opened.encode_queries(QUERIES), model.encode_queries(QUERIES), strict=True):
        assert read.shape == (2, 16)
        assert (read == kept).all()


def test_without_unused_tokens_markers_are_ordinary_text(model: Model) -> None:
    assert ModelConfig().marker_tokens == {}
    assert model.query_tokenizer.marker_ids["[START_ENT]"] == [model.tokenizer.convert_tokens_to_ids("[unused1]")]


@pytest.fixture
def tuned(model_folder: Path, tmp_path: Path) -> Path:
    """A query encoder for the saved model; its start vectors are longer by one step in each dimension."""
    base = tmp_path / "base"
    shutil.copytree(model_folder, base)
    model = Model.open(base, "cpu")
    with torch.no_grad():
        model.queries.start_head.get_parameter("bias").add_(1.0)
    model.save_query_encoder(tmp_path / "tuned", {"command": "kbq finetune"})
    return tmp_path / "tuned"


@pytest.mark.parametrize("shared", [True, False])
def test_a_query_encoder_comes_back_exactly_on_top_of_its_base(
    shared: bool, new_model: Callable[..., Model], tmp_path: Path
) -> None:
    new_model(shared_query_encoder=shared).save(tmp_path / "base", "int8")
    base, model = (Model.open(tmp_path / "base", "cpu") for _ in range(2))
    words = model.queries.start.get_input_embeddings().weight
    with torch.no_grad():
        for parameter in model.queries.parameters():
            if parameter is not words:
                parameter.add_(0.01 * torch.randn_like(parameter))
    model.save_query_encoder(tmp_path / "tuned", {"command": "kbq finetune"})
    opened = Model.open(tmp_path / "tuned", "cpu")
    assert opened.config == model.config
    assert (phrase_vectors(opened) == phrase_vectors(base)).all()
    for read, kept, old in zip(*(one.encode_queries(QUERIES) for one in (opened, model, base)), strict=True):
        assert (read == kept).all()
        assert (read != old).any()
    assert (opened.scale == base.scale).all()
    assert opened.queries.start.get_input_embeddings().weight is opened.phrases.backbone.get_input_embeddings().weight
    assert opened.config.phrase_fingerprint == base.config.phrase_fingerprint
    assert opened.config.query_fingerprint != base.config.query_fingerprint


def test_a_query_encoder_is_two_files_without_the_phrase_side(tuned: Path) -> None:
    assert sorted(path.name for path in tuned.iterdir()) == ["kbq.json", "model.safetensors"]
    names = load_file(tuned / WEIGHTS).keys()
    assert all(name.startswith("queries.") for name in names)
    assert not any("word_embeddings" in name for name in names)
    config = read_config(tuned)
    assert (config.base, config.training["finetuning"]) == (str(tuned.parent / "base"), {"command": "kbq finetune"})


def test_a_query_encoder_may_be_tuned_further(tuned: Path, tmp_path: Path) -> None:
    model = Model.open(tuned, "cpu")
    model.save_query_encoder(tmp_path / "again", {"command": "second"})
    again = Model.open(tmp_path / "again", "cpu")
    assert again.config.training["finetuning"] == {"command": "second"}
    for one, other in zip(again.encode_queries(QUERIES), model.encode_queries(QUERIES), strict=True):
        assert (one == other).all()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda folder: shutil.rmtree(folder.parent / "base"),
            "holds a query encoder for the model .*base: .*not exist",
        ),
        (lambda folder: (folder / WEIGHTS).unlink(), "tuned is damaged"),
        (lambda folder: (folder / WEIGHTS).write_bytes(b"x"), "tuned is damaged"),
        (without("queries.end_head.weight"), "tuned lacks 1 weights, the first is queries.end_head.weight"),
        (
            holding("queries.end_head.weight", math.inf),
            "tuned is damaged: its weight queries.end_head.weight holds",
        ),
        (changed(lambda weights: {"phrases.x": torch.ones(2)}), "has 1 weights of no network, the first is phrases.x"),
        (with_config(surprise=1), "kbq.json is damaged"),
        (lambda folder: with_config(base=str(folder))(folder), "tuned"),  # its own base
    ],
)
def test_what_is_no_whole_query_encoder_is_refused(damage: Callable[[Path], None], message: str, tuned: Path) -> None:
    damage(tuned)
    with pytest.raises(ModelError, match=message) as refusal:
        Model.open(tuned, "cpu")
    assert str(refusal.value).count("\n") == 0


def test_a_base_with_other_phrase_vectors_is_refused_and_both_are_named(tuned: Path, other_folder: Path) -> None:
    shutil.rmtree(tuned.parent / "base")
    shutil.copytree(other_folder, tuned.parent / "base")
    prints = read_config(tuned).phrase_fingerprint, read_config(other_folder).phrase_fingerprint
    assert prints[0] != prints[1]
    with pytest.raises(ModelError, match=f"tuned holds .* {prints[0]}, but .*base now has {prints[1]}: tune again"):
        Model.open(tuned, "cpu")


def test_a_query_encoder_that_cannot_be_written_is_said(model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match=r"file/tuned cannot be written \(.*Not a directory.*\): choose another name"):
        Model.open(model_folder, "cpu").save_query_encoder(tmp_path / "file" / "tuned", {})
