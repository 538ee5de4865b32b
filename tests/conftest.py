"""Fixtures: a tiny BERT of this test run's own, a model, pages and a knowledge base made with it;
no network.
"""

import os

# Before torch is loaded: threads that spin on a busy machine make every test several times slower.
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
if not os.path.exists("/dev/nvidia0"):  # noqa: PTH110
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is loaded: kernels are computed by NumPy

import dataclasses
import importlib
import json
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from browsing import PROGRAMS, Browser
from command_line import Run, running
from random_queries import WORDS
from writers import watched

from kbq import progress
from kbq.corpus.pages import Page, Paragraph
from kbq.storage.limited import LimitedProcess

# No test depends on how busy the machine is.
hypothesis.settings.register_profile("kbq", deadline=None)
hypothesis.settings.load_profile("kbq")
progress.LINE_SECONDS = 600.0

if TYPE_CHECKING:
    from paragraphs import EncodedParagraph

    from kbq.dump.shards import Shard
    from kbq.kb import KnowledgeBase
    from kbq.model.model import Model

LATIN = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZéłÖ"
HEBREW = "אבגדהוזחטיךכלםמןנסעףפץצקרשת"
CHINESE = "居里夫人出生在华沙是一位科学家。，"
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused1]", "[unused2]")


PAGE = "test_the_examples_of_a_page"
CLUSTER = "tests/cluster/"
LONGEST = (CLUSTER, PAGE)
# What takes minutes, and is left to `make check-all`.
SLOW = (
    PAGE,
    CLUSTER,
    "test_an_output_that_takes_no_more_is_said",  # a process each
    "tests/test_histories.py",
    "tests/test_mutations.py",
    "tests/test_packaging.py",
    "tests/test_parallel.py::test_a_process_that_is_killed_is_said",
    "tests/test_parallel.py::test_the_number_of_processes_does_not_matter",
    "tests/test_power_cuts.py",
    "tests/test_retrievers.py",
    "tests/test_sample_kb.py::test_what_a_killed_first_use_left",
    "tests/dump/test_resumable_build.py::test_an_index_may_be_replaced_while_it_is_opened",
    "tests/maintain/test_changes.py::test_indexes_leave_deleted_pages_out",
    "tests/maintain/test_merge.py::test_indexes_of_shards_come_along",
    "tests/dump/test_workers.py",
    "tests/importing/test_bombs.py::test_checkpoints_are_tried_before_they_are_loaded",
    "tests/reading/test_same_bits.py",
    "tests/search/test_company.py",
    "tests/serve/test_doors.py",
    "tests/serve/test_overload.py",
    "tests/serve/test_reconcile.py::test_a_session_of_openrefine",
    "tests/serve/test_reconcile.py::test_who_waits_too_long_for_all_of_it_is_told",
    "tests/serve/test_reopening.py",
    "tests/text/test_html.py::test_a_notebook_shows",
    "tests/training/test_distillation.py",
    "tests/training/test_train.py",
    "tests/tuning/test_labels.py",
    "tests/tuning/test_relation_judge.py::test_fine_tuning_writes_the_judge_beside_the_query_encoder",
)


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark slow tests, and put those first that take longest, so that no worker is left with them
    at the end.
    """
    items.sort(key=lambda item: not any(part in item.nodeid for part in LONGEST))
    for item in items:
        if any(part in item.nodeid for part in SLOW) or "browser" in getattr(
            item, "fixturenames", ()
        ):
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each file to one worker, so that its fixtures are built once.

    The same goes for the cluster; pages of the documentation are given out one by one.
    """
    from xdist.scheduler import LoadScopeScheduling

    def given_together(nodeid: str) -> str:
        if PAGE in nodeid:
            return nodeid
        return CLUSTER if nodeid.startswith(CLUSTER) else nodeid.partition("::")[0]

    config.option.loadscopereorder = False  # the order is that of `pytest_collection_modifyitems`
    scheduler = LoadScopeScheduling(config, log)
    scheduler._split_scope = given_together
    return scheduler


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more worker than CPUs, because tests of services, processes and clusters mostly wait."""
    return (os.cpu_count() or 1) + 1


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """The last words of `make check` say what it has left out."""
    if config.getoption("markexpr") == "not slow":
        left = (
            "examples of the documentation, browsers, other CPUs, clusters, kills, doors, "
            "training, random histories"
        )
        terminalreporter.write_line(f"left for `make check-all`: {left}")


@pytest.fixture(autouse=True)
def without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test cuts the power."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """About two pages a block, about three blocks a shard."""
    from kb_files import make_small  # which imports torch

    make_small(monkeypatch)


@pytest.fixture(scope="session", autouse=True)
def writers() -> Iterator[None]:
    """Whatever kbq writes in any test goes through one place."""
    with watched():
        yield


@pytest.fixture(scope="session", autouse=True)
def one_process_tries_checkpoints() -> Iterator[None]:
    """Checkpoints are tried in one limited process instead of one each, as importing torch there
    takes seconds.
    """
    call = LimitedProcess.call

    def call_shared(
        self: LimitedProcess, function: Callable[..., Any], *args: Any, **limits: Any
    ) -> Any:
        if not function.__module__.startswith("kbq.model."):
            return call(self, function, *args, **limits)
        call(shared, os.chdir, Path.cwd())
        return call(shared, function, *args, **limits)

    with LimitedProcess() as shared, pytest.MonkeyPatch.context() as patched:
        patched.setattr(LimitedProcess, "call", call_shared)
        yield


@pytest.fixture
def goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Checks that a training to `tmp_path / "out"` that is killed in a step ends with the same
    bytes as a whole one.
    """

    def check(
        train: Callable[..., object],
        arguments: dict[str, Any],
        killed_in: int,
        files: Sequence[str],
    ) -> None:
        from killed import Killed

        def stop(step: Any) -> None:
            if step.step == killed_in:
                raise Killed

        monkeypatch.setattr("kbq.training.engine.CHECKPOINT_SECONDS", -1.0)
        train(**arguments | {"out": tmp_path / "whole"})
        with pytest.raises(Killed):
            train(**arguments, on_step=stop)
        assert not (tmp_path / "out").exists()
        steps: list[Any] = []
        train(**arguments, on_step=steps.append)
        assert steps[0].step == killed_in
        for name in files:
            assert (tmp_path / "out" / name).read_bytes() == (
                tmp_path / "whole" / name
            ).read_bytes()
        assert not (tmp_path / "out.partial").exists()

    return check


