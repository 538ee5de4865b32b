"""Query side: its loss is the formula's, it stops where it must, and a killed run ends with the same
parameters.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from killed import Killed, steps_of

from kbq.answers import IndexKind
from kbq.asking.searcher import Searcher
from kbq.errors import TrainingError
from kbq.kb import KnowledgeBase
from kbq.kilt.records import Gold, GoldOutput
from kbq.kilt.task import Task
from kbq.training import engine
from kbq.training.engine import StepReport
from kbq.tuning.labels import Labeller, PreparedQuery, joined, phrases_of, retrieve, vectors
from kbq.tuning.query_side import Distillation, Finetuner
from kbq.tuning.settings import FinetuningSettings, Objective, Term
from kbq.tuning.triples import pages_of

SETTINGS = FinetuningSettings(k=10, epochs=3, batch=5, learning_rate=1e-3, patience=99)


def tuner_of(
    kb: KnowledgeBase,
    golds: list[Gold],
    settings: FinetuningSettings = SETTINGS,
    score: Callable[[], float] | None = None,
) -> Finetuner:
    """Its dev score is a number that depends on the parameters, and on nothing else."""
    labeller = Labeller(kb.searcher.shards, {page for gold in golds for page in pages_of(gold)})
    ids = [kb.model.query_tokenizer.ids_of(gold.input or "") for gold in golds]
    queries = [
        PreparedQuery(tuple(row), gold, labeller.find(gold)[0])
        for row, gold in zip(ids, golds, strict=True)
    ]

    def first_bias() -> float:
        return float(kb.model.queries.start_head.get_parameter("bias").detach().sum())

    distillation = Distillation(
        kb.searcher, [gold.input or "" for gold in golds[:6]], ["Marie [SEP] capital"], settings.k
    )
    return Finetuner(kb.searcher, labeller, queries, settings, score or first_bias, distillation)


def parameters(kb: Searcher) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in kb.model.queries.parameters()]


def are_equal(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(some, others, strict=True))


def share_of_positives(scores: dict[Any, tuple[float, bool]]) -> float:
    """-log of it, 0 where there are none."""
    largest = max(score for score, _ in scores.values())
    everything = math.fsum(math.exp(score - largest) for score, _ in scores.values())
    right = math.fsum(math.exp(score - largest) for score, wins in scores.values() if wins)
    return math.log(everything / right) if right else 0.0


def loss_by_hand(kb: KnowledgeBase, tuner: Finetuner, query: PreparedQuery) -> dict[str, float]:
    """Each term, from dictionaries of phrases and rows, in float64."""
    starts, ends = kb.model.encode_queries([query.gold.input or ""])
    phrases = retrieve(kb.searcher, starts, ends, tuner.settings.k)[0]
    if not tuner.settings.found_alone:
        phrases = joined(phrases, query.golds)
    positive = (
        tuner.labeller.label(phrases, query.gold)
        .positive(tuner.settings.chosen_objective("phrase"))
        .tolist()
    )
    opening, closing = (
        part.astype(np.float64) for part in vectors(kb.searcher, phrases, tuner._coded)
    )
    terms: dict[str, dict[Any, tuple[float, bool]]] = {"joint": {}, "start": {}, "end": {}}
    for place in range(len(phrases)):
        shard, first, last = (int(c[place]) for c in (phrases.shards, phrases.starts, phrases.ends))
        of_start, of_end = float(opening[place] @ starts[0]), float(closing[place] @ ends[0])
        positions = kb.searcher.shards[shard].positions
        lost = kb.model.config.length_penalty * (int(positions[last]) - int(positions[first]))
        for term, key, score in (
            ("joint", (shard, first, last), of_start + of_end - lost),
            ("start", (shard, first), of_start),
            ("end", (shard, last), of_end),
        ):
            before = terms[term].get(key, (score, False))[1]
            terms[term][key] = score, before or positive[place]
    return {term: share_of_positives(scores) for term, scores in terms.items()}


@pytest.mark.parametrize("terms", [("joint",), ("start",), ("end",), ("joint", "start", "end")])
@pytest.mark.parametrize("objective", ["kilt", "phrase", "page"])
@pytest.mark.parametrize("found_alone", [False, True])
def test_the_loss_is_that_of_the_formula(
    found_alone: bool,
    objective: Objective,
    terms: tuple[Term, ...],
    own_kb: KnowledgeBase,
    golds: list[Gold],
    tmp_path: Path,
) -> None:
    own_kb.model.config = replace(own_kb.model.config, length_penalty=0.2)
    stranger = Gold("x", 99, "Paris [SEP] river", {}, (GoldOutput("nowhere at all", (), None, ()),))
    some = [*golds[:6], stranger]
    settings = replace(
        SETTINGS,
        objective=objective,
        terms=",".join(terms),
        found_alone=found_alone,
        k=2000 if found_alone else SETTINGS.k,  # else this encoder finds no answer
        epochs=1,
        batch=3,
    )
    tuner = tuner_of(own_kb, some, settings)
    expected = [loss_by_hand(own_kb, tuner, query) for query in tuner.queries]
    assert expected[-1] == {"joint": 0, "start": 0, "end": 0}
    assert any(loss["joint"] > 0 for loss in expected)
    tuner.found.append(0)
    for first in range(0, len(some), 3):
        losses = tuner.losses(range(len(some))[first : first + 3])[0]["loss"]
        by_hand = [
            float(np.mean([loss[term] for term in terms])) for loss in expected[first : first + 3]
        ]
        assert losses.tolist() == pytest.approx(by_hand, abs=1e-3)


def test_gold_phrases_that_no_search_found_enter_the_loss_unless_found_alone(
    own_kb: KnowledgeBase, golds: list[Gold]
) -> None:
    some = golds[:6]
    settings = replace(SETTINGS, k=1, objective="phrase", terms="joint")
    losses = []
    for found_alone in (False, True):
        tuner = tuner_of(own_kb, some, replace(settings, found_alone=found_alone))
        tuner.found.append(0)
        losses.append(tuner.losses(range(len(some)))[0]["loss"].tolist())
    with_golds, alone = losses
    assert alone == pytest.approx([0.0] * len(some))  # one phrase competes with none
    assert max(with_golds) > 1


@pytest.mark.parametrize("kind", ["compact", "tiny"])
def test_the_loss_is_that_of_what_codes_stand_for(
    kind: IndexKind, built: tuple[Path, Path], golds: list[Gold]
) -> None:
    coded = KnowledgeBase.open(built[1], device="cpu", index=kind)
    rows, codes = (
        tuner_of(coded, golds[:3], replace(SETTINGS, epochs=1, vectors=what))
        for what in ("rows", "codes")
    )
    for tuner in (rows, codes):
        tuner.found.append(0)
    by_rows, by_codes = (
        [loss_by_hand(coded, tuner, query) for query in tuner.queries] for tuner in (rows, codes)
    )
    losses = codes.losses(range(3))[0]["loss"]
    assert losses.tolist() == pytest.approx(
        [np.mean(list(loss.values())) for loss in by_codes], abs=1e-3
    )
    assert [loss["joint"] for loss in by_codes] != pytest.approx(
        [loss["joint"] for loss in by_rows], abs=1e-3
    )


def test_codes_are_refused_where_there_are_none(own_kb: KnowledgeBase, golds: list[Gold]) -> None:
    message = (
        "is searched with its exact index: build one of codes with `kbq index vectors .* --kind "
        "tiny`, or leave"
    )
    with pytest.raises(TrainingError, match=message):
        tuner_of(own_kb, golds[:3], replace(SETTINGS, vectors="codes"))


def test_the_loss_falls(own_kb: KnowledgeBase, golds: list[Gold], tmp_path: Path) -> None:
    tuner = tuner_of(own_kb, golds, replace(SETTINGS, epochs=12, learning_rate=3e-3))
    reports = steps_of(tuner, tmp_path / "c.pt")
    assert [step.step for step in reports] == list(range(1, 12 * tuner.per_epoch + 1))
    assert {step.steps for step in reports} == {12 * tuner.per_epoch}
    losses = [step.means["loss"] for step in reports]
    assert sum(losses[-tuner.per_epoch :]) < 0.7 * sum(losses[: tuner.per_epoch])
    assert len(tuner.scores) == 13
    assert len(tuner.found) == 12
    assert all(0 <= found <= len(golds) for found in tuner.found)


def test_the_phrase_side_and_word_embeddings_stay(
    own_kb: KnowledgeBase, golds: list[Gold], tmp_path: Path
) -> None:
    before = {name: value.clone() for name, value in own_kb.model.phrases.state_dict().items()}
    table = own_kb.model.queries.start.get_input_embeddings().weight
    assert table is own_kb.model.phrases.backbone.get_input_embeddings().weight
    old = parameters(own_kb.searcher)
    words = table.detach().clone()
    score = iter(range(99))
    steps_of(tuner_of(own_kb, golds, score=lambda: float(next(score))), tmp_path / "c.pt")
    assert torch.equal(table, words)
    for name, value in own_kb.model.phrases.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert not are_equal(old, parameters(own_kb.searcher))


@pytest.fixture
def open_again(own_kb: KnowledgeBase) -> Callable[[], KnowledgeBase]:
    """Opens the knowledge base of two shards once more."""
    return lambda: KnowledgeBase.open(own_kb.folder, device="cpu")


@pytest.mark.parametrize("saves", ["every step", "never"])
@pytest.mark.parametrize("stop", [1, 4, 7])
def test_a_killed_run_ends_with_the_same_parameters(
    stop: int,
    saves: str,
    own_kb: KnowledgeBase,
    open_again: Callable[[], KnowledgeBase],
    golds: list[Gold],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "CHECKPOINT_SECONDS", -1.0 if saves == "every step" else 1e9)
    tuner = tuner_of(own_kb, golds)
    steps = steps_of(tuner, tmp_path / "whole.pt")
    with pytest.raises(Killed):
        steps_of(tuner_of(open_again(), golds), tmp_path / "killed.pt", stop)
    resumed = tuner_of(open_again(), golds)
    rest = steps_of(resumed, tmp_path / "killed.pt")
    kept = stop - 1 if saves == "every step" else (stop - 1) // tuner.per_epoch * tuner.per_epoch
    assert rest == steps[kept:]
    assert (resumed.scores, resumed.found) == (tuner.scores, tuner.found)
    assert are_equal(parameters(resumed.kb), parameters(own_kb.searcher))


def test_a_finished_run_is_not_run_again(
    own_kb: KnowledgeBase,
    open_again: Callable[[], KnowledgeBase],
    golds: list[Gold],
    tmp_path: Path,
) -> None:
    steps_of(tuner_of(own_kb, golds), tmp_path / "c.pt")
    again = tuner_of(open_again(), golds)
    assert steps_of(again, tmp_path / "c.pt") == []
    assert are_equal(parameters(again.kb), parameters(own_kb.searcher))


@pytest.mark.parametrize(
    ("given", "kept", "best"),
    [
        ([0.1, 0.5, 0.2, 0.4, 0.9], [0.1, 0.5, 0.2, 0.4], 1),
        ([0.5, 0.1, 0.1, 0.9], [0.5, 0.1, 0.1], 0),
        ([0.1, 0.1, 0.1, 0.9], [0.1, 0.1, 0.1], 0),  # no better than no tuning
        ([0.1, 0.4, 0.4, 0.2, 0.3], [0.1, 0.4, 0.4, 0.2, 0.3], 2),  # of equal ones the last
        ([0.1, 0.2, 0.1, 0.3, 0.2], [0.1, 0.2, 0.1, 0.3, 0.2], 3),
    ],
)
def test_it_stops_early_and_puts_the_best_parameters_back(
    given: list[float],
    kept: list[float],
    best: int,
    own_kb: KnowledgeBase,
    golds: list[Gold],
    tmp_path: Path,
) -> None:
    scores: Iterator[float] = iter(given)
    states: list[list[torch.Tensor]] = []

    def score() -> float:
        states.append(parameters(own_kb.searcher))
        return next(scores)

    tuner = tuner_of(own_kb, golds[:6], replace(SETTINGS, epochs=4, patience=2), score)
    steps_of(tuner, tmp_path / "c.pt")
    assert tuner.scores == kept
    assert are_equal(parameters(own_kb.searcher), states[best])
    assert not any(
        are_equal(states[best], state) for place, state in enumerate(states) if place != best
    )


def test_a_loss_that_is_no_number_stops_the_run_and_the_last_checkpoint_stays(
    own_kb: KnowledgeBase,
    open_again: Callable[[], KnowledgeBase],
    golds: list[Gold],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "CHECKPOINT_SECONDS", 1e9)
    whole = tuner_of(own_kb, golds)
    steps_of(whole, tmp_path / "whole.pt")
    poisoned = tuner_of(open_again(), golds)

    def poison(step: StepReport) -> None:
        if step.step == poisoned.per_epoch + 1:
            with torch.no_grad():
                poisoned.optimizer.parameters[0].fill_(float("nan"))

    with pytest.raises(
        TrainingError,
        match=rf"the loss is nan at step {poisoned.per_epoch + 1}: delete the checkpoint in OUT",
    ):
        poisoned.run(tmp_path / "c.pt", poison)
    resumed = tuner_of(open_again(), golds)
    assert len(steps_of(resumed, tmp_path / "c.pt")) == 2 * whole.per_epoch
    assert are_equal(parameters(resumed.kb), parameters(own_kb.searcher))


def test_a_learning_rate_that_is_far_too_high_stops_the_run(
    own_kb: KnowledgeBase, golds: list[Gold], tmp_path: Path
) -> None:
    settings = replace(SETTINGS)
    object.__setattr__(settings, "learning_rate", 1e30)  # more than is taken
    with pytest.raises(TrainingError, match="learning_rate=… below"):
        steps_of(tuner_of(own_kb, golds, settings), tmp_path / "c.pt")


@pytest.mark.parametrize(
    "change",
    [
        lambda golds, settings: (golds, replace(settings, learning_rate=1.0)),
        lambda golds, settings: (golds, replace(settings, seed=5)),
        lambda golds, settings: (golds[:-1], settings),
        lambda golds, settings: ([with_output(golds[0], answer="other"), *golds[1:]], settings),
        lambda golds, settings: ([with_output(golds[0], pages=("P3",)), *golds[1:]], settings),
    ],
    ids=["learning rate", "seed", "fewer", "answer", "page"],
)
def test_a_checkpoint_of_another_run_is_refused(
    change: Callable[..., Any], own_kb: KnowledgeBase, golds: list[Gold], tmp_path: Path
) -> None:
    few = golds[:5]
    assert few[0].outputs[0].pages != ("P3",)
    once = replace(SETTINGS, epochs=1)
    steps_of(tuner_of(own_kb, few, once, lambda: 1.0), tmp_path / "c.pt")
    changed, settings = change(few, once)
    with pytest.raises(TrainingError, match=r"c\.pt was written with other"):
        steps_of(tuner_of(own_kb, changed, settings), tmp_path / "c.pt")


def with_output(gold: Gold, **fields: Any) -> Gold:
    return replace(gold, outputs=(replace(gold.outputs[0], **fields),))


def test_small_batches_that_are_accumulated_are_one_large_batch(
    own_kb: KnowledgeBase,
    open_again: Callable[[], KnowledgeBase],
    golds: list[Gold],
    tmp_path: Path,
) -> None:
    losses = []
    for number, (kb, batch, accumulate) in enumerate(
        [(own_kb, 6, 1), (open_again(), 2, 3), (open_again(), 3, 2)]
    ):
        settings = replace(SETTINGS, batch=batch, accumulate=accumulate, epochs=1)
        losses.append(
            [
                step.means["loss"]
                for step in steps_of(tuner_of(kb, golds, settings), tmp_path / f"{number}.pt")
            ]
        )
    assert losses[1] == pytest.approx(losses[0], rel=0.02)
    assert losses[2] == pytest.approx(losses[0], rel=0.02)


def test_queries_without_positives_teach_nothing(own_kb: KnowledgeBase, tmp_path: Path) -> None:
    strangers = [
        Gold(str(n), n, f"{n} [SEP] birth", {}, (GoldOutput("nowhere at all", (), None, ()),))
        for n in (1, 2)
    ]
    tuner = tuner_of(own_kb, strangers)
    assert tuner.queries[0].golds.starts.tolist() == phrases_of([]).starts.tolist() == []
    tuner.found.append(0)
    losses, _ = tuner.losses([0, 1])
    assert (losses["loss"].tolist(), losses["found"].tolist(), tuner.found) == ([0, 0], [0, 0], [0])
    tuner.optimizer.add(losses["loss"].sum())
    assert all(p.grad is None or not p.grad.any() for p in tuner.optimizer.parameters)


@pytest.mark.parametrize(
    ("names", "terms"),
    [
        ("joint", ("joint",)),
        ("end, joint", ("joint", "end")),
        ("joint,start,end", ("joint", "start", "end")),
    ],
)
def test_terms(names: str, terms: tuple[Term, ...]) -> None:
    assert FinetuningSettings(terms=names).chosen_terms() == terms


@pytest.mark.parametrize(
    ("names", "wrong"), [("", "''"), ("joint,", "''"), ("middle,joint", "'middle'")]
)
def test_an_unknown_term_is_named(names: str, wrong: str) -> None:
    with pytest.raises(
        TrainingError, match=f"term {wrong} is unknown: choose from joint, start, end"
    ):
        FinetuningSettings(terms=names)


@pytest.mark.parametrize(
    ("name", "task", "objective"),
    [
        ("auto", "slot_filling", "kilt"),
        ("auto", "question_answering", "kilt"),
        ("auto", "entity_linking", "page"),
        ("auto", "fever", "page"),
        ("phrase", "entity_linking", "phrase"),
        ("page", "trex", "page"),
    ],
)
def test_the_objective_goes_by_the_task_unless_it_is_said(
    name: str, task: str, objective: str
) -> None:
    settings = FinetuningSettings(objective=name)  # type: ignore[arg-type]
    assert settings.chosen_objective(Task.load(task).answer) == objective
