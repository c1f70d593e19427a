"""PopART's operators that move elements: scatters, gathers, medians, sequences, images."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.test_util
import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")

from ipujax import popart
from ipujax.doors.onnx.operators import graphcore as ops
from ipujax.doors.onnx.operators.graphcore_scatter import grouped_gather, scatter_reduce
from ipujax.doors.onnx.operators.graphcore_sequences import sequence_slice
from ipujax.errors import FrontendError, PopARTError

Array = np.ndarray[Any, Any]
RANDOM = np.random.default_rng(0)
COMBINED: dict[str, Callable[[Any, Any], Any]] = {
    "sum": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "mul": np.multiply,
}


def normal(*shape: int) -> Array:
    return RANDOM.normal(size=shape).astype(np.float32)


def close(result: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(result), expected, 2e-5, 1e-6)


def computed(build: Callable[..., str], **inputs: Array) -> Array:
    """What an inference session gives for what a function adds to a graph."""
    builder = popart.Builder()
    names = [builder.addInputTensor(popart.TensorInfo(v), name) for name, v in inputs.items()]
    output = build(builder, *names)
    session = popart.InferenceSession(
        builder.getModelProto(),
        popart.DataFlow(1, {output: popart.AnchorReturnType("All")}),
        popart.DeviceManager().createCpuDevice(),
    )
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO(inputs, anchors))
    return anchors[output]


def scattered(
    x: Array, indices: Array, size: int, axis: int, reduction: str, initial: Array | None
) -> Array:
    """Element by element."""
    shape = [size if a == axis else n for a, n in enumerate(x.shape)]
    full = np.zeros(shape, x.dtype) if initial is None else initial
    result, given = full.copy(), np.full(full.shape, initial is not None)
    if initial is None and reduction == "mul":
        result[:], given[:] = 1, True
    for place in np.ndindex(*indices.shape):
        goes = (*place[:axis], indices[place], *place[axis + 1 :])
        combine = COMBINED.get(reduction, lambda old, new: new) if given[goes] else lambda _, n: n
        result[goes], given[goes] = combine(result[goes], x[place]), True
    return result


@pytest.mark.sampled(8)
@pytest.mark.parametrize("with_initial", [False, True])
@pytest.mark.parametrize("reduction", COMBINED)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scatter_reduces_slices_and_elements(axis: int, reduction: str, with_initial: bool) -> None:
    x, along = normal(4, 4, 4), axis % 3
    slices = np.array([1, 0, 1, 3], np.uint32)
    initial = np.moveaxis(normal(5, 4, 4), 0, along) if with_initial else None
    spread = np.broadcast_to(slices.reshape([-1 if a == along else 1 for a in range(3)]), x.shape)
    expected = scattered(x, spread, 5, along, reduction, initial)
    how: dict[str, Any] = {"axis": axis, "axis_size": 5, "reduction": reduction}
    for indices in (slices, spread, spread.astype(np.int32)):
        close(scatter_reduce(x, indices, initial, **how), expected)  # type: ignore


@pytest.mark.parametrize("reduction", [*COMBINED, "none"])
def test_scatter_reduces_a_part_of_the_elements(reduction: str) -> None:
    x, initial = normal(6, 5), normal(4, 7)
    indices = np.array([[0, 3, 1], [2, 0, 0]], np.int32)
    expected = scattered(x, indices, 4, 0, reduction, initial)
    how: dict[str, Any] = {"axis": 0, "axis_size": 4, "enable_index_broadcast": 0}
    close(scatter_reduce(x, indices, initial, reduction=reduction, **how), expected)  # type: ignore
    alone = scatter_reduce(x, indices, reduction="sum", **how)  # type: ignore
    close(alone, scattered(x[:2, :3], indices, 4, 0, "sum", None))


@pytest.mark.parametrize("reduction", COMBINED)
def test_groups_are_scattered_and_gathered_by_themselves(reduction: str) -> None:
    x, indices = normal(2, 3, 4), np.array([[0, 2, 0], [1, 1, 0]], np.int32)
    how: dict[str, Any] = {"axis_size": 3, "reduction": reduction}
    together = scatter_reduce(x, indices, axis=1, group_size=2, **how)  # type: ignore
    for group in range(2):
        alone = scatter_reduce(x[group], indices[group], axis=0, **how)  # type: ignore
        close(together[group], alone)
        close(
            grouped_gather(x, indices, 1, 2)[group],  # type: ignore
            np.take(x[group], indices[group], 0),
        )


@pytest.mark.sampled(5)
@pytest.mark.parametrize("reduction", [*COMBINED, "none"])
@pytest.mark.parametrize("groups", [1, 2])
def test_scatter_has_derivatives_by_values_and_by_what_was_before(
    reduction: str, groups: int
) -> None:
    indices = np.array([2, 0, 1, 4] if reduction == "none" else [2, 0, 2, 4], np.int32)
    x, initial = 1 + RANDOM.permutation(24).reshape(2, 4, 3) / 8, normal(2, 5, 3)
    spread = np.broadcast_to(indices, (2, 4))
    axis = 1
    if groups == 1:
        x, initial, spread, axis = x[0], initial[0], indices, 0

    @jax.jit
    def total(x: Any, initial: Any) -> Any:
        result = scatter_reduce(
            x, spread, initial, axis_size=5, axis=axis, reduction=reduction, group_size=groups
        )  # type: ignore
        return jnp.sum(jnp.sin(result))

    given = jnp.asarray(x, jnp.float32), jnp.asarray(initial)
    jax.test_util.check_grads(total, given, 1, ["fwd", "rev"], 2e-2, 2e-2, 1e-2)


def test_derivatives_of_products_with_zeros_are_the_products_of_the_others() -> None:
    x = jnp.array([0.0, 3.0, 2.0, 0.0, 0.0, 5.0])
    indices = np.array([0, 0, 0, 1, 1, 2])
    product = functools.partial(scatter_reduce, axis_size=3, reduction="mul")
    found = jax.grad(lambda x: product(x, indices).sum())(x)
    close(found, [6, 0, 0, 0, 0, 1])


def test_all_of_several_largest_values_have_the_derivative_of_the_result() -> None:
    largest = functools.partial(scatter_reduce, axis_size=1, reduction="max")
    found = jax.grad(lambda x: largest(x, np.zeros(3, np.int32)).sum())(jnp.array([2.0, 1, 2]))
    close(found, [1, 0, 1])


@pytest.mark.parametrize(
    ("shape", "more", "message"),
    [
        ((4, 3), {"axis": 2}, r"axis = 2 is outside the acceptable range \[-2, 1\]"),
        ((4, 3), {"axis_size": 0}, "axis_size = 0 is not valid"),
        ((4, 3), {"group_size": 0}, "group_size = 0 is not valid"),
        ((4, 3, 1), {}, "Invalid rank for indices input"),
        ((4, 4), {}, "Failed to expand 'indices' shape"),
        ((1, 3), {}, "Partial broadcasting of indices is not currently supported"),
        ((2,), {}, "Partial broadcasting of indices is not currently supported"),
        ((4, 3), {"reduction": "mean"}, "reduction"),
    ],
)
def test_scatter_says_what_it_cannot_do(shape: Any, more: Any, message: str) -> None:
    how: dict[str, Any] = {"axis": 0, "axis_size": 5, **more}
    with pytest.raises(FrontendError, match=message):
        scatter_reduce(normal(4, 3), np.zeros(shape, np.int32), **how)  # type: ignore


def test_a_builder_scatters_and_gathers() -> None:
    x, indices = normal(2, 3, 4), np.array([[0, 2, 0], [1, 1, 0]], np.uint32)

    def build(builder: popart.Builder, x: str, indices: str) -> str:
        largest = builder.aiGraphcore.groupedscatterreduce(
            [x, indices], 3, 1, popart.ScatterReduction.Max, 2
        )
        assert builder.getTensorShape(largest) == [2, 3, 4]
        return builder.aiGraphcore.groupedgather([largest, indices], 1, 2)

    largest = [scattered(x[g], np.tile(indices[g], (4, 1)).T, 3, 0, "max", None) for g in (0, 1)]
    close(
        computed(build, x=x, indices=indices),
        [np.take(largest[g], indices[g].astype(int), 0) for g in (0, 1)],
    )


@pytest.mark.sampled(6)
@pytest.mark.parametrize("axes", [None, [1], [2, 0], [0, 1, 2], []])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_medians_and_their_places(axes: Any, keepdims: int) -> None:
    x = RANDOM.permutation(2 * 3 * 5).reshape(2, 3, 5).astype(np.float32)
    over = sorted(range(3) if axes is None else axes)
    lines = np.moveaxis(x, over, range(-len(over), 0))
    lines = lines.reshape(*lines.shape[: 3 - len(over)], -1)
    expected = np.sort(lines)[..., (lines.shape[-1] - 1) // 2]
    values, places = ops.reduce_median(x, axes, keepdims)  # type: ignore
    close(jnp.squeeze(values), np.squeeze(expected))
    found = np.take_along_axis(lines, np.asarray(places).reshape(*expected.shape, 1), -1)
    close(found[..., 0], expected)
    kept = [1 if a in over else n for a, n in enumerate(x.shape) if keepdims or a not in over]
    assert list(values.shape) == list(places.shape) == kept
    assert places.dtype == np.int32


def test_the_derivative_of_a_median_is_that_of_the_element() -> None:
    x = jnp.array([[3.0, 1, 2, 9], [5, 4, 8, 7]])
    found = jax.grad(lambda x: (ops.reduce_median(x, [1])[0] * jnp.array([[2.0], [3]])).sum())(x)
    close(found, [[0, 0, 2, 0], [3, 0, 0, 0]])


def test_a_builder_tells_no_axes_from_all_of_them() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 3])
    shapes = [
        builder.getTensorShape(builder.aiGraphcore.reducemedian([x], axes, 0)[0])
        for axes in (None, [], [1])
    ]
    assert shapes == [[], [2, 3], [2]]


@pytest.mark.parametrize("zero", [0, 1])
def test_slices_of_sequences(zero: int) -> None:
    source, before = normal(8, 3), normal(7, 3)
    counts, begins, goes = np.array([2, 3, 0, 2]), np.array([6, 0, 1, 4]), np.array([0, 1, 6, 4])
    expected = np.zeros_like(before) if zero else before.copy()
    for n, i, j in zip(counts, begins, goes, strict=True):
        expected[j : j + n] = source[i : i + n]
    given: Any = [a.astype(np.uint32) for a in (counts, begins, goes)]
    close(sequence_slice(source, before, *given, zeroUnused=zero), expected)  # type: ignore

    @jax.jit
    def total(source: Any, before: Any) -> Any:
        return jnp.sum(jnp.sin(sequence_slice(source, before, *given, zeroUnused=zero)))

    arrays = jnp.asarray(source), jnp.asarray(before)
    jax.test_util.check_grads(total, arrays, 1, ["rev"], 2e-2, 2e-2, 1e-2)


@pytest.mark.parametrize("batch", [1, 2])
def test_packed_sequences_are_computed_some_at_a_time(batch: int) -> None:
    lengths, offsets = np.array([3, 1, 4, 2], np.uint32), np.array([0, 3, 4, 8], np.uint32)
    goes = np.array([7, 6, 2, 0], np.uint32)
    x, w = normal(10, 2), normal(2, 3)

    def build(builder: popart.Builder, x: str, w: str, at: str, n: str, goes: str) -> str:
        inner = builder.createSubgraphBuilder()
        inner.addInputTensorFromParentGraph(w)
        product = inner.aiOnnx.matmul([inner.addUntypedInputTensor(), w])
        total = inner.aiOnnx.reducesum([product], axes=[1], keepdims=1)
        inner.addOutputTensor(inner.aiOnnx.add([product, total]))
        return builder.aiGraphcore.packedDataBlock([x, at, n, goes, n], [5], 12, batch, inner)

    expected = np.zeros((12, 3), np.float32)
    for begin, length, end in zip(offsets, lengths, goes, strict=True):
        product = x[begin : begin + length] @ w
        expected[end : end + length] = product + product.sum(0)
    close(computed(build, x=x, w=w, at=offsets, n=lengths, goes=goes), expected)


def test_packed_sequences_that_do_not_fit_are_refused() -> None:
    def build(builder: popart.Builder, x: str, at: str) -> str:
        inner = builder.createSubgraphBuilder()
        inner.addOutputTensor(inner.aiOnnx.relu([inner.addUntypedInputTensor()]))
        out = builder.aiGraphcore.packedDataBlock([x, at, at, at, at], [2], 4, 2, inner)
        builder.getTensorShape(out)
        return out

    with pytest.raises(PopARTError, match="callbackBatchSize is 2, of 3 sequences"):
        computed(build, x=normal(4, 2), at=np.zeros(3, np.uint32))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint8])
def test_images_get_a_fourth_channel(dtype: Any) -> None:
    image = RANDOM.integers(0, 255, (2, 4, 3)).astype(dtype)
    offsets, scales = np.array([1, 2, 3], np.float32), np.array([4, 5, 6], np.float32)
    found = ops.normalize_image(image, offsets, scales, 0.5)  # type: ignore
    expected = (image.astype(np.float32) * 0.5 - offsets) * scales
    assert found.dtype == (np.float32 if dtype is np.float32 else np.float16)
    np.testing.assert_allclose(np.asarray(found[..., :3], np.float32), expected, 1e-3)
    assert not np.asarray(found[..., 3]).any()
    with pytest.raises(FrontendError, match="three channels"):
        ops.normalize_image(image[..., :2], offsets, scales)  # type: ignore


def test_arrays_to_begin_with_and_tensors_that_are_laid_out_again() -> None:
    def build(builder: popart.Builder, x: str) -> str:
        graphcore = builder.aiGraphcore
        kinds = popart.DataType.FLOAT, popart.InitType.Zero
        zeros = graphcore.init([4, 2], *kinds, "named")
        assert zeros.startswith("named")
        assert builder.getTensorShape(graphcore.init([3], *kinds, 0, "batch")) == [3]
        assert builder.getTensorDtypeString(zeros) == "float32"
        index = builder.aiOnnx.constant(np.array([1], np.uint32))
        again = graphcore.tensorremap([x], popart.TensorRemapType.Fwd)
        return graphcore.dynamicupdate([zeros, index, again], axes=[0], sizes=[2])

    x = normal(2, 2)
    close(computed(build, x=x), np.pad(x, ((1, 1), (0, 0))))
