"""BERT: hidden states equal those of transformers, and packed linear layers compute the same as
PyTorch's.
"""

import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn

from kbq.errors import ModelError
from kbq.model import bert
from kbq.model.backbone import pretrained_backbone
from kbq.model.bert import (
    FEW_ROWS,
    Bert,
    BertConfig,
    Group,
    Linear,
    SelfAttention,
    can_pack,
    is_bert,
    more_rows,
    pack_few_rows,
)
from kbq.model.devices import autocast
from kbq.model.model import Model
from kbq.model.queries import QueryEncoder, encode_queries
from kbq.training.engine import Optimizer

NUMBERS = tuple(BertConfig.__annotations__)
IDS = torch.tensor([[2, 7, 8, 3, 0], [2, 9, 11, 12, 3]])
SEGMENTS = torch.tensor([[0, 0, 1, 1, 0], [0, 1, 1, 1, 1]])
MASKS = {"none": None, "nothing padded": torch.ones(2, 5).long(), "padded": (IDS != 0).long()}


@pytest.mark.parametrize("segments", [None, SEGMENTS], ids=["one segment", "two segments"])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_states_are_those_of_transformers(
    mask: torch.Tensor | None, segments: torch.Tensor | None, checkpoint: Path
) -> None:
    theirs = transformers.AutoModel.from_pretrained(checkpoint).double().eval()
    own = pretrained_backbone(checkpoint).double()
    inputs = {"input_ids": IDS, "attention_mask": mask, "token_type_ids": segments}
    states, truth = (network(**inputs).last_hidden_state for network in (own, theirs))
    real = torch.ones(2, 5).bool() if mask is None else mask.bool()
    assert isinstance(own, Bert)
    assert states.shape == (2, 5, 16)
    assert (states - truth)[real].abs().max() < 1e-12


def test_batches_of_all_sizes_multiply_few_numbers_of_rows(checkpoint: Path) -> None:
    sizes = {count: len(more_rows(torch.ones(count, 1))) for count in range(1, 2**13)}
    assert all(count <= size <= max(count * 17 / 16, count + 15) for count, size in sizes.items())
    # Fewer rows may be rounded in another way.
    assert all(size % 16 == 0 for size in sizes.values())
    assert len({size for count, size in sizes.items() if 1024 < count <= 2048}) == 16
    network = pretrained_backbone(checkpoint)
    multiplied = set()
    for module in network.modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_pre_hook(lambda _, given: multiplied.add(len(given[0])))
    network(torch.ones(7, 11).long())
    assert multiplied == {80}


def test_rows_that_are_added_change_nothing(checkpoint: Path) -> None:
    own, theirs = (
        pretrained_backbone(checkpoint).double(),
        transformers.AutoModel.from_pretrained(checkpoint).double(),
    )
    ids = torch.randint(5, 60, (7, 11), generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(11) < torch.tensor([11, 3, 9, 1, 11, 5, 10])[:, None]).long()
    states, truth = (network.eval()(ids, mask).last_hidden_state for network in (own, theirs))
    assert states.shape == (7, 11, 16)
    assert (states - truth)[mask.bool()].abs().max() < 1e-12


def test_gradients_are_those_of_transformers(checkpoint: Path) -> None:
    gradients = []
    for network in (
        pretrained_backbone(checkpoint),
        transformers.AutoModel.from_pretrained(checkpoint),
    ):
        network.double().eval()
        network(input_ids=IDS, attention_mask=MASKS["padded"]).last_hidden_state[
            :, 0
        ].square().sum().backward()
        gradients.append(
            {name: p.grad for name, p in network.named_parameters() if p.grad is not None}
        )
    own, truth = gradients
    assert own.keys() == truth.keys()
    for name, grad in own.items():
        assert (grad - truth[name]).abs().max() < 1e-9, name


def test_dropout_works_in_training_everywhere(checkpoint: Path) -> None:
    trained = pretrained_backbone(checkpoint)
    assert not any(module.training for module in trained.modules())
    (still,) = trained(IDS)
    places = [
        name for name, module in trained.named_modules() if isinstance(module, torch.nn.Dropout)
    ]
    assert len(places) == 1 + 3 * 2
    for place in places:
        network = copy.deepcopy(trained).train()
        for name, module in network.named_modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.5 * (name == place)
        assert (network(IDS).last_hidden_state != still).any(), place


