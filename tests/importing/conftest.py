"""Fixtures: miniature artefacts in the formats of DensePhrases, made from their description, and
what must be found.

Encoders are run with transformers, vectors of an index reconstructed by faiss, and answers found by
brute force in float64: nothing here is computed by what is tested.
"""

import json
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

DIM, PIECES, TITLE, WINDOW, STEP = 16, 64, 10, 48, 30  # sizes of the miniature
WORDS = [
    "the", "river", "was", "born", "in", "of", "Paris", "Warsaw", "Marie", "Curie", "city", "place", "1867", ".", "-",
]  # fmt: skip
MARKS = [",", "?", '"', "'"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = "abcdefghiklmnoprstuvwyP"
QUERIES = [
    "Marie Curie [SEP] place of birth", "where was the river?", "Paris", "  the   city ,\tof Warsaw ?",
    "born in 1867", "Marie [SEP] city", 'the "Warsaw" - river', "who was born in the city of Paris " * 12,
]  # fmt: skip


@dataclass(frozen=True)
class Text:
    """A document as the official code keeps it. Shapes: starts, ends (tokens,), kept (rows,), rows
    (rows, DIM).
    """

    number: str
    title: str
    context: str
    starts: np.ndarray
    ends: np.ndarray
    kept: np.ndarray
    rows: np.ndarray
    logits: np.ndarray  # Shape: (tokens, 2)
    windows: list[int]


@dataclass(frozen=True)
class Official:
    """The artefacts in a folder, and query vectors by transformers. Shapes: starts, ends (queries,
    DIM).
    """

    folder: Path
    texts: list[Text]
    starts: np.ndarray
    ends: np.ndarray

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def dump(self) -> Path:
        return self.folder / "dump"

    def vectors(self) -> dict[str, np.ndarray]:
        """The vectors of each document, as its int8 rows say. Shape of each: (rows, DIM)."""
        return {text.number: text.rows / 20.0 - 2 for text in self.texts}

    def reconstructed(self, name: str) -> dict[str, dict[int, np.ndarray]]:
        """The vector of each row in an index, by document, as faiss reconstructs it."""
        faiss, h5py = pytest.importorskip("faiss"), pytest.importorskip("h5py")
        index = faiss.read_index(str(self.dump / name / "index.faiss"))
        found: dict[str, dict[int, np.ndarray]] = {}
        with h5py.File(self.dump / name / "idx2id.hdf5") as file:
            for group in file.values():
                for place, (document, row) in enumerate(
                    zip(group["doc"], group["word"], strict=True)
                ):
                    vector = index.reconstruct(int(group.attrs["offset"]) + place)
                    found.setdefault(str(document), {})[int(row)] = vector.astype(np.float64)
        return found

    def spans(self, vectors: Any, query: int) -> list[tuple[float, str, int, int]]:
        """All spans in one paragraph, best first: score, document, first and last character. Ties
        in order.
        """
        best: dict[tuple[str, int, int], float] = {}
        for text in self.texts:
            rows = vectors.get(text.number, {})
            numbers = range(len(rows)) if isinstance(rows, np.ndarray) else sorted(rows)
            for place, first in enumerate(numbers):
                for last in list(numbers)[place : place + 10]:
                    start, end = text.kept[first], text.kept[last]
                    begin, stop = int(text.starts[start]), int(text.ends[end])
                    if end - start > 10 or stop <= begin or " [PAR] " in text.context[begin:stop]:
                        continue
                    score = float(rows[first] @ self.starts[query] + rows[last] @ self.ends[query])
                    place_of = text.number, begin, stop
                    best[place_of] = max(score, best.get(place_of, -np.inf))
        return sorted(((score, *place) for place, score in best.items()), key=lambda span: -span[0])

    def answers(self, vectors: Any, query: int, k: int) -> list[tuple[float, str, int, int]]:
        """The k best spans of which none overlaps a better one."""
        taken: list[tuple[float, str, int, int]] = []
        for span in self.spans(vectors, query):
            if not any(
                span[1] == other[1] and span[2] < other[3] and other[2] < span[3] for other in taken
            ):
                taken.append(span)
            if len(taken) == k:
                break
        return taken


def blosc(data: bytes, typesize: int = 1) -> bytes:
    """A C-Blosc 1 chunk as the official code writes them: zlib, shuffled."""
    from numcodecs.blosc import compress

    items = np.frombuffer(data, f"i{typesize}" if len(data) % typesize == 0 else "i1")
    return bytes(compress(items, b"zlib", 5, 1))


def pieces_of(word: str, numbers: dict[str, int]) -> list[tuple[str, int, int]]:
    """The pieces of a word, longest first, with their characters; for instance "Paris,": Paris and
    a comma.
    """
    found, begin = [], 0
    while begin < len(word):
        for end in range(len(word), begin, -1):
            inner = "##" * (begin > 0 and word[begin - 1].isalnum() and word[begin].isalnum())
            if end == begin + 1 or (
                word[begin:end].isalnum() and inner + word[begin:end] in numbers
            ):
                found.append((inner + word[begin:end], begin, end))
                begin = end
                break
    return found


class Maker:
    """Makes the artefacts from a seed."""

    def __init__(self, folder: Path) -> None:
        import torch
        import transformers

        self.folder, self.random, self.torch = folder, np.random.default_rng(7), torch
        letters = [*LETTERS, *(f"##{letter}" for letter in LETTERS)]
        pieces = [*SPECIAL, *WORDS, *MARKS, "birth", *letters]
        self.numbers = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
        config = transformers.BertConfig(
            vocab_size=len(self.numbers), hidden_size=DIM, num_hidden_layers=2, num_attention_heads=4,
            intermediate_size=24, max_position_embeddings=96, initializer_range=0.6,
        )  # fmt: skip
        torch.manual_seed(7)
        self.encoders = [transformers.BertModel(config).eval() for _ in range(3)]
        for encoder in self.encoders[1:]:
            encoder.embeddings.word_embeddings = self.encoders[0].embeddings.word_embeddings
        self.filter = torch.nn.Linear(DIM, 2)
        self.config = config

    def encode(self, encoder: int, ids: list[int], kind: int) -> np.ndarray:
        """The last hidden states. Shape: (tokens, DIM)."""
        with self.torch.inference_mode():
            tokens = self.torch.tensor([ids])
            states = self.encoders[encoder](
                tokens, token_type_ids=self.torch.full_like(tokens, kind)
            )
        hidden: np.ndarray = states.last_hidden_state[0].numpy()
        return hidden

    def ids_of(self, text: str) -> list[int]:
        pieces = [
            piece
            for word in text.split()
            for piece in ([(word, 0, 0)] if word == "[SEP]" else pieces_of(word, self.numbers))
        ]
        return [self.numbers.get(piece, 1) for piece, _, _ in pieces]

    def checkpoint(self) -> None:
        folder = self.folder / "checkpoint"
        folder.mkdir(parents=True)
        names = "phrase_encoder", "query_start_encoder", "query_end_encoder"
        weights = {
            f"{name}.{key}": value.contiguous()
            for name, encoder in zip(names, self.encoders, strict=True)
            for key, value in encoder.state_dict().items()
        }
        weights |= {
            f"filter_linear.{key}": value for key, value in self.filter.state_dict().items()
        }
        self.torch.save(weights, folder / "pytorch_model.bin")
        written = {
            key: self.config.to_dict()[key]
            for key in ("hidden_size", "num_hidden_layers", "vocab_size")
        }
        written |= {
            "num_attention_heads": 4,
            "intermediate_size": 24,
            "hidden_act": "gelu",
            "model_type": "bert",
        }
        (folder / "config.json").write_text(json.dumps(written | {"architectures": ["Encoder"]}))
        (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in self.numbers))

    def word(self) -> str:
        """A word as texts have it: perhaps with an ending, a comma, or in quotes."""
        word = str(self.random.choice(WORDS)) + "s" * int(self.random.random() < 0.2)
        word += "," * int(self.random.random() < 0.2)
        return f'"{word}"' if self.random.random() < 0.1 else word

    def tokens(self, paragraph: str) -> list[tuple[int, int, int]]:
        """Id, first and last character of each piece; those of an inner piece are the ones of its
        whole word.
        """
        tokens, begin = [], 0
        for word in paragraph.split(" "):
            for piece, first, last in pieces_of(word, self.numbers):
                place = (0, len(word)) if piece.startswith("##") else (first, last)
                tokens.append((self.numbers.get(piece, 1), begin + place[0], begin + place[1]))
            begin += len(word) + 1
        return tokens

    def text(self, number: str, title: str, lengths: Sequence[int], threshold: float = 0.0) -> Text:
        """A document with paragraphs of so many words, in windows that overlap."""
        paragraphs = [" ".join(self.word() for _ in range(length)) for length in lengths]
        starts, ends, vectors, windows, begin = [], [], [], [], 0
        head = [2, *self.ids_of(title)[:TITLE], 3]
        for paragraph in paragraphs:
            tokens = self.tokens(paragraph)
            for first in range(0, len(tokens), STEP):
                window = tokens[first : first + WINDOW - len(head) - 1]
                states = self.encode(0, [*head, *(token for token, _, _ in window), 3], 1)
                vectors.append(states[len(head) : -1])
                starts += [begin + start for _, start, _ in window]
                ends += [begin + end for _, _, end in window]
                windows.append(len(window))
            begin += len(paragraph) + len(" [PAR] ")
        hidden = np.concatenate(vectors)
        with self.torch.inference_mode():
            logits = self.filter(self.torch.from_numpy(hidden)).numpy()
        kept = np.flatnonzero(logits.max(axis=1) > threshold)
        rows = np.rint(np.clip((hidden[kept] + 2) * 20, -128, 127)).astype(np.int8)
        places = np.array(starts, np.int32), np.array(ends, np.int32)
        return Text(number, title, " [PAR] ".join(paragraphs), *places, kept, rows, logits, windows)

    def dump(self, files: dict[str, list[Text]]) -> None:
        import h5py

        for kind in ("phrase", "filter"):
            (self.folder / "dump" / kind).mkdir(parents=True)
        metadata = {}
        for name, texts in files.items():
            with h5py.File(self.folder / "dump" / "phrase" / f"{name}.hdf5", "w") as file:
                for text in texts:
                    group = file.create_group(text.number)
                    group.attrs.update(
                        {"context": text.context, "title": text.title, "offset": -2, "scale": 20}
                    )
                    group["start"], group["f2o_start"] = text.rows, text.kept
                    group["word2char_start"], group["word2char_end"] = text.starts, text.ends
                    group["len_per_para"] = np.array(text.windows)
            with h5py.File(self.folder / "dump" / "filter" / f"{name}.hdf5", "w") as file:
                for text in texts:
                    file[f"{text.number}/filter_start"], file[f"{text.number}/filter_end"] = (
                        text.logits.T
                    )
            for text in sorted(texts, key=lambda text: text.number):
                arrays = {
                    "word2char_start": text.starts,
                    "word2char_end": text.ends,
                    "f2o_start": text.kept,
                }
                metadata[text.number] = {key: blosc(array.tobytes()) for key, array in arrays.items()} | {
                    "context": blosc(text.context.encode()), "title": text.title,
                    "dtypes": {key: array.dtype for key, array in arrays.items()},
                }  # fmt: skip
        (self.folder / "dump" / "meta_compressed.pkl").write_bytes(
            pickle.dumps(metadata, protocol=3)
        )

    def index(
        self, name: str, parts: Sequence[Sequence[Text]], above: float = -np.inf, lists: int = 4
    ) -> None:
        """An index of the rows with a filter logit above this, in parts with ids of their own."""
        import h5py

        faiss = pytest.importorskip("faiss")
        folder = self.folder / "dump" / name
        folder.mkdir(parents=True)
        vectors: list[np.ndarray] = []
        ids: list[np.ndarray] = []
        columns: list[tuple[int, np.ndarray, np.ndarray]] = []
        for number, texts in enumerate(parts):
            rows = [np.flatnonzero(text.logits[text.kept].max(axis=1) > above) for text in texts]
            vectors += [
                text.rows[some] / np.float32(20) - 2 for text, some in zip(texts, rows, strict=True)
            ]
            documents = np.concatenate(
                [
                    np.full(len(some), int(text.number), np.int32)
                    for text, some in zip(texts, rows, strict=True)
                ]
            )
            columns.append((number * 10**9, documents, np.concatenate(rows).astype(np.int32)))
            ids.append(number * 10**9 + np.arange(len(documents)))
        x, numbers = np.concatenate(vectors).astype(np.float32), np.concatenate(ids)
        rotation = faiss.OPQMatrix(DIM, 4)
        rotation.niter, rotation.pq = 2, faiss.ProductQuantizer(DIM, 4, 8)
        rotation.pq.cp.min_points_per_centroid = 1
        means = faiss.IndexFlatIP(DIM)
        inner = faiss.IndexIVFPQ(means, DIM, lists, 4, 8, faiss.METRIC_INNER_PRODUCT)
        inner.pq.cp.min_points_per_centroid, inner.cp.min_points_per_centroid = 1, 1
        index = faiss.IndexPreTransform(rotation, inner)
        index.train(x)
        inner.set_direct_map_type(faiss.DirectMap.Hashtable)
        rotated = rotation.apply(x)
        inner.add_with_ids(rotated, numbers)
        index.ntotal = inner.ntotal
        faiss.write_index(index, str(folder / "index.faiss"))
        with h5py.File(folder / "idx2id.hdf5", "w") as file:
            for offset, numbers_of_documents, words in columns:
                group = file.create_group(str(offset))
                group.attrs["offset"] = offset
                group["doc"], group["word"] = numbers_of_documents, words


