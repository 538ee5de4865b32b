"""Second look: what is right is known of each phrase, the judge and the encoder learn it, and a
killed run goes on.
"""

import importlib.util
import json
import lzma
import math
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from bundle_reader import save_reader
from mine_phrases import MinedQuery, as_line, chosen_phrases, read_mined
from safetensors.torch import load_file
from teach_second_look import (
    NONE,
    RerankerRun,
    TeachingSettings,
    half_of,
    judging_reader,
    new_judge,
    prepare,
    query_losses,
    renamed,
    teach_reranker,
    token_loss,
)

from kbq.answers import Answer
from kbq.corpus.pages import Page
from kbq.errors import KbqError, ModelError, TrainingError
from kbq.kb import KnowledgeBase
from kbq.model.model import Model
from kbq.model.model_folder import read_config
from kbq.reading.phrase_windows import ReadWindow, excerpts
from kbq.reading.reader import Reader, open_reader
from kbq.training.engine import StepReport
from kbq.tuning.relation_judge import Label, phrase_loss

ROOT = Path(__file__).parents[2]
TEXT = "Marie was born in Paris."  # six tokens
OTHER = "Paris in the river."
DIM = 4
SETTINGS = TeachingSettings(
    epochs=10, batch=4, learning_rate=1e-2, phrases=3, removed=0.0, hidden=0.0
)
Asked = dict[str, Any]  # arguments of `teach_reranker`


def phrase(text: str, page: str = "1", score: float = 10.0, context: str = TEXT) -> Answer:
    start = context.index(text)
    end = start + len(text)
    return Answer(text, score, page, f"Page {page}", 0, start, end, context, (start, end))


def mined(
    *phrases: Answer, answers: Sequence[str] = ("Paris",), pages: Sequence[str] = ("1",)
) -> MinedQuery:
    return MinedQuery("Marie [SEP] place of birth", tuple(answers), tuple(pages), phrases)


# What is right


@pytest.mark.parametrize(
    ("found", "query", "label"),
    [
        (phrase("Paris"), mined(), "right"),
        (phrase("Paris."), mined(answers=["the paris"]), "right"),
        (phrase("Paris"), mined(answers=["Rome", "Paris"], pages=["7", "1"]), "right"),
        (phrase("Paris"), mined(pages=["Page 1"]), "right"),
        (phrase("Paris"), mined(pages=[]), "right"),
        (phrase("Paris", "2"), mined(), "elsewhere"),
        (phrase("in Paris"), mined(), "nearly"),  # F1 of 2/3
        (phrase("in Paris", "2"), mined(), "wrong"),
        (phrase("born in Paris"), mined(), "nearly"),  # F1 of 1/2
        (phrase("was born in Paris"), mined(), "wrong"),
        (phrase("Paris"), mined(answers=[], pages=[]), "wrong"),
        (phrase("."), mined(answers=["!", "a"]), "wrong"),  # nothing is left of an answer
    ],
)
def test_labels(found: Answer, query: MinedQuery, label: Label) -> None:
    assert query.label(found) == label


def test_a_right_phrase_takes_the_place_of_the_last() -> None:
    wrong = [phrase(text) for text in ("Marie", "was", "born", "in")]
    right, second = phrase("Paris", score=2.0), phrase("Paris.", score=1.0)
    rng = random.Random(0)
    assert mined(*wrong, right, second).with_few_phrases(2, 0, rng).phrases == (wrong[0], right)
    assert mined(wrong[0], right, wrong[1], second).with_few_phrases(2, 0, rng).phrases == (
        wrong[0],
        right,
    )
    assert mined(*wrong).with_few_phrases(2, 0, rng).phrases == tuple(wrong[:2])
    assert mined(wrong[0]).with_few_phrases(2, 0, rng).phrases == (wrong[0],)


def test_some_phrases_come_from_further_down() -> None:
    ranked = [
        phrase(f"word{number}", score=10.0 - number, context=f"word{number}") for number in range(8)
    ]
    chosen = mined(*ranked).with_few_phrases(4, 2, random.Random(1)).phrases
    assert chosen[:2] == tuple(ranked[:2])
    assert [one.text for one in chosen[2:]] == ["word3", "word6"]  # the best first
    assert mined(*ranked[:2]).with_few_phrases(4, 2, random.Random(1)).phrases == tuple(ranked[:2])


# Which phrases are mined


