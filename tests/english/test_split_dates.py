"""A day in one sentence, and its year in another, beside a plain oracle that knows how the text was made."""

import os
import random
from calendar import month_name
from datetime import date, timedelta

import pytest

from kbq.english.dates import DateValue
from kbq.english.split_dates import split_date

DAY = DateValue("1867-11-07", 11)


def split(text: str, phrase: str) -> DateValue | None:
    start = text.index(phrase)
    found = split_date(text, start, start + len(phrase))
    return found.date if found else None


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("In 1867 she moved to Paris. On 7 November she married Bo Ray.", "7 November"),
        ("In the year 1867 she moved to Paris, and on 7 November she married.", "7 November"),
        ("She moved to Paris in May 1867. On November 7 she married.", "November 7"),
        ("On 3 May 1867 she moved. Thursday, 7 November, was the day.", "Thursday, 7 November"),
        ("The ship was launched in 1867. On 7 November of that year it sank.", "7 November"),
        (
            "Dr. Roe left in 1867. Later that year, on the 7th of November, he died.",
            "7th of November",
        ),
        ("She was born in 1867. The birth was on 7 November of the same year.", "7 November"),
        ("She was born on 7 November in Bonn. The year was 1867.", "7 November"),
        ("She was born on 7 November in Bonn. The year was 1867.", "1867"),
        ("They met on the 7th of November. It was 1867, and it rained.", "1867"),
    ],
)
def test_a_year_elsewhere_makes_a_day_a_whole_date(text: str, phrase: str) -> None:
    assert split(text, phrase) == DAY


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("She was born in 1841. She died on 7 November.", "7 November"),
        ("The church was built in 1793. It burnt down on 7 November.", "7 November"),
        ("In 1867 she moved. Ten years later, on 7 November, she married.", "7 November"),
        ("In 1867 she moved. The following year, on 7 November, she married.", "7 November"),
        ("In 1867 the town was founded. The feast is held on 7 November.", "7 November"),
        ("On 3 December 1867 she moved. On 7 November she married.", "7 November"),
        ("In 1867 she moved. It was cold. On 7 November she married.", "7 November"),
        ("In 1867 she moved. On 7 November 1868 she married.", "7 November"),
        ("In 1867 she moved. On 7 November she married, as in 1868 her sister.", "7 November"),
        ("In 1867 she moved. She married before 7 November.", "7 November"),
        ("In 1867 she moved. From 5 to 7 November she was ill.", "7 November"),
        ("Since 1867–68 she lived in Paris. On 7 November she married.", "7 November"),
        ("In the 1860s she moved. On 7 November she married.", "7 November"),
        ("In 1867 she moved. On Monday, 7 November, she married.", "Monday, 7 November"),
        ("Jean Roe (3 May 1867, Graz – 7 November, Bonn) was a painter.", "7 November"),
        ("In 1867 she moved. On 31 November she married.", "31 November"),
        ("She was born on 7 November in Bonn. In 1867 she moved.", "1867"),
        ("She married on 7 May and on 7 November. The year was 1867.", "1867"),
        ("She won 7 November prizes.", "7 November"),
        ("On 7 November she married.", "7 November"),
    ],
)
def test_a_year_that_may_be_another_is_left_alone(text: str, phrase: str) -> None:
    assert split(text, phrase) is None


def test_the_characters_say_day_and_year() -> None:
    text = "Ann Roe was ill. In 1867 she moved to Paris. On 7 November she married."
    found = split_date(text, text.index("7 Nov"), text.index(" she married"))
    assert found is not None
    assert text[found.start : found.end] == "1867 she moved to Paris. On 7 November"


def test_random_texts_say_the_date_from_which_they_were_made() -> None:
    draw = random.Random(74)
    for _ in range(int(os.environ.get("KBQ_CASES", "400"))):
        text, phrase, meant = random_text(draw)
        assert split(text, phrase) == meant, text


def random_text(draw: random.Random) -> tuple[str, str, DateValue | None]:
    """Return two or three sentences, the day that the last one names, and its date if that is sure."""
    first = date(draw.randint(1600, 2020), 1, 1) + timedelta(draw.randrange(360))
    day = date(first.year, 1, 1) + timedelta(draw.randrange(360))
    who = draw.choice(["She", "Ann Roe", "The choir", "Dr. Bo Ray", "St. Mary's Club"])
    did = draw.choice(
        ["moved to Bonn", "left Mr. Lee", "won 12 prizes", "had 340 members", "met J. Doe"]
    )
    month = f"{month_name[first.month]} {first.year}"
    frames = {  # from which month and day on the year holds
        f"In {first.year} {who} {did}": (0, 0),
        f"During {first.year}, {who} {did}": (0, 0),
        f"{who} {did} in {month}": (first.month, 0),
        f"On {first.day} {month} {who} {did}": (first.month, first.day),
        f"{who} {did} on {month_name[first.month]} {first.day}, {first.year}": (
            first.month,
            first.day,
        ),
        f"{who}, built in {first.year}, {did}": None,
        f"In {first.year}–{first.year + 1} {who} {did}": None,
        f"In the {first.year // 10}0s {who} {did}": None,
        f"{who} ({first.year}) {did}": None,
        f"{who} {did}": None,
    }
    links = {  # whether the time goes on from there; None: the year is that of the sentence before
        ". On {}": True,
        ", and on {}": True,
        ". There, on {},": True,
        ". Later that year, on {},": None,
        ". A year later, on {},": False,
        ". The next spring, on {},": False,
        ". Every year on {}": False,
        ". All was well. On {}": False,
        f". In {first.year - 3} he died. Much was lost. On {{}}": False,
    }
    frame = draw.choice(list(frames))
    link = draw.choice(list(links))
    phrase = draw.choice(
        [
            f"{day.day} {month_name[day.month]}",
            f"{month_name[day.month]} {day.day}",
            f"{day:%A}, {day.day} {month_name[day.month]}",
            f"{month_name[day.month][:3]} {day.day}",
        ]
    )
    text = f"{frame}{link.format(phrase)} they met again."
    begins = frames[frame]
    in_doubt = (f"{first.year}–", f"{first.year}s", f"({first.year})")
    names_a_year = str(first.year) in frame and not any(form in frame for form in in_doubt)
    is_sure = begins is not None or (links[link] is None and names_a_year)
    is_later = begins is None or (day.month, day.day) >= begins
    if not is_sure or links[link] is False or not is_later:
        return text, phrase, None
    return text, phrase, DateValue(day.isoformat(), 11)
