"""SPARTA index: a paragraph scores like its best sentence, and a killed run is resumed."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from killed import Killed
from paragraphs import EncodedParagraph, write_shard

from kbq.corpus.pages import Page
from kbq.dump.manifest import Manifest, read_manifest
from kbq.dump.shards import Counts, Shard, ShardEntry
from kbq.errors import KnowledgeBaseError
from kbq.kb import KnowledgeBase
from kbq.maintain.options import TERMS
from kbq.model.model import Model
from kbq.model.tokenizer import WindowShape
from kbq.search.options import Backend, SearchOptions
from kbq.text.queries import Query
from kbq.words import impacts as impacts_module
from kbq.words.impacts import (
    PieceTokenizer,
    SentenceImpacts,
    add_sparta,
    impact_lines,
    index_sparta,
    sparta_folder,
)
from kbq.words.sparta import SpartaConfig, SpartaModel, strongest_impacts

TEXTS = ["The city. A river of Paris.", "", "Marie was born in Warsaw. Curie. The the."]


@pytest.fixture
def sparta(checkpoint: Path) -> SpartaModel:
    made = SpartaModel.new(str(checkpoint), SpartaConfig(WindowShape(length=32, overlap=0)))
    made.network.bias.data.fill_(-3.0)
    made.network.eval()
    return made


@pytest.fixture
def shard(encoded: Callable[..., EncodedParagraph], tmp_path: Path) -> Shard:
    """Each text on a page with the title `birth`."""
    pages = [
        (str(number), "birth", [replace(encoded([[1, 1]]), text=text)])
        for number, text in enumerate(TEXTS)
    ]
    return write_shard(tmp_path / "shard-00000", pages)


@pytest.fixture
def manifest(shard: Shard) -> Manifest:
    counts = Counts(len(TEXTS), len(TEXTS), rows=len(TEXTS))
    return Manifest("m", "f", 2, 0.0, (ShardEntry("shard-00000", shard.seal, counts, counts),))


@pytest.fixture
def kb(sparta: SpartaModel, pages: list[Page], model: Model, tmp_path: Path) -> KnowledgeBase:
    """All pages with the impacts of their sentences."""
    KnowledgeBase.build(pages, tmp_path / "kb", model)
    sparta.save(tmp_path / "m")
    index_sparta(tmp_path / "kb", tmp_path / "m", terms=50)
    return KnowledgeBase.open(tmp_path / "kb", device="cpu")


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_paragraph_scores_like_its_best_sentence(
    sparta: SpartaModel, shard: Shard, manifest: Manifest, tmp_path: Path
) -> None:
    manifest = add_sparta(tmp_path, manifest, sparta, k=40)
    index, terms = (
        SentenceImpacts(shard, manifest),
        PieceTokenizer(tmp_path, manifest).terms(Query.of("the river [SEP] the birth")),
    )
    assert terms == ["the", "river", "the", "birth"]
    (title,) = sparta.tokenizer(["birth"], add_special_tokens=False)["input_ids"]
    expected = []
    for text in TEXTS:
        sums = [0.0]
        for _, found, weights in strongest_impacts(sparta, sparta.windows(title, text), 40):
            pieces = sparta.tokenizer.convert_ids_to_tokens(found.tolist())
            looked_up = dict(zip(pieces, weights.tolist(), strict=True))
            sums.append(sum(looked_up.get(term, 0.0) for term in terms))
        expected.append(max(sums))
    # 16-bit, batched differently.
    assert index.scores(terms) == pytest.approx(np.array(expected), abs=0.05)
    assert expected[1] == 0 < expected[0] != expected[2]


@pytest.mark.usefixtures("shard")
def test_a_killed_run_goes_on_and_leaves_the_same_bytes(
    sparta: SpartaModel, manifest: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(impacts_module, "BLOCK", 1)
    folder = sparta_folder(tmp_path / "shard-00000", add_sparta(tmp_path, manifest, sparta, TERMS))
    whole = content(folder)
    shutil.rmtree(folder)
    encoded: list[int] = []

    def report(stage: str, done: int, paragraphs: int) -> None:
        assert stage == "impacts learned, paragraphs"
        assert paragraphs == len(TEXTS)
        encoded.append(done)
        if len(encoded) == 2:
            raise Killed

    with pytest.raises(Killed):
        add_sparta(tmp_path, manifest, sparta, TERMS, report=report)
    assert not folder.exists()
    read: list[int] = []

    def write_block(path: Path, of: Shard, paragraphs: range, model: SpartaModel, k: int) -> None:
        read.extend(paragraphs)
        original(path, of, paragraphs, model, k)

    original = impacts_module._write_block
    monkeypatch.setattr(impacts_module, "_write_block", write_block)
    add_sparta(tmp_path, manifest, sparta, TERMS, report=report)
    assert (read, encoded) == ([2], [1, 2, 1, 2, 3])
    assert content(folder) == whole
    assert [path.name for path in tmp_path.glob("shard-00000/sparta*")] == [folder.name]


@pytest.mark.usefixtures("shard")
def test_a_shard_that_has_its_impacts_keeps_them(
    sparta: SpartaModel, manifest: Manifest, tmp_path: Path
) -> None:
    folder = sparta_folder(tmp_path / "shard-00000", add_sparta(tmp_path, manifest, sparta, TERMS))
    before = (folder / "weights.npy").stat().st_mtime_ns
    add_sparta(tmp_path, manifest, sparta, TERMS)
    assert (folder / "weights.npy").stat().st_mtime_ns == before
    (folder / "weights.npy").write_bytes(b"")
    add_sparta(tmp_path, manifest, sparta, TERMS)
    assert (folder / "weights.npy").stat().st_size > 0


@pytest.mark.usefixtures("shard")
def test_no_term_at_all_is_refused(sparta: SpartaModel, manifest: Manifest, tmp_path: Path) -> None:
    with pytest.raises(KnowledgeBaseError, match="terms is 0, must be at least 1"):
        add_sparta(tmp_path, manifest, sparta, k=0)


def test_others_are_made_beside_those_that_answer(
    sparta: SpartaModel, kb_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kb = shutil.copytree(kb_folder, tmp_path / "kb")
    sparta.save(tmp_path / "m")
    index_sparta(kb, tmp_path / "m", terms=5)
    few = KnowledgeBase.open(kb, device="cpu").query(["the river"], 99, "paragraph", "sparta")

    def killed(stage: str, done: int, paragraphs: int) -> None:
        raise Killed

    with pytest.raises(Killed):
        index_sparta(kb, tmp_path / "m", terms=50, report=killed)
    assert (
        KnowledgeBase.open(kb, device="cpu").query(["the river"], 99, "paragraph", "sparta") == few
    )
    index_sparta(kb, tmp_path / "m", terms=50)
    many = KnowledgeBase.open(kb, device="cpu").query(["the river"], 99, "paragraph", "sparta")
    assert [hit.score for hit in many[0]] != [hit.score for hit in few[0]]
    name = f"sparta-{read_manifest(kb).sparta}"
    assert [path.name for path in (*kb.glob("sparta*"), *kb.glob("shard-*/sparta*"))] == [
        name,
        name,
    ]


def test_a_missing_tokenizer_is_named(sparta: SpartaModel, kb_folder: Path, tmp_path: Path) -> None:
    kb = shutil.copytree(kb_folder, tmp_path / "kb")
    sparta.save(tmp_path / "m")
    index_sparta(kb, tmp_path / "m", TERMS)
    shutil.rmtree(kb / f"sparta-{read_manifest(kb).sparta}")
    with pytest.raises(
        KnowledgeBaseError, match=r"seal.json is missing: `kbq index sparta .* MODEL`"
    ):
        KnowledgeBase.open(kb, device="cpu")


def test_a_hybrid_score_adds_both_sources_by_their_weights(kb: KnowledgeBase) -> None:
    def scores(backend: Backend) -> dict[tuple[str, int], float]:
        weights = (2.0, 3.0) if backend == "hybrid" else (None, None)
        hits = kb.searcher.search(
            [Query.of("the river")], SearchOptions(99, "paragraph", backend, *weights)
        )[0]
        return {(hit.page_id, hit.paragraph): hit.score for hit in hits}

    dense, words, impacts = scores("dense"), scores("bm25"), scores("sparta")
    assert words
    assert impacts
    expected = {
        place: score + 2 * words.get(place, 0) + 3 * impacts.get(place, 0)
        for place, score in dense.items()
    }
    assert scores("hybrid") == pytest.approx(expected, abs=1e-3)


def test_sentences_rank_as_their_impacts_add_up(
    sparta: SpartaModel, pages: list[Page], model: Model, tmp_path: Path
) -> None:
    folder = tmp_path / "kb"
    KnowledgeBase.build(pages[:8], folder, model)
    KnowledgeBase.build(pages[8:], folder, model, append=True)
    sparta.save(tmp_path / "m")
    index_sparta(folder, tmp_path / "m", terms=50)
    kb = KnowledgeBase.open(folder, device="cpu")
    kb.delete([pages[0].page_id])
    query = Query.of("the river of the city")
    terms = ["the", "river", "of", "the", "city"]
    expected: dict[tuple[str, int, str], float] = {}
    searcher = KnowledgeBase.open(folder, device="cpu").searcher
    assert len(searcher.shards) == 2
    for shard, index in zip(searcher.shards, searcher.words.sparta, strict=True):
        for paragraph, number in enumerate(shard.paragraph_numbers.tolist()):
            page_id = shard.ids[int(shard.paragraph_pages[paragraph])]
            for text, impacts in index.sentences(paragraph):
                score = sum(impacts.get(term, 0.0) for term in terms)
                if score > 0 and page_id != pages[0].page_id:
                    place = page_id, number, " ".join(text.split())
                    expected[place] = max(score, expected.get(place, 0.0))

    hits = searcher.search([query], SearchOptions(10**30, "sentence", "sparta"))[0]
    found = {(hit.page_id, hit.paragraph, hit.text): hit.score for hit in reversed(hits)}
    assert found == pytest.approx(expected, abs=1e-3)
    assert len(hits) > len({hit.page_id for hit in hits}) > 3
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert all(hit.unit == (hit.start, hit.end) for hit in hits)
    assert searcher.search([query], SearchOptions(2, "sentence", "sparta"))[0] == hits[:2]
    one_page = KnowledgeBase.open(folder, device="cpu").with_pages([hits[0].page_id])
    left = one_page.searcher.search([query], SearchOptions(9999, "sentence", "sparta"))[0]
    assert left == [hit for hit in hits if hit.page_id == hits[0].page_id]


def test_parts_of_a_long_sentence_have_places_of_their_own(
    sparta: SpartaModel, encoded: Callable[..., EncodedParagraph], tmp_path: Path
) -> None:
    text = "The city. The " + "river of the " * 30 + "city. Marie was born in Warsaw."
    shard = write_shard(
        tmp_path / "shard-00000", [("1", "birth", [replace(encoded([[1, 1]]), text=text)])]
    )
    counts = Counts(1, 1, rows=1)
    manifest = Manifest("m", "f", 2, 0.0, (ShardEntry("shard-00000", shard.seal, counts, counts),))
    index = SentenceImpacts(shard, add_sparta(tmp_path, manifest, sparta, k=40))
    places = [index.place(number) for number in range(len(index.paragraphs))]
    texts = [text[start:end] for _, (start, end) in places]
    assert texts[0] == "The city."
    assert texts[-1] == "Marie was born in Warsaw."
    assert len(texts) > 4
    assert " ".join(texts) == text
    assert [found for found, _ in index.sentences(0)] == texts


def test_sentences_are_predicted_by_impacts(kb: KnowledgeBase, tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text('{"id": "1", "input": "the river of the city"}\n', "utf-8")
    kb.predict(
        tmp_path / "q.jsonl", "nq", tmp_path / "p.jsonl", unit="sentence", top_pages=4, with_text=True,
        backend="sparta",
    )  # fmt: skip
    (line,) = map(json.loads, (tmp_path / "p.jsonl").read_text("utf-8").splitlines())
    listed = line["output"][0]["provenance"]
    hits = kb.query("the river of the city", 4, "sentence", backend="sparta")
    assert [(one["wikipedia_id"], one["text"]) for one in listed] == [
        (hit.page_id, hit.text) for hit in hits
    ]


def test_a_damaged_block_is_made_again(
    sparta: SpartaModel,
    shard: Shard,
    manifest: Manifest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(impacts_module, "BLOCK", 1)
    whole = sparta_folder(shard.folder, add_sparta(tmp_path, manifest, sparta, k=5))
    expected = content(whole)
    shutil.rmtree(whole)
    workshop = whole.with_name(whole.name + ".blocks")
    workshop.mkdir()
    (workshop / "1.npz").write_bytes(b"PK\x03\x04 half a file")
    add_sparta(tmp_path, manifest, sparta, k=5)
    assert content(whole) == expected


def test_the_strongest_terms_of_a_page_are_those_of_its_sentences(
    sparta: SpartaModel, shard: Shard, manifest: Manifest, tmp_path: Path
) -> None:
    manifest = add_sparta(tmp_path, manifest, sparta, k=40)
    index = SentenceImpacts(shard, manifest)
    (title,) = sparta.tokenizer(["birth"], add_special_tokens=False)["input_ids"]
    found = index.sentences(0, 5)
    assert [text for text, _ in found] == ["The city.", "A river of Paris."]
    impacts = {
        number: weights
        for number, _, weights in strongest_impacts(sparta, sparta.windows(title, TEXTS[0]), 5)
    }
    for number, (_, terms) in enumerate(found):
        assert list(terms.values()) == pytest.approx(
            sorted(impacts[number].tolist(), reverse=True), abs=0.05
        )


def test_exported_impacts_score_as_the_index_does(
    sparta: SpartaModel, shard: Shard, manifest: Manifest, tmp_path: Path
) -> None:
    manifest = add_sparta(tmp_path, manifest, sparta, k=40)
    documents = [json.loads(line) for line in impact_lines([shard], manifest)]
    assert [one["id"] for one in documents][:3] == ["0:0:0", "0:0:1", "2:0:0"]
    terms = PieceTokenizer(tmp_path, manifest).terms(Query.of("the river [SEP] the birth"))
    sums = {0: 0.0, 1: 0.0, 2: 0.0}
    for document in documents:
        page = int(document["id"].partition(":")[0])
        assert all(
            isinstance(weight, int) and weight >= 0 for weight in document["vector"].values()
        )
        sums[page] = max(sums[page], sum(document["vector"].get(term, 0) for term in terms) / 100)
    scores = SentenceImpacts(shard, manifest).scores(terms)
    assert list(sums.values()) == pytest.approx(scores.tolist(), abs=0.005 * len(terms))