@pytest.fixture(scope="session")
def make_tokenizer() -> Callable[..., Any]:
    """A cased WordPiece tokenizer that spells unknown words letter by letter; keywords replace its
    settings.
    """
    import tokenizers
    import transformers

    def make(**settings: Any) -> Any:
        letters = LATIN + HEBREW
        pieces = [
            *SPECIAL,
            *WORDS,
            *letters,
            *(f"##{letter}" for letter in letters),
            *CHINESE,
            *"0123456789.,:;-'?!()",
        ]
        vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
        vocabulary |= {f"##{digit}": len(vocabulary) + digit for digit in range(10)}
        inner = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
        inner.normalizer = tokenizers.normalizers.BertNormalizer(
            lowercase=False, strip_accents=False
        )
        inner.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
        names = {
            "cls_token": "[CLS]",
            "sep_token": "[SEP]",
            "pad_token": "[PAD]",
            "unk_token": "[UNK]",
        }
        inputs = ["input_ids", "token_type_ids", "attention_mask"]
        return transformers.PreTrainedTokenizerFast(
            tokenizer_object=inner, **names | {"model_input_names": inputs} | settings
        )

    return make


@pytest.fixture(scope="session")
def bert_config(make_tokenizer: Callable[..., Any]) -> Callable[..., Any]:
    """The configuration of a BERT of 2 layers with 16 dimensions; keywords replace its settings."""
    import transformers

    def make(**settings: Any) -> Any:
        sizes = {
            "vocab_size": len(make_tokenizer()),
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 32,
            "max_position_embeddings": 256,
            "initializer_range": 0.5,
        }
        return transformers.BertConfig(**sizes | settings)

    return make


@pytest.fixture(scope="session")
def make_checkpoint(
    make_tokenizer: Callable[..., Any], bert_config: Callable[..., Any]
) -> Callable[..., Path]:
    """Writes a random BERT-like encoder and its tokenizer into a folder."""
    import torch
    import transformers

    def make(folder: Path, config: Any = None, **settings: Any) -> Path:
        torch.manual_seed(1)
        transformers.AutoModel.from_config(config or bert_config()).save_pretrained(folder)
        make_tokenizer(**settings).save_pretrained(folder)
        return folder

    return make