def test_a_copy_attends_with_its_own_dropout(checkpoint: Path) -> None:
    trained = pretrained_backbone(checkpoint)
    for module in copy.deepcopy(trained).modules():
        if isinstance(module, SelfAttention):
            module.dropout.p = 1.0
            assert not module.train()(
                torch.randn(16, 16), [Group(slice(3), torch.Size((1, 3)), None)]
            ).any()


@pytest.mark.parametrize(
    "other",
    [
        {"hidden_act": "relu"},
        {"is_decoder": True},
        {"position_embedding_type": "relative_key"},
        {"add_cross_attention": True},
        {"model_type": "roberta"},
    ],
)
def test_only_the_bert_that_it_knows_is_taken(
    other: dict[str, Any], bert_config: Callable[..., Any]
) -> None:
    written = bert_config().to_dict()
    assert is_bert(written)
    assert not is_bert(written | other)
    assert not is_bert({})


def test_where_a_configuration_is_silent_it_is_bert_base(bert_config: Callable[..., Any]) -> None:
    base = transformers.BertConfig()
    assert {name: getattr(base, name) for name in NUMBERS} == {
        name: getattr(BertConfig, name) for name in NUMBERS
    }
    config = BertConfig({"model_type": "bert", "hidden_size": 24})
    assert (config.hidden_size, config.num_attention_heads, config.layer_norm_eps) == (
        24,
        12,
        1e-12,
    )


def test_transformers_reads_the_configuration_that_is_saved(
    model: Model, bert_config: Callable[..., Any], tmp_path: Path
) -> None:
    model.save(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "bert"
    read, given = transformers.AutoConfig.from_pretrained(tmp_path), bert_config()
    assert {name: getattr(read, name) for name in NUMBERS} == {
        name: getattr(given, name) for name in NUMBERS
    }


@pytest.mark.parametrize("text", ["[]", '"model_type"', "{", "null"])
def test_a_configuration_that_is_no_object_is_refused(
    text: str, model: Model, seal_again: Callable[[Path], None], tmp_path: Path
) -> None:
    model.save(tmp_path)
    (tmp_path / "config.json").write_text(text)
    seal_again(tmp_path)
    with pytest.raises(ModelError, match=r"config.json is damaged \("):
        Model.open(tmp_path, "cpu")


def test_a_checkpoint_of_no_layers_is_refused(
    make_checkpoint: Callable[..., Path], bert_config: Callable[..., Any], tmp_path: Path
) -> None:
    folder = make_checkpoint(tmp_path, bert_config(num_hidden_layers=0))
    with pytest.raises(
        ModelError, match="num_hidden_layers is 0, must be a number from 1 to 1,000"
    ):
        pretrained_backbone(folder)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            {"num_attention_heads": 3},
            r"json is damaged \(hidden_size is 16, must be a multiple of num_attention_heads, 3",
        ),
        (
            {"num_attention_heads": 0},
            r"damaged \(num_attention_heads is 0, must be a number from 1 to 100,000,000",
        ),
        ({"hidden_size": "x"}, r"config.json is damaged \(hidden_size is 'x', must be a number"),
        ({"hidden_size": None}, r"config.json is damaged \(hidden_size is None"),
        ({"hidden_size": float("inf")}, r"config.json is damaged \(hidden_size is inf"),
        (
            {"layer_norm_eps": -1},
            r"damaged \(layer_norm_eps is -1, must be a number from 0 to 100,000,000",
        ),
        ({"vocab_size": 2**50}, r"config.json is damaged \("),
        ({"hidden_act": None}, "has a damaged config.json: "),
        ({"model_type": "no such type"}, "has a damaged config.json: "),
        ({"hidden_size": 8}, "the weights in .* do not fit its config"),
        ({"num_hidden_layers": 3}, "lacks .* weights, the first is queries.start.encoder.layer.2"),
    ],
)
def test_a_damaged_configuration_is_refused(
    damage: dict[str, Any],
    message: str,
    model: Model,
    seal_again: Callable[[Path], None],
    tmp_path: Path,
) -> None:
    model.save(tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(written | damage))
    seal_again(tmp_path)
    with pytest.raises(ModelError, match=message):
        Model.open(tmp_path, "cpu")


def layer(packs: bool = True) -> Linear:
    torch.manual_seed(0)
    made = Linear(48, 32)
    with torch.no_grad():
        made.weight.normal_()
        made.bias.normal_()
    if packs:
        pack_few_rows(nn.Sequential(made))
    return made


@torch.no_grad()
def unlike(made: Linear, states: torch.Tensor) -> float:
    """How far a layer is from PyTorch's own."""
    return float((made(states) - nn.functional.linear(states, made.weight, made.bias)).abs().max())


