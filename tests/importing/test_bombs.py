"""Bombs: what few bytes would need much time or memory for is refused in one sentence, before it
does.
"""

import io
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kbq.errors import CorpusError, KnowledgeBaseError, ModelError
from kbq.importing.checkpoint import import_checkpoint
from kbq.importing.codes import Codes
from kbq.importing.dump import import_dump
from kbq.importing.index import import_index
from kbq.importing.metadata import UnsafePickleError, decompressed, pickled_items
from kbq.model import model_folder as pickled_weights
from kbq.model.model_folder import refuse_bombs

NAME = "start/4_flat_OPQ4"


def nested(levels: int, last: bytes) -> bytes:
    """A pickle in which a tuple holds the tuple before it twice."""
    level = b"h\x00h\x00\x86q\x00"
    return b"\x80\x02)q\x00" + level * levels + last


TUPLE_AS_KEY = b"\x80\x02}(" + nested(40, b"")[2:] + b"K\x01u."


def test_keys_are_texts() -> None:
    assert len(TUPLE_AS_KEY) < 400
    for content in (TUPLE_AS_KEY, pickle.dumps({"1": {("a",): 1}}, 3)):
        with pytest.raises(UnsafePickleError, match="the pickle has a key that is not a text"):
            list(pickled_items(io.BytesIO(content)))


def test_no_chunk_is_unpacked_beyond_what_a_document_has() -> None:
    from numcodecs.blosc import compress

    with pytest.raises(ValueError, match="holds 134,217,728"):
        decompressed(bytes(compress(bytes(2**27), b"zlib", 1, 1)))


def archive(pickled: bytes, compression: int = zipfile.ZIP_STORED, more: bytes = b"") -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", compression) as file:
        for name, content in (("data.pkl", pickled), ("version", b"3\n"), ("data/0", more)):
            file.writestr(f"archive/{name}", content)
    return written.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        archive(TUPLE_AS_KEY),
        TUPLE_AS_KEY,
        pickle.dumps(0x1950A86A20F9469CFC6C, 2)
        + pickle.dumps(1001, 2)
        + pickle.dumps({}, 2)
        + TUPLE_AS_KEY,
        archive(pickle.dumps({}, 2), zipfile.ZIP_DEFLATED, bytes(2**20)),
    ],
    ids=["in an archive", "alone", "as before 1.6", "compressed"],
)
def test_checkpoints_are_tried_before_they_are_loaded(
    content: bytes, copied: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pickled_weights, "SECONDS", 3)
    path = copied.checkpoint / "pytorch_model.bin"
    path.write_bytes(content)
    with pytest.raises(
        ModelError,
        match=r"pytorch_model.bin is damaged \((it takes more than 3 |its parts are).*: download it again",
    ):
        import_checkpoint(copied.checkpoint, tmp_path / "model")


@pytest.mark.parametrize("as_archive", [True, False])
def test_real_checkpoints_are_none(as_archive: bool, tmp_path: Path) -> None:
    network = torch.nn.TransformerEncoderLayer(8, 2, 16)
    state = {
        "network": network.state_dict(),
        "optimiser": torch.optim.AdamW(network.parameters()).state_dict(),
    }
    torch.save(state, tmp_path / "w.bin", _use_new_zipfile_serialization=as_archive)
    refuse_bombs(tmp_path / "w.bin")


def sparse(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_sparse()


STRANGE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "meta": lambda tensor: tensor.to("meta"),
    "sparse": sparse,
    "quantised": lambda tensor: torch.quantize_per_tensor(tensor, 0.1, 0, torch.qint8),
    "complex": lambda tensor: tensor.to(torch.complex64),
    "expanded": lambda tensor: tensor[:1, :1].expand(2**20, 2**20),
}


@pytest.mark.filterwarnings("ignore")  # PyTorch warns of some of these kinds
@pytest.mark.parametrize("kind", STRANGE)
def test_weights_that_are_no_plain_tensors(kind: str, copied: Any, tmp_path: Path) -> None:
    path = copied.checkpoint / "pytorch_model.bin"
    weights = torch.load(path, weights_only=True)
    weights["filter_linear.weight"] = STRANGE[kind](weights["filter_linear.weight"])
    torch.save(weights, path)
    with pytest.raises(
        ModelError,
        match=r"pytorch_model.bin is damaged \(|filter_linear.weight in .* has the shape",
    ):
        import_checkpoint(copied.checkpoint, tmp_path / "model")


