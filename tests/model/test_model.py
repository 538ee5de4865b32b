"""Model: a saved model is read back unchanged, and everything else is refused."""

import dataclasses
import errno
import json
import math
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from kbq.errors import ModelError
from kbq.model.backbone import pretrained_backbone
from kbq.model.model import Model, encode_windows
from kbq.model.model_folder import (
    DEFAULT_MODEL,
    ModelConfig,
    model_damage,
    model_files,
    read_config,
    record_name,
    remedy,
    save_tensors,
    write_config,
)
from kbq.model.tokenizer import WindowShape, tokenize, windows
from kbq.reading.reader import Reader
from kbq.storage.records import write_record
from kbq.storage.seals import FileSeal, seal_folder
from kbq.words.sparta import SpartaConfig, SpartaModel

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
def test_float32_comes_back_exactly(
    new_model: Callable[..., Model], tmp_path: Path, shared: bool
) -> None:
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
    for read, kept in zip(
        opened.encode_queries(QUERIES), model.encode_queries(QUERIES), strict=True
    ):
        assert (read == kept).all()
    assert (opened.scale == model.scale).all()


def test_two_query_encoders_differ_and_cost_a_second_backbone(
    new_model: Callable[..., Model], tmp_path: Path
) -> None:
    for shared in (True, False):
        new_model(shared_query_encoder=shared).save(tmp_path / str(shared))
    names = {
        shared: load_file(tmp_path / str(shared) / "model.safetensors").keys()
        for shared in (True, False)
    }
    assert any(name.startswith("queries.start_head.") for name in names[True])
    assert not any(name.startswith("queries.end.") for name in names[True])
    assert any(name.startswith("queries.end.") for name in names[False])
    assert not any("_head" in name for name in names[False])
    # One table each.
    assert sum("word_embeddings" in name for name in [*names[True], *names[False]]) == 2


def test_int8_is_close_and_a_third_of_the_bytes(
    new_model: Callable[..., Model], tmp_path: Path
) -> None:
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
    assert sum(tensor.nbytes for tensor in stored.values()) < 0.55 * sum(
        tensor.nbytes for tensor in whole.values()
    )


def test_the_fingerprint_is_of_the_phrase_side_alone(
    new_model: Callable[..., Model], tmp_path: Path
) -> None:
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
        save_file(
            {key: value for key, value in weights.items() if key != name},
            folder / "model.safetensors",
        )

    return damage


def changed(
    change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]],
) -> Callable[[Path], None]:
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
    """Writes other values into kbq.json, with a digest that fits them; None takes one out."""

    def damage(folder: Path) -> None:
        written = json.loads((folder / "kbq.json").read_text())
        config = {
            name: value for name, value in (written["config"] | fields).items() if value is not None
        }
        write_record(folder / "kbq.json", {"config": config, "files": written["files"]}, 3)

    return damage


def edited(old: str, new: str) -> Callable[[Path], None]:
    """Edits kbq.json by hand."""

    def edit(folder: Path) -> None:
        written = (folder / "kbq.json").read_text()
        assert old in written
        (folder / "kbq.json").write_text(written.replace(old, new))

    return edit


def wider(folder: Path) -> None:
    written = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(written | {"intermediate_size": 64}))


WEIGHTS = "model.safetensors"
EMBEDDINGS = "phrases.backbone.embeddings.word_embeddings.weight"


