"""What must not change a leaderboard number: order of lines, types of ids, unknown guesses, doubled
pages.
"""

import json
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kbq.kilt.scores import score

Record = dict[str, Any]
RANKS = ("Rprec", "recall@5", "precision@1", "success_rate@5")

page_ids = st.integers(1, 6)
answers = st.sampled_from(["x", "the x", "y z", "Z", "x. y", "Łódź"])
gold_outputs = st.lists(
    st.fixed_dictionaries(
        {"answer": answers},
        optional={
            "provenance": st.lists(
                st.builds(lambda page: {"wikipedia_id": page}, page_ids), max_size=3
            )
        },
    ),
    min_size=1,
    max_size=4,
)
guess_outputs = st.fixed_dictionaries(
    {
        "answer": answers | st.just(""),
        "provenance": st.lists(
            st.builds(lambda page: {"wikipedia_id": page}, page_ids), max_size=8
        ),
    }
)
pairs = st.lists(st.tuples(gold_outputs, guess_outputs), max_size=5)


def evaluate(golds: Sequence[Record], guesses: Sequence[Record]) -> dict[str, float]:
    """The leaderboard's numbers and those of the page ranking."""
    with tempfile.TemporaryDirectory() as folder:
        gold, guess = Path(folder) / "gold", Path(folder) / "guess"
        for path, records in ((gold, golds), (guess, guesses)):
            path.write_text("".join(f"{json.dumps(record)}\n" for record in records), "utf-8")
        sections = score(guess, gold).layout()
        retrieval = score(guess, gold, "retrieval").layout()
    numbers = {name: value for section in sections.values() for name, value in section.items()}
    return numbers | {f"ranking {name}": retrieval[name] for name in RANKS}


def reversed_lines(guesses: list[Record]) -> list[Record]:
    return guesses[::-1]


def shuffled_lines(guesses: list[Record]) -> list[Record]:
    return random.Random(7).sample(guesses, len(guesses))


def text_ids(guesses: list[Record]) -> list[Record]:
    return [{**guess, "id": f" {guess['id']}\t"} for guess in guesses]


def text_pages(guesses: list[Record]) -> list[Record]:
    return each_item(guesses, lambda item: [{"wikipedia_id": f" {item['wikipedia_id']}"}])


def unknown_guesses(guesses: list[Record]) -> list[Record]:
    return [{"id": "unknown", "output": None}, *guesses, {"id": "other", "output": []}]


def doubled_pages(guesses: list[Record]) -> list[Record]:
    return each_item(guesses, lambda item: [item, item])


def more_keys(guesses: list[Record]) -> list[Record]:
    return each_item(guesses, lambda item: [{**item, "title": "T", "score": -1.0, "meta": {}}])


def each_item(guesses: list[Record], change: Any) -> list[Record]:
    """The guesses with every provenance item replaced by the items it changes into."""
    return [
        {
            "id": guess["id"],
            "output": [
                {
                    "answer": guess["output"][0]["answer"],
                    "provenance": [
                        new for item in guess["output"][0]["provenance"] for new in change(item)
                    ],
                }
            ],
        }
        for guess in guesses
    ]


CHANGES = (
    reversed_lines,
    shuffled_lines,
    text_ids,
    text_pages,
    unknown_guesses,
    doubled_pages,
    more_keys,
)


@settings(derandomize=True, deadline=None, database=None, max_examples=60)
@given(pairs=pairs)
def test_no_leaderboard_number_changes(pairs: list[tuple[list[Record], Record]]) -> None:
    golds = [{"id": n, "input": "", "output": gold} for n, (gold, _) in enumerate(pairs)]
    guesses: list[Record] = [{"id": n, "output": [guess]} for n, (_, guess) in enumerate(pairs)]
    expected = evaluate(golds, guesses)
    for change in CHANGES:
        assert evaluate(golds, change(guesses)) == expected, change.__name__


@settings(derandomize=True, deadline=None, database=None, max_examples=60)
@given(pairs=pairs)
def test_every_number_is_a_share_and_the_gate_only_takes(
    pairs: list[tuple[list[Record], Record]],
) -> None:
    golds = [{"id": n, "input": "", "output": gold} for n, (gold, _) in enumerate(pairs)]
    guesses: list[Record] = [{"id": n, "output": [guess]} for n, (_, guess) in enumerate(pairs)]
    numbers = evaluate(golds, guesses)
    assert all(0 <= value <= 1 for value in numbers.values())
    for name in ("accuracy", "em", "f1", "rougel"):
        assert numbers[f"KILT-{name}"] <= min(numbers[name], numbers["Rprec"])
