"""The front door: what `import kbq` gives, with plain strings, and one sentence for every mistake."""

import copy
import inspect
import json
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kbq
from kbq.answers import Answer
from kbq.asking.searcher import Searcher, SearchTarget
from kbq.commands.options import AskedKb
from kbq.corpus.pages import Page, Paragraph
from kbq.errors import KbqError, KnowledgeBaseError, QueryError
from kbq.kb import KnowledgeBase
from kbq.model.model import Model
from kbq.search.options import SearchKwargs, SearchOptions


def test_it_gives_these_names_and_no_other() -> None:
    assert dir(kbq) == sorted(kbq.__all__)
    assert all(getattr(kbq, name).__name__ == name for name in kbq.__all__)
    with pytest.raises(
        AttributeError, match="module 'kbq' has no attribute 'find': it has Answer, "
    ):
        kbq.find  # noqa: B018


def test_one_text_gives_answers_and_several_give_lists(kb: KnowledgeBase) -> None:
    answers = kb.query("the river", 2)
    assert [type(answer) for answer in answers] == [Answer, Answer]
    for texts in (["the river"], ("the river",), iter(["the river"])):
        assert kb.query(texts, 2) == [answers]
    assert kb.query([]) == []


def test_an_answer_is_flat(kb: KnowledgeBase) -> None:
    (answer,) = kb.query("the river", 1)
    assert answer.context[answer.start : answer.end] == answer.text
    assert json.loads(json.dumps(answer.to_dict())) == {
        **{
            name: getattr(answer, name)
            for name in ("text", "page_id", "title", "paragraph", "start", "end", "context")
        },
        "score": round(answer.score, 4),
        "probability": None,
        "unit_start": answer.unit[0],
        "unit_end": answer.unit[1],
        "context_start": 0,
    }
    assert str(answer).startswith(
        f"{answer.text}  {answer.score:.2f}  {answer.title} (page {answer.page_id}, "
    )


def test_one_text_is_one_paragraph() -> None:
    assert Page("1", "Paris", "The river").paragraphs == (Paragraph(0, "The river"),)


def test_pages_may_be_made_in_python(model: Model, tmp_path: Path) -> None:
    pages = [
        kbq.Page("1", "Paris", ["The river of Paris.", "Marie was born in Warsaw."]),
        kbq.Page("2", "Empty"),
    ]
    built = kbq.KnowledgeBase.build(pages, str(tmp_path / "kb"), model)
    assert (
        repr(built)
        == f"KnowledgeBase({str(tmp_path / 'kb')!r}: 2 pages, {built.counts.rows:,} vectors)"
    )
    found = built.query("Marie [SEP] birth", 1, unit="paragraph")[0]
    assert (found.page_id, found.paragraph, found.unit) == ("1", 1, (0, 25))


