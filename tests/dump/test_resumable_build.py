"""Building: whatever stops a build, the next run ends with the same bytes."""

import errno
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from kb_files import make_small, snapshot
from killed import Killed

import kbq.maintain.build
from kbq.corpus.pages import Page, Paragraph
from kbq.dump import page_encoder, resumable_build, shard_writer
from kbq.dump.manifest import STATE, publish, read_manifest
from kbq.dump.page_directory import Pages
from kbq.dump.shards import Counts, GrowingArray, Shard, shard_name
from kbq.errors import CorpusError, KnowledgeBaseError, ModelError
from kbq.kb import KnowledgeBase
from kbq.model.model import Model, encode_windows
from kbq.model.tokenizer import WindowShape, tokenize, windows
from kbq.storage import records
from kbq.storage.writing import remove_file

pytestmark = pytest.mark.usefixtures("small_blocks")


@pytest.fixture(scope="module")
def whole_folder(pages: list[Page], model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build that nothing stopped."""
    folder = tmp_path_factory.mktemp("kbs") / "whole"
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        KnowledgeBase.build(pages, folder, model)
    return folder


@pytest.fixture(scope="module")
def whole(whole_folder: Path) -> dict[str, bytes]:
    """Its files."""
    return snapshot(whole_folder)


def leave_garbage(folder: Path) -> None:
    """What a block that was not finished leaves behind; finished shards are not written to any
    more.
    """
    state = folder / "building.json"
    finished = len(json.loads(state.read_text())["finished"]) if state.exists() else 0
    for path in folder.rglob("shard-*/*"):
        if int(path.parent.name.removeprefix("shard-")) >= finished:
            with path.open("ab") as file:
                file.write(b"half of a block")


def failing(function: Callable[..., Any], call: int, error: BaseException) -> Callable[..., Any]:
    """The same function, but its call of that number, from 0, raises."""
    calls = iter(range(10**6))

    def wrapped(*arguments: Any, **named: Any) -> Any:
        if next(calls) == call:
            raise error
        return function(*arguments, **named)

    return wrapped


def test_blocks_and_shards_are_several(whole_folder: Path, model: Model) -> None:
    kb = KnowledgeBase(whole_folder, read_manifest(whole_folder), model)
    assert len(kb.searcher.shards) > 2
    assert [len(shard.ids) for shard in kb.searcher.shards] == [
        shard.size.pages for shard in kb.manifest.shards
    ]
    assert sum(len(shard) for shard in kb.searcher.shards) == kb.counts.rows
    assert kb.counts.pages == 12
    assert kb.counts.paragraphs == 18
    assert list(Pages.open(kb.folder).ids()) == [f"P{number}" for number in range(12)]
    assert sorted(path.name for path in whole_folder.iterdir()) == [
        "manifest.json",
        *(f"shard-{number:05d}" for number in range(len(kb.searcher.shards))),
    ]


@pytest.mark.parametrize("stop", range(12))
def test_killed_while_it_reads(
    stop: int, whole: dict[str, bytes], pages: list[Page], model: Model, tmp_path: Path
) -> None:
    def stops() -> Iterator[Page]:
        yield from pages[:stop]
        raise Killed

    with pytest.raises(Killed):
        KnowledgeBase.build(stops(), tmp_path / "kb", model)
    leave_garbage(tmp_path / "kb")
    KnowledgeBase.build(pages, tmp_path / "kb", model)
    assert snapshot(tmp_path / "kb") == whole


@pytest.mark.parametrize("garbage", [leave_garbage, lambda folder: None])
@pytest.mark.parametrize("call", [0, 1, 3])
@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (page_encoder, "encode_batches"),
        (resumable_build, "write_record"),
        (shard_writer.ShardWriter, "append"),
        (shard_writer.ShardWriter, "sync"),
        (shard_writer.ShardWriter, "close"),
    ],
)
def test_killed_anywhere(
    owner: Any,
    name: str,
    call: int,
    garbage: Callable[[Path], None],
    whole: dict[str, bytes],
    pages: list[Page],
    model: Model,
    tmp_path: Path,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, failing(getattr(owner, name), call, Killed()))
        with pytest.raises(Killed):
            KnowledgeBase.build(pages, tmp_path / "kb", model)
    with pytest.raises(KnowledgeBaseError, match=r"is not a (complete )?knowledge base"):
        KnowledgeBase.open(tmp_path / "kb")
    garbage(tmp_path / "kb")
    KnowledgeBase.build(pages, tmp_path / "kb", model)
    assert snapshot(tmp_path / "kb") == whole


@pytest.mark.parametrize("name", ["build_indexes", "publish"])
def test_killed_before_it_is_published(
    name: str, whole: dict[str, bytes], pages: list[Page], model: Model, tmp_path: Path
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            kbq.maintain.build, name, failing(getattr(kbq.maintain.build, name), 0, Killed())
        )
        with pytest.raises(Killed):
            KnowledgeBase.build(pages, tmp_path / "kb", model)
    KnowledgeBase.build(pages, tmp_path / "kb", model)
    assert snapshot(tmp_path / "kb") == whole


def test_killed_twice(
    whole: dict[str, bytes], pages: list[Page], model: Model, tmp_path: Path
) -> None:
    for call in (2, 1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                resumable_build, "write_record", failing(records.write_record, call, Killed())
            )
            with pytest.raises(Killed):
                KnowledgeBase.build(pages, tmp_path / "kb", model)
    KnowledgeBase.build(pages, tmp_path / "kb", model)
    assert snapshot(tmp_path / "kb") == whole


def stopped(pages: list[Page], model: Model, folder: Path) -> None:
    """Leave a build of which three blocks are on the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resumable_build, "write_record", failing(records.write_record, 3, Killed()))
        with pytest.raises(Killed):
            KnowledgeBase.build(pages, folder, model)


