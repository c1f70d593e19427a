"""TessellateIPU's names: primitives on tiles against NumPy, their cycles, and what is refused."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import ipujax as ipu
from ipujax import tessellate
from ipujax.tessellate import tile_map, tile_put_replicated, tile_put_sharded

T = (3, 5, 8)
RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(0.1, 0.9, (3, 4, 2)).astype(np.float32)
Y = RANDOM.uniform(0.1, 0.9, (3, 4, 2)).astype(np.float32)


def mapped(primitive: Any, *arrays: np.ndarray, **attributes: Any) -> Any:
    def run(*given: jax.Array) -> Any:
        return tile_map(primitive, *(tile_put_sharded(x, T) for x in given), **attributes)

    return ipu.compile(run)(*arrays)


@pytest.mark.parametrize(
    "name",
    [
        "abs",
        "cos",
        "exp",
        "floor",
        "log",
        "neg",
        "sign",
        "sin",
        "sqrt",
        "tanh",
        "rsqrt",
        "is_finite",
    ],
)
def test_functions_of_one_array(name: str) -> None:
    reference = {"neg": np.negative, "rsqrt": lambda x: 1 / np.sqrt(x), "is_finite": np.isfinite}
    expected = reference.get(name) or getattr(np, name)
    found = mapped(getattr(lax, f"{name}_p"), X)
    assert found.tiles == T
    np.testing.assert_allclose(found.array, expected(X), rtol=1e-5)
    if hasattr(tessellate.lax, f"{name}_inplace_p"):
        found = mapped(getattr(tessellate.lax, f"{name}_inplace_p"), X)
        np.testing.assert_allclose(found.array, expected(X), rtol=1e-5)


@pytest.mark.parametrize(
    ("primitive", "expected"),
    [
        (lax.add_p, np.add),
        (lax.atan2_p, np.arctan2),
        (lax.div_p, np.divide),
        (lax.ge_p, np.greater_equal),
        (lax.max_p, np.maximum),
        (lax.pow_p, np.power),
        (tessellate.lax.mul_inplace_p, np.multiply),
        (tessellate.lax.sub_inplace_p, np.subtract),
    ],
)
def test_functions_of_two_arrays(primitive: Any, expected: Any) -> None:
    np.testing.assert_allclose(mapped(primitive, X, Y).array, expected(X, Y), rtol=1e-5)


@pytest.mark.parametrize(
    ("primitive", "attributes", "expected"),
    [
        (lax.reduce_sum_p, {"axes": (0, 1)}, X.sum((1, 2))),
        (lax.reduce_max_p, {"axes": (1,)}, X.max(2)),
        (lax.integer_pow_p, {"y": 2}, X**2),
        (lax.convert_element_type_p, {"new_dtype": np.int32, "weak_type": False}, X * 0),
        (lax.reshape_p, {"new_sizes": (2, 4), "dimensions": None}, X.reshape(3, 2, 4)),
        (lax.bitcast_convert_type_p, {"new_dtype": np.int32}, X.view(np.int32)),
        (lax.cumsum_p, {"axis": 0, "reverse": False}, X.cumsum(1)),
    ],
)
def test_primitives_with_parameters(primitive: Any, attributes: Any, expected: Any) -> None:
    np.testing.assert_allclose(mapped(primitive, X, **attributes).array, expected, rtol=1e-5)


def test_a_selection_takes_the_first_array_where_its_mask_holds() -> None:
    found = mapped(lax.select_n_p, X > 0.5, X, Y)  # as PopLibs' vertex does, unlike JAX
    np.testing.assert_array_equal(found.array, np.where(X > 0.5, X, Y))


def test_scatters_and_gathers() -> None:
    indices = np.array([[0], [2], [2]], np.uint32)
    updates = np.array([1, 2, 3], np.float32)
    data = np.arange(4, dtype=np.float32)
    numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    gathered = lax.GatherDimensionNumbers((), (0,), (0,))
    mode = lax.GatherScatterMode.PROMISE_IN_BOUNDS

    def run(*given: jax.Array) -> Any:
        x, i, u = (tile_put_replicated(each, (1, 2)) for each in given)
        options = {"indices_are_sorted": False, "unique_indices": False, "mode": mode}
        added = tile_map(
            tessellate.lax.scatter_add_p,
            x,
            i,
            u,
            dimension_numbers=numbers,
            update_jaxpr=None,
            update_consts=None,
            **options,
        )
        return added, tile_map(
            tessellate.lax.gather_p,
            added,
            i,
            dimension_numbers=gathered,
            slice_sizes=(1,),
            fill_value=None,
            **options,
        )

    added, taken = ipu.compile(run)(data, indices, updates)
    expected = data.copy()
    np.add.at(expected, indices[:, 0], updates)
    np.testing.assert_array_equal(added.array, [expected, expected])
    np.testing.assert_array_equal(taken.array, [expected[indices[:, 0]]] * 2)


@pytest.mark.parametrize(("size", "published"), [(64, 375), (128, 467), (256, 665), (512, 1043)])
def test_scaled_additions_have_the_published_cycles(size: int, published: int) -> None:
    def run(a: Any, b: Any, scale: Any) -> Any:
        a, b, scale = (tile_put_replicated(each, (0,)) for each in (a, b, scale))
        a, start = tessellate.ipu_cycle_count(a)
        a = tile_map(tessellate.lax.scaled_add_p, a, b, scale)
        a, end = tessellate.ipu_cycle_count(a)
        return a, start, end

    a, b = (RANDOM.random(size, np.float32) for _ in range(2))
    scale = np.array([0.5], np.float32)
    found, start, end = ipu.compile(run)(a, b, scale)
    np.testing.assert_allclose(found.array[0], a + 0.5 * b, rtol=1e-6)
    cycles = int(end.array[0, 0]) - int(start.array[0, 0])
    assert abs(cycles - published) <= 0.05 * published
    assert end.shape == (1, 2)


def test_arrays_on_tiles_are_cut_where_parts_stay_contiguous() -> None:
    value = tile_put_sharded(X, T)
    assert value[1].tiles == (5,)
    assert value[-1].tiles == (8,)
    np.testing.assert_array_equal(value[::2].array, X[::2])
    np.testing.assert_array_equal(value[:, 1].array, X[:, 1])
    assert value.tile_shape == (4, 2)
    assert value.reshape((-1, 8)).shape == (3, 8)
    joined = tessellate.TileShardedArray.concatenate([value, value[:1]])
    assert joined.tiles == (*T, 3)
    with pytest.raises(ValueError, match="contiguous"):
        value[:, ::2]
    with pytest.raises(ValueError, match="contiguous"):
        value[:, :2, :1]


def test_on_a_host_arrays_stay_what_they_are() -> None:
    value = tile_put_sharded(X, T)
    assert value.array is X
    assert isinstance(tessellate.tile_constant_replicated(X, T).array, np.ndarray)
    np.testing.assert_allclose(tile_map(lax.sin_p, value).array, np.sin(X), rtol=1e-6)


@pytest.mark.parametrize("count", [4, 8])
def test_eigenvalues(count: int) -> None:
    x = RANDOM.standard_normal((count, count)).astype(np.float32)
    x = (x + x.T) / 2

    def solve(x):
        return tessellate.linalg.ipu_eigh(x, num_iters=6)

    vectors, values = ipu.compile(solve)(x)
    expected, expected_vectors = np.linalg.eigh(x)
    np.testing.assert_allclose(values, expected, atol=1e-5)
    np.testing.assert_allclose(np.abs(vectors), np.abs(expected_vectors), atol=1e-4)


def test_qr() -> None:
    x = RANDOM.standard_normal((6, 6)).astype(np.float32)
    q, rt = ipu.compile(tessellate.linalg.ipu_qr)(x, np.sign(np.diag(x)))
    np.testing.assert_allclose(q.array @ rt.array.T, x, atol=1e-5)
    np.testing.assert_allclose(q.array @ q.array.T, np.eye(6), atol=1e-5)
    np.testing.assert_allclose(np.tril(rt.array.T, -1), 0, atol=1e-5)


def test_hessenberg() -> None:
    x = RANDOM.standard_normal((6, 6)).astype(np.float32)
    q, r = ipu.compile(tessellate.linalg.ipu_hessenberg)(x)
    np.testing.assert_allclose(q.array @ r.array @ q.array.T, x, atol=1e-5)
    np.testing.assert_allclose(q.array @ q.array.T, np.eye(6), atol=1e-5)
    np.testing.assert_allclose(np.tril(r.array, -2), 0, atol=1e-5)
    assert q.tiles == (*range(6),)


@pytest.mark.parametrize(
    ("wrong", "kind", "words"),
    [
        (lambda: tile_put_sharded(X, (1, 2)), AssertionError, "one row for each tile"),
        (lambda: tile_map(lax.fft_p, X), KeyError, "'fft' is not supported"),
        (lambda: tile_map(lax.sin_p, X), TypeError, "takes values on tiles"),
        (lambda: mapped(lax.reduce_sum_p, X, axes=(0,)), NotImplementedError, "last ones"),
        (lambda: mapped(lax.integer_pow_p, X, y=3), NotImplementedError, "-1 and 2"),
        (lambda: tessellate.lax.tile_get_hw_seeds(T), NotImplementedError, "left out"),
        (lambda: tessellate.tile_gather(X, (3,), (0,)), AssertionError, "indices end"),
        (lambda: tessellate.declare_ipu_tile_primitive("V")(abs), ValueError, "end in _p"),
        (
            lambda: tessellate.create_ipu_tile_primitive(3, "V", ["x"], {"y": 0}),
            TypeError,
            "pname is 3",
        ),
    ],
)
def test_what_is_wrong_raises_what_the_original_raises(wrong: Any, kind: Any, words: str) -> None:
    with pytest.raises(kind, match=words):
        wrong()


def test_barriers_take_elements_of_one_size() -> None:
    def wait(x: jax.Array) -> Any:
        placed = tile_put_sharded(x, T), tile_put_sharded(x.astype(jnp.float16), T)
        return tessellate.tile_data_barrier(*placed)

    with pytest.raises(TypeError, match=r"\[2, 4\] bytes"):
        ipu.compile(wait)(X)