def test_words_alone_answer_with_paragraphs_as_the_command_does(
    kb_folder: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(kb_folder, tmp_path / "kb")
    kb = KnowledgeBase.open(str(folder), device="cpu").index_bm25()
    best = kb.query("the river", 1, backend="bm25")[0]
    assert best.text == best.context
    ((explained, parts),) = kb.explain("the river", 1)
    assert explained == best
    assert sum(parts.values()) == pytest.approx(best.score)


def test_a_page_is_read_as_it_was_indexed(kb: KnowledgeBase) -> None:
    names = list(kb.pages())
    page = kb.page(names[0].page_id)
    assert (page.page_id, page.title) == names[0]
    answer = kb.query("the river", 1)[0]
    paragraphs = {one.number: one.text for one in kb.page(answer.page_id).paragraphs}
    assert paragraphs[answer.paragraph] == answer.context
    assert [one.page_id for one in kb.with_pages([answer.page_id]).pages()] == [answer.page_id]


def test_queries_of_a_generator_are_asked_as_they_come(kb: KnowledgeBase) -> None:
    read: list[str] = []

    def texts() -> Iterator[str]:
        for text in ["the river", "Paris", *["Marie [SEP] birth"] * 200, ""]:
            read.append(text)
            yield text

    found = kb.query_stream(texts(), k=2)
    assert next(found) == kb.query("the river", 2)
    assert len(read) == kb.searcher.batch_size
    with pytest.raises(QueryError, match="the query is empty"):
        list(found)


def test_what_others_change_is_opened_on_request(kb_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(kb_folder, tmp_path / "kb")
    kb, other = (KnowledgeBase.open(folder, device="cpu") for _ in range(2))
    before, gone = kb.query("the river", 1), next(iter(kb.pages()))
    other.delete(gone.page_id)
    assert not kb.is_current
    assert kb.query("the river", 1) == before
    assert kb.reload() is kb
    assert kb.is_current
    assert gone not in list(kb.pages())
    shutil.rmtree(folder)
    assert not kb.is_current
    assert len(kb.query("Paris", 1)) == 1  # what is open stays
    with pytest.raises(KnowledgeBaseError, match=r"kb does not exist|holds no"):
        kb.reload()
    assert len(kb.query("Paris", 1)) == 1


def test_a_page_that_another_process_added_can_be_chosen(kb_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(kb_folder, tmp_path / "kb")
    kb, other = (KnowledgeBase.open(folder, device="cpu") for _ in range(2))
    other.update([Page("new", "New", (Paragraph(0, "The river was born in Paris."),))])
    found = kb.with_pages(["new"])
    assert [one.page_id for one in found.pages()] == ["new"]


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda kb: pickle.loads(pickle.dumps(kb))]
)
def test_a_copy_answers_alike_and_is_closed_alone(
    kb: KnowledgeBase, again: Callable[[KnowledgeBase], Any]
) -> None:
    some = kb.with_pages([kb.query("the river", 1)[0].page_id])
    other = again(some)
    assert other.query("the river", 2) == some.query("the river", 2)
    other.close()
    assert len(some.query("the river", 2)) > 0


def test_a_lazy_one_opens_what_it_needs(kb_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(kb_folder, tmp_path / "kb")
    lazy = KnowledgeBase.open(folder, "nowhere", lazy=True)
    left = lazy.delete(next(iter(KnowledgeBase.open(folder, device="cpu").pages())).page_id)
    assert left.counts.pages == lazy.counts.pages - 1
    with pytest.raises(KbqError, match="model folder nowhere does not exist"):
        left.query("Paris")
    assert KnowledgeBase.open(folder, device="cpu", lazy=True).query("Paris", 1) != []


def test_what_is_made_of_a_lazy_one_is_lazy(
    kb_folder: Path, model_folder: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(kb_folder, tmp_path / "kb")
    page_id = KnowledgeBase.open(folder, device="cpu").query("the river", 1)[0].page_id
    lazy = KnowledgeBase.open(folder, "nowhere", lazy=True)
    some = lazy.with_pages([page_id])  # neither opens the model, which is nowhere
    other = lazy.with_model(model_folder)
    with pytest.raises(KbqError, match="model folder nowhere does not exist"):
        some.query("Paris")
    (answer,) = other.with_pages([page_id]).query("the river", 1)
    assert answer.page_id == page_id

    (folder / "shard-00000" / "starts.npy").unlink()
    unopened = other.with_model(model_folder).with_pages([page_id])  # neither opens the files
    with pytest.raises(KnowledgeBaseError, match=r"starts\.npy"):
        unopened.query("Paris")


def test_a_command_opens_the_files_of_some_pages_once(
    kb_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[SearchTarget] = []
    open_files = Searcher._open

    def counted(self: Searcher) -> None:
        opened.append(self.where)
        open_files(self)

    monkeypatch.setattr(Searcher, "_open", counted)
    page_id = next(iter(KnowledgeBase.open(kb_folder, device="cpu").pages())).page_id
    (tmp_path / "ids").write_text(page_id)
    opened.clear()
    for pages, chosen in ((tmp_path / "ids", (page_id,)), (None, ())):
        AskedKb(kb_folder, pages, device="cpu").open()
        assert opened.pop().pages == chosen
        assert opened == []


def test_its_help_shows_what_a_user_needs() -> None:
    names = [name for name in dir(KnowledgeBase) if not name.startswith("_")]
    assert names == [
        "aquery", "ask", "bad_lines", "build", "calibrate", "changes", "close", "compact", "counts", "delete",
        "explain", "export_impacts", "fill", "finetune", "index_bm25", "index_bytes", "index_sparta",
        "index_vectors", "info", "is_current", "model", "open", "page", "pages", "predict", "query",
        "query_stream", "reload", "sample", "searcher", "strongest_terms", "sync", "update", "with_model",
        "with_pages",
    ]  # fmt: skip


def test_query_lists_its_options() -> None:
    assert KnowledgeBase.query.__doc__
    missing = [
        name
        for name in SearchKwargs.__annotations__
        if f"`{name}`" not in KnowledgeBase.query.__doc__
    ]
    assert missing == []


def test_messages_speak_as_the_reader_writes() -> None:
    error = KbqError("leave --min-probability out, or see `kbq verify KB --repair`")
    assert str(error) == "leave min_probability=… out, or see `kbq verify KB --repair`"
    assert error.typed == "leave --min-probability out, or see `kbq verify KB --repair`"
    assert pickle.loads(pickle.dumps(error)).typed == error.typed
    assert str(KbqError("hub/models--name--model is empty")) == "hub/models--name--model is empty"


Door: Any = KnowledgeBase  # mistakes are made here that a type checker would see
AnyPage: Any = Page
AnyParagraph: Any = Paragraph
read_corpus: Any = kbq.read_corpus


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda kb: kb.query(""), "the query is empty: write"),
        (lambda kb: kb.query("[SEP] birth"), 'has nothing on one side of "[SEP]"'),
        (lambda kb: kb.query("river " * 200), "tokens, the encoder reads"),
        (lambda kb: kb.query(["river", "", "[SEP]"]), "2 of 3 queries cannot be asked"),
        (lambda kb: kb.query(5), "queries are 5: give a text, or a list of texts"),
        (lambda kb: kb.query([5]), "a query is 5: give a text"),
        (lambda kb: kb.query(None), "queries are None: give a text, or a list of texts"),
        (lambda kb: kb.query("river", 0), "k is 0, must be at least 1"),
        (lambda kb: kb.query("river", "3"), "k is '3', must be at least 1"),
        (
            lambda kb: kb.query("river", unit="document"),
            "unit 'document' is unknown: choose from phrase, sentence",
        ),
        (
            lambda kb: kb.query("river", backend="sparse"),
            "backend 'sparse' is unknown: choose from auto, dense",
        ),
        (
            lambda kb: kb.query("river", unit="phrase", backend="bm25"),
            "BM25 finds no phrase: ask for paragraphs",
        ),
        (lambda kb: kb.query("river", backend="sparta"), "has no learned impacts: add them with"),
        (
            lambda kb: kb.query("river", bm25_weight=-1),
            "bm25_weight is -1, must be a number from 0 to 1,000,000",
        ),
        (
            lambda kb: kb.query("river", sparta_weight=1),
            "sparta_weight=… has no effect with the backend",
        ),
        (lambda kb: kb.query("river", topk=3), "topk is unknown: did you mean k?"),
        (lambda kb: kb.predict([], "trex", rerankk=3), "rerankk is unknown: did you mean rerank?"),
        (lambda kb: kb.fill([], [], threshold=0.5), "threshold is unknown: "),
        (
            lambda kb: kb.finetune("nowhere", "out", epoch=3),
            "epoch is unknown: did you mean epochs?",
        ),
        (lambda kb: kb.update([], append=True), "append is unknown: choose from"),
        (
            lambda kb: kb.page("no such page"),
            "has no page 'no such page': `kbq pages",
        ),
        (lambda kb: kb.query("river", reader="nowhere"), "nowhere"),
        (lambda kb: kb.query("river", reader="nowhere", depth=0), "depth is 0, must be at least 1"),
        (
            lambda kb: kb.explain("river", backend="dense"),
            "backend 'dense' cannot be explained: choose bm25 or sparta",
        ),
        (
            lambda kb: kb.strongest_terms("1", backend="hybrid"),
            "backend 'hybrid' cannot be explained: choose bm25 or sparta",
        ),
        (lambda kb: kb.explain(""), "the query is empty"),
        (lambda kb: kb.with_model("nowhere"), "model folder nowhere does not exist"),
        (lambda kb: kb.with_model(7), "a model is 7: give a path"),
        (lambda kb: kb.predict([], task="trex"), "records holds no record"),
        (lambda kb: kb.predict([7], task="trex"), "1 record that cannot be asked"),
        (lambda kb: kb.predict(7, task="trex"), "records are 7: give a path, or a list of records"),
        (lambda kb: kb.predict("nowhere", task="trex"), "nowhere: cannot be read"),
        (
            lambda kb: kb.predict([], task="tex"),
            "task 'tex' is unknown: is trex meant? Else choose one of",
        ),
        (
            lambda kb: kb.predict({"id": 1, "input": "a"}, "nq"),
            "records are {'id': 1, 'input': 'a'}: give a path",
        ),
        (lambda kb: kb.predict("", "nq"), "a KILT file is '': give a path"),
        (lambda kb: kb.predict([], 3), "task is 3: give its name, a task file, or a Task"),
        (lambda kb: kb.query({"a": 1}), "queries are {'a': 1}: give a text, or a list of texts"),
        (lambda kb: kb.query("river", True), "k is True, must be at least 1"),
        (lambda kb: kb.query("river", unit=""), "unit '' is unknown: choose from phrase"),
        (lambda kb: kb.query("river", reader=3), "a reader is 3: give a path"),
        (
            lambda kb: kb.index_vectors("disk", queries="Prague"),
            "queries are 'Prague': give a list of texts",
        ),
        (lambda kb: kb.index_vectors("disk", queries=[3]), "a query is 3: give a text"),
        (lambda kb: kb.index_vectors("disk", recall="x"), "recall is 'x', must be from 0 to 1"),
        (lambda kb: kb.finetune(None, "out"), "a file of triples is None: give a path"),
        (lambda kb: kb.finetune("nowhere", "out", k=0), "k is 0, must be at least 1"),
        (lambda kb: kb.finetune("nowhere", "out", epochs="3"), "epochs is '3', must be at least 1"),
        (
            lambda kb: kb.finetune("nowhere", "out", examples=-1),
            "examples is -1, must be a number, 0 or more",
        ),
        (
            lambda kb: kb.finetune("nowhere", "out", objective="foo"),
            "objective 'foo' is unknown: choose from auto",
        ),
        (
            lambda kb: kb.finetune("nowhere", "out", learning_rate="x"),
            "learning_rate is 'x', must be a number",
        ),
        (
            lambda kb: kb.finetune("nowhere", "out", terms=["joint"]),
            "terms are ['joint']: give a text such as",
        ),
        (lambda kb: kb.finetune("nowhere", "out", task=3), "task is 3: give its name"),
        (lambda kb: kb.finetune("nowhere", "out"), "nowhere: cannot be read"),
        (
            lambda kb: kb.index_vectors("approximate"),
            "index kind 'approximate' is unknown: choose from auto, exact",
        ),
        (lambda kb: kb.index_vectors("disk", recall=2), "recall is 2, must be from 0 to 1"),
        (lambda kb: kb.index_sparta("nowhere"), "nowhere is not a SPARTA model"),
        (lambda kb: Door.open("nowhere"), "nowhere does not exist: make a knowledge base with"),
        (lambda kb: Door.open(""), "the folder of a knowledge base is '': give a path"),
        (lambda kb: Door.open(None), "the folder of a knowledge base is None: give a path"),
        (lambda kb: Door.open(kb.folder, devise="cpu"), "devise is unknown: did you mean device?"),
        (
            lambda kb: Door.open(kb.folder, index="fast"),
            "index kind 'fast' is unknown: choose from exact, disk",
        ),
        (lambda kb: Door.open(kb.folder, device=None), "device None is unknown: choose auto, cpu"),
        (
            lambda kb: Door.build("nowhere", "new", kb.model, index="fast"),
            "index 'fast' is unknown",
        ),
        (
            lambda kb: Door.build("nowhere", "new", kb.model, workers=0),
            "workers is 0, must be a whole number from 1 to",
        ),
        (
            lambda kb: Door.build("nowhere", "new", kb.model, terms=-1),
            "terms is -1, must be at least 1",
        ),
        (
            lambda kb: Door.build(b"corpus", "new", kb.model),
            "a corpus is b'corpus': give a path, or a list of pages",
        ),
        (
            lambda kb: Door.build([AnyPage("1", "T", [AnyParagraph("x", None)])], "new", kb.model),
            "page 1 is Page(",
        ),
        (
            lambda kb: Door.build([Page("1", "T", "\ud800")], "new", kb.model),
            "page '1' contains '\\ud800', half of a",
        ),
        (
            lambda kb: AnyPage("1", "T", None),
            "the paragraphs of page '1' are None: give a text, or a list of texts",
        ),
        (
            lambda kb: Door.open(kb.folder, device="tpu"),
            "device 'tpu' is unknown: choose auto, cpu",
        ),
        (
            lambda kb: Door.build([], "new", kb.model),
            "there are no pages: a corpus needs at least one",
        ),
        (
            lambda kb: Door.build([7], "new", kb.model),
            "page 1 is 7: give kbq.Page(page_id, title, paragraphs)",
        ),
        (
            lambda kb: Door.build(7, "new", kb.model),
            "a corpus is 7: give a path, or a list of pages",
        ),
        (
            lambda kb: Door.build([AnyPage("", "T")], "new", kb.model),
            "page 1 has the id '' and the title 'T'",
        ),
        (lambda kb: Door.build([AnyPage("1", "T", [7])], "new", kb.model), "page 1 is Page("),
        (
            lambda kb: Door.build(2 * [AnyPage("1", "T")], "new", kb.model),
            "page id '1' is taken by an earlier",
        ),
        (lambda kb: Door.build("nowhere", "new", kb.model), "nowhere"),
        (lambda kb: Door.build("nowhere", "new", 7), "a model is 7: give a path"),
        (lambda kb: read_corpus("nowhere", format="csv"), "'csv'"),
        (lambda kb: read_corpus(7), "a corpus is 7: give a path"),
    ],
)
def test_a_mistake_is_one_sentence(
    ask: Callable[[Any], Any],
    message: str,
    kb: KnowledgeBase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KbqError) as caught:
        list(ask(kb))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.glob("new/manifest.json"))


