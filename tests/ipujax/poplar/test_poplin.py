"""poplin against NumPy and JAX, and its cost: that of the planner of ordinary programs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import ipujax as ipu
from ipujax import poplar
from ipujax.poplar import poplin, program
from tests.ipujax.poplar.building_graphs import add_tensor, make_engine, make_graph, run

f32 = np.float32
RANDOM = np.random.default_rng(0)


def numbers(*shape: int, dtype: type = f32) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(dtype)


def test_products_are_numpys() -> None:
    graph, prog = make_graph(), program.Sequence()
    a, b, c = numbers(5, 7), numbers(7, 3), numbers(5, 3)
    x, y, z = (add_tensor(graph, v, n) for v, n in ((a, "a"), (b, "b"), (c, "c")))
    out = add_tensor(graph, np.zeros((5, 3), f32), "out")
    halves = [add_tensor(graph, v.astype(np.float16), "h") for v in (a, b)]
    product = poplin.matMul(graph, x, y, prog, "mine", {"availableMemoryProportion": "0.3"})
    narrow = poplin.matMul(graph, *halves, prog, poplar.FLOAT, "narrow")
    poplin.matMulWithOutput(graph, x, y, out, prog)
    poplin.matMulAcc(graph, z, 0.5, x, y, prog, "", {}, poplin.PlanningCache())
    got = run(graph, prog, product, narrow, out, z)
    for each, wanted in zip(got, (a @ b, a @ b, a @ b, c + 0.5 * a @ b), strict=True):
        assert each.dtype == f32
        tolerance = 1e-2 if each is got[1] else 1e-5
        np.testing.assert_allclose(each, wanted, rtol=tolerance, atol=tolerance)


def test_grouped_products_are_numpys() -> None:
    graph, prog = make_graph(), program.Sequence()
    a, b = numbers(4, 2, 3), numbers(4, 3, 5)
    x, y = add_tensor(graph, a, "a"), add_tensor(graph, b, "b")
    product = poplin.matMulGrouped(graph, x, y, prog)
    np.testing.assert_allclose(run(graph, prog, product)[0], a @ b, rtol=1e-5, atol=1e-5)


def test_a_product_costs_what_it_costs_in_an_ordinary_program() -> None:
    graph, prog = make_graph(), program.Sequence()
    shapes = [256, 512], [512, 384]
    x = poplin.createMatMulInputLHS(graph, poplar.HALF, *shapes, "x")
    y = poplin.createMatMulInputRHS(graph, poplar.HALF, poplar.HALF, *shapes, "y")
    assert (x.shape(), y.shape()) == shapes
    for tensor in (x, y):
        graph.setInitialValue(tensor, 1)
    poplin.matMul(graph, x, y, prog)
    cycles = make_engine(graph, prog).report().cycles

    def multiply(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.matmul(a, b, preferred_element_type=jnp.float32).astype(jnp.float16)

    operands = [np.ones(shape, np.float16) for shape in shapes]
    ordinary = ipu.compile(multiply).lower(*operands).report().cycles
    assert cycles == pytest.approx(ordinary, rel=0.02)


@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions_are_jaxs_and_their_transposes_are_gradients(groups: int) -> None:
    params = poplin.ConvParams(poplar.FLOAT, 2, [6, 5], [3, 2], 4, 3, groups)
    params.inputTransform.paddingLower = [1, 0]
    params.inputTransform.paddingUpper = [2, 1]
    params.outputTransform.stride = [2, 1]
    params.kernelTransform.dilation = [1, 2]
    graph, prog = make_graph(), program.Sequence()
    image, kernel = poplin.createInput(graph, params), poplin.createWeights(graph, params)
    x, w = numbers(*image.shape()), numbers(*kernel.shape())
    graph.setInitialValue(image, x)
    graph.setInitialValue(kernel, w)
    result = poplin.convolution(graph, image, kernel, params, False, prog)
    wanted = lax.conv_general_dilated(
        x, w.reshape(-1, 4, 3, 2), (2, 1), [(1, 2), (0, 1)], rhs_dilation=(1, 2),
        feature_group_count=groups,
    )  # fmt: skip
    np.testing.assert_allclose(run(graph, prog, result)[0], wanted, rtol=1e-4, atol=1e-4)


def test_flipped_weights_give_the_gradient_of_the_input() -> None:
    x, w, g = numbers(1, 2, 6), numbers(1, 3, 2, 3), numbers(1, 3, 4)

    def forward(x: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(x, w[0], (1,), [(0, 0)])

    params = poplin.ConvParams(poplar.FLOAT, 1, [4], [3], 3, 2, 1)
    params.inputTransform.paddingLower = params.inputTransform.paddingUpper = [2]
    graph, prog = make_graph(), program.Sequence()
    gradient, weights = add_tensor(graph, g, "g"), add_tensor(graph, w, "w")
    result = poplin.convolution(graph, gradient, weights, params, True, prog)
    wanted = jax.vjp(forward, x)[1](jnp.asarray(g))[0]
    np.testing.assert_allclose(run(graph, prog, result)[0], wanted, rtol=1e-4, atol=1e-5)


def test_factors_and_solutions_are_numpys() -> None:
    graph, prog = make_graph(), program.Sequence()
    root = numbers(5, 5)
    matrix, right = root @ root.T + 5 * np.eye(5, dtype=f32), numbers(5, 3)
    a, b = add_tensor(graph, matrix, "a"), add_tensor(graph, right, "b")
    lower = poplin.cholesky(graph, a, True, prog)
    upper = poplin.cholesky(graph, a, False, prog)
    solved = poplin.triangularSolve(graph, lower, b, True, True, False, prog)
    got = run(graph, prog, lower, upper, solved)
    np.testing.assert_allclose(got[0], np.linalg.cholesky(matrix), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(got[1], got[0].T, rtol=1e-5)
    np.testing.assert_allclose(got[0] @ got[2], right, rtol=1e-4, atol=1e-4)


def test_wrong_shapes_and_types_are_named() -> None:
    graph, prog = make_graph(), program.Sequence()
    a, b = add_tensor(graph, numbers(2, 3), "a"), add_tensor(graph, numbers(2, 3), "b")
    half = add_tensor(graph, numbers(3, 2, dtype=np.float16), "h")
    with pytest.raises(poplar.index_error, match=r"'a'.*'b'"):
        poplin.matMul(graph, a, b, prog)
    with pytest.raises(poplar.type_error, match="types differ"):
        poplin.matMul(graph, a, half, prog)
    params = poplin.ConvParams(poplar.FLOAT, 1, [4], [3], 1, 1, 1)
    with pytest.raises(poplar.index_error, match="'a'"):
        poplin.convolution(graph, a, b, params, False, prog)
    with pytest.raises(poplar.type_error, match="after its program"):
        poplin.matMul(graph, a, b.transpose(), prog, 3.5)
