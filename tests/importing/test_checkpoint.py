"""Checkpoints: their vectors are those of transformers, under every name that weights have had;
what does not fit.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kbq.errors import KbqError, ModelError, TrainingError
from kbq.importing.checkpoint import import_checkpoint, read_checkpoint, read_vocabulary
from kbq.kb import KnowledgeBase
from kbq.model.model import Model

OLD = {
    "phrase_encoder.": "bert_start.",
    "query_start_encoder.": "bert_q_start.",
    "query_end_encoder.": "bert_q_end.",
}


def rewritten(checkpoint: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the weights of a checkpoint."""
    weights = torch.load(checkpoint / "pytorch_model.bin", weights_only=True)
    changed = change(weights)
    torch.save(weights if changed is None else changed, checkpoint / "pytorch_model.bin")


@pytest.mark.parametrize("by", ["opened", "imported"])
def test_query_vectors_are_those_of_transformers(
    by: str, official: Any, queries: list[str], tmp_path: Path
) -> None:
    source = official.checkpoint
    if by == "imported":
        source = import_checkpoint(source, tmp_path / "model").folder
    model = Model.open(source, "cpu")
    starts, ends = model.encode_queries(queries)
    assert np.abs(starts - official.starts).max() < 1e-5
    assert np.abs(ends - official.ends).max() < 1e-5


def test_the_file_of_a_checkpoint_is_taken_for_no_folder(official: Any, tmp_path: Path) -> None:
    with pytest.raises(
        ModelError, match=r"pytorch_model.bin is a file: give the folder that holds it"
    ):
        import_checkpoint(official.checkpoint / "pytorch_model.bin", tmp_path / "model")


def test_a_page_that_kbq_encodes_has_the_rows_of_the_dump(official: Any, tmp_path: Path) -> None:
    """A knowledge base of an imported dump can be added to: values have the same offset and steps."""
    text = next(text for text in official.texts if text.number == "10")
    last = text.context.split(" [PAR] ")[-1]
    kb = KnowledgeBase.build(
        [_page(text.title, last)], tmp_path / "kb", official.checkpoint, device="cpu"
    )
    tokens = len(text.starts) - text.windows[-1]
    rows = text.rows[text.kept >= tokens]
    found = kb.searcher.shards[0].vectors[text.kept[text.kept >= tokens] - tokens]
    assert np.abs(found.astype(int) - rows).max() <= 1


def _page(title: str, text: str) -> Any:
    from kbq.corpus.pages import Page

    return Page("new", title, text)


def test_earlier_names_and_a_teacher(copied: Any, official: Any, queries: list[str]) -> None:
    def earlier(weights: dict[str, Any]) -> dict[str, Any]:
        renamed = {
            next(
                (old + name.removeprefix(new) for new, old in OLD.items() if name.startswith(new)),
                name,
            ): value
            for name, value in weights.items()
        }
        return renamed | {"cross_encoder.x": torch.ones(1), "qa_outputs.weight": torch.ones(2)}

    rewritten(copied.checkpoint, earlier)
    starts, _ = Model.open(copied.checkpoint, "cpu").encode_queries(queries)
    assert np.abs(starts - official.starts).max() < 1e-5


def test_a_checkpoint_that_only_encodes_queries(
    copied: Any, official: Any, queries: list[str], tmp_path: Path
) -> None:
    """As version 1.1 saves it; it belongs to a model, whose knowledge bases it asks."""

    def tuned(weights: dict[str, Any]) -> dict[str, Any]:
        left = {
            name: value for name, value in weights.items() if not name.startswith("phrase_encoder.")
        }
        left["query_end_encoder.embeddings.LayerNorm.bias"] += 1
        return left | {"query_start_encoder.embeddings.position_ids": torch.arange(96)[None]}

    rewritten(copied.checkpoint, tuned)
    with pytest.raises(
        ModelError, match=r"encoders of queries, but none of phrases: say .* --base MODEL`"
    ):
        Model.open(copied.checkpoint, "cpu")
    base = import_checkpoint(official.checkpoint, tmp_path / "base").folder
    made = import_checkpoint(copied.checkpoint, tmp_path / "tuned", base=base)
    assert (made.base, made.dim, made.layers) == (str(base), 16, 2)
    model = Model.open(made.folder, "cpu")
    starts, ends = model.encode_queries(queries)
    assert np.abs(starts - official.starts).max() < 1e-5
    assert np.abs(ends - official.ends).max() > 0.1
    assert model.config.phrase_fingerprint == Model.open(base, "cpu").config.phrase_fingerprint
    with pytest.raises(
        ModelError, match=r"tuned is a query encoder itself: give the model of the checkpoint"
    ):
        import_checkpoint(copied.checkpoint, tmp_path / "again", base=made.folder)
    with pytest.raises(
        ModelError, match=r"default was not made of a checkpoint of DensePhrases: give"
    ):
        import_checkpoint(copied.checkpoint, tmp_path / "again", base="default")