def flipped(name: str) -> Callable[[Path], None]:
    """Flips one bit in the middle of a file."""

    def damage(folder: Path) -> None:
        content = bytearray((folder / name).read_bytes())
        content[len(content) // 2] ^= 1
        (folder / name).write_bytes(content)

    return damage


def refused(folder: Path) -> str:
    """What is said of a model that is refused, in one sentence."""
    with pytest.raises(ModelError) as refusal:
        _ = Model.open(folder, "cpu").phrases
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


RESTORE = "restore it, or make the model again"
CHANGED = rf"is damaged \(its content has changed\): {RESTORE}"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (shutil.rmtree, "does not exist"),
        (
            lambda folder: (folder / "kbq.json").unlink(),
            "is not a kbq model .no kbq.json.: make one with",
        ),
        (
            lambda folder: (folder / "kbq.json").write_text("{"),
            rf"kbq.json is damaged \(Expecting .*\): {RESTORE}",
        ),
        (
            lambda folder: (folder / "kbq.json").write_text("[]"),
            r"is damaged \(it does not hold a JSON object\)",
        ),
        (
            edited('"length_penalty": 0.0', '"length_penalty": 0.2'),
            rf"kbq.json is damaged \(it has changed since it was written\): {RESTORE}",
        ),
        (
            edited('"format": 3', '"format": 2'),
            "has format version 2, this kbq reads 3: use the kbq version that wrote",
        ),
        (lambda folder: (folder / WEIGHTS).unlink(), rf"model.safetensors is missing: {RESTORE}"),
        (
            lambda folder: (folder / "config.json").unlink(),
            rf"model/config.json is missing: {RESTORE}",
        ),
        (
            lambda folder: (folder / "tokenizer.json").unlink(),
            rf"tokenizer.json is missing: {RESTORE}",
        ),
        (
            lambda folder: (folder / WEIGHTS).write_bytes(b""),
            rf"is damaged \(it has 0 of [\d,]+ bytes\): {RESTORE}",
        ),
        (
            lambda folder: (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-9]),
            rf"model.safetensors is damaged \(it has [\d,]+ of [\d,]+ bytes\): {RESTORE}",
        ),
        (flipped(WEIGHTS), rf"model.safetensors {CHANGED}"),
        (flipped("config.json"), rf"model/config.json {CHANGED}"),
        (flipped("tokenizer.json"), rf"tokenizer.json {CHANGED}"),
        (flipped("tokenizer_config.json"), rf"tokenizer_config.json {CHANGED}"),
        (
            lambda folder: (folder / "casing.json").write_text('{"paris": "PARIS"}'),
            r"casing.json is damaged \(it has come into the folder since the model was written\): take it out",
        ),
        (
            lambda folder: shutil.copy(folder / WEIGHTS, folder / "reader.safetensors"),
            "reader.safetensors is damaged",
        ),
    ],
)
def test_a_model_that_has_changed_is_refused(
    damage: Callable[[Path], None], message: str, model_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(model_folder, folder)
    damage(folder)
    assert re.search(message, refused(folder))


def test_what_is_not_of_the_model_may_change(model_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(model_folder, folder)
    (folder / "README.md").write_text("A model card.")
    for name in (
        "._kbq.json",
        "._model.safetensors",
        "._reader.safetensors",
    ):  # of macOS, on other file systems
        (folder / name).write_bytes(b"\0\5\26\7")
    (folder / "figures").mkdir()
    Model.open(folder, "cpu")


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.EACCES, r"cannot be read \(Permission denied\): ask for permission to read it"),
        (errno.EMFILE, r"cannot be read \(Too many open files\): raise the limit \(`ulimit -n`\)"),
    ],
)
def test_a_whole_model_that_cannot_be_read_is_not_called_damaged(
    number: int, message: str, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> FileSeal:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr("kbq.storage.seals.seal_of", fail)
    told = refused(model_folder)
    assert re.search(message, told)
    assert "damaged" not in told


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"length_penalty": "x"}, "Expected `float`, got `str` - at `$.config.length_penalty`"),
        ({"length_penalty": -0.1}, "length_penalty is -0.1, must be a number, 0 or more"),
        ({"length_penalty": math.inf}, "length_penalty is inf, must be a number, 0 or more"),
        ({"length_penalty": math.nan}, "it holds NaN, which is not a number"),
        ({"lexical_factor": math.nan}, "it holds NaN, which is not a number"),
        (
            {"lexical_factor": math.inf},
            "Expected `float` <= 1000000.0 - at `$.config.lexical_factor`",
        ),
        ({"lexical_factor": -1}, "Expected `float` >= 0.0 - at `$.config.lexical_factor`"),
        (
            {"edge_threshold": math.inf},
            "Expected `float` <= 1000000.0 - at `$.config.edge_threshold`",
        ),
        ({"max_query_tokens": 0}, "Expected `int` >= 1 - at `$.config.max_query_tokens`"),
        (
            {"marker_tokens": {"[SEP]": 3}},
            "Expected `str`, got `int` - at `$.config.marker_tokens[...]`",
        ),
        ({"training": [1]}, "Expected `object`, got `array` - at `$.config.training`"),
        ({"window": 3}, "Expected `object`, got `int` - at `$.config.window`"),
        ({"window": {"length": 19, "overlap": 6, "max_title": 10}}, "in windows of 19 tokens"),
        ({"window": {"length": 99, "overlap": 6, "max_title": -1}}, "Expected `int` >= 0"),
        ({"phrase_fingerprint": "0" * 16}, "kbq.json names 0000000000000000"),
        ({"query_fingerprint": "0" * 16}, "kbq.json names 0000000000000000"),
    ],
)
def test_a_record_that_is_false_is_refused_though_its_digest_fits(
    fields: dict[str, object], message: str, model_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(model_folder, folder)
    with_config(**fields)(folder)
    told = refused(folder)
    assert message in told
    assert " is damaged (" in told
    assert told.endswith(RESTORE)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../kbq.json", "it lists .*kbq.json, which is elsewhere"),
        ("/dev/zero", "it lists /dev/zero, which is elsewhere"),
        (
            "endless.json",
            "endless.json is a link, and a model has none: put a copy in its place, or remove it",
        ),
        ("..", "it is not a file"),
    ],
)
def test_a_record_that_lists_other_files_reads_none_of_them(
    name: str, message: str, model_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(model_folder, folder)
    if name == "endless.json":
        (folder / name).symlink_to("/dev/zero")
    written = json.loads((folder / "kbq.json").read_text())
    files = written["files"] | {name: {"bytes": 0, "digest": "0"}}
    write_record(folder / "kbq.json", {"config": written["config"], "files": files}, 3)
    assert re.search(message, refused(folder))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("phrases.filter.bias"), "lacks 1 weights, the first is phrases.filter.bias"),
        (
            without("queries.end_head.weight"),
            "lacks 1 weights, the first is queries.end_head.weight",
        ),
        (without(EMBEDDINGS), "lacks 1 weights, the first is " + EMBEDDINGS),
        (without("scale"), "lacks"),
        (wider, "do not fit its config"),
        (lambda folder: (folder / "config.json").unlink(), "config.json is missing"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer"),
        (holding(EMBEDDINGS, math.nan), f"its weight {EMBEDDINGS} holds NaN or infinity"),
        (holding("queries.end_head.bias", -math.inf), "its weight queries.end_head.bias holds NaN"),
        (holding("scale", math.nan), "its weight scale holds NaN or infinity"),
        (
            changed(lambda weights: {"scale": weights["scale"].to(torch.float8_e4m3fn)}),
            "its weight scale holds torch.float8_e4m3fn, which kbq does not read",
        ),
        (
            shallower,
            "has 16 weights that its config has no place for, the first is "
            "queries.start.encoder.layer.1.",
        ),
        (
            # The two query encoders are one: what it says for the end would be the start's, too.
            changed(lambda weights: {"queries.end.embeddings.LayerNorm.bias": torch.ones(16)}),
            "has 1 weights that its config has no place for, the first is "
            "queries.end.embeddings.LayerNorm.bias",
        ),
        (
            changed(
                lambda weights: {
                    "queries.start.embeddings.word_embeddings.weight": weights[EMBEDDINGS] + 1
                }
            ),
            "the first is queries.start.embeddings.word_embeddings.weight",
        ),
        (
            changed(lambda weights: {"reader.head": torch.ones(2)}),
            "has 1 weights of no network, the first is reader.h",
        ),
    ],
)
def test_a_model_that_was_written_like_that_is_refused(
    change: Callable[[Path], None],
    message: str,
    model_folder: Path,
    seal_again: Callable[[Path], None],
    tmp_path: Path,
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(model_folder, folder)
    change(folder)
    seal_again(folder)
    assert message in refused(folder)


def test_a_weight_may_be_stored_under_each_of_its_names(
    model_folder: Path, seal_again: Callable[[Path], None], tmp_path: Path
) -> None:
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
    seal_again(folder)
    one, other = (
        Model.open(place, "cpu").encode_queries(QUERIES) for place in (folder, model_folder)
    )
    assert all((mine == theirs).all() for mine, theirs in zip(one, other, strict=True))


@pytest.mark.parametrize("scale", [None, torch.ones(1, 10**5)])
def test_an_int8_weight_without_its_scale_is_refused(
    scale: torch.Tensor | None, model: Model, seal_again: Callable[[Path], None], tmp_path: Path
) -> None:
    copy = Model(model.config, model.tokenizer, lambda: model.phrases, model.queries, model.scale)
    copy.save(tmp_path / "model", "int8")
    name = "phrases.filter.weight.scale"
    (without(name) if scale is None else changed(lambda weights: {name: scale}))(tmp_path / "model")
    seal_again(tmp_path / "model")
    with pytest.raises(
        ModelError, match=r"lacks .*filter\.weight\.scale, a number for each of 2 rows"
    ):
        _ = Model.open(tmp_path / "model", "cpu").phrases


def test_a_folder_that_cannot_be_written_is_said(model: Model, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        ModelError,
        match=r"file/model cannot be written \(.*Not a directory.*\): choose another name",
    ):
        model.save(tmp_path / "file" / "model")


def test_a_checkpoint_is_no_model(checkpoint: Path) -> None:
    with pytest.raises(ModelError, match="is not a kbq model"):
        Model.open(checkpoint)


def test_a_hub_name_that_cannot_be_fetched_is_refused() -> None:
    with pytest.raises(
        ModelError, match="model nobody/nothing is not a folder, nor found on the hub"
    ):
        Model.open("nobody/nothing")


def test_config_survives_the_file(new_model: Callable[..., Model], tmp_path: Path) -> None:
    model = new_model(
        window=WindowShape(50, 20, 5), training={"seed": 7}, filter_threshold=float("-inf")
    )
    model.save(tmp_path / "model")
    config = read_config(tmp_path / "model")
    assert config == model.config
    assert config == dataclasses.replace(config)
    assert (config.window, config.training, config.filter_threshold) == (
        WindowShape(50, 20, 5),
        {"seed": 7},
        float("-inf"),
    )


SIZES: dict[str, Any] = {"vocab_size": 220, "num_hidden_layers": 1, "num_attention_heads": 2}
SIZES |= {"hidden_size": 16, "intermediate_size": 32, "max_position_embeddings": 96}
NUMBERS: dict[str, Any] = {"pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3}
NUMBERS |= {"bos_token_id": 2, "eos_token_id": 3}
BACKBONES = {
    "roberta": transformers.RobertaConfig(**SIZES, pad_token_id=0, type_vocab_size=1),
    "distilbert": transformers.DistilBertConfig(
        vocab_size=220, dim=16, n_layers=1, n_heads=2, hidden_dim=32, max_position_embeddings=96
    ),
    "electra": transformers.ElectraConfig(**SIZES, embedding_size=8),
    "modernbert": transformers.ModernBertConfig(**SIZES | NUMBERS),
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
    for read, kept in zip(
        opened.encode_queries(QUERIES), model.encode_queries(QUERIES), strict=True
    ):
        assert read.shape == (2, 16)
        assert (read == kept).all()


def test_without_unused_tokens_markers_are_ordinary_text(model: Model) -> None:
    assert ModelConfig().marker_tokens == {}
    assert model.query_tokenizer.marker_ids["[START_ENT]"] == [
        model.tokenizer.convert_tokens_to_ids("[unused1]")
    ]


@pytest.fixture
def tuned(model_folder: Path, tmp_path: Path) -> Path:
    """A query encoder for the saved model; its start vectors are longer by one step in each
    dimension.
    """
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
    for read, kept, old in zip(
        *(one.encode_queries(QUERIES) for one in (opened, model, base)), strict=True
    ):
        assert (read == kept).all()
        assert (read != old).any()
    assert (opened.scale == base.scale).all()
    assert (
        opened.queries.start.get_input_embeddings().weight
        is opened.phrases.backbone.get_input_embeddings().weight
    )
    assert opened.config.phrase_fingerprint == base.config.phrase_fingerprint
    assert opened.config.query_fingerprint != base.config.query_fingerprint


def test_a_query_encoder_is_two_files_without_the_phrase_side(tuned: Path) -> None:
    assert sorted(path.name for path in tuned.iterdir()) == ["kbq.json", "model.safetensors"]
    names = load_file(tuned / WEIGHTS).keys()
    assert all(name.startswith("queries.") for name in names)
    assert not any("word_embeddings" in name for name in names)
    config = read_config(tuned)
    assert (config.base, config.training["finetuning"]) == (
        str(tuned.parent / "base"),
        {"command": "kbq finetune"},
    )


def test_a_query_encoder_may_be_tuned_further(tuned: Path, tmp_path: Path) -> None:
    model = Model.open(tuned, "cpu")
    model.save_query_encoder(tmp_path / "again", {"command": "second"})
    again = Model.open(tmp_path / "again", "cpu")
    assert again.config.training["finetuning"] == {"command": "second"}
    for one, other in zip(
        again.encode_queries(QUERIES), model.encode_queries(QUERIES), strict=True
    ):
        assert (one == other).all()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda folder: shutil.rmtree(folder.parent / "base"),
            "holds a query encoder for the model .*base: .*not exist",
        ),
        (
            lambda folder: (folder / WEIGHTS).unlink(),
            f"tuned/model.safetensors is missing: {RESTORE}",
        ),
        (
            lambda folder: (folder / WEIGHTS).write_bytes(b"x"),
            r"tuned/model.safetensors is damaged \(it has 1 of ",
        ),
        (flipped(WEIGHTS), rf"tuned/model.safetensors {CHANGED}"),
        (without("queries.end_head.weight"), r"tuned/model.safetensors is damaged \(it has "),
        (
            edited('"base": "', '"base": "/'),
            r"tuned/kbq.json is damaged \(it has changed since it was written\)",
        ),
        (
            with_config(query_fingerprint="0" * 16),
            "its query fingerprint is .*, kbq.json names 0000000000000000",
        ),
        (lambda folder: with_config(base=str(folder))(folder), "tuned"),  # its own base
        (
            lambda folder: flipped(WEIGHTS)(folder.parent / "base"),
            rf"base/model.safetensors {CHANGED}",
        ),
    ],
)
def test_what_is_no_whole_query_encoder_is_refused(
    damage: Callable[[Path], None], message: str, tuned: Path
) -> None:
    damage(tuned)
    assert re.search(message, refused(tuned))


