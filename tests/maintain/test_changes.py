"""Changes: pages are deleted, updated, compared and compacted; every answer is that of what is
left.
"""

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kb_files import snapshot

import kbq
from kbq.corpus.pages import Page
from kbq.dump.manifest import STATE, read_manifest
from kbq.dump.page_encoder import StartEncoders, encode_blocks
from kbq.dump.shard_writer import ShardWriter
from kbq.errors import KbqError, KnowledgeBaseError
from kbq.kb import KnowledgeBase
from kbq.maintain import compact
from kbq.model.model import Model
from kbq.search.options import Backend, SearchOptions
from kbq.storage.seals import read_seal, seal_folder
from kbq.text.queries import Query
from kbq.words.sparta import SpartaModel

SECRET = "Warsaw xyzzy was born."
CHANGED = [
    Page(
        "a",
        "Paris",
        ["the river of Paris", "Marie was born in Paris."],
        metadata={"url": "a", "n": [1, None]},
    ),
    Page("b", "Curie", [SECRET, "place of birth"]),
    Page("c", "Warsaw", ["the city of Warsaw", "Marie Curie was born in Warsaw."]),
    Page("d", "empty", []),
]


@pytest.fixture
def changing(model: Model, tmp_path: Path) -> KnowledgeBase:
    return KnowledgeBase.build(CHANGED, tmp_path / "kb", model)


def said(kb: KnowledgeBase, **options: Any) -> list[tuple[Any, ...]]:
    return [
        (one.text, one.score, one.place)
        for one in kb.query("Marie Curie [SEP] place of birth", 9, **options)
    ]


def test_a_deleted_page_is_in_no_answer_and_its_words_do_not_count(
    changing: KnowledgeBase, tmp_path: Path
) -> None:
    kb = changing.delete("b")
    fresh = KnowledgeBase.build(
        [page for page in CHANGED if page.page_id != "b"], tmp_path / "fresh", kb.model
    )
    assert (kb.changes.deleted, kb.changes.unchanged, kb.counts) == (1, 3, fresh.counts)
    for unit in ("phrase", "page"):
        assert said(kb, unit=unit) == said(fresh, unit=unit)
    assert said(kb, backend="bm25") == said(fresh, backend="bm25")
    assert (
        kb.searcher.unknown_words(Query.of("xyzzy"))
        == fresh.searcher.unknown_words(Query.of("xyzzy"))
        != changing.searcher.unknown_words(Query.of("xyzzy"))
    )
    assert any(one[2][0] == "b" for one in said(changing))  # who has it open keeps it


def test_what_answers_from_chosen_pages_is_not_changed(
    changing: KnowledgeBase, tmp_path: Path
) -> None:
    some, before = changing.with_pages(["a", "c"]), snapshot(changing.folder)
    changes: list[Callable[[], object]] = [
        lambda: some.delete("b"),
        lambda: some.update(CHANGED),
        lambda: some.sync(CHANGED[:1]),
        some.compact,
        some.index_bm25,
        lambda: some.index_vectors("disk"),
        lambda: some.index_sparta(tmp_path),
    ]
    for change in changes:
        with pytest.raises(
            KnowledgeBaseError, match="answer from 2 of its pages: open all of it to change it"
        ):
            change()
    assert snapshot(changing.folder) == before


def test_unknown_ids_are_all_named_and_nothing_is_deleted(changing: KnowledgeBase) -> None:
    with pytest.raises(KnowledgeBaseError, match="has no page 'x': `kbq pages"):
        changing.delete(["a", "x"])
    with pytest.raises(KnowledgeBaseError, match="has no pages with 2 of these ids") as refusal:
        changing.delete(["x", "a", "y"])
    assert refusal.value.problems == ("x", "y")
    assert KnowledgeBase.open(changing.folder).counts.pages == 4
    assert changing.delete(["x", " a "], missing_ok=True).counts.pages == 3


