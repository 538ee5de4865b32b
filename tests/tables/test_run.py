"""AnswerCache answers: they come back as they were found, from memory and from a file."""

from io import BytesIO
from pathlib import Path

import pytest

from kbq.errors import KbqError
from kbq.kb import KnowledgeBase
from kbq.search.options import N_RERANKED, SearchOptions
from kbq.tables.run import AnswerCache
from kbq.text.queries import Query

QUERIES = ["Marie Curie [SEP] place of birth", "Isaac Newton [SEP] employer", "\ud800 [SEP] born"]


def test_answers_come_back_as_they_were_found(sample: KnowledgeBase, tmp_path: Path) -> None:
    found = sample.searcher.search(
        list(map(Query.of, QUERIES[:2])), SearchOptions(N_RERANKED, "phrase")
    )
    with (tmp_path / "a.jsonl").open("a+b") as file:
        kept = AnswerCache(sample.searcher.shards, file)
        kept.add(QUERIES, [*found, []])
        assert [kept[query] for query in QUERIES] == [*found, []]
    with (tmp_path / "a.jsonl").open("a+b") as file:
        again = AnswerCache(sample.searcher.shards, file)
        assert (QUERIES[0] in again, "x" in again) == (True, False)
        assert [again[query] for query in QUERIES] == [*found, []]


@pytest.mark.parametrize(
    "line", [b"{}", b"[]", b'{"query": 1, "answers": []}', b'{"query": "a"}', b"\xff", b'{"query"']
)
def test_a_damaged_line_is_named_and_an_unfinished_one_cut_off(
    line: bytes, sample: KnowledgeBase
) -> None:
    whole = b'{"query": "q", "answers": []}\n'
    file = BytesIO(whole + line)
    assert AnswerCache(sample.searcher.shards, file)["q"] == []
    assert file.getvalue() == whole
    with pytest.raises(KbqError, match=r"a\.jsonl:2 is damaged: delete the file to ask again"):
        AnswerCache(sample.searcher.shards, BytesIO(whole + line + b"\n"), "a.jsonl")


@pytest.mark.parametrize(
    "answer",
    ["[]", '[1.0, "no such page", 0, 0, 4, [0, 4], 0.5]', '[1.0, "S001", 99, 0, 4, [0, 4], 0.5]'],
)
def test_an_answer_from_elsewhere_is_damage(answer: str, sample: KnowledgeBase) -> None:
    kept = AnswerCache(
        sample.searcher.shards,
        BytesIO(f'{{"query": "q", "answers": [{answer}]}}\n'.encode()),
        "a.jsonl",
    )
    with pytest.raises(KbqError, match=r"a\.jsonl is damaged: delete it to ask again"):
        kept["q"]