def test_phrases_of_the_page_of_a_cell_come_from_further_down() -> None:
    others = [
        phrase(f"other{number}", "2", 90.0 - number, f"other{number}") for number in range(30)
    ]
    own = [phrase(f"own{number}", "1", 50.0 - number, f"own{number}") for number in range(12)]
    chosen = chosen_phrases([*others, *own], "Marie Curie [SEP] spouse", {"page": "1"})
    assert chosen == [*others[:12], *own[:8]]
    assert chosen_phrases([*others, *own], "Marie Curie [SEP] spouse", {}) == others[:20]


def test_other_pages_that_name_the_subject_say_nothing_of_a_cell_read_alone() -> None:
    naming = Answer("Pierre", 9.0, "2", "Page 2", 0, 0, 6, "Pierre met marie curie.", (0, 6))
    silent, own = (
        phrase("Rome", "3", 5.0, "Rome is old."),
        phrase("Paris", "1", 1.0, "Marie Curie left Paris."),
    )
    found = [naming, silent, own]
    assert chosen_phrases(found, "Marie Curie [SEP] spouse", {"page": "1", "alone": True}) == [
        silent,
        own,
    ]
    assert chosen_phrases(found, "Marie Curie [SEP] spouse", {"page": "1", "alone": False}) == found


def test_pages_are_hidden_unless_nothing_is_left() -> None:
    here, there = phrase("Paris"), phrase("Paris", "2")
    assert mined(here, there).with_pages_hidden().phrases == (there,)
    assert mined(here).with_pages_hidden().phrases == (here,)
    assert mined(here, there, pages=[]).with_pages_hidden().phrases == (here, there)


def test_the_same_share_of_the_queries_is_hidden_again(reading_model: Path) -> None:
    reader = judging_reader(reading_model, "cpu")
    queries = [mined(phrase("Paris"), phrase("river", "2", context=OTHER)) for _ in range(400)]
    settings = replace(SETTINGS, hidden=0.15)
    first, again, other = (
        prepare(reader, queries, replace(settings, seed=seed))[0] for seed in (3, 3, 4)
    )
    hidden = [len(query.phrases) == 1 for query in first]
    assert sum(hidden) / 400 == pytest.approx(0.15, abs=0.05)
    assert (
        hidden
        == [len(query.phrases) == 1 for query in again]
        != [len(query.phrases) == 1 for query in other]
    )


def test_evidence_is_removed_of_a_share_of_the_queries_with_answers(reading_model: Path) -> None:
    reader = judging_reader(reading_model, "cpu")
    said = "Marie was born in Paris. Her river is the Seine."
    answered = [
        mined(phrase("Paris", context=said), phrase("Seine", context=said)) for _ in range(200)
    ]
    unanswered = [replace(query, answers=()) for query in answered]
    queries, _ = prepare(reader, [*answered, *unanswered], replace(SETTINGS, removed=0.3))
    left = [[one.text for one in query.phrases] for query in queries]
    assert left[200:] == [["Paris", "Seine"]] * 200
    assert left[:200].count(["Seine"]) / 200 == pytest.approx(0.3, abs=0.08)
    assert all(
        query.label(one) == "wrong"
        for query in queries
        for one in query.phrases
        if len(query.phrases) == 1
    )


def test_a_subject_and_its_own_page_get_another_name_and_the_text_does_not() -> None:
    own, bracketed, other = (
        replace(phrase("Paris", page), title=title)
        for page, title in (("1", "Marie"), ("2", "Marie (ship)"), ("3", "Mary"))
    )
    query = renamed(mined(own, bracketed, other), "Ann Lee")
    assert query.text == "Ann Lee [SEP] place of birth"
    assert [one.title for one in query.phrases] == ["Ann Lee", "Ann Lee (ship)", "Mary"]
    assert [one.context for one in query.phrases] == [TEXT] * 3
    assert query.label(query.phrases[0]) == "right"
    # A page may be named by its title.
    assert renamed(mined(own, pages=["Marie"]), "Ann Lee").pages == ("Ann Lee",)
    for same in (mined(other), replace(mined(own), text="Where was Marie born?")):
        assert renamed(same, "Ann Lee") == same


def test_a_share_of_the_queries_that_are_not_kept_is_renamed(reading_model: Path) -> None:
    reader = judging_reader(reading_model, "cpu")
    own = replace(phrase("Paris"), title="Marie")
    others = [replace(mined(phrase("Paris")), text="Ann Lee [SEP] father")]
    kept = [replace(mined(own), is_kept=True)] * 200
    settings = replace(SETTINGS, renamed=0.3)
    first, again = (
        prepare(reader, [mined(own)] * 400 + kept + others, settings)[0] for _ in range(2)
    )
    names = [query.phrases[0].title for query in first]
    assert names[400:600] == ["Marie"] * 200
    # Half of them keep theirs by chance.
    assert names[:400].count("Ann Lee") / 400 == pytest.approx(0.15, abs=0.05)
    assert first == again