@pytest.mark.parametrize(
    "change",
    [
        lambda pages: [replace(pages[0], title="Other"), *pages[1:]],
        lambda pages: [replace(pages[0], paragraphs=(Paragraph(0, "city " * 70),)), *pages[1:]],
        lambda pages: [
            *pages[:1],
            replace(pages[1], paragraphs=(Paragraph(0, "city " * 9),)),
            *pages[2:],
        ],
        lambda pages: [Page("new", "New", ()), *pages],
        lambda pages: pages[1:],
        lambda pages: pages[:2],
        lambda pages: pages[::-1],
    ],
)
def test_another_corpus_is_refused(
    change: Callable[[list[Page]], list[Page]], pages: list[Page], model: Model, tmp_path: Path
) -> None:
    stopped(pages, model, tmp_path / "kb")
    with pytest.raises(
        KnowledgeBaseError, match="the corpus has changed since: give the same corpus, or delete"
    ):
        KnowledgeBase.build(change(pages), tmp_path / "kb", model)
    assert not (tmp_path / "kb" / "manifest.json").exists()


def test_another_model_is_refused(
    pages: list[Page], model: Model, other_folder: Path, tmp_path: Path
) -> None:
    stopped(pages, model, tmp_path / "kb")
    with pytest.raises(
        KnowledgeBaseError,
        match=f"an unfinished build with model {model.config.phrase_fingerprint}",
    ):
        KnowledgeBase.build(pages, tmp_path / "kb", Model.open(other_folder, "cpu"))


def test_a_bad_line_publishes_nothing(pages: list[Page], model: Model, tmp_path: Path) -> None:
    def bad() -> Iterator[Page]:
        yield from pages[:5]
        raise CorpusError("corpus:6: bad")

    with pytest.raises(CorpusError, match="corpus:6: bad"):
        KnowledgeBase.build(bad(), tmp_path / "kb", model)
    assert not (tmp_path / "kb" / "manifest.json").exists()


@pytest.mark.parametrize("call", [0, 7, 40])
@pytest.mark.parametrize("name", ["append", "sync", "close"])
def test_a_full_disk_is_said_and_the_build_goes_on(
    name: str, call: int, whole: dict[str, bytes], pages: list[Page], model: Model, tmp_path: Path
) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GrowingArray, name, failing(getattr(GrowingArray, name), call, full))
        with pytest.raises(
            KnowledgeBaseError,
            match=r"kb cannot be written \(No space left on device\): free disk space",
        ):
            KnowledgeBase.build(pages, tmp_path / "kb", model)
    KnowledgeBase.build(pages, tmp_path / "kb", model)
    assert snapshot(tmp_path / "kb") == whole