@pytest.fixture(scope="session")
def checkpoint(
    make_checkpoint: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A BERT of 2 layers with 16 dimensions."""
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(scope="session")
def qa_checkpoint(
    make_tokenizer: Callable[..., Any],
    bert_config: Callable[..., Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A random question-answering network of 2 layers with 16 dimensions."""
    import torch
    import transformers

    folder = tmp_path_factory.mktemp("reader")
    torch.manual_seed(5)
    transformers.BertForQuestionAnswering(bert_config(max_position_embeddings=64)).save_pretrained(
        folder
    )
    make_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def new_model(checkpoint: Path) -> Iterator[Callable[..., "Model"]]:
    """Makes a model with random heads and a filter that keeps about half of the tokens.

    Indexes are measured with few queries from then on: 200 take longer than everything else.
    """
    import numpy as np
    import torch

    from kbq.model.model import Model
    from kbq.model.model_folder import ModelConfig
    from kbq.model.tokenizer import WindowShape

    def make(seed: int = 2, source: Path = checkpoint, **settings: Any) -> "Model":
        window = WindowShape(length=24, overlap=6, max_title=10)
        shape: dict[str, Any] = {
            "window": window,
            "max_query_tokens": 32,
            "filter_threshold": 0.0,
            "edge_threshold": -0.2,
        }
        config = ModelConfig(**shape | settings)
        model = Model.new(str(source), config)
        torch.manual_seed(seed)
        with torch.no_grad():
            for parameter in [
                *model.queries.start_head.parameters(),
                *model.queries.end_head.parameters(),
            ]:
                parameter.add_(0.3 * torch.randn_like(parameter))
            model.phrases.filter.weight.copy_(torch.randn_like(model.phrases.filter.weight))
            model.phrases.filter.bias.zero_()
        model.phrases.eval()
        model.queries.eval()
        model.scale = np.full(model.dim, 0.03, np.float32)
        return model

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kbq.maintain.indexes.OWN_QUERIES", 30)
        yield make


@pytest.fixture(scope="session")
def model_folder(
    new_model: Callable[..., "Model"], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A saved model."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    new_model().save(folder)
    return folder


@pytest.fixture(scope="session")
def model(model_folder: Path) -> "Model":
    """The saved model, opened."""
    from kbq.model.model import Model

    return Model.open(model_folder, "cpu")


@pytest.fixture(scope="session")
def seal_again() -> Callable[[Path], None]:
    """Makes the record of a changed model agree with its files, as whoever forges one would."""
    from safetensors.torch import load_file

    from kbq.model.model_folder import (
        RECORDS,
        SPARTA,
        WEIGHTS,
        fingerprint,
        read_config,
        sealed_files,
        write_config,
    )
    from kbq.storage.records import write_record
    from kbq.words.sparta import read_record_of

    def seal(folder: Path) -> None:
        if (folder / SPARTA).is_file():
            record = dataclasses.replace(read_record_of(folder), files=sealed_files(folder))
            write_record(folder / SPARTA, record, RECORDS[SPARTA])
            return
        stored = load_file(folder / WEIGHTS)
        queries = {name: stored.pop(name) for name in list(stored) if name.startswith("queries.")}
        config = dataclasses.replace(read_config(folder), query_fingerprint=fingerprint(queries))
        if not config.base:
            config = dataclasses.replace(config, phrase_fingerprint=fingerprint(stored))
        write_config(folder, config)

    return seal


@pytest.fixture(scope="session")
def other_folder(
    new_model: Callable[..., "Model"], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A saved model with other phrase vectors."""
    folder = tmp_path_factory.mktemp("models") / "other"
    new_model(seed=3).save(folder)
    return folder


@pytest.fixture(scope="session")
def pages() -> list[Page]:
    """Twelve pages of random words, with 0 to 3 paragraphs of 1 to 3 sentences."""
    source = random.Random(4)

    def sentence() -> str:
        words = [
            source.choice(WORDS) if source.random() < 0.7 else _word(source)
            for _ in range(source.randint(3, 9))
        ]
        return " ".join(words).capitalize() + "."

    return [
        Page(
            f"P{number}",
            f"{_word(source)} {source.choice(WORDS)}",
            tuple(
                Paragraph(place * 2, " ".join(sentence() for _ in range(source.randint(1, 3))))
                for place in range(number % 4)
            ),
        )
        for number in range(12)
    ]


def _word(source: random.Random) -> str:
    return "".join(source.choice(LATIN) for _ in range(source.randint(2, 6)))


@pytest.fixture(scope="session")
def kb_folder(model: "Model", pages: list[Page], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published knowledge base of all pages, vectors only; tests read it only."""
    from kbq.kb import KnowledgeBase

    folder = tmp_path_factory.mktemp("kbs") / "kb"
    KnowledgeBase.build(pages, folder, model, bm25=False)
    return folder


@pytest.fixture(scope="session")
def kb(kb_folder: Path) -> "KnowledgeBase":
    """The knowledge base, opened."""
    from kbq.kb import KnowledgeBase

    return KnowledgeBase.open(kb_folder, device="cpu")


@pytest.fixture(scope="session")
def sample() -> "KnowledgeBase":
    """The sample, opened."""
    from kbq.kb import KnowledgeBase

    return KnowledgeBase.sample(device="cpu")


@pytest.fixture(scope="session")
def with_every_index(checkpoint: Path) -> Callable[[Path, list[Page], Path], Path]:
    """Builds a knowledge base of eight or so shards with every kind of index and of words."""

    def build(folder: Path, pages: list[Page], model: Path) -> Path:
        pytest.importorskip("faiss")
        from kbq.dump.manifest import read_manifest
        from kbq.kb import KnowledgeBase
        from kbq.maintain.options import TERMS
        from kbq.words.impacts import index_sparta
        from kbq.words.sparta import SpartaConfig, SpartaModel

        SpartaModel.new(str(checkpoint), SpartaConfig()).save(folder / "sparta")
        kb = KnowledgeBase.build(pages, folder / "kb", model, device="cpu")
        for kind in ("disk", "tiny", "compact"):
            kb = kb.index_vectors(kind, recall=0.0)
        index_sparta(folder / "kb", folder / "sparta", TERMS, "cpu")
        assert 7 <= len(read_manifest(folder / "kb").shards) <= 12
        return folder / "kb"

    return build


@pytest.fixture(scope="session")
def judging_model(
    new_model: Callable[..., "Model"], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A saved model with a random reader that judges phrases."""
    import torch
    from bundle_reader import save_reader

    from kbq.reading.reader import QuestionAnswering, Reader

    folder = tmp_path_factory.mktemp("models") / "judging"
    new_model().save(folder)
    torch.manual_seed(6)
    network = QuestionAnswering(Reader.new(str(folder), "cpu").network.base_model, has_judge=True)
    with torch.no_grad():
        for parameter in network.judge.parameters():  # type: ignore[union-attr]
            parameter.copy_(torch.randn_like(parameter))
    save_reader(network, folder)
    return folder


@pytest.fixture(scope="session")
def judging_kb(
    judging_model: Path, pages: list[Page], tmp_path_factory: pytest.TempPathFactory
) -> "KnowledgeBase":
    """The pages with vectors and words, asked with that model; tests read it only."""
    from kbq.kb import KnowledgeBase

    folder = tmp_path_factory.mktemp("kbs") / "judged"
    return KnowledgeBase.build(pages, folder, judging_model, device="cpu")


@pytest.fixture
def codes_do_not_err(monkeypatch: pytest.MonkeyPatch) -> None:
    """Indexes of codes score all rows again."""
    from kbq.index.factory import CODES

    for kind, codes in CODES.items():
        monkeypatch.setitem(CODES, kind, dataclasses.replace(codes, overfetch=1000))


@pytest.fixture
def encoded() -> Callable[..., "EncodedParagraph"]:
    """Makes a paragraph `w0 w1 w2 …` of which the words at `positions` were kept with these
    vectors.
    """
    import numpy as np
    from paragraphs import EncodedParagraph

    from kbq.dump.shards import CLOSES, OPENS

    def make(
        vectors: Sequence[Sequence[int]],
        positions: Sequence[int] | None = None,
        number: int = 0,
        edges: Any = OPENS | CLOSES,
    ) -> Any:
        kept = list(range(len(vectors))) if positions is None else list(positions)
        words = [f"w{place}" for place in range(max(kept, default=-1) + 1)]
        begins = [sum(len(word) + 1 for word in words[:place]) for place in kept]
        ends = [begin + len(words[place]) for begin, place in zip(begins, kept, strict=True)]
        columns = (np.array(column, np.uint32) for column in (kept, begins, ends))
        # A row's number in its paragraph, in quarters.
        logits = np.arange(len(kept), dtype=np.float32) / np.float32(4)
        each = np.broadcast_to(np.array(edges, np.uint8), len(kept))
        rows = np.array(vectors, np.int8)
        rows = rows if rows.ndim == 2 else rows.reshape(0, 2)  # of an empty list
        return EncodedParagraph(number, " ".join(words), len(words), rows, logits, each, *columns)

    return make


@pytest.fixture
def modest(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is accepted at 0.2: two of the sample's dates are less likely than 0.5, and tests fill
    tables with them.
    """
    from kbq.serve import filling
    from kbq.tables import options

    for module in (options, filling):
        monkeypatch.setattr(module, "MIN_PROBABILITY", 0.2)


@pytest.fixture
def make_shard(tmp_path: Path) -> Callable[..., "Shard"]:
    """Writes a shard; each argument is a page: the list of its encoded paragraphs."""
    from paragraphs import write_shard

    def make(*pages: Sequence["EncodedParagraph"], dim: int = 2, name: str = "shard") -> "Shard":
        named = [(f"{name}-{number}", f"Page {number}", page) for number, page in enumerate(pages)]
        return write_shard(tmp_path / name, named, dim)

    return make


@pytest.fixture
def random_shard(
    encoded: Callable[..., "EncodedParagraph"], make_shard: Callable[..., "Shard"]
) -> Callable[..., Any]:
    """Writes paragraphs with these numbers of kept tokens, among twice as many, on two pages.

    Phrases may not open, or close, everywhere.
    """
    import numpy as np

    def make(*kept: int, dim: int = 16, seed: int = 0) -> Any:
        source = np.random.default_rng(seed)
        paragraphs = [
            encoded(
                source.integers(-127, 128, (count, dim)).reshape(count, dim).tolist()
                or np.empty((0, dim)),
                np.sort(source.choice(2 * count, count, replace=False)).tolist(),
                edges=source.choice([0, 1, 2, 3], count, p=[0.1, 0.2, 0.2, 0.5]),
            )
            for count in kept
        ]
        return make_shard(paragraphs[:2], paragraphs[2:], dim=dim, name=f"random{len(kept)}-{seed}")

    return make


@pytest.fixture
def few_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a query encoder is tuned, few other queries are watched: 500 take longer than tuning a
    small encoder.
    """
    monkeypatch.setattr(importlib.import_module("kbq.tuning.finetune"), "WATCHED", 10)


@pytest.fixture
def write_json_lines(tmp_path: Path) -> Callable[..., Path]:
    """Writes records as JSON lines into a file of that name."""

    def write(name: str, *records: object) -> Path:
        path = tmp_path / name
        path.write_text(
            "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), "utf-8"
        )
        return path

    return write


@pytest.fixture
def examples_file(write_json_lines: Callable[..., Path]) -> Path:
    """Twelve passages with two queries each, in the plain format."""
    source = random.Random(5)
    lines = []
    for number in range(12):
        person, city, year = (
            _word(source).capitalize(),
            _word(source).capitalize(),
            str(source.randint(1000, 1999)),
        )
        text = f"{person} was born in {city} in {year}."
        questions = [
            {
                "id": f"{number}-{relation}",
                "question": f"{person} [SEP] {relation}",
                "answers": [{"text": answer, "answer_start": text.rindex(answer)}],
            }
            for relation, answer in (("place of birth", city), ("birth", year))
        ]
        lines.append(
            {"title": person, "context": text, "group": f"g{number % 3}", "questions": questions}
        )
    return write_json_lines("examples.jsonl", *lines)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Runs the command line in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return running(monkeypatch, capsys)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, which asks no host of its own."""
    program = next(filter(None, map(which, PROGRAMS)), None)
    if not program:
        pytest.skip("Chromium is not installed")
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="Chromium is driven by playwright: pip install playwright"
    )
    with playwright.sync_playwright() as started:
        chromium = Browser(started, program)
        yield chromium
        chromium.close()
