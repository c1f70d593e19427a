"""ONNX models as functions of JAX: what they hold, and what is computed before they run."""

import pytest

pytest.importorskip("onnx", reason="needs the package onnx")

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from onnx import TensorProto, helper

import ipujax as ipu
from ipujax.frontends import from_onnx
from tests.ipujax.frontends.onnx_models import FLOAT, INT64, graph, model

NODE = helper.make_node
X, Y = [("x", FLOAT, [2, 3])], [("y", FLOAT, ["n", "m"])]
V = np.arange(6, dtype=np.float32).reshape(2, 3) - 2.5


def operations(made, *inputs):
    """The names of the primitives that a model runs."""
    jaxpr = jax.make_jaxpr(made.apply)(made.variables, *inputs).jaxpr
    return [equation.primitive.name for equation in jaxpr.eqns]


def outputs_of(made, *inputs):
    return ipu.compile(lambda *args: made.apply(made.variables, *args)[0])(*inputs)


def linear():
    steps = [
        NODE("Gemm", ["x", "w", "b"], ["h"], name="/net/first/Gemm"),
        NODE("Relu", ["h"], ["r"], name="/net/first/Relu"),
        NODE("MatMul", ["r", "w2"], ["y"], name="/net/second/MatMul", **{"__pipeline_stage": 1}),
    ]
    rng = np.random.default_rng(0)
    shapes = {"w": (3, 4), "b": (4,), "w2": (4, 2)}
    values = {name: rng.normal(size=s).astype(np.float32) for name, s in shapes.items()}
    return model(steps, X, Y, values), values


def test_a_path_bytes_and_a_proto_give_the_same(tmp_path):
    proto, values = linear()
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    wanted = np.maximum(V @ values["w"] + values["b"], 0) @ values["w2"]
    for source in (proto, path, str(path), path.read_bytes(), bytearray(path.read_bytes())):
        made = from_onnx(source)
        np.testing.assert_allclose(outputs_of(made, V)[0], wanted, rtol=1e-5)
        assert list(made.variables) == ["w", "b", "w2"] == list(made.trainable)


def test_a_model_that_is_given_stays_as_it_is():
    proto, _ = linear()
    before = proto.SerializeToString()
    from_onnx(proto)
    assert proto.SerializeToString() == before


def test_parts_are_the_scopes_of_the_nodes():
    parts = from_onnx(linear()[0]).parts
    assert [tuple(part) for part in parts] == [("net/first", None), ("net/second", 1)]


def test_derivatives_by_variables():
    proto, values = linear()
    made = from_onnx(proto)

    def direct(variables):
        return jnp.sum(jnp.maximum(V @ variables["w"] + variables["b"], 0) @ variables["w2"])

    found = jax.grad(lambda variables: made.apply(variables, V)[0][0].sum())(made.variables)
    wanted = jax.grad(direct)(values)
    for name in values:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-5)


def test_shapes_are_folded():
    """As PyTorch writes a view of rows: sizes taken out of the shape, and put together again."""
    steps = [
        NODE("Shape", ["x"], ["s"]),
        NODE("Gather", ["s", "zero"], ["rows"]),
        NODE("Unsqueeze", ["rows", "axis"], ["head"]),
        NODE("Mul", ["head", "three"], ["thrice"]),
        NODE("Concat", ["thrice", "rest"], ["sizes"], axis=0),
        NODE("Reshape", ["x", "sizes"], ["y"]),
    ]
    constants = {"zero": 0, "axis": [0], "three": [3], "rest": [-1]}
    made = from_onnx(model(steps, X, Y, {n: np.asarray(v) for n, v in constants.items()}))
    assert not made.variables
    assert operations(made, V) == ["reshape"]
    np.testing.assert_array_equal(outputs_of(made, V)[0], V.reshape(6, 1))


