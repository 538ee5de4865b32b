"""SPARTA model: impacts sum up to training scores, context and padding change nothing, and
sentences are never cut.
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from kbq.corpus.pages import Page
from kbq.errors import ModelError
from kbq.model.tokenizer import WindowShape
from kbq.words import sparta as sparta_model
from kbq.words.postings import Entries, Postings, write_postings
from kbq.words.sparta import (
    Sentence,
    SentenceTensors,
    SentenceWindow,
    SpartaConfig,
    SpartaModel,
    around,
    query_scores,
    sentence_windows,
    strongest_impacts,
)

TEXT = "Marie was born in Warsaw. The city of Paris. The river, a long long river of the city."


@pytest.fixture(scope="module", params=["marked", "shared"])
def sparta(request: pytest.FixtureRequest, checkpoint: Path) -> SpartaModel:
    """Untrained, with a bias at which some of the terms are positive."""
    torch.manual_seed(0)
    config = SpartaConfig(WindowShape(length=32, overlap=0), marked=request.param == "marked")
    made = SpartaModel.new(str(checkpoint), config)
    made.network.bias.data.fill_(-3.0)
    made.network.eval()
    return made


@pytest.fixture(scope="module")
def windows(sparta: SpartaModel) -> list[SentenceWindow]:
    return [window for text in (TEXT, "Paris.") for window in sparta.windows([7], text)]


@pytest.fixture
def in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbq.model.devices.fast_dtype", lambda device: torch.float32)


def by_definition(
    sparta: SpartaModel, window: SentenceWindow, sentence: Sentence, term: int
) -> float:
    """log(1 + ReLU(max e·s + b)) with one unpadded window, in float64."""
    ids, segments = torch.tensor([window.ids]), torch.tensor([window.segments])
    with torch.no_grad():
        states = (
            sparta.network.backbone(input_ids=ids, token_type_ids=segments)
            .last_hidden_state[0]
            .double()
        )
    products = states[sentence.first : sentence.stop] @ sparta.network.terms[term].detach().double()
    return float(torch.relu(products.max() + sparta.network.bias.detach()).log1p())


def test_impacts_are_those_of_the_definition_with_and_without_padding(
    sparta: SpartaModel, windows: list[SentenceWindow]
) -> None:
    terms = sparta.terms[::9]
    tensors = SentenceTensors(windows, sparta.tokenizer.pad_token_id, torch.device("cpu"))
    # The last one is padded.
    assert tensors.mask.sum(dim=1).tolist() == [32] * (len(windows) - 1) + [6]
    assert tensors.lengths.tolist() == [6, 7, 19, 2]  # and each sentence, too
    with torch.no_grad():
        impacts = sparta.network(tensors, terms)
    sentences = [(window, sentence) for window in windows for sentence in window.sentences]
    for row, (window, sentence) in zip(impacts, sentences, strict=True):
        expected = [by_definition(sparta, window, sentence, int(term)) for term in terms]
        assert row.tolist() == pytest.approx(expected, abs=1e-5)
    assert 0.05 < float((impacts > 0).float().mean()) < 0.95


@pytest.mark.usefixtures("in_float32")
@pytest.mark.parametrize(("chunk", "together"), [(1, 1), (7, 2), (10_000, 32)])
def test_the_index_sum_is_the_training_score(
    chunk: int,
    together: int,
    sparta: SpartaModel,
    windows: list[SentenceWindow],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sparta_model, "CHUNK", chunk)
    monkeypatch.setattr(sparta_model, "SENTENCES", together)
    query = Counter(sparta.query_terms("the river, the city of Warsaw"))
    terms = sorted(query)
    with torch.no_grad():
        impacts = sparta.network(
            SentenceTensors(windows, sparta.tokenizer.pad_token_id, torch.device("cpu")),
            torch.tensor(terms),
        )
        (scores,) = query_scores(
            impacts, torch.tensor([[query[term] for term in terms]], dtype=torch.float32)
        )
    for index, found, weights in strongest_impacts(sparta, windows, k=10_000):
        looked_up = dict(zip(found.tolist(), weights.tolist(), strict=True))
        total = sum(count * looked_up.get(term, 0.0) for term, count in query.items())
        assert total == pytest.approx(float(scores[index]), abs=1e-5)
        assert min(looked_up.values()) > 0


@pytest.mark.usefixtures("in_float32")
def test_a_thousand_index_sums_are_training_scores(
    sparta: SpartaModel, pages: list[Page], tmp_path: Path
) -> None:
    texts = [paragraph.text for page in pages for paragraph in page.paragraphs]
    windows = [window for text in texts for window in sparta.windows([7], text)]
    count = sum(len(window.sentences) for window in windows)
    source = random.Random(0)
    words = sorted({word for text in texts for word in text.split()})
    queries = [[*source.choices(words, k=5), "the", "the"] for _ in range(1000 // count + 1)]
    entries = as_entries(strongest_impacts(sparta, windows, 10_000))
    write_postings(tmp_path / "i", sparta.vocabulary, entries, "weights", of="")
    index = Postings(tmp_path / "i", "weights")
    index.expect(count)
    pairs = 0
    for query in queries:
        counts = Counter(sparta.query_terms(" ".join(query)))
        terms = sorted(counts)
        with torch.no_grad():
            impacts = sparta.network(
                SentenceTensors(windows, 0, torch.device("cpu")), torch.tensor(terms)
            )
            (scores,) = query_scores(
                impacts, torch.tensor([[counts[term] for term in terms]], dtype=torch.float32)
            )
        pieces = sparta.tokenizer.convert_ids_to_tokens(sparta.query_terms(" ".join(query)))
        assert index.scores(pieces) == pytest.approx(scores.numpy(), abs=1e-5)
        pairs += count
    assert pairs >= 1000


def as_entries(found: Iterable[tuple[int, torch.Tensor, torch.Tensor]]) -> Entries:
    rows = [
        (number, term, weight)
        for number, *rest in found
        for term, weight in zip(*rest, strict=True)
    ]
    numbers, terms, weights = (np.array(column) for column in zip(*rows, strict=True))
    return Entries(numbers.astype(np.int32), terms.astype(np.int32), weights.astype(np.float32))


def test_the_strongest_stay(sparta: SpartaModel, windows: list[SentenceWindow]) -> None:
    for (index, every, impacts), (same, few, largest) in zip(
        strongest_impacts(sparta, windows, 10_000),
        strongest_impacts(sparta, windows, 5),
        strict=True,
    ):
        assert (index, impacts[:5].tolist()) == (same, largest.tolist())
        assert set(every[impacts > largest[-1]].tolist()) <= set(few.tolist())
        assert (impacts.diff() <= 0).all()


def test_a_word_that_stands_twice_counts_twice(sparta: SpartaModel) -> None:
    impacts, counts = torch.tensor([[1.0, 0.5], [0.0, 2.0]]), torch.tensor([[1.0, 1.0], [2.0, 1.0]])
    assert query_scores(impacts, counts).tolist() == [[1.5, 2.0], [2.5, 2.0]]
    text = "the river [SEP] the [PAD] city ʘ"
    pieces = sparta.tokenizer.convert_ids_to_tokens(sparta.query_terms(text))
    assert pieces == ["the", "river", "the", "city"]


def test_special_and_unused_pieces_are_no_terms(sparta: SpartaModel) -> None:
    pieces = sparta.tokenizer.convert_ids_to_tokens(sparta.terms.tolist())
    assert not {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[unused1]"} & set(pieces)
    assert "river" in pieces


def test_a_window_is_no_longer_than_the_encoder_reads(checkpoint: Path) -> None:
    made = SpartaModel.new(str(checkpoint), SpartaConfig(WindowShape(length=512, overlap=0)))
    assert made.config.window.length == 256


def test_a_saved_model_is_the_same(
    sparta: SpartaModel, windows: list[SentenceWindow], tmp_path: Path
) -> None:
    sparta.save(tmp_path / "m")
    again = SpartaModel.open(tmp_path / "m", "cpu")
    assert (again.config, again.fingerprint()) == (sparta.config, sparta.fingerprint())
    for (_, *one), (_, *other) in zip(
        strongest_impacts(sparta, windows, 9), strongest_impacts(again, windows, 9), strict=True
    ):
        assert [values.tolist() for values in one] == [values.tolist() for values in other]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("sparta.json", None, "is not a SPARTA model"),
        ("sparta.json", "{", "is damaged"),
        (
            "sparta.json",
            '{"format": 1}',
            "has format version 1, this kbq reads 2: use the kbq version that wrote it",
        ),
        (
            "model.safetensors",
            "x",
            r"model\.safetensors is damaged .*: restore it, or make the model again",
        ),
        (
            "tokenizer.json",
            None,
            r"tokenizer\.json is missing: restore it, or make the model again",
        ),
        ("config.json", "{}", r"config\.json is damaged \(it has 2 of "),
    ],
)
def test_a_damaged_model_is_refused(
    name: str, content: str | None, message: str, sparta: SpartaModel, tmp_path: Path
) -> None:
    sparta.save(tmp_path / "m")
    (tmp_path / "m" / name).unlink()
    if content is not None:
        (tmp_path / "m" / name).write_text(content)
    with pytest.raises(ModelError, match=message):
        SpartaModel.open(tmp_path / "m")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"bias": torch.tensor(math.nan)},
            r"m/model\.safetensors is damaged \(its weight bias holds NaN or infinity",
        ),
        (
            {"another": torch.ones(2)},
            "m has 1 weights that its config has no place for, the first is another",
        ),
    ],
)
def test_weights_that_cannot_be_used_are_refused(
    change: dict[str, torch.Tensor],
    message: str,
    sparta: SpartaModel,
    seal_again: Callable[[Path], None],
    tmp_path: Path,
) -> None:
    sparta.save(tmp_path / "m")
    weights = load_file(tmp_path / "m" / "model.safetensors")
    save_file(weights | change, tmp_path / "m" / "model.safetensors")
    seal_again(tmp_path / "m")
    with pytest.raises(ModelError, match=message):
        SpartaModel.open(tmp_path / "m")
    del weights["bias"]
    save_file(weights, tmp_path / "m" / "model.safetensors")
    seal_again(tmp_path / "m")
    with pytest.raises(ModelError, match="m lacks 1 weights, the first is bias"):
        SpartaModel.open(tmp_path / "m")


PARAGRAPH = "Marie was born in Warsaw. The city of Paris. The river."
WHOLE = (
    "[CLS] Curie [SEP] Marie was born in Warsaw . T ##h ##e city of Paris . T ##h ##e river . [SEP]"
)
SENTENCES = ["Marie was born in Warsaw .", "T ##h ##e city of Paris .", "T ##h ##e river ."]


def cut(
    tokenizer: Any, text: str, length: int = 64, title: str = "Curie", marked: bool = True
) -> list[SentenceWindow]:
    ids = tokenizer(title, add_special_tokens=False)["input_ids"]
    return sentence_windows(
        tokenizer, ids, text, WindowShape(length=length, overlap=0, max_title=2), marked
    )


def read(tokenizer: Any, window: SentenceWindow) -> tuple[str, str]:
    """The whole window, and what segment 1 marks of it."""
    marked = [piece for piece, segment in zip(window.ids, window.segments, strict=True) if segment]
    context, sentence = (
        " ".join(tokenizer.convert_ids_to_tokens(ids)) for ids in (window.ids, marked)
    )
    return context, sentence


def read_sentences(tokenizer: Any, window: SentenceWindow) -> list[str]:
    """The tokens of each of its sentences."""
    parts = (window.ids[sentence.first : sentence.stop] for sentence in window.sentences)
    return [" ".join(tokenizer.convert_ids_to_tokens(part)) for part in parts]


def test_every_sentence_is_marked_in_its_context(make_tokenizer: Callable[..., Any]) -> None:
    tokenizer = make_tokenizer()
    windows = cut(tokenizer, PARAGRAPH)
    assert [read(tokenizer, window) for window in windows] == [
        (WHOLE, sentence) for sentence in SENTENCES
    ]
    assert [read_sentences(tokenizer, window) for window in windows] == [
        [sentence] for sentence in SENTENCES
    ]
    assert [
        PARAGRAPH[window.sentences[0].start : window.sentences[0].end] for window in windows
    ] == [
        "Marie was born in Warsaw.",
        "The city of Paris.",
        "The river.",
    ]


def test_sentences_share_a_window(make_tokenizer: Callable[..., Any]) -> None:
    tokenizer = make_tokenizer()
    (window,) = cut(tokenizer, PARAGRAPH, marked=False)
    assert read(tokenizer, window) == (WHOLE, " ".join(SENTENCES))
    assert read_sentences(tokenizer, window) == SENTENCES
    assert [(sentence.start, sentence.end) for sentence in window.sentences] == [
        (0, 25),
        (26, 44),
        (45, 55),
    ]


def test_what_does_not_fit_goes_into_another_window_with_what_stands_before_it(
    make_tokenizer: Callable[..., Any],
) -> None:
    tokenizer = make_tokenizer()
    first, second = cut(tokenizer, PARAGRAPH, length=18, marked=False)  # 14 tokens of text
    assert read_sentences(tokenizer, first) == SENTENCES[:2]
    assert read_sentences(tokenizer, second) == SENTENCES[2:]
    assert (
        read(tokenizer, second)[0] == f"[CLS] Curie [SEP] Warsaw . {' '.join(SENTENCES[1:])} [SEP]"
    )


def test_a_narrow_window_holds_as_much_on_either_side(make_tokenizer: Callable[..., Any]) -> None:
    tokenizer = make_tokenizer()
    context, sentence = read(tokenizer, cut(tokenizer, PARAGRAPH, length=15)[1])
    assert context == "[CLS] Curie [SEP] Warsaw . T ##h ##e city of Paris . T ##h [SEP]"
    assert sentence == "T ##h ##e city of Paris ."


@pytest.mark.parametrize("marked", [True, False])
def test_a_sentence_longer_than_the_window_becomes_several(
    marked: bool, make_tokenizer: Callable[..., Any]
) -> None:
    tokenizer = make_tokenizer()
    windows = cut(tokenizer, "city river city river born", length=6, marked=marked)
    assert [read(tokenizer, window) for window in windows] == [
        ("[CLS] Curie [SEP] city river [SEP]", "city river"),
        ("[CLS] Curie [SEP] city river [SEP]", "city river"),
        ("[CLS] Curie [SEP] river born [SEP]", "born"),
    ]


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("text", ["", "  \n "])
def test_a_text_without_words_has_no_sentence(
    text: str, marked: bool, make_tokenizer: Callable[..., Any]
) -> None:
    assert cut(make_tokenizer(), text, marked=marked) == []


def test_a_text_without_sentence_ends_is_one(make_tokenizer: Callable[..., Any]) -> None:
    (window,) = cut(make_tokenizer(), "city of Paris", marked=False)
    assert [(sentence.start, sentence.end) for sentence in window.sentences] == [(0, 13)]


def test_chinese_sentences_end_too(make_tokenizer: Callable[..., Any]) -> None:
    text = "居里夫人出生在华沙。居里夫人是一位科学家。"
    (window,) = cut(make_tokenizer(), text, marked=False)
    assert [text[sentence.start : sentence.end] for sentence in window.sentences] == [
        "居里夫人出生在华沙。",
        "居里夫人是一位科学家。",
    ]


@pytest.mark.parametrize(
    ("first", "stop", "tokens", "room", "expected"),
    [
        (4, 6, 100, 6, (2, 8)),
        (1, 3, 100, 6, (0, 6)),
        (4, 6, 7, 6, (1, 7)),
        (0, 2, 2, 6, (0, 2)),
        (3, 9, 12, 6, (3, 9)),
    ],
)
def test_around(first: int, stop: int, tokens: int, room: int, expected: tuple[int, int]) -> None:
    assert around(first, stop, tokens, room) == expected


def test_with_all_tokens_the_maximum_is_over_the_whole_window(checkpoint: Path) -> None:
    config = SpartaConfig(WindowShape(length=32, overlap=0), marked=True, all_tokens=True)
    model = SpartaModel.new(str(checkpoint), config)
    model.network.bias.data.fill_(-3.0)
    model.network.eval()
    windows = model.windows([7], "The city. A river of Paris. Marie was born in Warsaw.")
    assert [len(window.sentences) for window in windows] == [1, 1, 1]
    terms = model.terms[::9]
    with torch.no_grad():
        impacts = model.network(model.tensors(windows), terms)
    for row, window in zip(impacts, windows, strict=True):
        everything = Sentence(0, len(window.ids), 0, 0)
        expected = [by_definition(model, window, everything, int(term)) for term in terms]
        assert row.tolist() == pytest.approx(expected, abs=1e-5)
        assert (
            row >= model.network(SentenceTensors([window], 0, torch.device("cpu")), terms)[0] - 1e-6
        ).all()