def test_a_vocabulary_from_elsewhere(
    copied: Any, official: Any, queries: list[str], tmp_path: Path
) -> None:
    (copied.checkpoint / "vocab.txt").unlink()
    with pytest.raises(
        ModelError,
        match=r"has no vocabulary \(vocab.txt or tokenizer.json\): .*--vocabulary FOLDER`",
    ):
        import_checkpoint(copied.checkpoint, tmp_path / "model")
    with pytest.raises(
        ModelError, match=r"has 30,522 pieces, the weights are for \d+: give the one of the network"
    ):
        import_checkpoint(copied.checkpoint, tmp_path / "model", vocabulary="default")
    assert not (tmp_path / "model").exists()
    made = import_checkpoint(copied.checkpoint, tmp_path / "model", vocabulary=official.checkpoint)
    starts, _ = Model.open(made.folder, "cpu").encode_queries(queries)
    assert np.abs(starts - official.starts).max() < 1e-5
    with pytest.raises(TrainingError, match="model already exists: choose another folder"):
        import_checkpoint(copied.checkpoint, tmp_path / "model", vocabulary=official.checkpoint)


@pytest.mark.parametrize(
    ("config", "pieces"),
    [(None, ["Paris"]), ('{"do_lower_case": true}', ["p", "##a", "##r", "##i", "##s"])],
)
def test_the_case_of_a_vocabulary(config: str | None, pieces: list[str], copied: Any) -> None:
    """Without a word on it, one with capitals is cased, whatever the default of a tokenizer is."""
    if config:
        (copied.checkpoint / "tokenizer_config.json").write_text(config)
    size = read_checkpoint(copied.checkpoint).shape.vocab_size
    assert read_vocabulary(copied.checkpoint, size).tokenize("Paris") == pieces


class Malicious:
    """Would create a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_a_checkpoint_that_would_run_code(copied: Any, tmp_path: Path) -> None:
    torch.save(
        {"phrase_encoder.x": Malicious(tmp_path / "ran")}, copied.checkpoint / "pytorch_model.bin"
    )
    with pytest.raises(
        ModelError,
        match=r"pytorch_model.bin holds more than tensors.*could run code, so nothing is",
    ):
        Model.open(copied.checkpoint, "cpu")
    assert not (tmp_path / "ran").exists()


def drop(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda weights: weights.__delitem__(name)


def put(name: str, value: Any) -> Callable[[dict[str, Any]], object]:
    return lambda weights: weights.__setitem__(name, value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            drop("filter_linear.weight"),
            r"lacks 1 weights, the first is filter_linear.weight: download it again",
        ),
        (
            drop("phrase_encoder.encoder.layer.1.output.dense.bias"),
            r"lacks 1 weights, the first is phrase_encoder.enc",
        ),
        (
            put("phrase_encoder.other", torch.ones(1)),
            r"has no place for 1 weights, the first is phrase_encoder.other",
        ),
        (
            put("filter_linear.bias", torch.ones(3)),
            r"weight filter_linear.bias in .* has the shape \(3,\), not \(2,\)",
        ),
        (
            put("filter_linear.bias", torch.tensor([1, torch.nan])),
            r"weight phrases.filter.bias holds NaN or infinity",
        ),
        (
            lambda weights: [1, 2],
            r"does not hold named weights: give the folder of an official checkpoint",
        ),
        (
            lambda weights: {"a": torch.ones(1)},
            r"is not a checkpoint of DensePhrases: it has no weight query_start",
        ),
        (
            put("query_end_encoder.embeddings.word_embeddings.weight", torch.ones(67, 16)),
            r"the word embeddings of query_end_encoder.\* and phrase_encoder.\* differ|has the shape",
        ),
    ],
)
def test_weights_that_do_not_fit(
    change: Callable[[dict[str, Any]], object], message: str, copied: Any, tmp_path: Path
) -> None:
    rewritten(copied.checkpoint, change)
    with pytest.raises(ModelError, match=message):
        import_checkpoint(copied.checkpoint, tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "pytorch_model.bin",
            None,
            r"pytorch_model.bin is missing: give the folder of an official checkpoint",
        ),
        (
            "pytorch_model.bin",
            b"",
            r"pytorch_model.bin is damaged|holds more than tensors, or is damaged",
        ),
        (
            "pytorch_model.bin",
            b"PK\x03\x04 and so on",
            r"pytorch_model.bin is damaged \(.*\): download it again",
        ),
        ("config.json", None, r"config.json is missing: put back the one of this checkpoint"),
        ("config.json", b"{", r"config.json is damaged \(.*\): put back"),
        (
            "config.json",
            b'{"hidden_size": 32, "num_attention_heads": 4}',
            r"hidden_size is 32, the weights have 16",
        ),
        (
            "config.json",
            b'{"num_attention_heads": 3}',
            r"hidden_size is 16, must be a multiple of num_attention_heads",
        ),
        ("config.json", b"{}", r"num_attention_heads is None, must be a number"),
        ("vocab.txt", b"a\na\n", r"vocab.txt is damaged \(a piece occurs twice\)"),
        ("vocab.txt", b"a\nb\n", r"vocab.txt is damaged \(it has no \[CLS\]\)"),
    ],
)
def test_files_that_are_missing_or_damaged(
    name: str, content: bytes | None, message: str, copied: Any, tmp_path: Path
) -> None:
    path = copied.checkpoint / name
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(KbqError, match=message):
        import_checkpoint(copied.checkpoint, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_half_of_the_weights(copied: Any, tmp_path: Path) -> None:
    path = copied.checkpoint / "pytorch_model.bin"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ModelError, match=r"pytorch_model.bin is damaged \(.*\): download it again"):
        import_checkpoint(copied.checkpoint, tmp_path / "model")


def test_there_is_no_such_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"model folder .*nowhere does not exist"):
        import_checkpoint(tmp_path / "nowhere", tmp_path / "model")