@pytest.mark.parametrize("name", ["file/kb", "file"])
def test_a_folder_that_cannot_be_made_is_said(
    name: str, pages: list[Page], model: Model, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(KnowledgeBaseError, match=f"{tmp_path / name} cannot be written"):
        KnowledgeBase.build(pages, tmp_path / name, model)


def test_a_read_only_folder_is_said(pages: list[Page], model: Model, tmp_path: Path) -> None:
    denied = OSError(errno.EACCES, "Permission denied")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "mkdir", failing(Path.mkdir, 0, denied))
        with pytest.raises(KnowledgeBaseError, match=r"kb cannot be written \(Permission denied\)"):
            KnowledgeBase.build(pages, tmp_path / "kb", model)


def test_a_folder_in_use_is_refused(pages: list[Page], model: Model, tmp_path: Path) -> None:
    KnowledgeBase.build(pages[:2], tmp_path / "kb", model)
    with pytest.raises(
        KnowledgeBaseError, match="already holds a knowledge base: add to it with append=…"
    ):
        KnowledgeBase.build(pages, tmp_path / "kb", model)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("mine")
    with pytest.raises(KnowledgeBaseError, match="is not empty, and holds no unfinished build"):
        KnowledgeBase.build(pages, tmp_path / "full", model)


@pytest.mark.parametrize("index", ["exact", "disk", "compact", "tiny"])
def test_append(index: Any, pages: list[Page], model: Model, tmp_path: Path) -> None:
    folder = tmp_path / "kb"
    KnowledgeBase.build(pages[:6], folder, model, index=index, bm25=False)
    files = [path for path in folder.glob("shard-*/**/*") if path.is_file()]
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}
    kb = KnowledgeBase.build(pages[6:], folder, model, append=True, index=index)
    assert list(Pages.open(kb.folder).ids()) == [f"P{number}" for number in range(12)]
    assert kb.counts.pages == 12
    assert len(kb.manifest.corpora) == 2
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in before} == before


def test_an_append_says_where_the_model_is_now(
    pages: list[Page], model_folder: Path, tmp_path: Path
) -> None:
    for name, part in (("gone", pages[:5]), ("here", pages[5:])):
        shutil.copytree(model_folder, tmp_path / name)
        model = Model.open(tmp_path / name, "cpu")
        KnowledgeBase.build(part, tmp_path / "kb", model, append=name == "here")
        shutil.rmtree(tmp_path / name)
    assert read_manifest(tmp_path / "kb").model == str((tmp_path / "here").resolve())


