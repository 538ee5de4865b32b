"""Tokenizer: equal to transformers for the same folder; the capitals of words are learned and
restored.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import transformers
from hypothesis import given
from hypothesis import strategies as st

from kbq.corpus.pages import Page, Paragraph
from kbq.errors import ModelError
from kbq.kb import KnowledgeBase
from kbq.model.backbone import load_tokenizer, saved_tokenizer
from kbq.model.model import Model
from kbq.model.model_folder import DEFAULT_MODEL
from kbq.model.tokenizer import (
    FastTokenizer,
    encodings,
    is_cased,
    opens_sentence,
    truecased,
    usual_forms,
)

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
        truth = theirs(
            TEXTS, add_special_tokens=False, split_special_tokens=not special, verbose=False
        ).encodings
        for one, other in zip(found, truth, strict=True):
            assert (one.ids, one.offsets, one.word_ids) == (
                other.ids,
                other.offsets,
                other.word_ids,
            )
    assert [own.tokenize(text) for text in TEXTS] == [theirs.tokenize(text) for text in TEXTS]


@pytest.fixture(scope="module")
def both() -> tuple[FastTokenizer, Any]:
    """The default model's tokenizer as kbq reads it and as transformers does."""
    own, theirs = saved_tokenizer(DEFAULT_MODEL), load_tokenizer(DEFAULT_MODEL)
    assert isinstance(own, FastTokenizer)
    assert not isinstance(theirs, FastTokenizer)
    return own, theirs


@given(text=st.text(max_size=60))
def test_pieces_of_any_text_are_those_of_transformers(
    both: tuple[FastTokenizer, Any], text: str
) -> None:
    own, theirs = both
    (found,) = encodings(own, [text])
    truth = theirs(
        text, add_special_tokens=False, split_special_tokens=True, verbose=False
    ).encodings[0]
    assert (found.ids, found.offsets) == (truth.ids, truth.offsets)


def test_names_and_numbers_are_those_of_transformers(folder: Path) -> None:
    own, theirs = FastTokenizer.read(folder), transformers.AutoTokenizer.from_pretrained(folder)
    assert own is not None
    assert own.sep_token == theirs.sep_token
    for name in ("cls", "sep", "pad"):
        assert getattr(own, f"{name}_token_id") == getattr(theirs, f"{name}_token_id"), name
    assert own.get_vocab() == theirs.get_vocab()
    assert sorted(own.all_special_ids) == sorted(theirs.all_special_ids)
    assert ("token_type_ids" in own.model_input_names) == (
        "token_type_ids" in theirs.model_input_names
    )
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
    assert [one.ids for one in encodings(again, TEXTS)] == [
        one.ids for one in encodings(own, TEXTS)
    ]
    for text in TEXTS:
        # Also what stands around a text.
        assert theirs(text)["input_ids"] == truth(text)["input_ids"]