def test_a_knowledge_base_that_was_removed_says_so(kb_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(kb_folder, tmp_path / "kb")
    opened = KnowledgeBase.open(folder, device="cpu")
    shutil.rmtree(folder)
    assert opened.query("the river", 1)  # its files stay open
    (tmp_path / "records").write_text('{"id": 1, "input": "river"}')
    for ask in (opened.info, lambda: opened.predict(tmp_path / "records", "nq", tmp_path / "out")):
        with pytest.raises(KbqError, match="does not exist: make a knowledge base with"):
            ask()


@pytest.mark.parametrize(
    ("command", "method"),
    [("ask.query", "query"), ("ask.build", "build"), ("ask.explain", "explain"), ("measure.predict", "predict"),
     ("maintain.index_vectors", "index_vectors"), ("maintain.sparta", "index_sparta"), ("teach.finetune", "finetune")],
)  # fmt: skip
def test_the_command_and_the_library_have_the_same_defaults(command: str, method: str) -> None:
    from kbq.commands import ask, maintain, measure, teach

    group, _, name = command.partition(".")
    typed = inspect.signature(
        getattr({"ask": ask, "maintain": maintain, "measure": measure, "teach": teach}[group], name)
    ).parameters
    called = inspect.signature(getattr(KnowledgeBase, method)).parameters
    shared = [
        name
        for name in typed
        if name in called and typed[name].default is not inspect.Parameter.empty
    ]
    assert shared
    differing = [name for name in shared if typed[name].default != called[name].default]
    # There, queries may come from a file, and a page may be explained instead of a query.
    assert set(differing) <= ({"text", "k"} if name == "explain" else {"queries", "texts"})


def test_options_say_what_is_asked_for_where_nothing_is_said() -> None:
    assert SearchOptions().chosen_unit == "phrase"
    assert SearchOptions(backend="bm25").chosen_unit == "paragraph"
    assert SearchOptions(backend="bm25", reader="default").chosen_unit == "phrase"
