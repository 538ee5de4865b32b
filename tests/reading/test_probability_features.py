"""Features: what is known of each phrase, by hand."""

import math

import numpy as np
import pytest

from kbq.answers import Answer
from kbq.reading.probability import FEATURES, features
from kbq.reading.reranker import Candidate
from kbq.text.queries import Query
from kbq.words.names import NOWHERE, Naming, PageNaming

TEXT = "Marie Curie was born in Warsaw. The city of Warsaw is in Poland."


def look(
    text: str, score: float, judged: float = 0.5, title: str = "Marie Curie", proposed: bool = False
) -> Candidate:
    start = TEXT.index(text)
    place = start, start + len(text)
    return Candidate(
        Answer(text, score, title, title, 0, *place, TEXT, place),
        10 * score,
        judged,
        proposed,
        score,
    )


def of(
    text: str, looks: list[Candidate], number: int = 0, naming: Naming = NOWHERE
) -> dict[str, float]:
    return dict(
        zip(FEATURES, features(Query.of(text), looks, naming)[number].tolist(), strict=True)
    )


def test_a_phrase_alone_competes_with_none() -> None:
    found = of("Marie Curie [SEP] place of birth", [look("Warsaw", 2.0)])
    assert found == pytest.approx(
        {
            "share": 2.0,
            "margin": 2.0,
            "judged": 0.5,
            "searched": 2.0,
            "behind": 0.0,
            "agreed": 1.0,
            "support": 0.0,
            "subject in title": 1.0,
            "subject in text": 1.0,
            "subject is title": 1.0,
            "page": 1.0,
            "words": 0.0,
            "proposed": 0.0,
            "slot": 1.0,
            "named here": 1.0,
            "short name here": 0.0,
            "named close by": 1 / (1 + TEXT.index("Warsaw") / 50),
            "mentions": 0.0,
            "named early": 0.0,
            "namesakes": 0.0,
        }
    )


def test_a_page_that_names_the_subject_is_told_from_one_that_does_not() -> None:
    naming = Naming({"Marie Curie": PageNaming(3, 100), "Poland": PageNaming(1, 0)})
    looks = [look("Warsaw", 2.0), look("Poland", 1.0, title="Elsewhere")]
    here, elsewhere = (
        of("Marie Curie [SEP] place of birth", looks, number, naming) for number in (0, 1)
    )
    assert (here["mentions"], here["named early"], here["namesakes"]) == pytest.approx(
        (math.log(4), 0.5, math.log(3))
    )
    assert (elsewhere["mentions"], elsewhere["named early"]) == (0.0, 0.0)
    assert elsewhere["named close by"] == pytest.approx(1 / (1 + TEXT.index("Poland") / 50))


def test_letters_that_folding_makes_longer_move_no_name() -> None:
    text = "Œuvres, Œuvres and ﬃ: by Ann Lee, who was born in Leeds."
    place = text.index("Leeds"), text.index(".")
    answer = Answer("Leeds", 2.0, "1", "Works", 0, *place, text, place)
    found = of("Ann Lee [SEP] place of birth", [Candidate(answer, 20.0, 0.5, False, 2.0)])
    assert found["named close by"] == pytest.approx(1 / (1 + len("Ann Lee, who was born in ") / 50))


@pytest.mark.parametrize(
    ("subject", "acronym", "named", "short"),
    [
        ("Marie Curie", "", 1.0, 0.0),
        ("Pierre Curie", "", 0.0, 1.0),  # the family name, where the page has the whole one, too
        ("Maria Sklodowska", "", 0.0, 0.0),
        ("Union of Towns", "The", 0.0, 1.0),
        ("it", "", 0.0, 0.0),
    ],
)
def test_a_short_name_counts_on_a_page_that_has_the_whole_one(
    subject: str, acronym: str, named: float, short: float
) -> None:
    naming = Naming({"Marie Curie": PageNaming(1, 0, acronym)})
    found = of(f"{subject} [SEP] place of birth", [look("Warsaw", 2.0)], naming=naming)
    assert (found["named here"], found["short name here"]) == (named, short)
    without = of(f"{subject} [SEP] place of birth", [look("Warsaw", 2.0)])
    assert (without["named here"], without["short name here"]) == (named, 0.0)


def test_equal_texts_compete_together() -> None:
    looks = [
        look("Warsaw", 2.0),
        look("The city", 1.0, title="Poland"),
        look("Warsaw", 1.0, title="Poland"),
    ]
    found = of("Marie Curie [SEP] place of birth", looks)
    assert found["share"] == pytest.approx(math.log(math.exp(2) + math.e) - math.log(math.e + 1))
    assert (found["margin"], found["support"]) == pytest.approx((1.0, math.log(2)))
    assert found["page"] == pytest.approx(1 / 3)
    assert (found["agreed"], found["behind"]) == (1.0, 0.0)
    other = of("Marie Curie [SEP] place of birth", looks, 1)
    assert (other["agreed"], other["behind"], other["searched"]) == (0.0, -1.0, 1.0)
    assert other["margin"] == pytest.approx(-1.0)
    assert (other["words"], other["subject in title"], other["subject is title"]) == (0.0, 0.0, 0.0)


def test_an_adjective_counts_for_the_name_but_not_as_it() -> None:
    text = "Danish, of Denmark"
    looks = [
        Candidate(
            Answer(word, score, "1", "", 0, text.index(word), 0, text, (0, 0)),
            10.0,
            0.5,
            False,
            score,
        )
        for word, score in (("Denmark", 1.0), ("Danish", 2.0))
    ]
    name, adjective = (of("Niels Bohr [SEP] country", looks, number) for number in (0, 1))
    assert (name["share"], name["support"]) == pytest.approx(
        (math.log(math.e + math.exp(2)), math.log(2))
    )
    assert (adjective["share"], adjective["support"]) == pytest.approx(
        (2.0 - math.log(1 + math.e + math.exp(2)), 0.0)
    )


def test_of_a_question_what_carries_meaning_is_the_subject() -> None:
    found = of("where was Curie of Paris born?", [look("Warsaw", 2.0, proposed=True)])
    assert found["subject in title"] == pytest.approx(1 / 3)  # Curie; not Paris, born
    assert found["subject in text"] == pytest.approx(2 / 3)
    assert (found["subject is title"], found["slot"], found["proposed"]) == (0.0, 0.0, 1.0)


@pytest.mark.parametrize("text", ["who?", "... [SEP] ...", "的 [SEP] 的"])
def test_strange_queries_have_finite_features(text: str) -> None:
    assert np.isfinite(
        features(Query.of(text), [look("Warsaw", 2.0), look("The", -800.0), look("Poland", 900.0)])
    ).all()


def test_no_phrases_have_none() -> None:
    assert features(Query.of("Marie Curie"), []).shape == (0, len(FEATURES))
