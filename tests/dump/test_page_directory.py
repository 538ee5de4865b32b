"""Pages: texts of a knowledge base by page id."""

from pathlib import Path

import pytest

from kbq.corpus.pages import Page
from kbq.dump.page_directory import Pages
from kbq.errors import KnowledgeBaseError


def test_pages_are_found_by_id_and_paragraphs_by_their_own_number(
    kb_folder: Path, pages: list[Page]
) -> None:
    texts = Pages.open(kb_folder)
    assert [texts.is_known(page) for page in ("P0", "P11", "P12", "")] == [True, True, False, False]
    three = pages[3]
    assert [paragraph.number for paragraph in three.paragraphs] == [0, 2, 4]
    assert texts.text_of("P3", 2) == three.paragraphs[1].text
    assert texts.text_of("P3", None) == three.paragraphs[0].text
    assert texts.text_of("P3", 1) is None
    assert texts.text_of("P0", None) is None  # a page without text
    assert texts.text_of("P99", 0) is None


def test_a_folder_that_is_no_knowledge_base_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KnowledgeBaseError):
        Pages.open(tmp_path)
