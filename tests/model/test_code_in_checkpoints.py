"""Code in checkpoints: whatever a folder brings and whatever is typed, none of its code runs and
nothing is asked.
"""

import ast
import io
import json
import pickle
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import kbq
from kbq.augmentation.augment import Generator
from kbq.corpus.pages import Page
from kbq.errors import ModelError
from kbq.kb import KnowledgeBase
from kbq.model.model import Model
from kbq.model.model_folder import ModelConfig, read_config, write_config
from kbq.reading.reader import Reader
from kbq.words.sparta import SpartaConfig, SpartaModel

PACKAGE = Path(kbq.__file__).parent
NEEDS_CODE = (
    "needs code of its own, and kbq runs none: use a checkpoint that transformers itself can read"
)
MORE_THAN_TENSORS = "are damaged, or hold more than tensors: use a checkpoint with safetensors"
CALLS = ("from_pretrained", "from_config")
CODE = """
from pathlib import Path
import transformers
Path({marker!r}).touch()
class Config(transformers.PretrainedConfig):
    model_type = "theirs"
class Network(transformers.BertModel):
    config_class = Config
class Tokenizer(transformers.PreTrainedTokenizerFast):
    pass
"""


class RunsWhenRead:
    """An object whose pickle makes a file when it is read."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return Path.touch, (self.marker,)


def add_code(folder: Path, marker: Path) -> None:
    """Put a module into a folder that makes a file when it is imported."""
    (folder / "code.py").write_text(CODE.format(marker=str(marker)))


def change(path: Path, **fields: object) -> None:
    written = json.loads(path.read_text("utf-8")) | fields
    path.write_text(json.dumps(written), "utf-8")


def own_classes(folder: Path, marker: Path) -> None:
    """A kind of network that only the folder's own code knows."""
    add_code(folder, marker)
    classes = {"AutoConfig": "code.Config"}
    classes |= dict.fromkeys(
        ("AutoModel", "AutoModelForQuestionAnswering", "AutoModelForSeq2SeqLM"), "code.Network"
    )
    change(folder / "config.json", model_type="theirs", auto_map=classes)


def own_tokenizer(folder: Path, marker: Path) -> None:
    """A tokenizer that only the folder's own code knows, of a kind of network that nobody knows."""
    add_code(folder, marker)
    change(folder / "config.json", model_type="theirs")
    classes = {"AutoTokenizer": [None, "code.Tokenizer"]}
    change(folder / "tokenizer_config.json", tokenizer_class="Theirs", auto_map=classes)


def own_part(folder: Path, marker: Path) -> None:
    """A decoder whose class, of all parts of the network, is the folder's own."""
    add_code(folder, marker)
    theirs: dict[str, object] = {"model_type": "clip_vision_model", "name_or_path": str(folder)}
    theirs |= {"auto_map": {"AutoModelForCausalLM": f"{folder}--code.Network"}}
    encoder = json.loads((folder / "config.json").read_text("utf-8"))
    parts = {
        "encoder": encoder,
        "decoder": theirs | {"is_decoder": True, "add_cross_attention": True},
    }
    whole = {"model_type": "encoder-decoder", "is_encoder_decoder": True, **parts}
    (folder / "config.json").write_text(json.dumps(whole), "utf-8")


PADDING = bytes(20_000)  # a file of weights has as many bytes as its network has numbers


def pickled(folder: Path, marker: Path) -> None:
    """Weights as a pickle that runs when it is read."""
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(
        pickle.dumps({"weights": RunsWhenRead(marker)}, protocol=2) + PADDING
    )


def zipped_pickle(folder: Path, marker: Path) -> None:
    """The same in the present format of torch."""
    (folder / "model.safetensors").unlink()
    torch.save(
        {"weights": RunsWhenRead(marker), "others": torch.zeros(len(PADDING))},
        folder / "pytorch_model.bin",
    )


Spoil = Callable[[Path, Path], None]


Run = Callable[..., tuple[object, str, str]]


@pytest.fixture(autouse=True)
def yes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is asked is answered with yes."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 99))


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    return tmp_path / "code has run"


def test_the_code_would_run(checkpoint: Path, tmp_path: Path, marker: Path) -> None:
    """Otherwise the other tests show nothing."""
    shutil.copytree(checkpoint, tmp_path / "theirs")
    own_classes(tmp_path / "theirs", marker)
    transformers.AutoConfig.from_pretrained(tmp_path / "theirs", trust_remote_code=True)
    assert marker.exists()
    marker.unlink()
    pickled(tmp_path / "theirs", marker)
    pickle.loads((tmp_path / "theirs" / "pytorch_model.bin").read_bytes())
    assert marker.exists()


