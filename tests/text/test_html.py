"""HTML of notebooks: answers, tables and evaluations show their evidence, and no text of a corpus
is markup.
"""

from dataclasses import replace
from typing import Any

import pytest

from kbq.answers import Answer, Answers
from kbq.kb import KnowledgeBase
from kbq.kilt.analysis import ScoreTable as Report
from kbq.tables.tables import Table

EVIL = "<script>alert(1)</script>"
ANSWER = Answer(
    "Warsaw", 2.5, "S1", "Marie Curie", 0, 4, 10, "The Warsaw of old.", (4, 10), {}, 0.92
)


def test_an_answer_is_marked_in_its_sentence_beside_its_probability() -> None:
    shown = Answers([ANSWER])._repr_html_()
    assert "The <mark>Warsaw</mark> of old." in shown
    assert "width:3.68em" in shown
    assert "92 %" in shown
    assert 'title="page S1, paragraph 0"' in shown
    assert "2.50" in Answers([replace(ANSWER, probability=None)])._repr_html_()
    assert Answers([])._repr_html_() == "no answer"
    assert Answers([ANSWER]) == [ANSWER]


def test_no_text_is_markup() -> None:
    evil = replace(
        ANSWER,
        text=EVIL,
        title=EVIL,
        page_id='"' + EVIL,
        context=EVIL + "\ud800",
        start=0,
        end=len(EVIL),
    )
    table = Table.of([{EVIL: EVIL}])
    for shown in (
        Answers([evil])._repr_html_(),
        table._repr_html_(),
        Report(EVIL, {EVIL: "text"}, [(EVIL,)]).html(),
    ):
        assert "<script" not in shown
        assert "&lt;script" in shown
        shown.encode("utf-8")


def test_a_filled_table_has_its_evidence() -> None:
    kb = KnowledgeBase.sample(device="cpu")
    shown = kb.fill([{"subject": "Marie Curie", "note": "x"}], ["place of birth"])._repr_html_()
    assert "1 rows, 1 of 1 cells filled" in shown
    assert 'style="background:#3b82c433" title="' in shown
    claim = kb.fill([{"subject": "Marie Curie"}], ["place of birth"]).claims[0]
    assert "born in <mark>Warsaw</mark>" in claim._repr_html_()
    assert list(kb.with_pages(["S013"]).pages()) == [("S013", "Isaac Newton")]
    assert next(kb.pages()).title == "Marie Curie"


NOTEBOOK = (
    "import kbq; kb = kbq.KnowledgeBase.sample(device='cpu')",
    "kb.query('Marie Curie [SEP] place of birth', k=2)",
    "kb.fill([{'subject': 'Marie Curie'}], ['place of birth'])",
    "gold = [{'id': n, 'input': 'a [SEP] b', 'output': [{'answer': 'x', 'provenance': []}]} for n "
    "in range(4)]\n"
    "kbq.evaluate(gold, gold, 'slot_filling', by='relation')",
)


def test_a_notebook_shows_answers_tables_and_evaluations() -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel", reason="notebooks need a kernel: pip install ipykernel")
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in NOTEBOOK])
    nbclient.NotebookClient(book, timeout=300, kernel_name="python3").execute()
    answers, table, evaluation = (cell.outputs[-1].data["text/html"] for cell in book.cells[1:])
    assert "<mark>Warsaw</mark>" in answers
    assert "1 of 1 cells filled" in table
    assert "<caption>scores, 4 queries</caption>" in evaluation
    assert "<td>accuracy</td><td>100.00</td>" in evaluation
    assert "<caption>by relation</caption>" in evaluation


def test_every_result_shows_itself(kb: KnowledgeBase) -> None:
    answer = kb.query("the river", 1)[0]
    assert answer._repr_html_() == Answers([answer])._repr_html_()
    several: Any = kb.query(["the river", "<Paris>"], 2)
    shown = several._repr_html_()
    assert shown.count("<tr>") == 3
    assert "&lt;Paris&gt;" in shown
    info: Any = kb.info()
    assert '<td style="text-align:left">knowledge base</td>' in info._repr_html_()
