"""BM25: the weights equal those of bm25s, over one shard or many."""

import unicodedata
from pathlib import Path

import bm25s
import numpy as np
import pytest
import Stemmer
from hypothesis import example, given
from hypothesis import strategies as st

import kbq
from kbq.corpus.pages import Page, Paragraph
from kbq.corpus.readers import read_corpus
from kbq.dump.manifest import changing, write_manifest
from kbq.errors import KnowledgeBaseError
from kbq.kb import KnowledgeBase
from kbq.model.model import Model
from kbq.sample_kb import ARTICLES
from kbq.storage.reports import Stage, silent
from kbq.text.normal_forms import folded, joined
from kbq.text.queries import Query
from kbq.words import bm25
from kbq.words.bm25 import BM25Index, bm25_folder, in_pairs, index_bm25, query_words, words_of
from kbq.words.postings import write_postings

SAMPLE = [paragraph.text for page in read_corpus(str(ARTICLES)) for paragraph in page.paragraphs]
QUERIES = (["citi", "river"], ["pari", "pari", "born"], ["mari", "curi", "unknown"])


def test_words_are_stems_without_stop_words() -> None:
    assert words_of(["The Rivers of Ünïted Cafés, 1984 a", "", "the"]) == [
        ["river", "unit", "cafe", "1984"],
        [],
        [],
    ]


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=60) | st.sampled_from(SAMPLE)))
def test_words_are_those_of_bm25s(texts: list[str]) -> None:
    told = bm25s.tokenize(
        [in_pairs(folded(joined(text))) for text in texts],
        stopwords="en",
        stemmer=Stemmer.Stemmer("english"),
        return_ids=False,
        show_progress=False,
    )
    assert words_of(texts) == [[word for word in words if word] for words in told]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Marie Curie [SEP] places of birth", ["mari", "curi", "place", "birth"]),
        ("Marie Curie [sep] work", ["mari", "curi", "work"]),
        ("it flows through [START_ENT] Paris [END_ENT] north", ["pari"]),
        ("it flows through [start_ent] Paris [end_ent] north", ["pari"]),
        ("who is it?", ["who"]),
        ("?", []),
    ],
)
def test_words_of_a_query(text: str, words: list[str]) -> None:
    assert query_words(Query.of(text)) == words


def test_weights_are_those_of_bm25s(pages: list[Page], tmp_path: Path, model: Model) -> None:
    kb = KnowledgeBase.build(pages, tmp_path / "kb", model)
    passages = [f"{page.title} {paragraph.text}" for page in pages for paragraph in page.paragraphs]
    oracle = bm25s.BM25()
    oracle.index(words_of(passages), show_progress=False)
    (index,) = kb.searcher.words.bm25
    for words in QUERIES:
        assert index.scores(words) == pytest.approx(oracle.get_scores(words), abs=1e-6)
    assert index.scores(QUERIES[0]).max() > 0.6


def test_several_shards_weigh_like_one(pages: list[Page], model: Model, tmp_path: Path) -> None:
    one = KnowledgeBase.build(pages, tmp_path / "one", model)
    parts = tmp_path / "parts"
    for first in range(0, 12, 4):  # the index is kept without being asked for again
        many = KnowledgeBase.build(pages[first : first + 4], parts, model, append=first > 0)
    for words in QUERIES:
        together = np.concatenate([index.scores(words) for index in many.searcher.words.bm25])
        assert together == pytest.approx(one.searcher.words.bm25[0].scores(words), abs=1e-6)


@pytest.mark.parametrize("texts", [[], ["?!"]])
def test_a_knowledge_base_without_words(texts: list[str], model: Model, tmp_path: Path) -> None:
    page = Page("1", "?", tuple(Paragraph(number, text) for number, text in enumerate(texts)))
    kb = KnowledgeBase.build([page], tmp_path / "kb", model)
    assert kb.query(["river"], unit="paragraph", backend="bm25") == [[]]
    assert len(kb.query(["river"], unit="paragraph", backend="hybrid")[0]) == len(texts)