def test_a_query_encoder_that_was_written_without_a_weight_is_refused(
    tuned: Path, seal_again: Callable[[Path], None]
) -> None:
    without("queries.end_head.weight")(tuned)
    seal_again(tuned)
    assert "tuned lacks 1 weights, the first is queries.end_head.weight" in refused(tuned)


def test_facts_of_numpy_are_written_as_plain_numbers(
    new_model: Callable[..., Model], tmp_path: Path
) -> None:
    model = new_model(
        training={"score": np.float64(0.5), "none": math.nan, "filter": -math.inf, "pair": (1, 2)}
    )
    model.save(tmp_path / "model")
    assert read_config(tmp_path / "model").training == {
        "score": 0.5,
        "none": None,
        "filter": -math.inf,
        "pair": [1, 2],
    }


def model_kinds(folder: Path, new_model: Callable[..., Model], checkpoint: Path) -> dict[str, Path]:
    """A folder of every kind of model that kbq writes."""
    new_model().save(folder / "model")
    Model.open(folder / "model", "cpu").save_query_encoder(folder / "query encoder", {})
    SpartaModel.new(str(checkpoint), SpartaConfig()).save(folder / "sparta")
    Reader.new(str(checkpoint), "cpu").save(folder / "reader")
    return {path.name: path for path in folder.iterdir()}


