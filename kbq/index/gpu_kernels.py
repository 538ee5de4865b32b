"""Kernels: find the best openings of each piece for a batch of queries in one pass over the rows.

They are written in Triton, which comes with PyTorch's builds for CUDA. Products are exact sums of
whole numbers, see `inner_products.py`, and stay in registers: those of 64 queries would take 1,024
bytes of memory per row, and a row takes 384.
"""

# ruff: noqa: N803
import triton
import triton.language as tl

LIMB = tl.constexpr(128)
# The edges of a row; see `dump/shards.py`.
OPENS = tl.constexpr(1)
CLOSES = tl.constexpr(2)
BOTH = tl.constexpr(3)


@triton.jit
def best_of_pieces(
    rows: tl.tensor,
    edges: tl.tensor,
    limbs: tl.tensor,
    units: tl.tensor,
    paragraphs: tl.tensor,
    bonus: tl.tensor,
    starts: tl.tensor,
    ends: tl.tensor,
    alone: tl.tensor,
    queries: tl.tensor,
    blocks: tl.tensor,
    dim: tl.constexpr,
    PIECE: tl.constexpr,
    BLOCK: tl.constexpr,
    QUERIES: tl.constexpr,
    STEP: tl.constexpr,
    HAS_BONUS: tl.constexpr,
) -> None:
    """Write the best start and end of each piece and, of each block, the best row that is a phrase
    by itself.

    Shapes: rows (blocks × BLOCK, dim), edges and paragraphs (blocks × BLOCK,); limbs (2 × 2 ×
    QUERIES, dim), those of the start vectors first, the high and the low one of each side by side;
    units (queries,), bonus (paragraphs, queries); written are starts and ends (pieces, queries),
    alone (queries, blocks), all float32.
    """
    block = tl.program_id(0)
    row = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    column = tl.arange(0, 2 * QUERIES)
    opening = tl.zeros((BLOCK, 2 * QUERIES), tl.int32)
    closing = tl.zeros((BLOCK, 2 * QUERIES), tl.int32)

    for first in range(0, dim, STEP):
        place = first + tl.arange(0, STEP)
        if dim % STEP == 0:
            tile = tl.load(rows + row[:, None] * dim + place[None, :])
            start = tl.load(limbs + column[None, :] * dim + place[:, None])
            end = tl.load(limbs + (2 * QUERIES + column[None, :]) * dim + place[:, None])
        else:
            within = place < dim
            tile = tl.load(
                rows + row[:, None] * dim + place[None, :], mask=within[None, :], other=0
            )
            start = tl.load(
                limbs + column[None, :] * dim + place[:, None], mask=within[:, None], other=0
            )
            end = tl.load(
                limbs + (2 * QUERIES + column[None, :]) * dim + place[:, None],
                mask=within[:, None],
                other=0,
            )

        opening = tl.dot(tile, start, opening, out_dtype=tl.int32)
        closing = tl.dot(tile, end, closing, out_dtype=tl.int32)

    high, low = tl.split(tl.reshape(opening, (BLOCK, QUERIES, 2)))
    query = tl.arange(0, QUERIES)
    asked = query < queries
    unit = tl.load(units + query, mask=asked, other=0.0)
    opens = (high * LIMB + low).to(tl.float32) * unit[None, :]
    high, low = tl.split(tl.reshape(closing, (BLOCK, QUERIES, 2)))
    closes = (high * LIMB + low).to(tl.float32) * unit[None, :]
    if HAS_BONUS:
        paragraph = tl.load(paragraphs + row).to(tl.int64)
        opens += tl.load(
            bonus + paragraph[:, None] * queries + query[None, :], mask=asked[None, :], other=0.0
        )

    edge = tl.load(edges + row).to(tl.int32)
    lowers = tl.where((edge == BOTH)[:, None], opens + closes, float("-inf"))
    tl.store(alone + query * blocks + block, tl.max(lowers, axis=0), mask=asked)
    opens = tl.where((edge & OPENS != 0)[:, None], opens, float("-inf"))
    closes = tl.where((edge & CLOSES != 0)[:, None], closes, float("-inf"))
    piece = block.to(tl.int64) * (BLOCK // PIECE) + tl.arange(0, BLOCK // PIECE)
    place = piece[:, None] * queries + query[None, :]
    tl.store(
        starts + place,
        tl.max(tl.reshape(opens, (BLOCK // PIECE, PIECE, QUERIES)), axis=1),
        mask=asked[None, :],
    )
    tl.store(
        ends + place,
        tl.max(tl.reshape(closes, (BLOCK // PIECE, PIECE, QUERIES)), axis=1),
        mask=asked[None, :],
    )


@triton.jit
def score_pieces(
    rows: tl.tensor,
    edges: tl.tensor,
    limbs: tl.tensor,
    units: tl.tensor,
    paragraphs: tl.tensor,
    bonus: tl.tensor,
    pieces: tl.tensor,
    asked: tl.tensor,
    starts: tl.tensor,
    ends: tl.tensor,
    queries: tl.tensor,
    dim: tl.constexpr,
    PIECE: tl.constexpr,
    QUERIES: tl.constexpr,
    STEP: tl.constexpr,
    HAS_BONUS: tl.constexpr,
) -> None:
    """Write the scores of all rows of some pieces and of the pieces behind them, each for its own
    query.

    Shapes: pieces and asked (pairs,), int64; written are starts and ends (pairs, 2 × PIECE), -inf
    where no phrase may open or close; others as in `best_of_pieces`.
    """
    pair = tl.program_id(0).to(tl.int64)
    query = tl.load(asked + pair)
    row = tl.load(pieces + pair) * PIECE + tl.arange(0, 2 * PIECE)
    opening = tl.zeros((2 * PIECE,), tl.int32)
    closing = tl.zeros((2 * PIECE,), tl.int32)

    for first in range(0, dim, STEP):
        place = first + tl.arange(0, STEP)
        within = place < dim
        tile = tl.load(
            rows + row[:, None] * dim + place[None, :], mask=within[None, :], other=0
        ).to(tl.int32)
        limb = limbs + 2 * query * dim + place  # the low one is in the next row
        high = tl.load(limb, mask=within, other=0)
        low = tl.load(limb + dim, mask=within, other=0)
        opening += tl.sum(tile * (high.to(tl.int32) * LIMB + low.to(tl.int32))[None, :], axis=1)
        limb += 2 * QUERIES * dim
        high = tl.load(limb, mask=within, other=0)
        low = tl.load(limb + dim, mask=within, other=0)
        closing += tl.sum(tile * (high.to(tl.int32) * LIMB + low.to(tl.int32))[None, :], axis=1)

    unit = tl.load(units + query)
    opens = opening.to(tl.float32) * unit
    closes = closing.to(tl.float32) * unit
    if HAS_BONUS:
        opens += tl.load(bonus + tl.load(paragraphs + row).to(tl.int64) * queries + query)
    edge = tl.load(edges + row).to(tl.int32)
    place = pair * 2 * PIECE + tl.arange(0, 2 * PIECE)
    tl.store(starts + place, tl.where(edge & OPENS != 0, opens, float("-inf")))
    tl.store(ends + place, tl.where(edge & CLOSES != 0, closes, float("-inf")))


@triton.jit
def score_nibbles(
    codes: tl.tensor,
    numbers: tl.tensor,
    firsts: tl.tensor,
    counts: tl.tensor,
    places: tl.tensor,
    tables_of: tl.tensor,
    tables: tl.tensor,
    levels: tl.tensor,
    steps: tl.tensor,
    offsets: tl.tensor,
    scores: tl.tensor,
    VALUES: tl.constexpr,
    BLOCKS: tl.constexpr,
    STEP: tl.constexpr,
) -> None:
    """Score the rows of a probed cell by their four-bit codes: add up whole numbers that a table
    has for each code.

    faiss packs 32 rows in a block: byte j of value v, of 16, has row j // 2 + j % 2 × 8 in its low
    half, row + 16
    in its high half.
    Shapes: codes (blocks, VALUES, 16); numbers (blocks, 32), -1 where there is no row; firsts,
    counts (of blocks), places (in scores), tables_of and levels (probes,); tables (tables, VALUES,
    16); steps and offsets (tables,).
    """
    probe = tl.program_id(0)
    first = tl.load(firsts + probe)
    count = tl.load(counts + probe)
    table = tl.load(tables_of + probe)
    level = tl.load(levels + probe)
    step = tl.load(steps + table)
    offset = tl.load(offsets + table)
    written = scores + tl.load(places + probe)
    block = tl.arange(0, BLOCKS)
    byte = tl.arange(0, 16)
    some = tl.arange(0, STEP)
    below = byte // 2 + byte % 2 * 8

    for done in range(0, count, BLOCKS):
        here = done + block
        exists = (here < count)[:, None]
        packed = codes + (first + here)[:, None, None] * (VALUES * 16) + byte[None, None, :]
        low = tl.zeros((BLOCKS, 16), tl.int32) + level
        high = tl.zeros((BLOCKS, 16), tl.int32) + level
        for begin in range(0, VALUES, STEP):
            value = (begin + some)[None, :, None]
            within = exists[:, :, None] & (value < VALUES)
            code = tl.load(packed + value * 16, mask=within, other=0).to(tl.int32)
            entries = tables + (table * VALUES + value) * 16
            low += tl.sum(tl.load(entries + (code & 15), mask=within, other=0).to(tl.int32), axis=1)
            high += tl.sum(
                tl.load(entries + (code >> 4), mask=within, other=0).to(tl.int32), axis=1
            )

        row = here[:, None] * 32 + below[None, :]
        # faiss never returns a sum of 0, which is what its heaps begin with.
        named = tl.load(numbers + first * 32 + row, mask=exists, other=-1) >= 0
        score = tl.where(named & (low > 0), low.to(tl.float32) * step + offset, float("-inf"))
        tl.store(written + row, score, mask=exists)
        named = tl.load(numbers + first * 32 + row + 16, mask=exists, other=-1) >= 0
        score = tl.where(named & (high > 0), high.to(tl.float32) * step + offset, float("-inf"))
        tl.store(written + row + 16, score, mask=exists)


@triton.jit
def score_bytes(
    codes: tl.tensor,
    numbers: tl.tensor,
    firsts: tl.tensor,
    counts: tl.tensor,
    places: tl.tensor,
    tables_of: tl.tensor,
    tables: tl.tensor,
    nearness: tl.tensor,
    scores: tl.tensor,
    VALUES: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    """Score the rows of a probed cell by codes of a byte for each value: add up the table's
    numbers, which are float32.

    Shapes: codes (rows, VALUES), numbers (rows,), tables (tables, VALUES, 256), nearness of query
    and cell (probes,); others as in `score_nibbles`, of rows instead of blocks.
    """
    probe = tl.program_id(0)
    first = tl.load(firsts + probe)
    count = tl.load(counts + probe)
    table = tl.load(tables_of + probe)
    near = tl.load(nearness + probe)
    written = scores + tl.load(places + probe)
    row = tl.arange(0, ROWS)

    for done in range(0, count, ROWS):
        here = done + row
        exists = here < count
        score = tl.zeros((ROWS,), tl.float32) + near
        for value in range(VALUES):
            code = tl.load(codes + (first + here) * VALUES + value, mask=exists, other=0).to(
                tl.int32
            )
            score += tl.load(tables + (table * VALUES + value) * 256 + code)
        named = tl.load(numbers + first + here, mask=exists, other=-1) >= 0
        tl.store(written + here, tl.where(named, score, float("-inf")), mask=exists)