def test_what_is_indexed_stays_and_what_is_damaged_is_made_again(
    pages: list[Page], model: Model, tmp_path: Path
) -> None:
    kb = KnowledgeBase.build(pages[:6], tmp_path / "kb", model)
    (first,) = (bm25_folder(shard.folder) for shard in kb.searcher.shards)
    before = first.stat().st_ino
    kb = KnowledgeBase.build(pages[6:], tmp_path / "kb", model, append=True)
    assert first.stat().st_ino == before
    scores = [index.scores(QUERIES[0]).tolist() for index in kb.searcher.words.bm25]
    lengths = first / "lengths.npy"
    np.save(lengths, np.load(lengths)[1:])
    with pytest.raises(
        KnowledgeBaseError,
        match=r"lengths.npy is damaged \(it has .* of .*`kbq verify .* --repair`",
    ):
        KnowledgeBase.open(tmp_path / "kb")
    index_bm25(tmp_path / "kb")
    mended = KnowledgeBase.open(tmp_path / "kb")
    assert [index.scores(QUERIES[0]).tolist() for index in mended.searcher.words.bm25] == scores


@pytest.mark.parametrize(
    ("often", "dtype"), [(255, np.uint8), (256, np.uint16), (2**16, np.uint32)]
)
def test_a_word_counts_as_often_as_it_stands(
    often: int, dtype: type, model: Model, tmp_path: Path
) -> None:
    texts = ("river " * often, "river city")
    shard = KnowledgeBase.build(
        [Page("1", "", tuple(Paragraph(n, text) for n, text in enumerate(texts)))],
        tmp_path / "kb",
        model,
    ).searcher.shards[0]
    passages, counts = BM25Index(shard).of("river")
    assert (passages.tolist(), counts.tolist()) == ([0, 1], [often, 1])
    assert counts.dtype == dtype


