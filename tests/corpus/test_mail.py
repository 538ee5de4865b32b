"""Mail, encodings and marks of other programs: what a person reads of them is text, and nothing
else.
"""

import random
from email.message import EmailMessage

import pytest

from kbq.corpus.reading import Reading, read_document
from kbq.text.encodings import decode


def texts(reading: Reading) -> list[list[str]]:
    return [list(several) for _, several in reading.pages]


def mail(text: str, html: str = "", subject: str = "The pier") -> EmailMessage:
    message = EmailMessage()
    message["From"], message["Subject"], message["Date"] = (
        "Ann <a@b.org>",
        subject,
        "Tue, 7 May 2019 10:00:00 +0200",
    )
    message.set_content(text)
    if html:
        message.add_alternative(html, subtype="html")
    return message


def test_a_mail_with_an_attached_file() -> None:
    message = mail("Bo Ray built it.\n\nIt is 3 € cheap.", "<p>The same</p>", "Über den Steg")
    message.add_attachment(b"x" * 1000, maintype="image", subtype="png")
    reading = read_document(message.as_bytes(), ".eml")
    assert texts(reading) == [["Über den Steg – Bo Ray built it.", "It is 3 € cheap."]]
    assert reading.titles.metadata == "Über den Steg"
    assert reading.metadata == {"author": "Ann <a@b.org>", "date": "2019-05-07"}
    assert reading.left_out == {"attached files": 1}


def test_a_mail_of_html_alone() -> None:
    message = EmailMessage()
    message["Subject"] = "Pier"
    message.set_content("<h1>Pier</h1><p hidden>no</p><p>Bo built it.</p>", subtype="html")
    assert texts(read_document(message.as_bytes(), ".eml")) == [["Pier – Bo built it."]]


def test_a_box_of_mails() -> None:
    box = b"".join(
        b"From a@b.org Tue May  7 10:00:00 2019\n"
        + mail(f"Text {number}.", subject=f"Mail {number}").as_bytes()
        + b"\n"
        for number in range(3)
    )
    reading = read_document(box, ".mbox")
    assert texts(reading) == [[f"Mail {number} – Text {number}."] for number in range(3)]


@pytest.mark.parametrize("name", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_wide_letters_without_a_mark(name: str) -> None:
    draw = random.Random(name)
    for _ in range(1000):
        words = [
            "".join(draw.choices("abcdefghijklmnop é ö ł Ж", k=draw.randint(1, 9)))
            for _ in range(draw.randint(3, 40))
        ]
        text = " ".join(words)
        assert decode(text.encode(name)) == (text, name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A clerk.\n{: .summary}\n\nBo.", ["A clerk.", "Bo."]),
        ("A [link](x){: .b} here.", ["A link here."]),
        ("A set {:a} stays.", ["A set {:a} stays."]),
        ("7. May was cold.", ["7. May was cold."]),
        ("1. first\n2. second", ["first", "second"]),
    ],
)  # fmt: skip
def test_marks_and_numbers_of_markdown(text: str, expected: list[str]) -> None:
    assert texts(read_document(text.encode(), ".md")) == [expected]


def test_a_formula_does_not_refuse_a_document() -> None:
    pytest.importorskip("pypandoc", reason="it reads LaTeX")
    table = (
        r"$$ B = \left( \begin{tabular}{c|c} $0$ & $1$ \\ \hline $1$ & $0$ \end{tabular} \right) $$"
    )
    reading = read_document(
        f"Ann built it.\n\n{table}\n\n\\input{{other}}\nIt closed.".encode(), ".tex"
    )
    assert texts(reading) == [["Ann built it.", "It closed."]]
    assert reading.left_out == {"formulas": 1, "files that it includes": 1}