def test_every_kind_of_model_tells_what_is_damaged(
    new_model: Callable[..., Model], checkpoint: Path, tmp_path: Path
) -> None:
    kinds = model_kinds(tmp_path, new_model, checkpoint)
    assert sorted(kinds) == ["model", "query encoder", "reader", "sparta"]
    for folder in kinds.values():
        read: list[int] = []
        assert record_name(folder) is not None
        assert list(model_damage(folder, read.append)) == []
        files = model_files(folder)
        assert sum(read) == sum(seal.bytes for seal in files.values())
        assert {path.name for path in folder.iterdir()} - {path.name for path in files} == {
            record_name(folder)
        }
        flipped(WEIGHTS)(folder)
        (damage,) = model_damage(folder, read.append)
        assert str(damage) == f"{folder / WEIGHTS}: its content has changed"
        (folder / str(record_name(folder))).write_text("{")
        (damage,) = model_damage(folder, read.append)
        assert str(damage).startswith(
            f"{folder / str(record_name(folder))}: Expecting property name"
        )
        (folder / str(record_name(folder))).write_text('{"format": 99}')
        with pytest.raises(ModelError, match="has format version 99, this kbq reads"):
            list(model_damage(folder, read.append))


def test_a_damaged_network_is_refused_wherever_it_is_read(
    new_model: Callable[..., Model], checkpoint: Path, tmp_path: Path
) -> None:
    kinds = model_kinds(tmp_path, new_model, checkpoint)
    for folder in kinds.values():
        flipped(WEIGHTS)(folder)
    opened: list[tuple[str, Callable[[str], object]]] = [
        ("reader", lambda folder: Reader.open(folder, "cpu")),
        ("reader", lambda folder: Reader.new(folder, "cpu")),
        ("sparta", lambda folder: SpartaModel.open(Path(folder), "cpu")),
        ("sparta", pretrained_backbone),
        ("model", pretrained_backbone),
        ("model", lambda folder: Reader.open(folder, "cpu")),
    ]
    for name, open_ in opened:
        with pytest.raises(
            ModelError,
            match=rf"{name}/model.safetensors is damaged \(its content has changed\): restore",
        ):
            open_(str(kinds[name]))


