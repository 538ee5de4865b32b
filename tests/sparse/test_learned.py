"""Learned impacts in a knowledge base: a paragraph scores like its best sentence."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kbq.encoding.windows import WindowShape
from kbq.indexing.dump import Counts, EncodedParagraph, Progress, Shard, ShardWriter
from kbq.indexing.manifest import Manifest
from kbq.records import Document
from kbq.sparse.learned import PieceReader, SentenceImpacts, add_sparta
from kbq.sparse.sentences import sentence_windows
from kbq.sparse.sparta_model import SpartaConfig, SpartaModel, strongest_impacts


@pytest.fixture
def sparta(checkpoint: Path) -> SpartaModel:
    made = SpartaModel.new(str(checkpoint), SpartaConfig(WindowShape(length=32, overlap=0)))
    made.network.bias.data.fill_(-3.0)
    made.network.eval()
    return made


def test_a_paragraph_scores_like_its_best_sentence(
    sparta: SpartaModel, encoded: Callable[..., EncodedParagraph], tmp_path: Path
) -> None:
    texts = ["The city. A river of Paris.", "", "Marie was born in Warsaw. Curie. The the."]
    writer = ShardWriter(tmp_path / "shard-00000", 2, Progress())
    for number, text in enumerate(texts):
        writer.append(Document(str(number), "birth", ()), [replace(encoded([[1, 1]]), text=text)])
    writer.close()
    shard = Shard(tmp_path / "shard-00000")
    add_sparta(tmp_path, Manifest("m", "f", 2, 0.0, (Counts(),)), sparta, k=40)
    index, terms = SentenceImpacts(shard), PieceReader(tmp_path).terms("the river [SEP] the birth")
    assert terms == ["the", "river", "the", "birth"]
    (title,) = sparta.tokenizer(["birth"], add_special_tokens=False)["input_ids"]
    expected = []
    for text in texts:
        windows = sentence_windows(sparta.tokenizer, title, text, sparta.config.window)
        sums = [0.0]
        for _, found, weights in strongest_impacts(sparta, windows, 40):
            pieces = sparta.tokenizer.convert_ids_to_tokens(found.tolist())
            looked_up = dict(zip(pieces, weights.tolist(), strict=True))
            sums.append(sum(looked_up.get(term, 0.0) for term in terms))
        expected.append(max(sums))
    assert index.scores(terms) == pytest.approx(np.array(expected), abs=0.05)  # 16-bit, batched differently
    assert expected[1] == 0 < expected[0] != expected[2]