def test_what_a_killed_run_left_of_a_list_does_no_harm(changing: KnowledgeBase) -> None:
    kb = changing.delete("b")
    (name,) = (path.name for path in kb.searcher.shards[0].folder.glob("deleted-*"))
    content = (kb.searcher.shards[0].folder / name).read_bytes()
    (kb.searcher.shards[0].folder / f"{name}.0123456789ab.tmp").write_bytes(content)
    kb = kb.update([CHANGED[1]]).delete("b")
    assert (kb.searcher.shards[0].folder / name).read_bytes() == content
    assert kb.counts.pages == 3


@pytest.mark.parametrize("ids", [[], [""], ["  "]])
def test_no_id_is_refused(ids: list[str], changing: KnowledgeBase) -> None:
    with pytest.raises(KnowledgeBaseError, match="there is no page id: give at least one"):
        changing.delete(ids)


def test_a_page_may_come_back(changing: KnowledgeBase) -> None:
    kb = changing.delete(["a"]).update([CHANGED[0]])
    assert (kb.changes.added, kb.changes.replaced) == (1, 0)
    assert sorted(said(kb)) == sorted(said(changing))


def test_only_what_has_changed_is_encoded(
    changing: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[str] = []

    def counting(
        model: Model,
        blocks: Any,
        pages_of: Callable[[Any], list[Page]],
        start_encoders: StartEncoders | None,
    ) -> Any:
        for block, result in encode_blocks(model, blocks, pages_of, start_encoders):
            encoded.extend(page.page_id for page in pages_of(block))
            yield block, result

    monkeypatch.setattr("kbq.dump.resumable_build.encode_blocks", counting)
    assert str(changing.update(CHANGED).changes) == "+0 ~0 −0 =4"
    other = Page("b", "Curie", ["place of birth"])
    same = Page(
        "a",
        "Paris",
        CHANGED[0].paragraphs,
        metadata=dict(reversed(list(CHANGED[0].metadata.items()))),
    )
    assert str(changing.update([same, other, Page("e", "new", ["city"])]).changes) == "+1 ~1 −0 =3"
    assert encoded == ["b", "e"]


@pytest.mark.parametrize(
    "other",
    [
        Page("a", "Paris.", CHANGED[0].paragraphs, metadata=CHANGED[0].metadata),
        Page("a", "Paris", CHANGED[0].paragraphs[:1], metadata=CHANGED[0].metadata),
        Page("a", "Paris", CHANGED[0].paragraphs),
        Page("a", "Paris", CHANGED[0].paragraphs, metadata={"url": "b"}),
    ],
)
def test_whatever_a_page_says_is_compared(other: Page, changing: KnowledgeBase) -> None:
    assert changing.update([other], dry_run=True).changes.replaced == 1
    assert changing.update([other]).changes.replaced == 1


def test_metadata_come_back_with_answers(changing: KnowledgeBase) -> None:
    (best,) = changing.query("the river of Paris", 1)
    assert best.to_dict()["metadata"] == {"url": "a", "n": [1, None]}
    compacted = changing.delete(["b"]).compact().with_pages("a")
    assert compacted.query("the river of Paris", 1)[0].metadata == best.metadata


def test_a_dry_run_changes_nothing(changing: KnowledgeBase) -> None:
    before = snapshot(changing.folder)
    kb = changing.sync([CHANGED[0], Page("z", "new", ["city"])], dry_run=True)
    assert str(kb.changes) == "+1 ~0 −3 =1"
    assert snapshot(changing.folder) == before


def test_a_compacted_knowledge_base_has_the_bytes_of_a_new_one(
    pages: list[Page], model: Model, sparta_folder: Path, tmp_path: Path
) -> None:
    kb = KnowledgeBase.build(pages[:7], tmp_path / "kb", model, sparta=sparta_folder)
    kb = kb.update(pages[7:]).index_sparta(sparta_folder)
    kb = kb.delete([pages[2].page_id, pages[7].page_id]).compact()
    left = [page for page in pages if page.page_id not in (pages[2].page_id, pages[7].page_id)]
    fresh = KnowledgeBase.build(left, tmp_path / "fresh", model, sparta=sparta_folder)
    (shard,), (other,) = kb.manifest.shards, fresh.manifest.shards
    assert (shard.name, other.name) == ("shard-00002", "shard-00000")
    assert snapshot(kb.folder / shard.name) == snapshot(fresh.folder / other.name)
    assert [path.name for path in kb.folder.glob("shard-*")] == [shard.name]


@pytest.fixture
def sparta_folder(checkpoint: Path, tmp_path: Path) -> Path:
    from kbq.words.sparta import SpartaConfig

    SpartaModel.new(str(checkpoint), SpartaConfig()).save(tmp_path / "sparta")
    return tmp_path / "sparta"


def test_after_compacting_no_file_has_a_deleted_sentence(changing: KnowledgeBase) -> None:
    def files_with(text: bytes) -> list[str]:
        return [name for name, content in snapshot(changing.folder).items() if text in content]

    assert files_with(b"xyzzy") != []
    kb = changing.delete(["b"])
    # A list says that it is deleted: its bytes are still there.
    assert files_with(SECRET.encode()) != []
    before = said(kb)
    assert said(kb.compact()) == before == said(KnowledgeBase.open(changing.folder))
    assert files_with(b"xyzzy") == files_with(b"Curie\n") == []
    assert kbq.verify(changing.folder).problems == ()


@pytest.mark.usefixtures("small_blocks")
def test_only_shards_with_deleted_pages_are_written_again(
    pages: list[Page], model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compact, "SHARD_ROWS", 60)
    kb = KnowledgeBase.build(pages, tmp_path / "kb", model)
    names = [shard.name for shard in kb.manifest.shards]
    assert len(names) > 2
    truth = said(kb)
    assert [shard.name for shard in kb.compact().manifest.shards] == names[:-1] + [
        shard.name for shard in kb.compact().manifest.shards[len(names) - 1 :]
    ]
    gone = next(iter(kb.searcher.shards[0].ids))
    kb = KnowledgeBase.open(kb.folder).delete([gone])
    assert KnowledgeBase.open(kb.folder).compact(threshold=0.9).manifest.shards[0].deleted
    compacted = kb.compact()
    assert names[0] not in [shard.name for shard in compacted.manifest.shards]
    assert sorted(said(compacted)) == sorted(one for one in truth if one[2][0] != gone)


def test_damage_is_not_copied(changing: KnowledgeBase, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = changing.delete("b").folder / "shard-00000" / "vectors.npy"
    vectors.write_bytes(vectors.read_bytes()[:-1] + b"x")
    monkeypatch.setattr("kbq.storage.seals.first_damage.__defaults__", (0,))  # as if it were large
    kb = KnowledgeBase.open(changing.folder)
    with pytest.raises(
        KnowledgeBaseError, match=r"vectors.npy is damaged \(its content has changed\): restore it"
    ):
        kb.compact()


def test_compacting_that_fails_leaves_no_file_open(
    changing: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    writers: list[ShardWriter] = []

    def remembered(*arguments: Any) -> ShardWriter:
        writers.append(ShardWriter(*arguments))
        return writers[-1]

    def stop(rows: int) -> None:
        raise KeyboardInterrupt

    kb = changing.delete("b")
    monkeypatch.setattr(compact, "ShardWriter", remembered)
    with pytest.raises(KeyboardInterrupt):
        compact.write_compacted(kb.folder, kb.manifest.shards, kb.searcher.shards, 1, stop)
    (writer,) = writers
    assert all(array._file.closed for array in writer._arrays())
    assert said(kb.compact()) == said(kb)


def test_an_unfinished_update_is_not_compacted_away(changing: KnowledgeBase) -> None:
    (changing.folder / STATE).write_text("{}")
    with pytest.raises(
        KnowledgeBaseError, match="has an unfinished update: run the same command again, or delete"
    ):
        changing.compact()


def test_all_pages_may_go(changing: KnowledgeBase) -> None:
    kb = changing.delete([page.page_id for page in CHANGED])
    for one in (kb, kb.compact()):
        assert said(one) == said(one, backend="bm25") == said(one, unit="page") == []
    assert str(kb.update(CHANGED[:1]).changes) == "+1 ~0 −0 =0"


@pytest.mark.parametrize("kind", ["compact", "tiny", "disk"])
@pytest.mark.parametrize("few", [0, 2**16])
@pytest.mark.usefixtures("codes_do_not_err")
def test_indexes_leave_deleted_pages_out_before_the_best_are_taken(
    kind: Any,
    few: int,
    pages: list[Page],
    model: Model,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kbq.index.base.FEW_SHOWN", few)
    kb = KnowledgeBase.build(pages, tmp_path / "kb", model, index=kind).index_vectors(
        kind, recall=1.0
    )
    gone = [page.page_id for page in pages[:4]]
    kb = kb.delete(gone)
    fresh = KnowledgeBase.build(pages[4:], tmp_path / "fresh", model)
    backends: tuple[Backend, ...] = ("dense", "hybrid")
    for backend, k in itertools.product(backends, (1, 5)):
        found, truth = (one.query("the river", k, backend=backend) for one in (kb, fresh))
        assert [(one.text, one.score) for one in found] == [(one.text, one.score) for one in truth]
    kb = kb.compact()
    assert kb.index.kind == kind
    assert [one.score for one in kb.query("the river", 5)] == [
        one.score for one in fresh.query("the river", 5)
    ]


@pytest.mark.parametrize("kind", ["exact", "compact"])
def test_some_pages_answer_as_many_times_as_asked(
    kind: Any, pages: list[Page], model: Model, tmp_path: Path
) -> None:
    kb = KnowledgeBase.build(pages, tmp_path / "kb", model, index=kind)
    wanted = [page.page_id for page in pages if page.paragraphs][3:5]
    (tmp_path / "ids").write_text("\n".join(wanted) + "\n\n")
    some = kb.with_pages(tmp_path / "ids")
    for unit, backend in (("phrase", "auto"), ("paragraph", "bm25"), ("page", "dense")):
        asked: Any = some.query
        every: Any = kb.query
        inside = [
            one for one in every("the city was born", 999, unit, backend) if one.page_id in wanted
        ]
        assert asked("the city was born", 3, unit, backend) == inside[:3]
    assert some.with_model(kb.model.source).counts == kb.counts
    assert len(kb.query("the river", 9)) == 9  # the other one still answers from all
    with pytest.raises(KnowledgeBaseError, match="has no page 'nobody'"):
        kb.with_pages(["nobody"])


def test_a_stopped_update_leaves_what_was_there_and_resumes(
    changing: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = [Page("b", "Curie", ["born"]), Page("e", "new", ["the city"])]
    with monkeypatch.context() as patch:
        patch.setattr(
            "kbq.maintain.build.publish", lambda *_: (_ for _ in ()).throw(KbqError("stop"))
        )
        with pytest.raises(KbqError, match="stop"):
            changing.update(new)
    assert said(KnowledgeBase.open(changing.folder)) == said(changing)
    with pytest.raises(
        KnowledgeBaseError, match="the corpus has changed since: give the same corpus, or delete"
    ):
        changing.update(new[1:] + new[:1])
    assert str(changing.update(new).changes) == "+1 ~1 −0 =3"


def test_merging_leaves_deleted_pages_out(changing: KnowledgeBase, tmp_path: Path) -> None:
    from kbq.maintain.merge import merge

    KnowledgeBase.build([CHANGED[1]], tmp_path / "other", changing.model)
    with pytest.raises(
        KnowledgeBaseError, match=r"page id 'b' is in .* and in .*: delete it in one of them"
    ):
        merge(tmp_path / "both", [changing.folder, tmp_path / "other"])
    changing.delete(["b"])
    merge(tmp_path / "both", [changing.folder, tmp_path / "other"])
    both = KnowledgeBase.open(tmp_path / "both")
    assert sorted(said(both)) == sorted(said(changing))
    assert read_manifest(tmp_path / "both").counts.pages == 4
    shutil.rmtree(changing.folder)
    assert said(KnowledgeBase.open(tmp_path / "both")) == said(both)


def test_a_list_of_deleted_pages_is_compared_as_a_file(changing: KnowledgeBase) -> None:
    shard = changing.delete("b").searcher.shards[0]
    (path,) = shard.folder.glob("deleted-*")
    path.write_bytes(path.read_bytes().replace(b"<u4", b">u4"))
    with pytest.raises(
        KnowledgeBaseError, match=r"is damaged \(deleted-.*\.npy has changed\): restore it"
    ):
        KnowledgeBase.open(changing.folder)
    assert [problem.partition(" ")[0] for problem in kbq.verify(changing.folder).problems] == [
        str(path)
    ]


def test_another_index_is_not_taken_over_by_a_deletion(
    changing: KnowledgeBase, tmp_path: Path
) -> None:
    words = changing.folder / "shard-00000" / "bm25"
    lengths = bytearray((words / "lengths.npy").read_bytes())
    lengths[-4] += 1
    (words / "lengths.npy").write_bytes(lengths)
    seal_folder(words, read_seal(words).of)
    said_of_it = (
        r"bm25/seal\.json is damaged \(it belongs to another knowledge base or build\): `kbq verify"
    )
    with pytest.raises(KnowledgeBaseError, match=said_of_it):
        changing.delete("b")
    assert kbq.verify(changing.folder).problems != ()
    assert kbq.verify(changing.folder, repair=True).repaired == ("shard-00000/bm25",)
    assert said(KnowledgeBase.open(changing.folder)) != []


def test_chosen_pages_stay_chosen_with_another_model(
    changing: KnowledgeBase, model_folder: Path
) -> None:
    some = changing.with_pages(["c"]).with_model(model_folder)
    assert {one[2][0] for one in said(some)} == {"c"}
    digests = [
        one.searcher.facts(SearchOptions()).pages
        for one in (some, changing.with_pages(["c"]), changing)
    ]
    assert digests[0] == digests[1] != digests[2] == ""


def test_a_stopped_update_of_a_file_starts_over_when_the_file_has_changed(
    changing: KnowledgeBase, write_json_lines: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = write_json_lines("corpus.jsonl", {"id": "e", "title": "new", "text": "the city"})
    with monkeypatch.context() as patch:
        patch.setattr(
            "kbq.maintain.build.publish", lambda *_: (_ for _ in ()).throw(KbqError("stop"))
        )
        with pytest.raises(KbqError, match="stop"):
            changing.update(corpus)
    assert (changing.folder / STATE).exists()
    write_json_lines("corpus.jsonl", {"id": "f", "title": "other", "text": "the river"})
    notes: list[str] = []
    kb = changing.update(corpus, note=notes.append)
    assert str(kb.changes) == "+1 ~0 −0 =4"
    assert notes == [
        f"an update of {kb.folder} was stopped, and the corpus has changed since: it starts over"
    ]
    assert not (kb.folder / STATE).exists()


def test_the_state_of_an_update_that_is_not_wanted_any_more_is_removed(
    changing: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(
            "kbq.maintain.build.publish", lambda *_: (_ for _ in ()).throw(KbqError("stop"))
        )
        with pytest.raises(KbqError, match="stop"):
            changing.update([Page("e", "new", ["the city"])])
    assert not changing.update(CHANGED).changes
    assert [path.name for path in changing.folder.glob("shard-*")] == ["shard-00000"]
    assert changing.compact().counts == changing.counts
