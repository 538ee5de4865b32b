"""Reader: every token of a passage is read once, as the network alone reads it, and strangers are
refused.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
import transformers

from kbq.errors import ModelError
from kbq.model.backbone import load_tokenizer
from kbq.reading.reader import Reader
from kbq.training.batches import PreparedPassage
from kbq.training.reader import reading_examples


def test_windows_hold_the_question_and_every_token_of_the_passage_once(
    reader: Reader, few_prepared: list[PreparedPassage]
) -> None:
    examples = reading_examples(reader, few_prepared)
    asked = [query for passage in few_prepared for query in passage.queries]
    assert [example.queries for example in examples] == [(query,) for query in asked]
    passages = [few_prepared[0], few_prepared[0], few_prepared[1]]
    assert [len(example.windows) for example in examples] == [1, 1, 2]
    for example, passage in zip(examples, passages, strict=True):
        assert example.text == passage.text
        for window in example.windows:
            question = list(example.queries[0])
            assert window.ids[: len(question)] == question
            assert window.segments[: len(question)] == [0] * len(question)
            assert set(window.segments[len(question) :]) == {1}
            assert window.ids[-1] == reader.tokenizer.sep_token_id
            assert len(window.ids) <= 256  # what this network reads


def test_logits_are_those_of_the_network_alone(
    reader: Reader, few_prepared: list[PreparedPassage]
) -> None:
    examples = reading_examples(reader, few_prepared)
    found = reader.score([example.windows for example in examples])
    for example, logits in zip(examples, found, strict=True):
        alone = []
        for window in example.windows:
            with torch.inference_mode():
                ids = {
                    "input_ids": torch.tensor([window.ids]),
                    "token_type_ids": torch.tensor([window.segments]),
                }
                out = reader.network(**ids)
            own = slice(window.first, window.first + window.count)
            alone.append(
                np.stack([out.start_logits[0, own].numpy(), out.end_logits[0, own].numpy()])
            )
        expected = np.concatenate(alone, axis=1)
        assert logits.shape == (2, len(example.text)) == expected.shape
        assert logits == pytest.approx(expected, abs=0.3)  # bfloat16 where the machine has it


def test_a_saved_reader_is_an_ordinary_checkpoint(reader: Reader, tmp_path: Path) -> None:
    reader.save(tmp_path / "reader")
    plain = transformers.AutoModelForQuestionAnswering.from_pretrained(tmp_path / "reader")
    for name, tensor in reader.network.state_dict().items():
        assert torch.equal(plain.state_dict()[name], tensor), name
    again = Reader.open(str(tmp_path / "reader"), "cpu")
    assert again.fingerprint() == reader.fingerprint()
    again.check_tokenizer(reader.tokenizer)


def test_an_encoder_without_a_trained_head_is_no_reader(checkpoint: Path, tmp_path: Path) -> None:
    message = r"is not a question-answering checkpoint \(it lacks 2 weights, the first is qa_outputs.bias\)"
    with pytest.raises(ModelError, match=message):
        Reader.open(str(checkpoint), "cpu")
    with pytest.raises(ModelError, match="is not a checkpoint that transformers can read"):
        Reader.open(str(tmp_path / "none"), "cpu")


def test_a_checkpoint_without_its_weights_is_refused(reader: Reader, tmp_path: Path) -> None:
    reader.save(tmp_path / "reader")
    (tmp_path / "reader" / "model.safetensors").unlink()
    with pytest.raises(
        ModelError, match=r"model\.safetensors is missing: restore it, make the network again, or"
    ):
        Reader.open(str(tmp_path / "reader"), "cpu")
    (tmp_path / "reader" / "seal.json").unlink()
    with pytest.raises(ModelError, match="is not a checkpoint that transformers can read"):
        Reader.open(str(tmp_path / "reader"), "cpu")


def test_another_vocabulary_is_refused(reader: Reader, make_tokenizer: Callable[..., Any]) -> None:
    other = make_tokenizer()
    reader.check_tokenizer(other)
    other.add_tokens(["Łódź"])
    with pytest.raises(
        ModelError, match="has another vocabulary than that of the model to train: distil"
    ):
        reader.check_tokenizer(other)


def test_another_way_to_cut_text_is_refused(
    reader: Reader, make_tokenizer: Callable[..., Any]
) -> None:
    other = make_tokenizer()
    other.backend_tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    with pytest.raises(ModelError, match="splits text differently than that of the model to train"):
        reader.check_tokenizer(other)


@pytest.mark.parametrize(
    ("template", "separators"), [("$A [SEP] $B [SEP]", 1), ("$A [SEP] [SEP] $B [SEP]", 2)]
)
def test_separators_are_those_of_the_tokenizer(
    template: str, separators: int, checkpoint: Path, tmp_path: Path, reader: Reader
) -> None:
    tokenizer = load_tokenizer(checkpoint)
    special = [(name, tokenizer.convert_tokens_to_ids(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.backend_tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair=f"[CLS] {template}", special_tokens=special
    )
    other = Reader(reader.network, tokenizer, "")
    separator = tokenizer.sep_token_id
    (window,) = other.windows([1, 7, separator], [8, 9])
    assert window.ids == [1, 7, *[separator] * separators, 8, 9, separator]
    assert (window.first, window.count) == (2 + separators, 2)


def test_word_embeddings_stay_frozen(reader: Reader) -> None:
    frozen = [
        name for name, parameter in reader.network.named_parameters() if not parameter.requires_grad
    ]
    assert frozen == ["bert.embeddings.word_embeddings.weight"]