# Losses


@pytest.mark.parametrize(
    ("odds", "labels", "share"),
    [
        ([3, 1], ["right", "wrong"], 3 / 5),
        ([3, 2], ["right", "right"], 5 / 6),
        ([3, 1, 9], ["right", "wrong", "elsewhere"], 3 / 5),
        ([3, 4], ["right", "nearly"], 3 / 8),
        ([3, 1], ["wrong", "wrong"], 1 / 5),
        ([3, 1], ["nearly", "wrong"], 1),
        ([3, 1], ["elsewhere", "wrong"], 1),
    ],
)
def test_right_phrases_compete_with_all_others_and_none(
    odds: list[float], labels: list[Label], share: float
) -> None:
    loss = phrase_loss(torch.tensor(odds, dtype=torch.float32).log(), labels)
    assert math.exp(-loss) == pytest.approx(share)


@pytest.fixture
def read(make_tokenizer: Callable[..., Any]) -> Callable[..., Sequence[ReadWindow]]:
    """The windows of a query, with these logarithms of odds by a new judge, and logits of 0 for all
    tokens.
    """

    def make(
        query: MinedQuery, *judged: Sequence[float], proposed: tuple[int, int] | None = None
    ) -> Sequence[ReadWindow]:
        (parts,) = excerpts(make_tokenizer(), [[2, 3]], [query.phrases], 256)
        more = [] if proposed is None else [proposed]
        read = []
        for part, values in zip(parts, judged, strict=True):
            edges, tokens = torch.zeros(len(values), 2 * DIM), torch.tensor(values) + NONE
            part = replace(part, spans=(*part.spans, *more))
            read.append(ReadWindow(part, edges, tokens, torch.zeros(2, part.window.count)))
        return read

    return make


def token_share(
    query: MinedQuery, windows: Sequence[ReadWindow], none: float = 0.0, is_none: bool = False
) -> float:
    return math.exp(-float(token_loss(query, windows, torch.tensor([none]), is_none)))


def test_tokens_of_answers_compete_with_all_others_and_none(
    read: Callable[..., Sequence[ReadWindow]],
) -> None:
    query = mined(phrase("Marie"), answers=["PARIS", "Rome", " "])
    (window,) = read(query, [0.0])
    assert token_share(query, [window]) == pytest.approx(1 / 7)
    assert token_share(query, [window], none=math.log(5)) == pytest.approx(1 / 11)
    assert token_share(query, [window], is_none=True) == pytest.approx(1 / 7)  # the answer occurs
    window.logits[0, 4] = window.logits[1, 4] = math.log(4)
    assert token_share(query, [window]) == pytest.approx(4 / 10)
    window.logits[1, 4] = math.log(14)
    assert token_share(query, [window]) == pytest.approx(math.sqrt(4 / 10 * 14 / 20))


def test_where_no_answer_occurs_none_is_right_or_nothing(
    read: Callable[..., Sequence[ReadWindow]],
) -> None:
    query = mined(phrase("Marie"), answers=["Rome", "ari"])  # part of a word is no answer
    windows = read(query, [0.0])
    assert token_share(query, windows, none=math.log(2), is_none=True) == pytest.approx(2 / 8)
    assert token_share(query, windows) == 1


def test_windows_of_other_pages_with_the_answer_take_no_part(
    read: Callable[..., Sequence[ReadWindow]],
) -> None:
    here, there = phrase("Paris"), phrase("river", "2", context=OTHER)
    both = mined(here, there)
    assert token_share(both, read(both, [0.0], [0.0])) == pytest.approx(1 / 7)
    other = mined(here, there, answers=["Marie"])
    # Five tokens more.
    assert token_share(other, read(other, [0.0], [0.0])) == pytest.approx(1 / 12)
    alone = mined(there)
    assert token_share(alone, read(alone, [0.0])) == 1
    assert token_share(alone, read(alone, [0.0]), is_none=True) == 1  # "none" has no rival


def test_a_phrase_has_what_it_is_judged_and_a_share_of_the_search(
    read: Callable[..., Sequence[ReadWindow]],
) -> None:
    judge = new_judge(DIM)
    assert (judge.none.item(), judge.retrieval.item()) == (8.0, 0.5)
    query = mined(phrase("Marie", score=50.0), phrase("Paris", score=30.0))
    loss, of_tokens = query_losses(judge, query, read(query, [0.0, 2.0]))
    assert loss.item() == pytest.approx(math.log(math.e + 1 + 1) - 1)  # 2 - ½ · 20/10 points
    assert of_tokens.item() == pytest.approx(math.log(6 + math.exp(4)))  # "none" has 8 / 2
    loss.backward()  # type: ignore[no-untyped-call]
    assert judge.retrieval.grad is not None
    assert judge.retrieval.grad.item() == pytest.approx(2 - 2 * math.e / (math.e + 2))