def test_an_index_is_sealed_but_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "cells.faiss").write_bytes(b"cells")
    seal_folder(tmp_path)
    assert record_name(tmp_path) is None


def test_the_default_model_is_whole_and_written_by_this_program(tmp_path: Path) -> None:
    assert list(model_damage(DEFAULT_MODEL, lambda size: None)) == []
    assert remedy(DEFAULT_MODEL) == "install kbq again"
    for name in model_files(DEFAULT_MODEL):
        shutil.copy(name, tmp_path)
    write_config(tmp_path, read_config(DEFAULT_MODEL))
    assert (tmp_path / "kbq.json").read_bytes() == (DEFAULT_MODEL / "kbq.json").read_bytes()


def test_a_base_with_other_phrase_vectors_is_refused_and_both_are_named(
    tuned: Path, other_folder: Path
) -> None:
    shutil.rmtree(tuned.parent / "base")
    shutil.copytree(other_folder, tuned.parent / "base")
    prints = read_config(tuned).phrase_fingerprint, read_config(other_folder).phrase_fingerprint
    assert prints[0] != prints[1]
    with pytest.raises(
        ModelError, match=f"tuned holds .* {prints[0]}, but .*base now has {prints[1]}: tune again"
    ):
        Model.open(tuned, "cpu")


