"""Rendering: what a person sees stays on its line."""

from kbq.answers import Answer, Result
from kbq.commands.ask import result_lines


def test_a_title_is_one_line_and_a_long_word_is_shortened() -> None:
    word = "x" * 100_000
    hit = Answer(word, 1.5, "9", "Tabs\tand\nlines", 0, 2, 2 + len(word), f"A {word} b.", (0, 0))
    lines = ["".join(line) for line in result_lines(Result("q", [hit], 0.0, (), True))[1:]]
    assert len(lines) == 2
    assert not any("\n" in line or "\t" in line for line in lines)
    assert "Tabs and lines" in lines[0]
    assert max(map(len, lines)) < 3000


def test_a_whole_paragraph_is_evidence() -> None:
    text = "The river flows through the city. " * 30
    hit = Answer(text, 1.5, "9", "Title", 0, 0, len(text), text, (0, len(text)))
    _, _, evidence = result_lines(Result("q", [hit], 0.0, (), True))
    assert "".join(evidence).count("river") == 30