def test_what_decides_a_shape_is_no_variable():
    """Even if it is of floating point, and computed in several steps."""
    steps = [
        NODE("Mul", ["scale", "scale"], ["square"]),
        NODE("Resize", ["x", "", "square"], ["y"], mode="nearest"),
    ]
    values = {"scale": np.asarray([1, 2], np.float32)}
    made = from_onnx(model(steps, X, Y, values))
    assert not made.variables
    assert made.apply({}, V)[0][0].shape == (2, 12)


def test_constants_of_64_bits_are_computed_with_as_such():
    """2 ** 40 has no place in 32 bits, 2 ** 40 / 2 ** 38 does; so has the mean in double."""
    steps = [
        NODE("Div", ["large", "less"], ["four"]),
        NODE("Cast", ["four"], ["times"], to=FLOAT),
        NODE("Sub", ["near", "one"], ["tiny"]),
        NODE("Cast", ["tiny"], ["epsilon"], to=FLOAT),
        NODE("Mul", ["x", "times"], ["z"]),
        NODE("Add", ["z", "epsilon"], ["y"]),
    ]
    integers = {"large": np.asarray(2**40), "less": np.asarray(2**38)}
    doubles = {"near": np.asarray(1 + 1e-12), "one": np.asarray(1.0)}
    nodes = [
        NODE("Constant", [], [n], value=helper.make_tensor(n, TensorProto.DOUBLE, [], [v.item()]))
        for n, v in doubles.items()
    ]
    made = from_onnx(model([*nodes, *steps], X, Y, integers))
    (found,) = outputs_of(made, np.zeros_like(V))
    np.testing.assert_allclose(found, np.full_like(V, (1 + 1e-12) - 1), rtol=1e-6)
    np.testing.assert_allclose(outputs_of(made, V)[0], 4 * V, rtol=1e-6)


def test_no_bound_of_64_bits_is_none_of_32():
    steps = [NODE("Clip", ["x", "low", "high"], ["c"]), NODE("Where", ["m", "c", "low"], ["y"])]
    limits = np.iinfo(np.int64)
    values = {
        "low": np.asarray(limits.min),
        "high": np.asarray(limits.max),
        "m": np.asarray([True, True, False]),
    }
    made = from_onnx(model(steps, [("x", INT64, [3])], [("y", INT64, [3])], values))
    (found,) = outputs_of(made, np.asarray([-5, 7, 1], np.int32))
    assert found.tolist() == [-5, 7, np.iinfo(np.int32).min]


def test_a_model_of_constants_alone():
    steps = [NODE("Range", ["a", "b", "c"], ["y"])]
    numbers = {"a": np.asarray(0), "b": np.asarray(6), "c": np.asarray(2)}
    made = from_onnx(model(steps, [], [("y", INT64, ["n"])], numbers))
    assert operations(made) == []
    assert outputs_of(made)[0].tolist() == [0, 2, 4]


def test_constants_in_the_place_of_inputs():
    proto = model([NODE("Reshape", ["x", "s"], ["y"])], [*X, ("s", INT64, [2])], Y)
    for sizes in ([3, 2], (3, 2), np.asarray([3, 2], np.int32)):
        made = from_onnx(proto, constants={"s": sizes})
        np.testing.assert_array_equal(outputs_of(made, V)[0], V.reshape(3, 2))


def test_an_initializer_that_is_an_input_too_is_a_variable():
    proto = model([NODE("Add", ["x", "w"], ["y"])], [*X, ("w", FLOAT, [3])], Y, {"w": V[0]})
    made = from_onnx(proto)
    assert list(made.variables) == ["w"]
    np.testing.assert_array_equal(outputs_of(made, V)[0], V + V[0])


