"""Branches and loops of ONNX, beside onnxruntime and finite differences."""

from typing import Any

import pytest

pytest.importorskip("onnx", reason="needs the package onnx")
pytest.importorskip("onnxruntime", reason="compares with onnxruntime")

import jax
import jax.numpy as jnp
import jax.test_util
import numpy as np
import onnx
import onnxruntime
from onnx import helper

from ipujax.errors import FrontendError
from ipujax.frontends import from_onnx
from tests.ipujax.frontends.onnx_models import BOOL, FLOAT, INT64, graph, model

NODE = helper.make_node
V, W = np.asarray([0.5, -1.25, 2.0], np.float32), np.asarray([1.5, 0.25, -0.75], np.float32)
X = ("x", FLOAT, [3])
STATE = [("i", INT64, []), ("going", BOOL, []), ("s", FLOAT, [3])]
SAME, LESS = NODE("Identity", ["going"], ["goes"]), NODE("Less", ["total", "limit"], ["goes"])


def beside_runtime(made: onnx.ModelProto, *inputs: Any, **constants: Any) -> Any:
    """What the model gives, compared with onnxruntime's."""
    converted = from_onnx(made, constants=constants)
    found = jax.jit(converted.apply)(converted.variables, *inputs)[0]
    session = onnxruntime.InferenceSession(
        made.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    left = iter(inputs)
    names = [i.name for i in made.graph.input]
    given = {n: np.asarray(constants[n]) if n in constants else next(left) for n in names}
    for one, wanted in zip(found, session.run(None, given), strict=True):
        np.testing.assert_allclose(one, wanted, rtol=1e-6)
    return converted


def jaxpr_of(converted: Any, *inputs: Any) -> str:
    return str(
        jax.make_jaxpr(lambda *args: converted.apply(converted.variables, *args)[0])(*inputs)
    )


def derivative_agrees(converted: Any, *inputs: Any) -> None:
    def total(*args: Any) -> Any:
        outputs = converted.apply(converted.variables, *args)[0]
        return sum(jnp.vdot(y, jnp.cos(jnp.arange(y.size))) for y in outputs)

    jax.test_util.check_grads(total, inputs, order=1, modes=["rev"], eps=1e-2, rtol=1e-2)


def with_if(inputs: list[Any], **initializers: Any) -> onnx.ModelProto:
    then = graph([NODE("Mul", ["x", "w"], ["a"])], [], [("a", FLOAT, [3])])
    other = graph(
        [NODE("Exp", ["x"], ["t"]), NODE("Sub", ["t", "one"], ["b"])],
        [],
        [("b", FLOAT, [3])],
        {"one": np.asarray(1.0, np.float32)},
    )
    step = NODE("If", ["c"], ["y"], then_branch=then, else_branch=other)
    return model([step], inputs, [("y", FLOAT, [3])], {"w": W, **initializers})


@pytest.mark.parametrize("c", [True, False])
def test_if(c):
    made = with_if([("c", BOOL, []), X])
    converted = beside_runtime(made, np.asarray(c), V)
    assert "cond" in jaxpr_of(converted, np.asarray(c), V)
    derivative_agrees(from_onnx(made, constants={"c": c}), V)
    known = beside_runtime(made, V, c=c)
    assert ("exp" in jaxpr_of(known, V)) is not c


def test_if_of_an_initializer_has_one_branch():
    converted = beside_runtime(with_if([X], c=np.asarray(True)), V)
    assert "exp" not in jaxpr_of(converted, V)


def with_loop(
    body: Any, outputs: int, inputs: Any = (), trip: str = "n", cond: str = "", **given: Any
):
    results = [f"y{i}" for i in range(outputs)]
    step = NODE("Loop", [trip, cond, "x"], results, body=body)
    infos = [(name, FLOAT, ["unknown"] * (1 + (name != "y0"))) for name in results]
    return model([step], [X, *inputs], infos, {"w": W, "n": np.asarray(4), **given})


def body_of(*nodes: Any, scans: int = 1, **initializers: Any) -> onnx.GraphProto:
    outputs = [("goes", BOOL, []), ("t", FLOAT, [3]), *[("out", FLOAT, [3])] * scans]
    return graph(list(nodes), STATE, outputs, initializers)


GROW = [NODE("Mul", ["s", "w"], ["m"]), NODE("Add", ["m", "x"], ["t"])]
OUT = NODE("Tanh", ["t"], ["out"])


def test_loop_of_known_length_is_a_scan():
    made = with_loop(body_of(SAME, *GROW, OUT), 2)
    converted = beside_runtime(made, V)
    assert "scan" in jaxpr_of(converted, V)
    derivative_agrees(converted, V)
    grads = jax.grad(lambda v: converted.apply(v, V)[0][1].sum())(converted.variables)
    assert np.all(np.isfinite(grads["w"]) & (grads["w"] != 0))


def test_loop_without_steps():
    made = with_loop(body_of(SAME, *GROW, OUT), 2, n=np.asarray(0))
    first, second = from_onnx(made).apply({"w": W}, V)[0]
    np.testing.assert_array_equal(first, V)
    assert second.shape == (0, 3)


def test_loop_that_ends_by_itself():
    total = [*GROW, NODE("ReduceSum", ["t"], ["total"], keepdims=0)]
    body = body_of(*total, NODE("Less", ["i", "limit"], ["goes"]), scans=0)
    made = with_loop(body, 1, trip="", limit=np.asarray(2))
    assert "while" in jaxpr_of(beside_runtime(made, V), V)
    by_value = body_of(*total, LESS, OUT)
    made = with_loop(by_value, 2, limit=np.asarray(3.0, np.float32))
    with pytest.raises(FrontendError, match="how often a loop runs depends on values"):
        from_onnx(made)
    made = with_loop(body_of(*total, LESS, scans=0), 1, limit=np.asarray(3.0, np.float32))
    beside_runtime(made, V)


def test_loop_whose_length_is_an_input():
    inputs = [("count", INT64, []), ("start", BOOL, [])]
    made = with_loop(body_of(SAME, *GROW, scans=0), 1, inputs, trip="count", cond="start")
    for count, start in ((3, True), (3, False), (0, True)):
        beside_runtime(made, V, np.asarray(count), np.asarray(start))
    made = with_loop(body_of(SAME, *GROW, OUT), 2, inputs, trip="count", cond="start")
    with pytest.raises(FrontendError, match="decide shapes"):
        from_onnx(made)
    beside_runtime(made, V, count=3, start=True)


def test_loop_that_needs_the_number_of_its_step():
    part = [
        NODE("Add", ["i", "first"], ["next"]),
        NODE("Unsqueeze", ["i", "axis"], ["from"]),
        NODE("Unsqueeze", ["next", "axis"], ["to"]),
        NODE("Slice", ["w", "from", "to"], ["part"]),
        NODE("Mul", ["s", "part"], ["t"]),
    ]
    made = with_loop(
        body_of(SAME, *part, OUT), 2, n=np.asarray(3), first=np.asarray(1), axis=np.asarray([0])
    )
    converted = beside_runtime(made, V)
    derivative_agrees(converted, V)


def test_loop_whose_state_grows():
    outputs = [("goes", BOOL, []), ("t", FLOAT, ["k"])]
    body = graph([SAME, NODE("Concat", ["s", "x"], ["t"], axis=0)], STATE, outputs)
    assert beside_runtime(with_loop(body, 1), V).apply({"w": W}, V)[0][0].shape == (15,)


def test_loop_without_an_end():
    with pytest.raises(FrontendError, match="no end"):
        from_onnx(with_loop(body_of(SAME, *GROW, scans=0), 1, trip=""))


def test_loops_inside_branches_inside_loops():
    inner = graph(
        [NODE("Identity", ["g"], ["h"]), NODE("Mul", ["r", "w"], ["q"])],
        [("j", INT64, []), ("g", BOOL, []), ("r", FLOAT, [3])],
        [("h", BOOL, []), ("q", FLOAT, [3])],
    )
    then = graph([NODE("Loop", ["two", "", "s"], ["a"], body=inner)], [], [("a", FLOAT, [3])])
    other = graph([NODE("Neg", ["s"], ["b"])], [], [("b", FLOAT, [3])])
    steps = [
        SAME,
        NODE("ReduceSum", ["s"], ["total"], keepdims=0),
        NODE("Less", ["total", "zero"], ["small"]),
        NODE("If", ["small"], ["t"], then_branch=then, else_branch=other),
    ]
    more = {"two": np.asarray(2), "zero": np.asarray(0.0, np.float32)}
    beside_runtime(with_loop(body_of(*steps, OUT), 2, **more), V)


def scanned(opset: int, **attributes: Any) -> onnx.ModelProto:
    body = graph(
        [NODE("Add", ["s", "e"], ["t"]), NODE("Mul", ["t", "t"], ["out"])],
        [("s", FLOAT, [3]), ("e", FLOAT, [3])],
        [("t", FLOAT, [3]), ("out", FLOAT, [3])],
    )
    batch = opset < 9
    names = ["", "x", "xs"] if batch else ["x", "xs"]
    shapes = ([2, 3], [2, 4, 3]) if batch else ([3], ["p", "q"])
    step = NODE("Scan", names, ["y", "ys"], body=body, num_scan_inputs=1, **attributes)
    infos = [(name, FLOAT, shape) for name, shape in zip(("x", "xs"), shapes, strict=True)]
    outputs = [("y", FLOAT, shapes[0]), ("ys", FLOAT, ["a"] * len(shapes[1]))]
    return model([step], infos, outputs, opset=opset)


@pytest.mark.parametrize("opset", [9, 11, 21])
@pytest.mark.parametrize(("axis", "directions"), [(0, (0, 0)), (1, (1, 0)), (1, (0, 1))])
def test_scan(opset, axis, directions):
    made = scanned(
        opset,
        scan_input_axes=[axis],
        scan_output_axes=[axis],
        scan_input_directions=directions[:1],
        scan_output_directions=directions[1:],
    )
    xs = np.linspace(-1, 1, 12, dtype=np.float32).reshape((4, 3) if axis == 0 else (3, 4))
    for info in made.graph.input[1:]:
        for dim, size in zip(info.type.tensor_type.shape.dim, xs.shape, strict=True):
            dim.dim_value = size
    converted = beside_runtime(made, V, xs)
    derivative_agrees(converted, V, xs)


def test_scan_of_a_batch():
    xs = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 4, 3)
    beside_runtime(scanned(8, directions=[1]), np.stack([V, W]), xs)