def test_a_missing_faiss_is_said_before_anything_is_encoded(
    pages: list[Page], model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("faiss")
    KnowledgeBase.build(pages[:5], tmp_path / "kb", model, index="compact")
    KnowledgeBase.open(tmp_path / "kb", device="cpu").index_vectors("exact")  # the other one stays
    before = snapshot(tmp_path / "kb")
    monkeypatch.setitem(sys.modules, "faiss", None)
    message = r"needs faiss \(.*faiss.*\): install it with"
    with pytest.raises(KnowledgeBaseError, match=message):
        KnowledgeBase.build(pages, tmp_path / "new", model, index="tiny")
    assert not (tmp_path / "new").exists()
    with pytest.raises(KnowledgeBaseError, match=message):
        KnowledgeBase.build(pages[5:], tmp_path / "kb", model, append=True)
    assert snapshot(tmp_path / "kb") == before


def test_append_that_was_killed_goes_on(pages: list[Page], model: Model, tmp_path: Path) -> None:
    for name in ("whole", "kb"):
        KnowledgeBase.build(pages[:6], tmp_path / name, model)
    KnowledgeBase.build(pages[6:], tmp_path / "whole", model, append=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resumable_build, "write_record", failing(records.write_record, 1, Killed()))
        with pytest.raises(Killed):
            KnowledgeBase.build(pages[6:], tmp_path / "kb", model, append=True)
    shards = [Shard(path) for path in read_manifest(tmp_path / "kb").shard_folders(tmp_path / "kb")]
    assert sum(len(shard.ids) for shard in shards) == 6  # what was published stays published
    KnowledgeBase.build(pages[6:], tmp_path / "kb", model, append=True)
    assert snapshot(tmp_path / "kb") == snapshot(tmp_path / "whole")


def test_an_append_that_is_given_up_leaves_nothing(
    pages: list[Page], model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("whole", "kb"):
        KnowledgeBase.build(pages[:6], tmp_path / name, model, index="disk")
    with monkeypatch.context() as patch:
        patch.setattr("kbq.maintain.build.publish", failing(publish, 0, Killed()))
        with pytest.raises(Killed):  # its shard and its index are written
            KnowledgeBase.build(pages[6:8], tmp_path / "kb", model, append=True, index="disk")
    state = tmp_path / "kb" / "building.json"
    with pytest.raises(
        KnowledgeBaseError, match=f"the same corpus, or delete {state} to start over"
    ):
        KnowledgeBase.build(pages[8:], tmp_path / "kb", model, append=True, index="disk")
    state.unlink()
    for name in ("whole", "kb"):
        KnowledgeBase.build(pages[8:], tmp_path / name, model, append=True, index="disk")
    assert snapshot(tmp_path / "kb") == snapshot(tmp_path / "whole")


def test_append_after_a_kill_between_publishing_and_tidying_up(
    pages: list[Page], model: Model, tmp_path: Path
) -> None:
    KnowledgeBase.build(pages[:6], tmp_path / "whole", model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kbq.dump.manifest.remove_file", failing(remove_file, 0, Killed()))
        with pytest.raises(Killed):
            KnowledgeBase.build(pages[:6], tmp_path / "kb", model)
    for name in ("whole", "kb"):
        KnowledgeBase.build(pages[6:], tmp_path / name, model, append=True)
    assert snapshot(tmp_path / "kb") == snapshot(tmp_path / "whole")


def test_append_needs_a_knowledge_base_of_the_same_model(
    pages: list[Page], model: Model, other_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(KnowledgeBaseError, match="does not exist: make a knowledge base with"):
        KnowledgeBase.build(pages, tmp_path / "kb", model, append=True)
    KnowledgeBase.build(pages[:2], tmp_path / "kb", model)
    with pytest.raises(
        ModelError, match=r"was built with the model .*/tiny .*, not .*/other .*: use model=.*/tiny"
    ):
        KnowledgeBase.build(
            pages[2:], tmp_path / "kb", Model.open(other_folder, "cpu"), append=True
        )


def built(model: Model, folder: Path, *paragraphs: Paragraph) -> Shard:
    KnowledgeBase.build([Page("1", "Title", paragraphs)], folder, model)
    return Shard(folder / "shard-00000")


def rows_text(shard: Shard) -> list[str]:
    paragraphs = shard.paragraphs_of(np.arange(len(shard)))
    return [
        shard.texts[int(paragraph)][start:end]
        for paragraph, start, end in zip(paragraphs, shard.starts, shard.ends, strict=True)
    ]


def test_every_kept_token_lies_in_one_whole_word(
    pages: list[Page], model: Model, tmp_path: Path
) -> None:
    for number, page in enumerate(pages):
        shard = built(model, tmp_path / str(number), *page.paragraphs)
        words = {
            word for paragraph in page.paragraphs for word in re.findall(r"\w+|\.", paragraph.text)
        }
        assert set(rows_text(shard)) <= words
        assert [shard.texts[i] for i in range(len(shard.texts))] == [
            p.text for p in page.paragraphs
        ]
        assert shard.paragraph_numbers.tolist() == [p.number for p in page.paragraphs]
        assert [p.number for p in shard.page(0).paragraphs] == [p.number for p in page.paragraphs]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("居里夫人出生在华沙。", set("居里夫人出生在华沙。")),
        ("מארי קירי נולדה בוורשה.", {"מארי", "קירי", "נולדה", "בוורשה", "."}),
        ("the \x07 river \u200e was", {"the", "river", "was", "\x07", "\u200e"}),
        ("e\u0301t\u00e9", {"e\u0301t\u00e9"}),
    ],
)
def test_text_of_other_scripts(text: str, words: set[str], model: Model, tmp_path: Path) -> None:
    shard = built(model, tmp_path / "kb", Paragraph(3, text))
    assert len(shard) > 0
    assert set(rows_text(shard)) <= words


def test_a_list_marker_is_no_answer(model: Model, tmp_path: Path) -> None:
    text = "BULLET::::- Warsaw, the city"
    shard = built(model, tmp_path / "kb", Paragraph(0, text, begin=12))
    assert set(rows_text(shard)) <= {"Warsaw", ",", "the", "city"}
    assert shard.starts.min() >= 12
    assert shard.positions.max() < 4
    assert shard.texts[0] == text


def test_paragraphs_without_tokens(model: Model, tmp_path: Path) -> None:
    empty = [Paragraph(0, ""), Paragraph(1, " \n "), Paragraph(2, "\x00\x01")]
    shard = built(model, tmp_path / "kb", *empty, Paragraph(3, "Paris"), Paragraph(4, "  "))
    assert shard.paragraph_rows.tolist() == [0, 0, 0, 1, 1]
    assert rows_text(shard) == ["Paris"]
    assert shard.positions.tolist() == [0]


def test_a_knowledge_base_without_any_token(model: Model, tmp_path: Path) -> None:
    kb = KnowledgeBase.build(
        [Page("1", "T", (Paragraph(0, ""),)), Page("2", "U", ())], tmp_path / "kb", model
    )
    assert kb.counts == Counts(pages=2, paragraphs=1, tokens=0, rows=0)
    assert kb.query(["the river"], k=3) == [[]]


def test_a_paragraph_of_100000_characters(model: Model, tmp_path: Path) -> None:
    wide = replace(model.config, window=WindowShape(256, 64, 10))
    large = Model(wide, model.tokenizer, lambda: model.phrases, model.queries, model.scale)
    text = " ".join(f"river{number % 10} Warsaw" for number in range(7200))[:100_000]
    assert len(text) == 100_000
    shard = built(large, tmp_path / "kb", Paragraph(0, text))
    assert set(rows_text(shard)) <= {*text.split()}
    assert (np.diff(shard.positions.astype(int)) > 0).all()
    assert shard.ends.max() > 99_000


def test_the_filter_keeps_what_is_above_its_threshold(
    new_model: Callable[..., Model], tmp_path: Path
) -> None:
    paragraph = Paragraph(0, "Marie Curie was born in the city of Warsaw.")
    kept = []
    for threshold in (float("-inf"), 0.0, float("inf")):
        model = new_model(filter_threshold=threshold)
        model.save(tmp_path / f"model{threshold}")
        kept.append(built(model, tmp_path / f"kb{threshold}", paragraph).positions.tolist())
    assert kept[0] == list(range(10))
    assert set(kept[2]) < set(kept[1]) < set(kept[0])
    assert len(kept[2]) == 1  # the best of its window: every paragraph can be found


def test_every_window_of_a_batch_keeps_its_best_token(
    new_model: Callable[..., Model], tmp_path: Path
) -> None:
    model = new_model(filter_threshold=float("inf"))
    model.save(tmp_path / "model")
    room = model.config.window.length - model.config.window.max_title - 3
    # The last: more windows.
    texts = [
        "Marie Curie was born in Warsaw.",
        "the city",
        " ".join(["Warsaw river"] * room),
    ]
    shard = built(
        model, tmp_path / "kb", *(Paragraph(number, text) for number, text in enumerate(texts))
    )
    title, *tokens = tokenize(model.tokenizer, [shard.titles[0], *texts])
    cut = [windows(model.tokenizer, title.ids, text, model.config.window) for text in tokens]
    assert len(cut[2]) > 1
    flat = [window for paragraph in cut for window in paragraph]
    found = encode_windows(model.phrases, flat, model.tokenizer.pad_token_id, model.uses_segments)
    best = {
        index: flat[index].position + int(logits.max(axis=1).argmax()) for index, _, logits in found
    }
    assert shard.positions.tolist() == [best[index] for index in range(len(flat))]


@pytest.mark.parametrize("threshold", [float("-inf"), 0.0, float("inf")])
def test_phrases_open_and_close_where_the_filter_lets_them(
    threshold: float, new_model: Callable[..., Model], tmp_path: Path
) -> None:
    model = new_model(filter_threshold=float("-inf"), edge_threshold=threshold)
    model.save(tmp_path / "model")
    shard = built(
        model, tmp_path / "kb", Paragraph(0, "Marie Curie was born in the city of Warsaw.")
    )
    title, text = tokenize(model.tokenizer, [shard.titles[0], shard.texts[0]])
    window = windows(model.tokenizer, title.ids, text, model.config.window)
    ((_, _, logits),) = encode_windows(
        model.phrases, window, model.tokenizer.pad_token_id, model.uses_segments
    )
    best = int(logits.max(axis=1).argmax())
    edges = [2 * int(closes > threshold) + int(opens > threshold) for opens, closes in logits]
    edges[best] = 3  # a phrase in any case
    assert shard.edges.tolist() == edges


def test_quantise() -> None:
    vectors = torch.tensor([[0.1, -1.0], [0.26, 9.0], [-0.24, -9.0]])
    assert page_encoder.quantise(vectors, torch.tensor([0.1, 0.05])).tolist() == [
        [1, -20],
        [3, 127],
        [-2, -127],
    ]


def test_vectors_in_steps_are_close_to_those_of_the_encoder(model: Model, tmp_path: Path) -> None:
    shard = built(model, tmp_path / "kb", Paragraph(0, "Marie Curie was born in Warsaw"))
    encoded = page_encoder.PageEncoder(model)([Page("1", "Title", (Paragraph(0, shard.texts[0]),))])
    assert (encoded.vectors == shard.vectors).all()
    assert (np.linalg.norm(shard.vectors * model.scale, axis=1) > 1).all()


def test_progress_is_told_after_every_block(
    pages: list[Page], model: Model, tmp_path: Path
) -> None:
    told: list[Counts] = []
    kb = KnowledgeBase.build(pages, tmp_path / "kb", model, report=told.append)
    assert told[0] == Counts()
    assert told[-1] == kb.counts
    assert [counts.rows for counts in told] == sorted(counts.rows for counts in told)
    assert len(told) > 4


@pytest.mark.parametrize("content", ["{", "{}", "[]", "7"])
def test_a_damaged_state_is_refused(
    content: str, pages: list[Page], model: Model, tmp_path: Path
) -> None:
    stopped(pages, model, tmp_path / "kb")
    (tmp_path / "kb" / "building.json").write_text(content)
    with pytest.raises(KnowledgeBaseError, match=r"building\.json is damaged"):
        KnowledgeBase.build(pages, tmp_path / "kb", model)


def test_a_moved_build_goes_on(
    whole: dict[str, bytes], pages: list[Page], model: Model, tmp_path: Path
) -> None:
    stopped(pages, model, tmp_path / "kb")
    shutil.move(tmp_path / "kb", tmp_path / "moved")
    KnowledgeBase.build(pages, tmp_path / "moved", model)
    assert snapshot(tmp_path / "moved") == whole


@pytest.mark.parametrize("name", ["vectors.npy", "starts.npy", "texts.bin"])
@pytest.mark.parametrize("lost", ["all of it", "its end"])
def test_what_was_lost_while_a_build_was_stopped_is_no_zero(
    name: str, lost: str, pages: list[Page], model: Model, tmp_path: Path
) -> None:
    stopped(pages, model, tmp_path / "kb")
    finished = json.loads((tmp_path / "kb" / STATE).read_text())["finished"]
    file = tmp_path / "kb" / shard_name(len(finished)) / name  # of the shard that is being written
    file.unlink() if lost == "all of it" else os.truncate(file, file.stat().st_size - 1)
    with pytest.raises(
        KnowledgeBaseError,
        match=rf"unfinished build, which is damaged .*{name}.*: delete the folder to start over",
    ):
        KnowledgeBase.build(pages, tmp_path / "kb", model)
    assert not (tmp_path / "kb" / "manifest.json").exists()


def test_killed_in_its_first_moment(
    whole: dict[str, bytes], pages: list[Page], model: Model, tmp_path: Path
) -> None:
    (tmp_path / "kb").mkdir()
    (tmp_path / "kb" / "building.json.0123456789ab.tmp").write_text("{")
    KnowledgeBase.build(pages, tmp_path / "kb", model)
    assert snapshot(tmp_path / "kb") == whole


def test_a_model_is_named_as_it_was_opened(
    pages: list[Page], model_folder: Path, tmp_path: Path
) -> None:
    KnowledgeBase.build(pages[:2], tmp_path / "kb", Model.open(model_folder, "cpu"))
    assert KnowledgeBase.open(tmp_path / "kb", device="cpu").manifest.model == str(
        model_folder.resolve()
    )


def test_an_index_may_be_replaced_while_it_is_opened(
    pages: list[Page], model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kb = KnowledgeBase.build(pages, tmp_path / "kb", model, index="disk")

    def opened(source: str, device: str) -> Model:
        if kb.index == read_manifest(tmp_path / "kb").index:
            kb.index_vectors("disk", filter=5.0)  # removes the one that is being opened
        return model

    monkeypatch.setattr(Model, "open", opened)
    assert KnowledgeBase.open(tmp_path / "kb").index.filter == 5.0
