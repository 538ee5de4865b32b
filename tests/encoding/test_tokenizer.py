"""Tokenizer: what transformers reads from the same folder is the truth."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st

from kbq.encoding.backbone import load_tokenizer, saved_tokenizer
from kbq.encoding.model import DEFAULT_MODEL
from kbq.encoding.tokenizer import FastTokenizer, encodings
from kbq.errors import ModelError

TEXTS = [
    "",
    "Marie Curie was born in Warsaw.",
    "Zoë O'Neill's 1,234 naïve USA [SEP] crème-brûlée — 北京 №7",
    "[CLS] [MASK] [unused1] don't\u200b\tstop\n\x00",
    "e\u0301 İstanbul ﬁne 🙂 " + "long " * 600,
]


@pytest.fixture(scope="module", params=["default", "cased"])
def folder(request: pytest.FixtureRequest, checkpoint: Path) -> Path:
    return DEFAULT_MODEL if request.param == "default" else checkpoint


def test_pieces_are_those_of_transformers(folder: Path) -> None:
    own, theirs = FastTokenizer.read(folder), transformers.AutoTokenizer.from_pretrained(folder)
    assert own is not None
    for special in (False, True):
        found = encodings(own, TEXTS, special)
        truth = theirs(TEXTS, add_special_tokens=False, split_special_tokens=not special, verbose=False).encodings
        for one, other in zip(found, truth, strict=True):
            assert (one.ids, one.offsets, one.word_ids) == (other.ids, other.offsets, other.word_ids)
    assert [own.tokenize(text) for text in TEXTS] == [theirs.tokenize(text) for text in TEXTS]


@given(text=st.text(max_size=60))
def test_pieces_of_any_text_are_those_of_transformers(text: str) -> None:
    own, theirs = saved_tokenizer(DEFAULT_MODEL), load_tokenizer(DEFAULT_MODEL)
    assert isinstance(own, FastTokenizer)
    assert not isinstance(theirs, FastTokenizer)
    (found,) = encodings(own, [text])
    truth = theirs(text, add_special_tokens=False, split_special_tokens=True, verbose=False).encodings[0]
    assert (found.ids, found.offsets) == (truth.ids, truth.offsets)


def test_names_and_numbers_are_those_of_transformers(folder: Path) -> None:
    own, theirs = FastTokenizer.read(folder), transformers.AutoTokenizer.from_pretrained(folder)
    assert own is not None
    for name in ("cls_token", "sep_token", "pad_token", "unk_token", "mask_token"):
        assert getattr(own, name) == getattr(theirs, name), name
        assert getattr(own, f"{name}_id") == getattr(theirs, f"{name}_id"), name
    assert own.get_vocab() == theirs.get_vocab()
    assert sorted(own.all_special_ids) == sorted(theirs.all_special_ids)
    assert ("token_type_ids" in own.model_input_names) == ("token_type_ids" in theirs.model_input_names)
    for token in ("the", "[SEP]", "no such piece"):
        assert own.convert_tokens_to_ids(token) == theirs.convert_tokens_to_ids(token)
    assert own.convert_ids_to_tokens([0, 7, 5]) == theirs.convert_ids_to_tokens([0, 7, 5])


def test_what_is_saved_is_read_again_by_both(folder: Path, tmp_path: Path) -> None:
    own = FastTokenizer.read(folder)
    assert own is not None
    encodings(own, TEXTS)
    own.save_pretrained(tmp_path / "new")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "new")
    truth = transformers.AutoTokenizer.from_pretrained(folder)
    again = FastTokenizer.read(tmp_path / "new")
    assert [one.ids for one in encodings(again, TEXTS)] == [one.ids for one in encodings(own, TEXTS)]
    for text in TEXTS:
        assert theirs(text)["input_ids"] == truth(text)["input_ids"]  # also what stands around a text


def test_settings_of_special_tokens_are_read(make_tokenizer: Callable[..., Any], tmp_path: Path) -> None:
    make_tokenizer(
        sep_token=transformers.AddedToken("[SEP]", lstrip=True),
        additional_special_tokens=["[unused1]"],
        model_input_names=["input_ids", "attention_mask"],
    ).save_pretrained(tmp_path)
    own, theirs = FastTokenizer.read(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert own is not None
    assert own.sep_token_id == theirs.sep_token_id
    assert sorted(own.all_special_ids) == sorted(theirs.all_special_ids)
    assert len(own.all_special_ids) == 5
    assert "token_type_ids" not in own.model_input_names


@pytest.mark.parametrize("change", ["other class", "damaged", "missing"])
def test_what_transformers_may_read_otherwise_is_left_to_it(
    change: str, make_tokenizer: Callable[..., Any], tmp_path: Path
) -> None:
    make_tokenizer().save_pretrained(tmp_path)
    assert FastTokenizer.read(tmp_path) is not None
    if change == "other class":
        written = json.loads((tmp_path / "tokenizer_config.json").read_text())
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(written | {"tokenizer_class": "RobertaTokenizer"}))
    elif change == "damaged":
        (tmp_path / "tokenizer.json").write_text("{}")
    else:
        (tmp_path / "tokenizer.json").unlink()
    assert FastTokenizer.read(tmp_path) is None
    if change != "other class":
        with pytest.raises(ModelError, match="holds no tokenizer that transformers can read"):
            saved_tokenizer(tmp_path)


def test_a_saved_tokenizer_without_separator_is_refused(make_tokenizer: Callable[..., Any], tmp_path: Path) -> None:
    make_tokenizer(sep_token=None).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="has no sep token: use a BERT-like checkpoint"):
        saved_tokenizer(tmp_path)
