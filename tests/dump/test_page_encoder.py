"""Page encoder: what a GPU sends back is chosen by the host, and is what a CPU chooses first."""

import numpy as np
import pytest

from kbq.corpus.pages import Page, Paragraph
from kbq.dump.page_encoder import PageEncoder, _ahead
from kbq.dump.shard_writer import EncodedParagraphs
from kbq.model.model import Model

BLOCK = [
    Page(
        "1",
        "Paris",
        (Paragraph(0, "Paris is a city."), Paragraph(1, ""), Paragraph(2, "the river " * 200)),
    ),
    Page("2", "", ()),
    Page("3", "Marie Curie", (Paragraph(4, "Marie Curie was born in Warsaw.", begin=6),)),
]


def assert_same(one: EncodedParagraphs, other: EncodedParagraphs) -> None:
    for name in EncodedParagraphs._fields:
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


@pytest.mark.parametrize("block", [BLOCK, BLOCK[1:2], []])
def test_the_host_chooses_what_a_cpu_chooses_first(block: list[Page], model: Model) -> None:
    encoder = PageEncoder(model)
    expected = encoder(block)
    encoder._chooses_first = False
    found = encoder(block)
    assert len(found.sizes) == len(found.tokens) == sum(len(page.paragraphs) for page in block)
    assert_same(found, expected)


@pytest.mark.parametrize("ahead", [0, 1, 9])
def test_blocks_that_are_asked_for_ahead_come_in_order(ahead: int, model: Model) -> None:
    encoder, blocks = PageEncoder(model), [BLOCK[:1], BLOCK[2:], BLOCK]
    found = [(block, finish()) for block, finish in _ahead(blocks, encoder.start, ahead)]
    assert [block for block, _ in found] == blocks
    for block, encoded in found:
        assert_same(encoded, encoder(block))