def test_a_knowledge_base_that_names_such_a_model_is_refused(
    run: Run, model_folder: Path, pages: list[Page], tmp_path: Path, marker: Path
) -> None:
    theirs = tmp_path / "theirs"
    shutil.copytree(model_folder, theirs)
    KnowledgeBase.build(pages[:3], tmp_path / "kb", theirs, bm25=False)
    own_classes(theirs, marker)
    write_config(theirs, read_config(theirs))
    status, out, err = run("query", "the river", "--kb", tmp_path / "kb")
    assert not marker.exists()
    assert (status, out) == (1, "")
    assert err.startswith("error: ")
    assert err.endswith(f"{theirs} {NEEDS_CODE}\n")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("spoil", "sentence"), [(own_classes, NEEDS_CODE), (pickled, MORE_THAN_TENSORS)]
)
def test_such_a_reader_is_refused(
    spoil: Spoil,
    sentence: str,
    run: Run,
    qa_checkpoint: Path,
    kb_folder: Path,
    tmp_path: Path,
    marker: Path,
) -> None:
    theirs = tmp_path / "theirs"
    shutil.copytree(qa_checkpoint, theirs)
    spoil(theirs, marker)
    status, out, err = run("query", "the river", "--kb", kb_folder, "--reader", theirs)
    assert not marker.exists()
    assert (status, out) == (1, "")
    assert err.endswith(f"{theirs} {sentence}\n")
    assert err.count("\n") == 1


READERS: dict[str, Callable[[str], object]] = {
    "model": lambda folder: Model.open(folder, "cpu"),
    "new model": lambda folder: Model.new(folder, ModelConfig()),
    "reader": lambda folder: Reader.open(folder, "cpu"),
    "new reader": lambda folder: Reader.new(folder, "cpu"),
    "generator": Generator.open,
    "new sparta": lambda folder: SpartaModel.new(folder, SpartaConfig()),
}
NEW = {"new model", "new reader", "new sparta"}


@pytest.mark.parametrize(
    ("spoil", "sentence", "refused_for_it"),
    [
        (own_classes, NEEDS_CODE, NEW | {"reader", "generator"}),
        (own_tokenizer, NEEDS_CODE, {"new model"}),
        (own_part, NEEDS_CODE, {"generator"}),
        (pickled, MORE_THAN_TENSORS, NEW | {"reader"}),
        (zipped_pickle, MORE_THAN_TENSORS, NEW | {"reader"}),
    ],
)
def test_nothing_that_reads_a_checkpoint_runs_code(
    spoil: Spoil,
    sentence: str,
    refused_for_it: set[str],
    checkpoint: Path,
    tmp_path: Path,
    marker: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    theirs = tmp_path / "theirs"
    shutil.copytree(checkpoint, theirs)
    spoil(theirs, marker)
    told = {}
    for name, read in READERS.items():
        with pytest.raises(ModelError) as refused:
            read(str(theirs))
        told[name] = str(refused.value)
    assert not marker.exists()
    assert capsys.readouterr() == ("", "")  # nothing is asked
    assert {name for name, error in told.items() if error.endswith(sentence)} == refused_for_it


@pytest.mark.parametrize(
    "content", [b"PK\x03\x04", b"\x80\x02}q", b"\x80\x02c__builtin__\neval\n.", b"text"]
)
def test_a_damaged_checkpoint_of_torch_is_one_sentence(
    content: bytes, checkpoint: Path, tmp_path: Path
) -> None:
    shutil.copytree(checkpoint, tmp_path / "theirs")
    (tmp_path / "theirs" / "model.safetensors").unlink()
    (tmp_path / "theirs" / "pytorch_model.bin").write_bytes(content + PADDING)
    with pytest.raises(
        ModelError, match=f"{MORE_THAN_TENSORS}|is not a checkpoint that transformers can read: "
    ) as told:
        Model.new(str(tmp_path / "theirs"), ModelConfig())
    assert "\n" not in str(told.value)


def calls(path: Path) -> list[ast.Call]:
    found = (
        node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)
    )
    return [call for call in found if isinstance(call.func, ast.Attribute)]


def test_every_call_says_that_no_code_may_run() -> None:
    all_calls = [(file, call) for file in sorted(PACKAGE.rglob("*.py")) for call in calls(file)]
    for path, call in all_calls:
        assert isinstance(call.func, ast.Attribute)
        told = {word.arg: ast.unparse(word.value) for word in call.keywords}
        where = f"{path}:{call.lineno}"
        if call.func.attr in CALLS:
            assert told.get("trust_remote_code") == "False", where
        if call.func.attr == "from_pretrained" and "output_loading_info" in told:  # a network
            assert told.get("weights_only") == "True", where
        # A worker of page_encoder.py reads what its parent sends.
        if ast.unparse(call.func) == "torch.load" and path.name != "page_encoder.py":
            assert told.get("weights_only") == "True", where
        if path.name not in (
            "workers.py",
            "limited.py",
        ):  # for the same reason; limited.py also reads its own child
            assert ast.unparse(call.func) not in ("pickle.load", "pickle.loads"), where
        assert told.get("allow_pickle", "False") == "False", where