def test_what_the_reader_proposes_takes_part(read: Callable[..., Sequence[ReadWindow]]) -> None:
    query = mined(phrase("Marie", score=50.0), phrase("born", score=30.0))
    # "Paris", with the 50 points of "Marie".
    windows = read(query, [0.0, 0.0, 3.0], proposed=(4, 4))
    loss, _ = query_losses(new_judge(DIM), query, windows)
    assert loss.item() == pytest.approx(math.log(math.e**3 + 1 + 1 / math.e + 1) - 3)
    wrong, _ = query_losses(new_judge(DIM), query, read(query, [0.0, 0.0, 3.0], proposed=(1, 1)))
    # "none" is right.
    assert wrong.item() == pytest.approx(math.log(math.e**3 + 1 + 1 / math.e + 1))


# Training


@pytest.fixture(scope="module")
def reading_model(
    new_model: Callable[..., Model], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A saved model with a random reader that does not judge."""
    folder = tmp_path_factory.mktemp("models") / "reading"
    new_model().save(folder)
    torch.manual_seed(6)
    save_reader(Reader.new(str(folder), "cpu").network, folder)
    return folder


@pytest.fixture
def queries() -> list[MinedQuery]:
    """Of six, the third phrase is right in four, and none in two."""
    found = [
        phrase("Marie", score=12.0),
        phrase("river", "2", 11.0, OTHER),
        phrase("born", score=8.0),
        phrase("in", score=7.0),
    ]
    pages = [("1",), ("1", "7")]  # of either half
    return [
        mined(*found, answers=["born"] if number % 3 else [], pages=pages[number % 2])
        for number in range(6)
    ]


@pytest.fixture
def asked(
    reading_model: Path,
    queries: list[MinedQuery],
    write_json_lines: Callable[..., Path],
    tmp_path: Path,
) -> Asked:
    examples = write_json_lines("mined.jsonl", *map(as_line, queries))
    return {
        "examples": examples,
        "out": tmp_path / "out",
        "model": reading_model,
        "settings": SETTINGS,
    }


def test_the_whole_reader_learns_but_for_its_word_embeddings(
    reading_model: Path, queries: list[MinedQuery]
) -> None:
    run = RerankerRun(judging_reader(reading_model, "cpu"), queries, SETTINGS)
    losses, tokens = run.losses([0, 1, 2])
    assert {name: loss.shape for name, loss in losses.items()} == {"phrases": (3,), "tokens": (3,)}
    assert tokens > 60
    (losses["phrases"].sum() + losses["tokens"].sum()).backward()  # type: ignore[no-untyped-call]
    gradients = {
        name: parameter.grad for name, parameter in run.reader.judging_network.named_parameters()
    }
    assert [name for name, grad in gradients.items() if grad is None] == [
        "backbone.embeddings.word_embeddings.weight"
    ]
    assert [name for name, grad in gradients.items() if grad is not None and not grad.any()] == []


def test_it_learns(asked: Asked, reading_model: Path) -> None:
    steps: list[StepReport] = []
    outcome = teach_reranker(**asked, command="teach", on_step=steps.append)
    assert (outcome.queries, outcome.left_out, outcome.steps) == (6, 0, 15)
    assert [step.step for step in steps] == list(range(1, 16))
    for name, share in (("phrases", 0.5), ("tokens", 0.7)):
        assert steps[-1].means[name] < share * steps[0].means[name]
    stored = load_file(asked["out"] / "reader.safetensors")
    assert "judge.inner.weight" in stored
    assert not [name for name in stored if "word_embeddings" in name]
    before, after = read_config(reading_model), read_config(asked["out"])
    facts: Any = after.training["reranker"]
    assert (facts["command"], facts["init"], facts["outcome"]["steps"]) == ("teach", "reading", 15)
    assert replace(after, training=before.training) == before


@pytest.fixture
def larger(asked: Asked, reading_model: Path, tmp_path: Path) -> list[Path]:
    """Two readers by themselves, taught with either half; every second query is about another page."""
    Reader.new(str(reading_model), "cpu").save(tmp_path / "checkpoint")
    folders = [tmp_path / "larger-0", tmp_path / "larger-1"]
    for half, folder in enumerate(folders):
        teach_reranker(**asked | {"out": folder, "model": tmp_path / "checkpoint"}, half=half)
    return folders


def test_larger_readers_teach_what_they_were_not_taught(
    asked: Asked, reading_model: Path, queries: list[MinedQuery], larger: list[Path], tmp_path: Path
) -> None:
    assert {half_of(query) for query in queries} == {0, 1}
    taught = [judging_reader(folder, "cpu") for folder in larger]
    own = judging_reader(reading_model, "cpu")
    run = RerankerRun(own, queries, SETTINGS, taught)
    for number, query in enumerate(queries):
        losses, _ = run.losses([number])
        assert losses["taught phrases"].item() > 0
        with torch.no_grad():
            itself = RerankerRun(taught[1 - half_of(query)], queries, SETTINGS, taught).losses(
                [number]
            )[0]
        assert itself["taught phrases"].item() == pytest.approx(0, abs=1e-5)
        assert itself["taught tokens"].item() == pytest.approx(0, abs=1e-5)
    # A killed run goes on with them.
    assert run.digest() != RerankerRun(own, queries, SETTINGS, taught[::-1]).digest()
    steps: list[StepReport] = []
    teach_reranker(**asked, larger=larger, on_step=steps.append)
    assert steps[-1].means["taught phrases"] < 0.7 * steps[0].means["taught phrases"]
    facts: Any = read_config(asked["out"]).training["reranker"]
    assert facts["larger"] == list(map(str, larger))
    with pytest.raises(
        TrainingError, match="there are 1 larger readers: give two, taught with halves 0 and 1"
    ):
        teach_reranker(**asked | {"out": tmp_path / "other"}, larger=larger[:1])
    (larger[1] / "judge.safetensors").write_bytes(b"nothing")
    with pytest.raises(ModelError, match=r"judge\.safetensors is damaged"):
        judging_reader(larger[1], "cpu")


@pytest.mark.parametrize(
    ("gold", "none", "retrieval"),
    [([], 1, 0), (["Marie"], -1, 1), (["born"], -1, -1)],
    ids=["nothing is right", "the search's best is right", "another is right"],
)
def test_none_and_what_the_search_is_worth_are_learned(
    gold: list[str],
    none: int,
    retrieval: int,
    reading_model: Path,
    queries: list[MinedQuery],
    tmp_path: Path,
) -> None:
    queries = [replace(query, answers=tuple(gold)) for query in queries]
    run = RerankerRun(
        judging_reader(reading_model, "cpu"), queries, replace(SETTINGS, learning_rate=1e-5)
    )
    run.run(tmp_path / "checkpoint.pt", lambda step: None)
    judge = run.reader.phrase_judge
    assert (judge.none.item() - 8.0) * none > 0.05
    assert not retrieval or (judge.retrieval.item() - 0.5) * retrieval > 0.05


def test_new_parameters_have_rates_of_their_own(
    reading_model: Path, queries: list[MinedQuery]
) -> None:
    run = RerankerRun(
        judging_reader(reading_model, "cpu"),
        queries,
        replace(SETTINGS, learning_rate=1e-3, warmup=0),
    )
    named = dict(run.reader.judging_network.named_parameters())
    before = {name: parameter.detach().clone() for name, parameter in named.items()}
    losses, _ = run.losses(range(6))
    run.optimizer.add(losses["phrases"].mean())
    run.optimizer.step()
    moved = {
        name: (parameter.detach() - before[name]).abs().max().item()
        for name, parameter in named.items()
    }
    # The first step of AdamW is as large as the rate.
    assert moved["judge.none"] == pytest.approx(1e-2, rel=0.1)
    assert moved["judge.retrieval"] == pytest.approx(1e-2, rel=0.1)
    assert moved["judge.inner.weight"] == pytest.approx(3e-3, rel=0.1)
    assert moved["judge.outer.weight"] == pytest.approx(3e-3, rel=0.1)
    assert moved["head.weight"] == pytest.approx(1e-3, rel=0.1)
    assert moved["backbone.embeddings.word_embeddings.weight"] == 0.0


def test_a_killed_run_gives_the_same_model(asked: Asked, goes_on: Callable[..., None]) -> None:
    settings = replace(SETTINGS, epochs=2.5, accumulate=2, batch=2, hidden=0.5, dropout=0.1)
    goes_on(teach_reranker, asked | {"settings": settings}, 2, ("reader.safetensors", "kbq.json"))


def test_a_reader_that_judges_goes_on_learning(asked: Asked, judging_model: Path) -> None:
    few = replace(SETTINGS, learning_rate=1e-5, epochs=0.1)
    teach_reranker(**asked | {"model": judging_model, "settings": few})
    before, after = (open_reader(folder).state_dict() for folder in (judging_model, asked["out"]))
    # int8.
    assert after["judge.outer.weight"] == pytest.approx(before["judge.outer.weight"], abs=0.05)


# What cannot be used


def test_lines_are_read_as_they_were_written(
    queries: list[MinedQuery], write_json_lines: Callable[..., Path]
) -> None:
    path = write_json_lines("mined.jsonl", *map(as_line, queries))
    assert list(read_mined([path, path])) == queries * 2
    line = as_line(queries[0])
    assert line["paragraphs"] == [
        {"page_id": "1", "title": "Page 1", "number": 0, "text": TEXT},
        {"page_id": "2", "title": "Page 2", "number": 0, "text": OTHER},
    ]
    assert line["phrases"] == [
        (0, 0, 5, 12.0),
        (1, 13, 18, 11.0),
        (0, 10, 14, 8.0),
        (0, 15, 17, 7.0),
    ]


LINE = as_line(mined(phrase("Paris")))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "mined.jsonl:1: not JSON"),
        (
            {},
            r"mined.jsonl:1: is not a query with phrases \(Object missing required field `query`\): write them with",
        ),
        (LINE | {"query": 1}, r"mined.jsonl:1: is not a query .*Expected `str`, got `int`"),
        (LINE | {"phrases": [[1, 0, 5, 1.0]]}, "a phrase is in paragraph 1 of 1"),
        (LINE | {"phrases": [[-1, 0, 5, 1.0]]}, "a phrase is in paragraph -1 of 1"),
        (LINE | {"phrases": [[0, 5, 5, 1.0]]}, "a phrase has characters 5 to 5 of 24"),
        (LINE | {"phrases": [[0, 5, 25, 1.0]]}, "a phrase has characters 5 to 25 of 24"),
        (LINE | {"phrases": [[0, 5, 9]]}, "Expected `array` of length 4, got 3"),
        (
            LINE | {"phrases": []},
            "none of 1 queries in .*mined.jsonl has phrases and is short enough: .* takes 128",
        ),
        (
            LINE | {"query": "a " * 200},
            "none of 1 queries in .*mined.jsonl has phrases and is short enough",
        ),
    ],
)
def test_what_cannot_be_learned_from_is_refused(line: Any, message: str, asked: Asked) -> None:
    asked["examples"].write_text(line if isinstance(line, str) else json.dumps(line))
    with pytest.raises(TrainingError, match=message):
        teach_reranker(**asked)
    assert not asked["out"].with_name("out.partial").exists()


def test_queries_without_phrases_or_answers(
    asked: Asked, write_json_lines: Callable[..., Path]
) -> None:
    """The former teach nothing, the latter that nothing is right."""
    lines = [as_line(mined(answers=["Paris"])), as_line(mined(phrase("Paris"), answers=[]))]
    outcome = teach_reranker(**asked | {"examples": write_json_lines("few.jsonl", *lines)})
    assert (outcome.queries, outcome.left_out) == (1, 1)


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (lambda asked: asked | {"examples": "/none"}, TrainingError, "none: cannot be read"),
        (
            lambda asked: asked | {"out": asked["examples"]},
            TrainingError,
            "already exists: choose another",
        ),
        (lambda asked: asked | {"model": asked["out"]}, ModelError, "is not a kbq model"),
        (
            lambda asked: asked | {"larger": ["a", "b"], "before": "c"},
            TrainingError,
            "c would teach nothing, because larger readers teach all queries: leave before",
        ),
        (
            lambda asked: asked | {"settings": replace(SETTINGS, epochs=0)},
            TrainingError,
            "epochs is 0, must be above 0",
        ),
    ],
)
def test_what_cannot_be_taught_is_refused(
    change: Callable[[Asked], Asked], kind: type[KbqError], message: str, asked: Asked
) -> None:
    with pytest.raises(kind, match=message):
        teach_reranker(**change(asked))


def test_a_model_without_a_reader_is_refused(asked: Asked, model_folder: Path) -> None:
    with pytest.raises(ModelError, match="has no reader: train one"):
        teach_reranker(**asked | {"model": model_folder})


# Recipes


def record(identity: str, text: str, answer: str, page: str, title: str) -> dict[str, object]:
    provenance = [{"wikipedia_id": page, "title": title}]
    return {"id": identity, "input": text, "output": [{"answer": answer, "provenance": provenance}]}


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Runs a recipe with these arguments."""

    def run(name: str, *arguments: object) -> None:
        monkeypatch.syspath_prepend(ROOT / "recipes")
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        module = importlib.util.spec_from_file_location("__main__", ROOT / "recipes" / name)
        assert module is not None
        assert module.loader is not None
        module.loader.exec_module(importlib.util.module_from_spec(module))

    return run


def test_recipes_mine_teach_and_average(
    recipe: Callable[..., None],
    reading_model: Path,
    pages: list[Page],
    write_json_lines: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kb = KnowledgeBase.build(pages, tmp_path / "kb", reading_model, device="cpu")
    slot, question = kb.query(["Marie [SEP] city", "the river"], 5)
    gold = write_json_lines(
        "gold.jsonl",
        record("1", "Marie [SEP] city", slot[4].text, slot[4].page_id, "The page"),
        record("2", "the river", question[0].text, question[0].page_id, "The page"),
        {"id": "3", "input": "born", "output": [{"answer": ""}]},
        record("4", "a " * 99, "Paris", "P1", "The page"),
    )
    recipe("mine_phrases.py", tmp_path / "kb", gold, tmp_path / "mined.jsonl")
    assert "3 queries, 1 were too long" in capsys.readouterr().out
    found = list(read_mined([tmp_path / "mined.jsonl"]))
    assert [(one.text, one.answers) for one in found] == [
        ("Marie [SEP] city", (slot[4].text,)),
        ("the river", (question[0].text,)),
        ("born", ()),
    ]
    assert found[0].phrases == tuple(kb.query("Marie [SEP] city", 20))
    assert found[0].label(found[0].phrases[4]) == "right"
    for seed in (1, 2):
        recipe(
            "teach_second_look.py",
            reading_model,
            tmp_path / f"{seed}",
            tmp_path / "mined.jsonl",
            "--seed",
            seed,
        )
    assert f"{tmp_path / '2'}: 3 queries, 0 left out, 1 steps" in capsys.readouterr().out
    recipe("average_models.py", tmp_path / "average", tmp_path / "1", tmp_path / "2", "--readers")
    first, second, average = (
        open_reader(tmp_path / name).state_dict() for name in ("1", "2", "average")
    )
    middle = (first["judge.inner.weight"] + second["judge.inner.weight"]) / 2
    assert average["judge.inner.weight"] == pytest.approx(middle, abs=1e-3)
    facts: Any = read_config(tmp_path / "average").training["averaged"]
    assert [each["reranker"]["settings"]["seed"] for each in facts] == [1, 2]
    with pytest.raises(SystemExit):
        recipe("average_models.py", tmp_path / "other", tmp_path / "1", reading_model, "--readers")
    assert "they differ in more than the weights of their readers" in capsys.readouterr().err
    judged = KnowledgeBase.open(tmp_path / "kb", tmp_path / "average", device="cpu")
    assert judged.query("Marie [SEP] city", 3) != kb.query("Marie [SEP] city", 3)


@pytest.mark.parametrize(
    ("name", "places", "message"),
    [
        ("mine_phrases.py", ["nowhere", "gold.jsonl", "out.jsonl"], "nowhere"),
        ("teach_second_look.py", ["nowhere", "out", "mined.jsonl"], "mined.jsonl: cannot be read"),
    ],
)
def test_recipes_say_what_is_wrong(
    name: str, places: list[str], message: str, recipe: Callable[..., None], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit, match=message):
        recipe(name, *(tmp_path / place for place in places))


def example(number: int, title: str, question: str, answer: str) -> dict[str, object]:
    text = {"title_text": title, "paragraph_text": f"{title} is a city.", "question_text": question}
    return {"example_id": number, "answer_text": [answer]} | text


def fact(document: int, name: str, subject: str | None, kind: str | None) -> dict[str, object]:
    """What a passage says, or with None does not say; the fold has the number of the document."""
    place = {
        "passage": f"{name} of Bob.",
        "passage_start": "0",
        "o": ["7", "10"],
        "subject_qid": "Q1",
    }
    who = {"subject": subject, "object": "Bob" if kind else None, "property": kind or "CEO"}
    return {"doc": str(document), "fold": str(document), **place, **who}


ASKED = [
    {"id": "s1", "question": "Where?", "answers": [{"text": "Paris", "answer_start": 18}]},
    {
        "id": "s2",
        "question": "Who?",
        "answers": [{"text": "Marie", "answer_start": 0, "start_inferred": True}],
    },
]
EMMA = {"tokens": ["Emma", "lies", "in", "Rome"], "h": ["", "", [[0]]], "t": ["", "", [[3]]]}
DATA: dict[str, list[Any]] = {
    "wiki/knowledge_source.jsonl": [
        {"wikipedia_id": "7", "wikipedia_title": "Marie", "text": ["Marie", TEXT]}
    ],
    "squad/train-v1.1.json": [
        {"data": [{"title": "Marie", "paragraphs": [{"context": TEXT, "qas": ASKED}]}]}
    ],
    "nq/qed-train.jsonl": [
        example(1, "Marie", "who?", "Marie"),
        example(2, "Marie", "how?", ""),
        example(3, "Rome", "what?", "a city"),
    ],
    "redocred/redocred-dev-kilt.jsonl": [
        record(title, f"{title} [SEP] river", "Ob", "7", title) for title in "abcde"
    ],
    "fewrel/val_wiki.json": [{"P1": [EMMA]}],
    "knowledgenet/facts.jsonl": [
        fact(1, "Ann", "Ann", "SPOUSE"),
        fact(1, "Ann", None, None),
        fact(4, "Eve", "Eve", "SPOUSE"),
        fact(4, "Eve", None, None),
    ],
    "tables/cells.jsonl": [
        {
            "input": "Ann [SEP] club",
            "output": [{"answer": "Ajax"}],
            "meta": {"part": "teach", "values": ["Ajax"]},
        },
        {
            "input": "Eve [SEP] club",
            "output": [{"answer": ""}],
            "meta": {"part": "teach", "values": []},
        },
        {
            "input": "Bob [SEP] club",
            "output": [{"answer": "Ajax"}],
            "meta": {"part": "test", "values": ["Ajax"]},
        },
    ],
    "tables/beside.jsonl": [
        {
            "input": "Al [SEP] club",
            "output": [{"answer": ""}],
            "meta": {"part": "teach", "values": []},
        }
    ],
}
TEXTS: dict[str, dict[str, Any]] = {  # of other genres
    "styles": {"part": "teach", "cells": {"club": [["Ajax", "AFC Ajax"]]}},
    "contrast": {"cells": {"club": []}},  # dealt out by its id
}


def test_queries_to_mine_for(recipe: Callable[..., None], tmp_path: Path) -> None:
    for name, lines in DATA.items():
        path = tmp_path / f"{name}.xz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(lzma.compress("\n".join(map(json.dumps, lines)).encode()))
    for name, text in TEXTS.items():
        cells = [{"name": "Jo", "kind": "person", "cells": text.pop("cells")}]
        line = {"id": "t4", "title": "Minutes", "text": "Jo left Ajax.", "subjects": cells, **text}
        (tmp_path / f"tables/{name}.jsonl").write_text(json.dumps(line))
    (tmp_path / "fewrel/pid2name.json").write_text('{"P1": ["country", ""]}')
    recipe("prepare_judging.py", tmp_path, tmp_path / "out")
    wiki, passages, corpus, tables = (
        [json.loads(line) for line in (tmp_path / "out" / f"{name}.jsonl").read_text().splitlines()]
        for name in ("wiki", "passages", "corpus", "tables")
    )
    assert sorted(one["input"] for one in tables if one["meta"]["set"] != "made") == [
        "Al [SEP] club", "Ann [SEP] club", "Eve [SEP] club", "Jo [SEP] club", "Jo [SEP] club",
    ]  # fmt: skip
    styled = next(one for one in tables if one["meta"]["set"] == "styles")
    assert [output["answer"] for output in styled["output"]] == ["Ajax", "AFC Ajax"]
    assert (styled["meta"]["page"], styled["meta"]["alone"], styled["meta"]["beside"]) == (
        "styles-t4",
        True,
        True,
    )
    assert [one["input"] for one in wiki[:2]] == ["Where?", "who?"]
    assert wiki[0]["output"] == [
        {"answer": "Paris", "provenance": [{"wikipedia_id": "7", "title": "Marie"}]}
    ]
    assert sorted(one["id"] for one in wiki[2:]) == sorted(set("abcde") - {"c"})
    assert [(one["input"], [output["answer"] for output in one["output"]]) for one in passages] == [
        ("Ann [SEP] chief executive officer", [""]),
        ("Emma [SEP] country", ["Rome"]),
        ("Ann [SEP] spouse", ["Bob"]),
        ("Marie [SEP] instance of", ["city"]),
        ("Rome [SEP] instance of", ["city"]),
    ]
    assert [(page["id"], page["text"]) for page in corpus] == [
        ("fewrel-0", "Emma lies in Rome"),
        ("knowledgenet-0", "Ann of Bob."),
        ("kinds-0", "Marie is a city."),
        ("kinds-1", "Rome is a city."),
    ]
    assert passages[1]["output"][0]["provenance"][0]["wikipedia_id"] == "fewrel-0"
