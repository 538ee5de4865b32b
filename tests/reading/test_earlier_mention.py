"""Earlier mention: the last place before a window where a text names its subject."""

import pytest

from kbq.reading.earlier_mention import earlier_mention

GAP = "It rained for a long time. " * 12


@pytest.mark.parametrize(
    ("subject", "before", "mention"),
    [
        (
            "Ann Orr",
            "The mill of Ann Orr, a baker. Then Bo came. ",
            "The mill of Ann Orr, a baker.",
        ),
        (
            "Ann Orr",
            "Ann Orr spoke. Bo saw Mrs Orr twice. ",
            "Ann Orr spoke.",
        ),  # the full name is surer
        ("Ann Orr", "In May Orr left. ", "In May Orr left."),
        ("ann orr", "In May Orr left, said Ann Orr. ", "May Orr left, said Ann Orr."),
        ("Orr", "Orr left; so did Bo. ", "Orr left;"),
        ("U.S.", "The U.S. paid. ", "The U.S. paid."),
        ("C++ (language)", "They liked C++ (language) best. ", "They liked C++ (language) best."),
        ("東京", "東京 は 首都. ", "東京 は 首都."),
        ("Ann Orr", "Horror and corridors. ", ""),  # not within other words
        ("Ann de Li", "Li left. ", ""),  # two letters may be anybody
        ("", "Ann. ", ""),
    ],
)
def test_the_last_mention_before_a_window(subject: str, before: str, mention: str) -> None:
    text = before + GAP + "She died in 1901."
    found = earlier_mention(subject, "The Chronicle", text, len(text) - 17, len(text))
    assert (text[slice(*found)] if found else "") == mention


def test_a_mention_ends_before_the_window() -> None:
    text = "Ann Orr met Bo and then she went home and died in 1901."
    begin = text.index("she")
    found = earlier_mention("Ann Orr", "The Chronicle", text, begin, len(text))
    assert found == (0, begin)


def test_a_window_that_names_the_subject_needs_no_mention() -> None:
    text = "Ann Orr was a baker. " + GAP + "Ann Orr died."
    assert earlier_mention("Ann Orr", "The Chronicle", text, len(text) - 13, len(text)) is None
    assert earlier_mention("Ann Orr", "The Chronicle", text, 0, len(text)) is None