@pytest.fixture(scope="session")
def official(tmp_path_factory: pytest.TempPathFactory) -> Official:
    """A checkpoint, a dump of two files with its metadata, and three indexes: whole, filtered, in
    two parts.
    """
    pytest.importorskip("h5py")
    pytest.importorskip("faiss")
    maker = Maker(tmp_path_factory.mktemp("official"))
    maker.checkpoint()
    first = [
        maker.text("0", "Marie Curie", [60, 30]),
        maker.text("10", "Paris", [20, 90, 7]),
        maker.text("2", "the city of the river was born in Paris , Warsaw", [70]),
    ]
    second = [maker.text("1000", "Warsaw", [150, 5]), maker.text("1001", "river", [40, 40, 40])]
    maker.dump({"0-1": first, "1-2": second})
    maker.index("start/4_flat_OPQ4", [[*first, *second]])
    maker.index("start/4_flat_OPQ4_ft0", [[*first, *second]], above=0.4)
    maker.index("start/3_flat_OPQ4_parts", [second, first], lists=3)
    sides = [
        np.stack([maker.encode(side, [2, *maker.ids_of(query)[:62], 3], 0)[0] for query in QUERIES])
        for side in (1, 2)
    ]
    return Official(maker.folder, [*first, *second], *sides)