def test_a_query_encoder_that_cannot_be_written_is_said(model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        ModelError,
        match=r"file/tuned cannot be written \(.*Not a directory.*\): choose another name",
    ):
        Model.open(model_folder, "cpu").save_query_encoder(tmp_path / "file" / "tuned", {})


def test_weights_with_facts_always_have_the_same_bytes(tmp_path: Path) -> None:
    weights = {name: torch.arange(6.0).reshape(2, 3) for name in ("a", "b")}
    facts = {f"fact {number}": f"ü {number}" for number in range(8)}
    written = set()
    for number in range(10):
        save_tensors(weights, tmp_path / f"{number}", facts)
        written.add((tmp_path / f"{number}").read_bytes())
    assert len(written) == 1
    with safe_open(tmp_path / "0", "pt") as file:
        assert file.metadata() == facts
        assert file.get_tensor("b").tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]


def hub_cache(model_folder: Path, root: Path) -> Path:
    """A model as huggingface_hub lays it down: snapshots/REVISION/NAME are links to blobs/DIGEST."""
    snapshot, blobs = (
        root / "models--someone--model" / "snapshots" / "0123",
        root / "models--someone--model" / "blobs",
    )
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, path in enumerate(sorted(model_folder.iterdir())):
        shutil.copyfile(path, blobs / f"{number:040x}")
        (snapshot / path.name).symlink_to(f"../../blobs/{number:040x}")
    return snapshot


def test_a_model_in_the_cache_of_the_hub_is_opened(model_folder: Path, tmp_path: Path) -> None:
    snapshot = hub_cache(model_folder, tmp_path)
    assert Model.open(snapshot, "cpu").dim == Model.open(model_folder, "cpu").dim
    (tmp_path / "outside.json").write_text("{}")
    (snapshot / "config.json").unlink()
    (snapshot / "config.json").symlink_to("../../../outside.json")
    assert (
        f"{snapshot}/config.json is a link, and a model has none: put a copy in its place"
        in refused(snapshot)
    )


def test_the_phrase_encoder_is_read_when_it_is_needed(model: Model, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    opened = Model.open(tmp_path / "model", "cpu")
    opened.encode_queries(["Marie Curie [SEP] spouse"])
    assert "phrases" not in vars(opened)
    for name, weight in opened.phrases.state_dict().items():
        assert torch.equal(weight, model.phrases.state_dict()[name])
    assert opened.phrases.backbone.get_input_embeddings().weight is opened.word_embeddings


def test_a_relative_folder_is_found_again_from_elsewhere(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.save(tmp_path / "model")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    opened = Model.open("model", "cpu")
    monkeypatch.chdir("elsewhere")
    assert len(list(opened.phrases.parameters())) == len(list(model.phrases.parameters()))
