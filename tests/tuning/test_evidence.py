"""Evidence taken out: sentences that hold an answer are gone, and the phrases that are left stand
where they stood.
"""

from kbq.answers import Answer
from kbq.tuning.calibrate import without_evidence

TEXT = "Ada was a poet. She died in London in 1852. Her father, Byron, lived in London. She wrote."


def phrase(text: str, context: str = TEXT, paragraph: int = 0) -> Answer:
    start = context.index(text)
    return Answer(
        text,
        1.0,
        "P",
        "Ada",
        paragraph,
        start,
        start + len(text),
        context,
        (start, start + len(text)),
    )


def test_phrases_move_with_their_sentences() -> None:
    left = list(
        without_evidence(
            [phrase("1852"), phrase("Byron"), phrase("wrote"), phrase("poet")], ["1852"]
        )
    )
    assert [one.text for one in left] == ["Byron", "wrote", "poet"]
    assert {one.context for one in left} == {
        "Ada was a poet. Her father, Byron, lived in London. She wrote."
    }
    assert [one.context[one.start : one.end] for one in left] == ["Byron", "wrote", "poet"]
    assert [one.unit for one in left] == [(one.start, one.end) for one in left]


def test_every_name_of_an_answer_counts_in_every_paragraph() -> None:
    other = "In LONDON there is a tower. Bonn has none."
    left = list(
        without_evidence(
            [phrase("poet"), phrase("Byron"), phrase("Bonn", other, 1)],
            ["london", "Greater London"],
        )
    )
    assert [(one.text, one.context) for one in left] == [
        ("poet", "Ada was a poet. She wrote."),
        ("Bonn", "Bonn has none."),
    ]


def test_nothing_is_left_of_paragraphs_that_only_answer() -> None:
    assert list(without_evidence([phrase("Bonn", "Bonn.")], ["Bonn"])) == []
    assert list(without_evidence([phrase("poet")], [])) == [phrase("poet")]
