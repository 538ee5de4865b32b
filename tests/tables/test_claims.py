"""Claims: what is written is read again, and a damaged line is named."""

import errno
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbq.dump.page_directory import PageValue
from kbq.english.dates import DateValue
from kbq.errors import KbqError
from kbq.tables.claims import Alternative, Claim, QuantityValue, write_claims

BIRTH = Claim(
    subject="Marie Curie",
    relation="date of birth",
    value="7 November 1867",
    probability=0.93,
    accepted=True,
    page_id="S1",
    title="Marie Curie",
    paragraph=2,
    start=120,
    end=135,
    sentence="She was born on 7 November 1867.",
    sentence_start=104,
    normal=DateValue("1867-11-07", 11),
    says_the_same=3,
    alternatives=(Alternative("1867", 0.4, "S2", "Pierre Curie"),),
    metadata={"url": "https://example.org/curie", "tags": ["a", 1, None]},
)
BARE = Claim(
    subject="x", relation="y", value="z", probability=None, accepted=False, page_id="", title="", paragraph=0, start=0,
    end=1, sentence="z", sentence_start=0,
)  # fmt: skip


def test_a_claim_as_a_line_has_it() -> None:
    assert BIRTH.to_dict() == {
        "subject": "Marie Curie", "relation": "date of birth", "value": "7 November 1867", "probability": 0.93,
        "accepted": True, "page_id": "S1", "title": "Marie Curie", "paragraph": 2, "start": 120, "end": 135,
        "sentence": "She was born on 7 November 1867.", "sentence_start": 104,
        "normal": {"type": "date", "edtf": "1867-11-07", "precision": 11}, "says_the_same": 3,
        "alternatives": ({
            "value": "1867", "probability": 0.4, "page_id": "S2", "title": "Pierre Curie", "paragraph": 0, "start": 0,
            "end": 0, "sentence": "", "sentence_start": 0,
        },),
        "metadata": {"url": "https://example.org/curie", "tags": ["a", 1, None]},
    }  # fmt: skip
    assert BARE.to_dict() == {
        "subject": "x", "relation": "y", "value": "z", "probability": None, "accepted": False, "page_id": "",
        "title": "", "paragraph": 0, "start": 0, "end": 1, "sentence": "z", "sentence_start": 0, "says_the_same": 1,
    }  # fmt: skip
    assert not BARE.by_hand
    assert replace(BARE, by_hand=True).to_dict()["by_hand"] is True


def test_equal_claims_are_one_in_a_set_whatever_their_metadata() -> None:
    assert {BIRTH, replace(BIRTH), BARE} == {BIRTH, BARE}


def read(path: Path) -> list[Claim]:
    return [Claim.from_dict(json.loads(line)) for line in path.read_text("utf-8").split("\n")[:-1]]


def test_a_claim_keeps_its_digest() -> None:
    assert BIRTH.digest == "62a206cc94c751bc6439eaa7aa4da165"
    assert replace(BIRTH, probability=0.1, says_the_same=9, accepted=False).digest == BIRTH.digest
    assert replace(BIRTH, paragraph=3).digest != BIRTH.digest


@pytest.mark.parametrize(
    "normal", [None, PageValue("7", "Łódź"), DateValue("199X", 8), QuantityValue("12.5", "km")]
)
def test_what_is_written_is_read_again(
    tmp_path: Path, normal: PageValue | DateValue | QuantityValue | None
) -> None:
    claims = [BIRTH, BARE, replace(BIRTH, normal=normal)]
    write_claims(tmp_path / "claims.jsonl", claims)
    assert read(tmp_path / "claims.jsonl") == claims
    assert [path.name for path in tmp_path.iterdir()] == ["claims.jsonl"]


@given(st.text(st.characters(exclude_categories=())), st.text(), st.text(min_size=1), st.text())
def test_any_text_survives(subject: str, before: str, value: str, behind: str) -> None:
    claim = replace(
        BARE, subject=subject, value=value, start=len(before), end=len(before) + len(value)
    )
    claim = replace(claim, sentence=before + value + behind)
    assert Claim.from_dict(json.loads(json.dumps(claim.to_dict()))) == claim
    assert claim.parts == (before, value, behind)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda fields: fields.pop("value"), "Object missing required field `value`"),
        (
            lambda fields: fields.update(probability=1.5),
            "Expected `float` <= 1.0 - at `$.probability`",
        ),
        (lambda fields: fields.update(start=-1), "Expected `int` >= 0 - at `$.start`"),
        (
            lambda fields: fields.update(accepted="yes"),
            "Expected `bool`, got `str` - at `$.accepted`",
        ),
        (
            lambda fields: fields.update(normal={"type": "datum"}),
            "Invalid value 'datum' - at `$.normal.type`",
        ),
        (lambda fields: fields.update(propability=1), "field 'propability' is unknown"),
        (
            lambda fields: fields.update(end=134),
            "value '7 November 1867' is not at its place in the sentence",
        ),
        (
            lambda fields: fields.update(start=16, end=31),
            "value '7 November 1867' is not at its place in the sentence",
        ),
    ],
)
def test_a_damaged_claim_is_refused(change: Callable[[dict[str, Any]], None], problem: str) -> None:
    fields = BIRTH.to_dict()
    change(fields)
    with pytest.raises(ValueError, match=re.escape(problem)):
        Claim.from_dict(fields)


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        KbqError, match=r"none/claims.jsonl cannot be written \(No such file or directory\): choose"
    ):
        write_claims(tmp_path / "none" / "claims.jsonl", [])


def test_lone_surrogates_are_written_as_escapes(tmp_path: Path) -> None:
    claim = replace(BARE, subject="half \ud83d of a pair")
    write_claims(tmp_path / "claims.jsonl", [claim])
    assert b'"subject": "half \\ud83d of a pair"' in (tmp_path / "claims.jsonl").read_bytes()
    assert read(tmp_path / "claims.jsonl") == [claim]


def test_a_full_disk_is_one_sentence_and_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "claims.jsonl"
    write_claims(path, [BARE])

    def until_the_disk_is_full() -> Iterator[Claim]:
        yield BIRTH
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(
        KbqError,
        match=r"claims.jsonl cannot be written \(No space left on device\): free disk space",
    ):
        write_claims(path, until_the_disk_is_full())
    assert read(path) == [BARE]
    assert [path.name for path in tmp_path.iterdir()] == ["claims.jsonl"]