needs_packing = pytest.mark.skipif(not can_pack(torch.float32), reason="PyTorch without oneDNN")


@pytest.mark.parametrize("rows", [1, 7, FEW_ROWS, FEW_ROWS + 1])
@pytest.mark.parametrize("packs", [True, False])
def test_products_are_pytorchs(rows: int, packs: bool) -> None:
    assert unlike(layer(packs), torch.randn(rows, 48)) < 1e-4


@needs_packing
def test_few_rows_alone_are_multiplied_with_reordered_weights() -> None:
    made = layer()
    made(torch.randn(3, 48))
    with torch.no_grad():
        made(torch.randn(FEW_ROWS + 1, 48))
    assert made._packed is None
    with torch.no_grad():
        made(torch.randn(FEW_ROWS, 48))
    assert made._packed is not None


@needs_packing
@pytest.mark.parametrize("name", ["weight", "bias"])
@pytest.mark.parametrize("is_cast", [True, False])
def test_changed_weights_are_seen(name: str, is_cast: bool) -> None:
    made, states = layer(), torch.randn(5, 48)

    def is_right() -> bool:
        with torch.autocast(
            "cpu", torch.bfloat16, enabled=is_cast
        ):  # it remembers weights till its end
            return unlike(made, states) < (0.1 if is_cast else 1e-4)

    assert is_right()
    with torch.no_grad():
        getattr(made, name).mul_(-2)
    assert is_right()
    setattr(made, name, nn.Parameter(torch.randn_like(getattr(made, name))))
    assert is_right()
    assert unlike(made, states) < 1e-4  # in another type
    assert is_right()
    made.double()
    assert unlike(made, states.double()) < 1e-9


@needs_packing
def test_steps_of_a_fused_optimiser_are_seen() -> None:
    made, states = layer(), torch.randn(5, 48)
    optimizer = Optimizer(list(made.parameters()), learning_rate=0.1, warmup=0.0, steps=5)
    for _ in range(3):
        with torch.no_grad():
            before = made(states)
        optimizer.add(made(states).square().mean())
        optimizer.step()
        with torch.no_grad():
            assert (made(states) - before).abs().max() > 0.1
        assert unlike(made, states) < 1e-4


@needs_packing
def test_a_query_encoder_packs(checkpoint: Path) -> None:
    encoder = QueryEncoder(pretrained_backbone(checkpoint), shared=True).eval()
    encode_queries(encoder, [[2, 7, 3]], pad_id=0)
    layers = [part for part in encoder.modules() if isinstance(part, Linear)]
    assert len(layers) > 6
    assert all(part._packed is not None for part in layers)


@pytest.mark.parametrize("states", [torch.ones(5, 48).bfloat16(), torch.ones(5, 48).double()])
def test_what_pytorch_refuses_is_refused(states: torch.Tensor) -> None:
    with torch.no_grad(), pytest.raises(RuntimeError, match="dtype"):
        layer()(states)


def test_weights_of_inference_mode_are_never_packed() -> None:
    with torch.inference_mode():
        made = layer()
    for _ in range(2):
        assert unlike(made, torch.randn(5, 48)) == 0
        with torch.inference_mode():
            made.weight.mul_(2)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
def test_copies_have_an_order_of_their_own(copied: Callable[[Linear], Linear]) -> None:
    made, states = layer(), torch.randn(5, 48)
    unlike(made, states)
    other = copied(made)
    assert other._packed is None
    with torch.no_grad():
        other.weight.zero_()
    assert unlike(made, states) < 1e-4
    assert unlike(other, states) < 1e-4


def test_autocast_decides_the_type() -> None:
    made, states = layer(), torch.randn(5, 48)
    with torch.no_grad(), autocast(torch.device("cpu")):
        found = made(states)
        assert found.dtype == nn.functional.linear(states, made.weight, made.bias).dtype
    assert found.float().sub(nn.functional.linear(states, made.weight, made.bias)).abs().max() < 0.2


def test_without_onednn_products_are_the_usual_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> torch.Tensor:
        raise AttributeError(
            "'_OpNamespace' 'mkldnn' object has no attribute '_reorder_linear_weight'"
        )

    monkeypatch.setattr(bert, "_reordered", missing)
    can_pack.cache_clear()
    try:
        made = layer()
        assert unlike(made, torch.randn(5, 48)) == 0
        assert made._packed is None
    finally:
        can_pack.cache_clear()
