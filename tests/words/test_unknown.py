"""Unknown words: those of a subject that no page has, and those of a relation that the encoder does
not have either.
"""

from pathlib import Path

import pytest

from kbq.corpus.pages import Page, Paragraph
from kbq.kb import KnowledgeBase
from kbq.model.model import Model
from kbq.text.queries import Query
from kbq.words.bm25 import title_term, words_of


@pytest.fixture(scope="module")
def kb(model: Model, tmp_path_factory: pytest.TempPathFactory) -> KnowledgeBase:
    texts = {
        "Marie Curie": "She was born in that place.",
        "Places": "A plate and a place.",
        "Łódź": "Die Straßen.",
    }
    pages = [Page(title, title, (Paragraph(0, text),)) for title, text in texts.items()]
    folder = tmp_path_factory.mktemp("unknown") / "kb"
    KnowledgeBase.build(pages[:1], folder, model)
    return KnowledgeBase.build(pages[1:], folder, model, append=True)


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("Marie Curie [SEP] plase of birth", ["plase"]),
        ("Curei [SEP] born", ["Curei"]),
        ("Marei Curie [SEP] bron", ["Marei", "bron"]),
        ("Łodź [SEP] born", []),  # accents are no difference
        ("Lodz [SEP] born", []),
        ("Cúrie [SEP] born", []),
        ("Qqzx Qqzx [SEP] Qqzx", ["Qqzx"]),
        ("Marie Curie [SEP] river", []),  # no page has it, the encoder does
        ("Curei [sep] city", ["Curei"]),
        ("is it the place of Viennaa in 1867?", ["Viennaa"]),
        ("in Viennaa the [START_ENT] Rhone [END_ENT] rises", ["Rhone"]),
        ("巴黎在哪里", []),
    ],
)
def test_what_no_page_has_is_named(text: str, unknown: list[str], kb: KnowledgeBase) -> None:
    assert kb.searcher.unknown_words(Query.of(text)) == unknown


def test_where_there_are_no_words_nothing_is_said(
    pages: list[Page], model: Model, tmp_path: Path
) -> None:
    kb = KnowledgeBase.build(pages, tmp_path / "kb", model, bm25=False)
    assert kb.searcher.unknown_words(Query.of("Curei [SEP] bron")) == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("A.C. Milan", "AC Milan"), ("U.S. Mint", "US Mint"), ("N.A.S.A.", "NASA"), ("R.E.M.", "REM"),
        ("U.S.A", "USA"), ("J. R. R. Tolkien", "J.R.R. Tolkien"), ("F.C. Barcelona", "FC Barcelona"),
    ],
)  # fmt: skip
def test_letters_with_full_stops_are_one_word(one: str, other: str) -> None:
    assert words_of([one]) == words_of([other]) != [[]]
    assert title_term(one) == title_term(other)


def test_a_sentence_that_ends_in_a_letter_is_not_joined() -> None:
    assert words_of(["He took vitamin A. Milan was far. It is 3.5 m long."]) == words_of(
        ["He took vitamin A, Milan was far, It is 3.5 m long"]
    )


@pytest.mark.parametrize("name", ["A.C. Milan", "AC Milan"])
def test_a_page_is_found_by_either_form(name: str, model: Model, tmp_path: Path) -> None:
    titles = ["A.C. Milan", "Inter Milan", "Milan", "AC"]
    pages = [Page(title, title, (Paragraph(0, f"{title} is old."),)) for title in titles]
    kb = KnowledgeBase.build(pages, tmp_path / "kb", model)
    assert (
        kb.query(f"{name} [SEP] age", k=1, unit="page", backend="bm25")[0].page_id == "A.C. Milan"
    )
    assert kb.searcher.unknown_words(Query.of(f"{name} [SEP] old")) == []