@pytest.mark.parametrize(
    "content",
    [
        b'{"a": ' * 2000 + b"1" + b"}" * 2000,
        b'{"num_attention_heads": 1' + b"0" * 5000 + b"}",
        b"[" * 100_000,
    ],
    ids=["deep", "a long number", "brackets"],
)
def test_configurations(content: bytes, copied: Any, tmp_path: Path) -> None:
    (copied.checkpoint / "config.json").write_bytes(content)
    with pytest.raises(ModelError, match=r"config\.json"):
        import_checkpoint(copied.checkpoint, tmp_path / "model")


def elsewhere(file: Any, folder: Path) -> None:
    import h5py

    os.mkfifo(folder / "pipe.hdf5")
    del file["0"]
    file["0"] = h5py.ExternalLink(str(folder / "pipe.hdf5"), "/0")


def enormous(file: Any, folder: Path) -> None:
    del file["0/f2o_start"]
    file["0"].create_dataset("f2o_start", (2**31,), np.int32, chunks=(2**20,))


def in_large_pieces(file: Any, folder: Path) -> None:
    del file["0/f2o_start"]
    file["0"].create_dataset(
        "f2o_start", (8,), np.int32, maxshape=(None,), chunks=(2**29,), compression="gzip"
    )


def many_digits(file: Any, folder: Path) -> None:
    file["1" * 5000] = file["0"]


@pytest.mark.parametrize("change", [elsewhere, enormous, in_large_pieces, many_digits])
def test_dumps(change: Callable[[Any, Path], None], copied: Any, tmp_path: Path) -> None:
    import h5py

    with h5py.File(copied.dump / "phrase" / "0-1.hdf5", "r+") as file:
        change(file, copied.dump)
    with pytest.raises(
        CorpusError,
        match=r"0-1.hdf5 is damaged \(('0' is not a group in this file|the gr)|"
        r"0-1.hdf5/0/f2o_start has (8,589,934,592|2,147,483,648) bytes, 268,435,456 at most are read|is a device or",
    ):
        import_dump(copied.dump, tmp_path / "kb", copied.checkpoint, device="cpu")


def test_a_pipe_in_the_place_of_a_dump(copied: Any, tmp_path: Path) -> None:
    path = copied.dump / "phrase" / "0-1.hdf5"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(CorpusError, match="is a device or a pipe, and a dump has none"):
        import_dump(copied.dump, tmp_path / "kb", copied.checkpoint, device="cpu")


def ids_elsewhere(file: Any) -> None:
    import h5py

    del file["0"]
    file["0"] = h5py.ExternalLink("/dev/stdin", "/0")


def ids_enormous(file: Any) -> None:
    for name in ("doc", "word"):
        del file[f"0/{name}"]
        file["0"].create_dataset(name, (2**31,), np.int32, chunks=(2**20,))


@pytest.mark.parametrize("change", [ids_elsewhere, ids_enormous, lambda file: file.clear()])
def test_ids(change: Callable[[Any], None], copied: Any, tmp_path: Path) -> None:
    import h5py

    with h5py.File(copied.dump / NAME / "idx2id.hdf5", "r+") as file:
        change(file)
    with pytest.raises(CorpusError, match=r"idx2id.hdf5 (is damaged|names 2,147,483,648 vectors)"):
        import_index(copied.dump, tmp_path / "kb", copied.checkpoint, NAME, device="cpu")


def test_sizes_of_lists_do_not_wrap(copied: Any, tmp_path: Path) -> None:
    path = copied.dump / NAME / "index.faiss"
    content = path.read_bytes()
    begin = content.index(b"ilar") + 4 + 16 + 4 + 8  # then come the sizes of four lists
    sizes = np.frombuffer(content[begin : begin + 32], np.int64)
    total = int(sizes.sum())
    for wrapping in ([2**62, 2**62, 2**62, 2**62 + total], [2**63 - 1, 2**63 - 1, 2, total]):
        path.write_bytes(content[:begin] + struct.pack("<4q", *wrapping) + content[begin + 32 :])
        with pytest.raises(CorpusError, match=r"index.faiss is damaged \(its lists hold"):
            import_index(copied.dump, tmp_path / "kb", copied.checkpoint, NAME, device="cpu")


def test_lists_of_an_official_index_lie_within_its_file(copied: Any, tmp_path: Path) -> None:
    folder = (
        import_index(copied.dump, tmp_path / "kb", copied.checkpoint, NAME, device="cpu").folder
        / "official"
    )
    lists = np.load(folder / "lists.npy")
    for changed in (
        np.repeat(lists, 1000, axis=0),
        lists + 2**40,
        lists * 2**20,
        -lists - 1,
        lists.ravel(),
    ):
        np.save(folder / "lists.npy", changed)
        with pytest.raises(
            KnowledgeBaseError,
            match=r"official is damaged \((its files do not|a list is not within|lists)",
        ):
            Codes(folder)