def test_words_are_found_in_every_chunk_of_paragraphs(
    pages: list[Page], model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = KnowledgeBase.build(pages, tmp_path / "whole", model)
    monkeypatch.setattr("kbq.words.bm25.CHUNK", 2)
    parts = KnowledgeBase.build(pages, tmp_path / "parts", model)
    for words in QUERIES:
        assert (
            parts.searcher.words.bm25[0].scores(words).tolist()
            == whole.searcher.words.bm25[0].scores(words).tolist()
        )


SAME_WORDS = [
    ("Kaʻahumanu", "Ka'ahumanu"), ("Kaʼahumanu", "Ka’ahumanu"), ("Pﬁzer", "Pfizer"),
    ("Hei\u00addel\u00adberg", "Heidelberg"),
    ("Łódź", "Lodz"), ("Wrocław", "Wroclaw"), ("Ｔｏｋｙｏ", "Tokyo"),
    ("AT&amp;T Labs", "AT&T Labs"), ("CO₂ levels", "CO2 levels"),
    ("Cafe\u0301", "Café"), ("Straße", "Strasse"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), SAME_WORDS)
def test_words_that_a_reader_takes_for_the_same_are_the_same(one: str, other: str) -> None:
    assert words_of([one]) == words_of([other]) != [[]]


@given(st.text(max_size=20))
@example("A.À0")
@example("É.D.F.")
def test_words_do_not_depend_on_case_and_form(text: str) -> None:
    assert words_of([unicodedata.normalize("NFD", text)]) == words_of([text])
    # Beside initials, a mark without a letter of its own counts until it is folded.
    if not any(map(unicodedata.combining, unicodedata.normalize("NFC", text))):
        assert words_of([folded(text)]) == words_of([text])


def test_names_of_common_words_find_their_pages(model: Model, tmp_path: Path) -> None:
    texts = {
        "The Band": "A band of five.",
        "Yes": "They are a band.",
        "It": "A film.",
        "The Who": "A band, who plays.",
    }
    texts |= {f"Group {number}": "They are a band, yes, who plays it." for number in range(60)}
    pages = [Page(title, title, [text]) for title, text in texts.items()]
    kb = KnowledgeBase.build(pages, tmp_path / "kb", model)
    for title in ("The Band", "Yes", "It", "the who"):
        (found,) = kb.query(f"{title} [SEP] origin", k=1, backend="bm25")
        assert found.title.lower() == title.lower()
    assert query_words(Query.of("Marie Curie [SEP] origin"), kb.searcher.words.bm25) == [
        "mari",
        "curi",
        "origin",
    ]


def test_a_word_as_it_is_written_counts_beside_its_letters(model: Model, tmp_path: Path) -> None:
    pages = [
        Page("1", "Réunion", ["It lies here."]),
        Page("2", "A reunion", ["It was here."]),
        Page("3", "Tó", ["Here."]),
    ]
    kb = KnowledgeBase.build(pages, tmp_path / "kb", model)
    words = {
        text: query_words(Query.of(f"{text} lies"), kb.searcher.words.bm25)
        for text in ("Réunion", "Reunion", "Tó", "Lodž")
    }
    assert words == {
        "Réunion": ["reunion", "lie", "réunion"],
        "Reunion": ["reunion", "lie"],
        "Tó": ["lie", "tó"],
        "Lodž": ["lodz", "lie"],
    }
    assert [answer.page_id for answer in kb.query("Réunion", k=2, unit="page", backend="bm25")] == [
        "1",
        "2",
    ]
    assert kb.query("Tó", k=1, unit="page", backend="bm25")[0].page_id == "3"


def test_words_of_an_older_form_are_said_and_built_again(
    pages: list[Page], model: Model, tmp_path: Path
) -> None:
    kb = KnowledgeBase.build(
        [*pages, Page("L", "Łódź", ["Łódź lies in Poland."])], tmp_path / "kb", model
    )
    (shard,) = kb.searcher.shards
    vocabulary, entries, lengths = bm25._count_words(shard, Stage(silent, "", 0))
    vocabulary = ["łódź" if word == "lodz" else word for word in vocabulary]
    write_postings(
        bm25_folder(shard.folder), vocabulary, entries, "counts", shard.seal, {"lengths": lengths}
    )
    with changing(tmp_path / "kb") as manifest:
        write_manifest(tmp_path / "kb", manifest.without_seals([f"{shard.folder.name}/bm25"]))
    with pytest.raises(KnowledgeBaseError, match=r"only found as written.*kbq index bm25"):
        KnowledgeBase.open(tmp_path / "kb").query("Lodz", backend="bm25")
    found = kbq.verify(tmp_path / "kb")
    assert len(found.problems) == 1
    assert "words are only found as written, with their accents" in found.problems[0]
    assert f"`kbq verify {tmp_path / 'kb'} --repair` builds it again" in found.problems[0]
    assert kbq.verify(tmp_path / "kb", repair=True).repaired == (f"{shard.folder.name}/bm25",)
    assert not kbq.verify(tmp_path / "kb").problems
    assert (
        query_words(Query.of("Lodz"), KnowledgeBase.open(tmp_path / "kb").searcher.words.bm25)[0]
        == "lodz"
    )


def test_a_subject_is_asked_as_the_one_title_that_reads_the_same_is_written(
    model: Model, tmp_path: Path
) -> None:
    titles = [
        "Kaʻahumanu", "Łódź", "Pﬁzer", "Straße", "Strasse", "Warsaw", "Panic! at the Disco", ".in",
        "Old Rus'",
    ]  # fmt: skip
    pages = [Page(title, title, ["It lies here."]) for title in titles]
    words = KnowledgeBase.build(pages, tmp_path / "kb", model).searcher.words
    asked = {
        "Ka'ahumanu [SEP] born": "Kaʻahumanu [SEP] born",
        "Ka’ahumanu [SEP] born": "Kaʻahumanu [SEP] born",
        "lodz [SEP] river": "Łódź [SEP] river",
        "Pfizer [SEP] founder": "Pﬁzer [SEP] founder",
        "Panic at the Disco [SEP] origin": "Panic! at the Disco [SEP] origin",
        "Strasse [SEP] length": "Strasse [SEP] length",  # two titles
        "warsaw [SEP] river": "warsaw [SEP] river",  # case is no other spelling
        "Nowhere [SEP] river": "Nowhere [SEP] river",
        "where is Lodz?": "where is Łódź?",
        # Two titles.
        "Did Ka'ahumanu's court see the Strasse?": "Did Ka'ahumanu's court see the Strasse?",
        # The first name alone.
        "Who was Ka'ahumanu, and where is Lodz?": "Who was Kaʻahumanu, and where is Lodz?",
        "when did Panic at the Disco begin?": "when did Panic! at the Disco begin?",
        "how long is lodz?": "how long is lodz?",  # no name
        "When were the Straße's Walls' built?": "When were the Straße's Walls' built?",
        "In which year?": "In which year?",  # .in is another title
        "When was Old Rus' founded?": "When was Old Rus' founded?",
        "Lodz, [START_ENT] Lodz [END_ENT]": "Lodz, [START_ENT] Lodz [END_ENT]",
    }
    assert {text: words.respelled(Query.of(text)).text for text in asked} == asked


def test_pairs_of_letters_are_the_words_of_scripts_without_blanks() -> None:
    assert words_of(["韩国Nexon公司 in 京", "Emma's 2nd ชาวนา"]) == [
        ["韩国", "nexon", "公司"],
        ["emma", "2nd", "ชา", "าว", "วน", "นา"],
    ]
    assert set(query_words(Query.of("公司的韩国人"))) > {"公司", "韩国", "国人"}
