"""Countries: tell which country a name or an adjective stands for.

The table beside this file has their ISO codes (3166-1, of parts 3166-2, of former countries 3166-3;
"-" if they have none), names that texts use, the official one among them, and adjectives and names
of nationals, mostly as in the World Factbook of the CIA. An adjective of two countries, such as
Dominican or Congolese, is that of none.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kbq.text.answer_scores import normalise_answer
from kbq.text.normal_forms import normalised

TABLE = Path(__file__).with_name("countries.tsv")
# Relations whose adjectives are no countries: German is a language, too.
_OTHER_ADJECTIVES = re.compile(
    r"language|tongue|dialect|script|alphabet|ethnic|demonym|people|cuisine|breed|name|title|religion|genre"
)
# Beginning of a relation.
ASKS_FOR_A_COUNTRY = re.compile(r"(?:\w+ )?country\b(?!'s| music)", re.IGNORECASE)
PARTS_OF_OTHERS = frozenset(  # names of countries that are also parts of others
    {
        "georgia", "england", "scotland", "wales", "northern ireland", "puerto rico", "hong kong",
        "greenland",
    }
    | {
        "macau", "macao", "guam", "aruba", "bermuda", "curacao", "gibraltar", "isle of man",
        "faroe islands",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Country:
    """The names of a country, the usual one first, and its adjectives."""

    code: str
    names: tuple[str, ...]
    adjectives: tuple[str, ...]


@cache
def countries_of_the_world() -> tuple[Country, ...]:
    countries = []
    for line in TABLE.read_text("utf-8").splitlines()[1:]:
        code, names, adjectives = line.split("\t")
        countries.append(
            Country(code, tuple(names.split("|")), tuple(filter(None, adjectives.split("|"))))
        )
    return tuple(countries)


def _tables(key: Callable[[str], str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the countries, each as the key of its first name, by their names and by their
    adjectives.
    """
    by_name: dict[str, str] = {}
    by_adjective: dict[str, str] = {}
    for country in countries_of_the_world():
        first = key(country.names[0])
        by_name |= dict.fromkeys(map(key, country.names), first)
        by_adjective |= dict.fromkeys(map(key, country.adjectives), first)
    return by_name, by_adjective


NAMES, ADJECTIVES = _tables(normalise_answer)


@cache
def _compared() -> tuple[dict[str, str], dict[str, str]]:
    return _tables(normalised)


def named_country(words: str) -> str:
    """Return the country with this name, as `normalised` gives it, or "".

    >>> named_country("united states of america"), named_country("american")
    ('united states', '')
    """
    return _compared()[0].get(words.removeprefix("the "), "")


def country_of(words: str, relation: str = "") -> str:
    """Return the country that a name or, where a relation may have a country, an adjective stands
    for, or "".

    >>> country_of("usa"), country_of("american", "citizenship"), country_of("german", "native language")
    ('united states', 'united states', '')
    """
    country = named_country(words)
    if country:
        return country
    if _OTHER_ADJECTIVES.search(relation.casefold()):
        return ""
    return _compared()[1].get(words, "")