def test_functions_are_inlined():
    """One that calls another, with an attribute, and is called twice."""
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    scaled = NODE("LeakyRelu", ["a"], ["b"])
    reference = scaled.attribute.add(name="alpha", type=1)
    reference.ref_attr_name = "slope"
    inner = helper.make_function("own", "Leaky", ["a"], ["b"], [scaled], opsets[:1], ["slope"])
    call = NODE("Leaky", ["a"], ["t"], domain="own", slope=0.5)
    steps = [call, NODE("Add", ["t", "a"], ["b"])]
    outer = helper.make_function("own", "Block", ["a"], ["b"], steps, opsets)
    proto = model(
        [NODE("Block", ["x"], ["h"], domain="own"), NODE("Block", ["h"], ["y"], domain="own")],
        X,
        Y,
        opset_imports=opsets,
        functions=[inner, outer],
    )
    once = np.where(V < 0, 0.5 * V, V) + V
    wanted = np.where(once < 0, 0.5 * once, once) + once
    np.testing.assert_allclose(outputs_of(from_onnx(proto), V)[0], wanted, rtol=1e-6)


def test_results_that_nobody_asks_for_and_inputs_left_out():
    steps = [
        NODE("Unique", ["k"], ["values", "", "inverse"]),
        NODE("Clip", ["x", "", "high"], ["y"]),
    ]
    values = {"k": np.asarray([7, 3, 7]), "high": np.asarray(0.5, np.float32)}
    made = from_onnx(model(steps, X, [("inverse", INT64, [3]), *Y], values))
    inverse, clipped = outputs_of(made, V)
    assert inverse.tolist() == [1, 0, 1]
    np.testing.assert_array_equal(clipped, np.minimum(V, 0.5))


def test_an_output_that_is_an_input():
    steps = [NODE("Relu", ["x"], ["y"])]
    made = from_onnx(model(steps, X, [*Y, ("x", FLOAT, [2, 3])]))
    relu, same = outputs_of(made, V)
    np.testing.assert_array_equal(same, V)
    np.testing.assert_array_equal(relu, np.maximum(V, 0))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_dtypes_stay(dtype):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    steps = [
        NODE("MatMul", ["x", "w"], ["h"]),
        NODE("Elu", ["h"], ["e"], alpha=0.5),
        NODE("Softmax", ["e"], ["y"]),
    ]
    weight = {"w": np.eye(3, dtype=dtype)}
    made = from_onnx(model(steps, [("x", kind, [2, 3])], [("y", kind, [2, 3])], weight, opset=22))
    (found,) = outputs_of(made, V.astype(dtype))
    assert found.dtype == made.variables["w"].dtype == dtype
    wide = np.where(V < 0, 0.5 * np.expm1(V), V)
    wanted = np.exp(wide) / np.exp(wide).sum(1, keepdims=True)
    np.testing.assert_allclose(found.astype(np.float32), wanted, atol=1e-2)


def test_values_of_inner_graphs():
    """Initializers of a branch, and names of the graph around it."""
    then = graph([NODE("Mul", ["x", "k"], ["a"])], [], [("a", FLOAT, [2, 3])], {"k": V})
    other = graph([NODE("Add", ["x", "w"], ["b"])], [], [("b", FLOAT, [2, 3])])
    steps = [
        NODE("ReduceSum", ["x"], ["total"], keepdims=0),
        NODE("Greater", ["total", "zero"], ["c"]),
        NODE("If", ["c"], ["y"], then_branch=then, else_branch=other),
    ]
    values = {"w": V + 1, "zero": np.asarray(0, np.float32)}
    made = from_onnx(model(steps, X, Y, values))
    np.testing.assert_array_equal(outputs_of(made, V + 3)[0], (V + 3) * V)
    np.testing.assert_array_equal(outputs_of(made, V - 3)[0], V - 3 + V + 1)


def test_an_old_opset_whose_operators_mean_the_same():
    made = from_onnx(model([NODE("Relu", ["x"], ["y"])], X, Y, opset=6))
    np.testing.assert_array_equal(outputs_of(made, V)[0], np.maximum(V, 0))
