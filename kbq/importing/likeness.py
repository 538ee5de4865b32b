"""Likeness: a paragraph of what was imported is encoded again, which tells whether vectors, texts and model fit."""

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from kbq.corpus.pages import Page
from kbq.dump.page_encoder import encode_pages
from kbq.dump.shards import Shard
from kbq.model.model import Model
from kbq.storage.progress import Note

LONGEST, FEWEST, TRIED = 200, 4, 100  # tokens and rows of a paragraph, and paragraphs that are tried
ALIKE = 0.7  # correlation, less the mean of all tokens: of the vectors 1.0, of their codes above 0.9, of others about 0


def warn_unlike(shards: Sequence[Shard], model: Model, note: Note) -> None:
    """Say so if the first paragraph that can be compared has other vectors than the model gives it."""
    for shard, paragraph in islice(_short_paragraphs(shards), TRIED):
        place = f"paragraph {shard.paragraph_numbers[paragraph]} of document {shard.answer(paragraph, 0.0).page_id}"
        page = Page("", shard.title_of(paragraph), shard.texts[paragraph])
        (((encoded,)),) = encode_pages(model, [page])
        if encoded.tokens != shard.paragraph_tokens[paragraph]:
            continue  # it was cut into several windows
        rows = shard.rows_of(paragraph)
        pair = shard.vectors_of(rows), encoded.vectors[shard.positions[rows]]
        likeness = float(np.corrcoef(*((side - side.mean(axis=0)).ravel() for side in pair))[0, 1])
        if likeness < ALIKE:
            found = f"other vectors than the model gives it (their correlation is {likeness:.2f})"
            note(f"{place} has {found}: is this the checkpoint that it was made with, and are all files of one dump?")
        return


def _short_paragraphs(shards: Sequence[Shard]) -> Iterator[tuple[Shard, int]]:
    """Paragraphs with some rows that are probably in one window, whatever its length was."""
    for shard in shards:
        short = (shard.paragraph_sizes() >= FEWEST) & (shard.paragraph_tokens <= LONGEST)
        yield from ((shard, int(paragraph)) for paragraph in np.flatnonzero(short))