@pytest.fixture
def copied(official: Official, tmp_path: Path) -> Official:
    """The same artefacts in a folder of their own, to be damaged."""
    import shutil

    shutil.copytree(official.folder, tmp_path / "copied")
    return Official(tmp_path / "copied", official.texts, official.starts, official.ends)


@pytest.fixture(scope="session")
def queries() -> list[str]:
    """What is asked."""
    return QUERIES


@pytest.fixture(scope="session")
def chunk() -> Callable[..., bytes]:
    """Makes a C-Blosc chunk."""
    return blosc


@pytest.fixture(scope="session")
def placed(official: Official) -> Callable[..., list[tuple[float, str, int, int]]]:
    """Answers as brute force gives them: score, document, first and last character of the document."""
    contexts = {text.number: text.context for text in official.texts}

    def place(answers: Any) -> list[tuple[float, str, int, int]]:
        found = []
        for answer in answers:
            before = contexts[answer.page_id].split(" [PAR] ")[: answer.paragraph]
            begin = sum(len(text) + len(" [PAR] ") for text in before)
            assert (
                contexts[answer.page_id][begin + answer.start : begin + answer.end] == answer.text
            )
            found.append((answer.score, answer.page_id, begin + answer.start, begin + answer.end))
        return found

    return place


@pytest.fixture
def same() -> Callable[..., None]:
    """Checks that answers are those of brute force, with the same scores."""

    def check(
        found: list[tuple[float, str, int, int]], expected: list[tuple[float, str, int, int]]
    ) -> None:
        assert [answer[1:] for answer in found] == [answer[1:] for answer in expected]
        assert [answer[0] for answer in found] == pytest.approx(
            [answer[0] for answer in expected], abs=1e-4
        )

    return check
