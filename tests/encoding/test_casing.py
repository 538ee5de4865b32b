"""Casing: words are written as they mostly are, and a query in lower case finds what the cased one finds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers

from kbq.corpus.pages import Page, Paragraph
from kbq.encoding.model import Model
from kbq.encoding.tokenizer import is_cased, opens_sentence, truecased, usual_forms
from kbq.errors import ModelError
from kbq.kb import KnowledgeBase

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
    cased, lower = kb.search(["Marie [SEP] place of birth", "marie [SEP] place of birth"], k=3)
    assert [hit.place for hit in lower] == [hit.place for hit in cased]
    without = Model.open(tmp_path / "plain", "cpu")
    (one, other) = without.encode_queries(["Marie [SEP] place of birth", "marie [SEP] place of birth"])[0]
    assert np.abs(one - other).max() > 0.1


def test_a_damaged_table_is_refused(new_model: Callable[..., Model], tmp_path: Path) -> None:
    model = new_model()
    model.query_tokenizer.casing = FORMS
    model.save(tmp_path / "model")
    (tmp_path / "model" / "casing.json").write_text("{")
    with pytest.raises(ModelError, match=r"casing\.json cannot be read"):
        Model.open(tmp_path / "model", "cpu")