SETTINGS: dict[str, tuple[dict[str, Any], int]] = {  # and how many special tokens there are
    "settings of a token": ({"sep_token": transformers.AddedToken("[SEP]", lstrip=True)}, 4),
    "a list of more": ({"additional_special_tokens": ["[unused1]"]}, 5),
    "more with names": ({"extra_special_tokens": {"image_token": "[unused1]"}}, 5),
    "beginning and end": ({"bos_token": "the", "eos_token": "river"}, 6),
    "a mask": ({"mask_token": "[MASK]"}, 5),
    "no inputs named": ({"model_input_names": None}, 4),
    "segments": ({"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}, 4),
    "no segments": ({"model_input_names": ["input_ids", "attention_mask"]}, 4),
}


@pytest.mark.parametrize(("settings", "special"), SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("kind", ["PreTrainedTokenizerFast", "BertTokenizer"])
def test_a_configuration_is_read_as_transformers_does(
    kind: str,
    settings: dict[str, Any],
    special: int,
    make_tokenizer: Callable[..., Any],
    tmp_path: Path,
) -> None:
    make_tokenizer(**{name: value for name, value in settings.items() if value}).save_pretrained(
        tmp_path
    )
    change_config(
        tmp_path,
        tokenizer_class=kind,
        **{name: value for name, value in settings.items() if not value},
    )
    own, theirs = FastTokenizer.read(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert own is not None
    assert own.sep_token_id == theirs.sep_token_id
    assert sorted(own.all_special_ids) == sorted(theirs.all_special_ids)
    assert len(own.all_special_ids) >= special
    assert ("token_type_ids" in own.model_input_names) == (
        "token_type_ids" in theirs.model_input_names
    )


def change_config(folder: Path, **settings: Any) -> None:
    written = json.loads((folder / "tokenizer_config.json").read_text()) | settings
    kept = {name: value for name, value in written.items() if value is not None}
    (folder / "tokenizer_config.json").write_text(json.dumps(kept))


def test_neither_cuts_nor_fills_up(make_tokenizer: Callable[..., Any], tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    tokenizer.backend_tokenizer.enable_truncation(3)
    tokenizer.backend_tokenizer.enable_padding(length=9)
    tokenizer.save_pretrained(tmp_path)
    own = FastTokenizer.read(tmp_path)
    assert [len(one.ids) for one in encodings(own, ["the river", "the river the city the"])] == [
        2,
        5,
    ]


@pytest.mark.parametrize("change", ["other class", "damaged", "no object"])
def test_what_transformers_may_read_otherwise_is_left_to_it(
    change: str, make_tokenizer: Callable[..., Any], tmp_path: Path
) -> None:
    make_tokenizer().save_pretrained(tmp_path)
    assert FastTokenizer.read(tmp_path) is not None
    if change == "other class":
        change_config(tmp_path, tokenizer_class="RobertaTokenizer")
    elif change == "damaged":
        (tmp_path / "tokenizer.json").write_text("{}")
    else:
        (tmp_path / "tokenizer_config.json").write_text("[]")
    assert FastTokenizer.read(tmp_path) is None
    if change != "other class":
        with pytest.raises(ModelError, match="has no tokenizer that transformers can read"):
            saved_tokenizer(tmp_path)


def test_a_missing_file_is_named(make_tokenizer: Callable[..., Any], tmp_path: Path) -> None:
    make_tokenizer().save_pretrained(tmp_path)
    # Transformers makes one of no words from it.
    change_config(tmp_path, tokenizer_class="BertTokenizer")
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(
        ModelError, match=r"the tokenizer of .* is missing: the folder has no tokenizer\.json"
    ):
        saved_tokenizer(tmp_path)


def test_a_saved_tokenizer_without_separator_is_refused(
    make_tokenizer: Callable[..., Any], tmp_path: Path
) -> None:
    make_tokenizer(sep_token=None).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="has no sep token: use a BERT-like checkpoint"):
        saved_tokenizer(tmp_path)


FORMS = {"marie": "Marie", "warsaw": "Warsaw", "usa": "USA", "o'neill": "O'Neill"}


@pytest.mark.parametrize(
    ("texts", "forms"),
    [
        ([], {}),
        (["the City and the city, a city"], {}),
        (["the City and the City, a city"], {"city": "City"}),
        (["Born in Łódź. Born in ŁÓDŹ and in Łódź."], {"łódź": "Łódź"}),
        (["Only here.", '"Also." ("Then.")'], {}),
        (["an ABC", "an Abc"], {"abc": "ABC"}),
    ],
)
def test_usual_forms(texts: list[str], forms: dict[str, str]) -> None:
    assert usual_forms(texts) == forms


@pytest.mark.parametrize(
    ("text", "word", "opens"),
    [
        ("Paris", "Paris", True),
        ("in Paris", "Paris", False),
        ("It was. Paris", "Paris", True),
        ('He said: "Paris', "Paris", True),
        ("a very long beginning, then Paris", "Paris", False),
        ("a very long beginning!  (Paris", "Paris", True),
        ("U.S. Paris", "Paris", True),  # an abbreviation looks like an end
    ],
)
def test_opens_sentence(text: str, word: str, opens: bool) -> None:
    assert opens_sentence(text, text.index(word)) == opens


@pytest.mark.parametrize(
    ("text", "cased"),
    [
        ("where was marie o'neill born", "where was Marie O'Neill born"),
        ("Where was marie born", "Where was marie born"),
        ("warsaw, usa?", "Warsaw, USA?"),
        ("warsawa", "warsawa"),
        ("", ""),
    ],
)
def test_truecased(text: str, cased: str) -> None:
    assert truecased(text, FORMS) == cased


def test_is_cased(make_tokenizer: Callable[..., Any]) -> None:
    tokenizer = make_tokenizer()
    assert is_cased(tokenizer)
    tokenizer.backend_tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    assert not is_cased(tokenizer)


def test_a_query_in_lower_case_finds_what_the_cased_one_finds(
    new_model: Callable[..., Model], pages: list[Page], tmp_path: Path
) -> None:
    plain = new_model()
    plain.save(tmp_path / "plain")
    assert not (tmp_path / "plain" / "casing.json").exists()
    plain.query_tokenizer.casing = FORMS
    plain.save(tmp_path / "cased")
    model = Model.open(tmp_path / "cased", "cpu")
    more = [*pages, Page("new", "Marie", (Paragraph(0, "Marie was born in Warsaw."),))]
    kb = KnowledgeBase.build(more, tmp_path / "kb", model)
    cased, lower = kb.query(["Marie [SEP] place of birth", "marie [SEP] place of birth"], k=3)
    assert [hit.place for hit in lower] == [hit.place for hit in cased]
    without = Model.open(tmp_path / "plain", "cpu")
    (one, other) = without.encode_queries(
        ["Marie [SEP] place of birth", "marie [SEP] place of birth"]
    )[0]
    assert np.abs(one - other).max() > 0.1


@pytest.mark.parametrize("content", ["{", "[]", '{"paris": 3}'])
def test_a_damaged_table_is_refused(
    content: str,
    new_model: Callable[..., Model],
    seal_again: Callable[[Path], None],
    tmp_path: Path,
) -> None:
    model = new_model()
    model.query_tokenizer.casing = FORMS
    model.save(tmp_path / "model")
    (tmp_path / "model" / "casing.json").write_text(content)
    seal_again(tmp_path / "model")
    with pytest.raises(
        ModelError, match=r"casing\.json is damaged \(.*\): restore it, or make the model again"
    ):
        Model.open(tmp_path / "model", "cpu")
