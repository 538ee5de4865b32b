"""Inner products: integers are exact, and the bounds on rounding hold in float64."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from paragraphs import EncodedParagraph

from kbq.dump.shards import Shard
from kbq.index import inner_products
from kbq.index.inner_products import (
    Factors,
    float32_products,
    in_tiles,
    integer_products,
    rounded_for_exact_sums,
    tiled_products,
)

CPU = torch.device("cpu")


@pytest.fixture(params=[True, False], ids=["integers", "floats"])
def in_integers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(inner_products, "has_fast_int8", lambda device: bool(request.param))
    return bool(request.param)


def worst(rows: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> float:
    """By how much a sum of two products is off, as a share of the error that is allowed for."""
    factors = Factors.of(starts, ends, CPU)
    of_starts, of_ends = (
        factors.inner_products(torch.from_numpy(rows))
        .double()
        .numpy()
        .T.reshape(2, len(starts), -1)
    )
    found = (of_starts[:, :, None] + of_ends[:, None]) * factors.units.double().numpy()[
        :, None, None
    ]
    true_starts, true_ends = (
        side.astype(np.float64) @ rows.T.astype(np.float64) for side in (starts, ends)
    )
    off = np.abs(found - true_starts[:, :, None] - true_ends[:, None])
    return float((off / factors.errors.double().numpy()[:, None, None]).max())


@pytest.mark.usefixtures("in_integers")
@pytest.mark.parametrize("size", [1e-20, 1e-3, 1.0, 1e3, 1e20])
@pytest.mark.parametrize("dim", [2, 16, 384, 1024])
def test_the_error_covers_what_is_rounded(dim: int, size: float) -> None:
    source = np.random.default_rng(dim)
    rows = source.integers(-127, 128, (40, dim)).astype(np.int8)
    rows[0], rows[1] = 127, -127
    starts, ends = (source.normal(size=(2, 5, dim)) * size).astype(np.float32)
    assert worst(rows, starts, ends) <= 1
    assert worst(rows, np.abs(starts), np.abs(ends)) <= 1
    assert (
        worst(rows, np.full((1, dim), size, np.float32), np.full((1, dim), -size, np.float32)) <= 1
    )


@pytest.mark.usefixtures("in_integers")
@pytest.mark.parametrize(
    "values", [[3.0, 1.0], [-3.0, 1.0], [3.0, -3.0], [0.0, 0.0], [1e-20, 1e20]]
)
def test_the_largest_value_of_a_query_is_kept(values: list[float]) -> None:
    rows = np.array([[127, 127], [-127, 127], [100, -127]], np.int8)
    query = np.array([values], np.float32)
    assert worst(rows, query, query) <= 1
    assert float(Factors.of(query, query, CPU).errors[0]) <= 1e-3 * max(
        127 * np.abs(query).max(), 1e-20
    )


@pytest.mark.usefixtures("in_integers")
def test_the_error_covers_scores_that_cancel_out() -> None:
    query = np.array([[1000.1, -1000, 33.3, -33.3, 777.7, -777.7, 0.1, -0.1]], np.float32)
    assert worst(np.array([[127] * 8, [126] * 8], np.int8), query, query) <= 1


@pytest.mark.parametrize("tiles", [True, False])
def test_integer_products(tiles: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inner_products, "cpu_has", lambda feature: tiles)
    # High limbs, then low ones, of 2 vectors.
    limbs = torch.tensor([[1, -1], [2, 0], [3, 5], [4, 0]], dtype=torch.int8)
    rows = torch.tensor([[3, 10], [-3, 0]], dtype=torch.int8)
    assert integer_products(rows, limbs).tolist() == [
        [(3 - 10) * 128 + 59, 6 * 128 + 12],
        [-3 * 128 - 9, -780],
    ]


@pytest.mark.parametrize("rows", [6, 7, 21])
def test_rows_that_no_cache_holds_are_multiplied_in_parts(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inner_products, "cpu_has", lambda feature: False)
    monkeypatch.setattr(inner_products, "CACHED", 6 * 16)
    monkeypatch.setattr(inner_products, "FETCHED", 3)
    seen: list[int] = []
    multiply = torch._int_mm

    def counted(limbs: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        seen.append(columns.shape[1])
        return multiply(limbs, columns)

    monkeypatch.setattr(torch, "_int_mm", counted)
    source = torch.Generator().manual_seed(0)
    vectors = torch.randint(-127, 128, (rows, 16), dtype=torch.int8, generator=source)
    limbs = torch.randint(-64, 65, (4, 16), dtype=torch.int8, generator=source)
    found = integer_products(vectors, limbs)
    assert seen == {6: [6], 7: [3, 3, 1], 21: [3] * 7}[rows]
    assert torch.equal(found, vectors.int() @ (limbs[:2].int() * 128 + limbs[2:].int()).T)


@pytest.mark.parametrize("stay", [True, False])
@pytest.mark.parametrize("rows", [0, 1, 256, 700])
def test_float_products(rows: int, stay: bool, random_shard: Callable[..., Shard]) -> None:
    source = np.random.default_rng(0)
    shard = Shard(random_shard(900).folder, stay)
    queries = source.normal(size=(2, 16)).astype(np.float32)
    picked = source.choice(900, rows, replace=False)
    found = shard.inner_products(picked, queries)
    assert found.dtype == np.float32
    assert found == pytest.approx(
        shard.vectors[picked].astype(np.float64) @ queries.T.astype(np.float64), abs=1e-3
    )


def test_final_scores_are_exact_sums(
    make_shard: Callable[..., Shard], encoded: Callable[..., EncodedParagraph]
) -> None:
    """So neither the order of the dimensions matters, nor the rows and queries that are multiplied
    together.
    """
    source = np.random.default_rng(0)
    vectors = source.integers(-127, 128, (300, 96))
    queries = (source.normal(size=(3, 96)) * 10.0 ** source.integers(-6, 6, (3, 96))).astype(
        np.float32
    )
    order = source.permutation(96)
    shard, turned = (
        make_shard([encoded(rows.tolist())], dim=96, name=name)
        for name, rows in (("shard", vectors), ("turned", vectors[:, order]))
    )
    rows, exact = np.arange(300), rounded_for_exact_sums(queries)
    found = shard.inner_products(rows, exact)
    assert turned.inner_products(rows, exact[:, order]).tobytes() == found.tobytes()
    for row, query in ((0, 0), (299, 1), (77, 2)):
        assert (
            shard.inner_products(rows[row : row + 1], exact[query : query + 1]) == found[row, query]
        )
    largest = np.abs(queries).max(axis=1)
    assert (np.abs(exact - queries).max(axis=1) <= 2.0**-30 * largest).all()
    assert rounded_for_exact_sums(np.zeros((1, 3), np.float32)).tolist() == [[0.0, 0.0, 0.0]]


@pytest.mark.parametrize("rows", [0, 1, 7, 20])
def test_float32_products_are_those_of_all_rows_at_once(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbq.index.inner_products.FLOAT_BLOCK", 7)
    source = torch.Generator().manual_seed(0)
    vectors = torch.randint(-127, 128, (rows, 16), dtype=torch.int8, generator=source)
    queries = torch.randn(3, 16, generator=source)
    torch.testing.assert_close(float32_products(vectors, queries), vectors.float() @ queries.T)


@pytest.mark.parametrize(
    ("shape", "filled"), [((33, 40), (64, 64)), ((32, 33), (32, 64)), ((1, 32), (32, 32))]
)
def test_a_matrix_is_filled_up_to_whole_tiles(
    shape: tuple[int, int], filled: tuple[int, int]
) -> None:
    matrix = torch.ones(shape, dtype=torch.int8)
    found = in_tiles(matrix)
    assert found.shape == filled
    assert torch.equal(found[: shape[0], : shape[1]], matrix)
    assert int(found.sum()) == matrix.sum()


@pytest.mark.parametrize(
    ("rows", "others", "dim"), [(70, 5, 24), (64, 32, 32), (1, 33, 40), (31, 1, 64)]
)
def test_products_in_whole_tiles_are_those_of_the_matrices(
    rows: int, others: int, dim: int
) -> None:
    source = torch.Generator().manual_seed(0)
    one, other = (
        torch.randint(-127, 128, (size, dim), dtype=torch.int8, generator=source)
        for size in (rows, others)
    )
    assert torch.equal(tiled_products(one, other), one.int() @ other.int().T)
