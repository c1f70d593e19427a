"""Derivatives of ONNX's operators against finite differences, in double precision."""

import dataclasses as dc
from typing import Any

import pytest

pytest.importorskip("onnx", reason="needs the package onnx")

import jax
import jax.numpy as jnp
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ipujax.frontends import from_onnx
from ipujax.frontends.onnx.operators import ONNX

STEP = 1e-6


@dc.dataclass(frozen=True)
class Case:
    """An operator at one point.

    Attributes:
      inputs: arrays; of floating point if there is a derivative by them. Others are constants.
      attributes: the node's.
      opset: of its domain.
      outputs: how many results there are; integers among them are left out of the derivative.
    """

    inputs: tuple[Any, ...]
    attributes: dict[str, Any] = dc.field(default_factory=dict)
    opset: int = onnx.defs.onnx_opset_version()
    outputs: int = 1


def at(*inputs: Any, opset: int = Case.opset, outputs: int = 1, **attributes: Any) -> Case:
    return Case(inputs, attributes, opset, outputs)


def values(*shape: int, low: float = -2, high: float = 2) -> Any:
    """Different values with none near a whole number, where functions have kinks."""
    size = int(np.prod(shape))
    spread = low + (high - low) * np.random.default_rng(size).permutation(size) / size
    return (np.floor(spread * 4) / 4 + 0.11 + 0.02 * np.arange(size) / size).reshape(shape)


def positive(*shape: int) -> Any:
    return values(*shape, low=0.25, high=2)


def ints(*numbers: int) -> Any:
    return np.asarray(numbers, np.int64)


X = values(2, 3)
POINTS: dict[str, Case] = {
    **{
        name: at(values(6, low=low, high=high))
        for name, (low, high) in {
            "Abs": (-2, 2),
            "Acos": (-0.8, 0.6),
            "Acosh": (1.25, 3),
            "Asin": (-0.8, 0.6),
            "Asinh": (-2, 2),
            "Atan": (-2, 2),
            "Atanh": (-0.8, 0.6),
            "Celu": (-2, 2),
            "Cos": (-2, 2),
            "Cosh": (-2, 2),
            "Elu": (-2, 2),
            "Erf": (-2, 2),
            "Exp": (-2, 2),
            "Gelu": (-2, 2),
            "HardSigmoid": (-4, 4),
            "HardSwish": (-4, 4),
            "Identity": (-2, 2),
            "LeakyRelu": (-2, 2),
            "Log": (0.25, 2),
            "Mish": (-2, 2),
            "Neg": (-2, 2),
            "Reciprocal": (0.25, 2),
            "Relu": (-2, 2),
            "Selu": (-2, 2),
            "Shrink": (-2, 2),
            "Sigmoid": (-2, 2),
            "Sin": (-2, 2),
            "Sinh": (-2, 2),
            "Softplus": (-2, 2),
            "Softsign": (-2, 2),
            "Sqrt": (0.25, 2),
            "Swish": (-2, 2),
            "Tan": (-1, 1),
            "Tanh": (-2, 2),
            "ThresholdedRelu": (-2, 2),
        }.items()
    },
    **{name: at(X, values(3)) for name in ("Add", "Mul", "Sub")},
    **{name: at(X, values(1, 3) + 0.03, values(2, 1)) for name in ("Max", "Mean", "Min", "Sum")},
    **{
        name: at(X + 3 if "Log" in name else X, ints(-1))
        for name in ONNX.names()
        if name.startswith("Reduce")
    },
    "Cast": at(X, to=TensorProto.DOUBLE),
    "CastLike": at(X, values(1)),
    "Clip": at(X, np.asarray(-0.8), np.asarray(0.9)),
    "Compress": at(X, np.asarray([True, False, True]), axis=1),
    "Concat": at(X, values(2, 2), axis=-1),
    "CumProd": at(X, np.asarray(1), exclusive=1),
    "CumSum": at(X, np.asarray(1), reverse=1),
    "DepthToSpace": at(values(1, 4, 1, 2), blocksize=2),
    "Det": at(values(2, 3, 3)),
    "Div": at(X, positive(3)),
    "Einsum": at(X, values(3, 2), equation="ij,jk->ik"),
    "Expand": at(values(2, 1), ints(2, 3)),
    "Flatten": at(values(2, 1, 3)),
    "Gather": at(X, ints(2, -3, 2), axis=1),
    "GatherElements": at(X, ints(1, -1, 0).reshape(1, 3), axis=0),
    "GatherND": at(X, ints(0, 2, 1, -1).reshape(2, 2)),
    "Gemm": at(X, values(4, 3), values(4), alpha=0.5, beta=2.0, transB=1),
    "LogSoftmax": at(X),
    "LpNormalization": at(X),
    "MatMul": at(values(2, 2, 3), values(3, 2)),
    "Mod": at(X, positive(3), fmod=1),
    "OneHot": at(ints(0, 2), ints(3), values(2)),
    "PRelu": at(X, positive(3)),
    "Pad": at(X, ints(1, -1, 0, 2), values(1)[0], mode="constant"),
    "Pow": at(positive(2, 3), values(3)),
    "Reshape": at(X, ints(3, -1)),
    "ReverseSequence": at(X, ints(2, 3), batch_axis=0, time_axis=1),
    "Scatter": at(X, ints(1, 0).reshape(1, 2), values(1, 2), opset=10),
    "ScatterElements": at(X, ints(1, 1, 0).reshape(1, 3), values(1, 3), reduction="add"),
    "ScatterND": at(X, ints(1, 0).reshape(2, 1), values(2, 3)),
    "Slice": at(X, ints(-1), ints(-9), ints(1), ints(-2)),
    "Softmax": at(X),
    "SpaceToDepth": at(values(1, 1, 2, 4), blocksize=2),
    "Split": at(X, ints(1, 2), axis=1, outputs=2),
    "Squeeze": at(values(2, 1, 3), ints(1)),
    "SwiGLU": at(X, values(2, 3) + 1),
    "TensorScatter": at(values(2, 4, 1), values(2, 2, 1), ints(1, 0)),
    "Tile": at(X, ints(2, 1)),
    "TopK": at(X, ints(2), outputs=2),
    "Transpose": at(X),
    "Trilu": at(X),
    "Unsqueeze": at(X, ints(0, -1)),
    "Where": at(np.asarray([True, False, True]), X, values(2, 1)),
}


def model_of(name: str, case: Case) -> onnx.ModelProto:
    names = [f"x{i}" for i in range(len(case.inputs))]
    results = [f"y{i}" for i in range(case.outputs)]
    node = helper.make_node(name, names, results, **case.attributes)
    arrays = dict(zip(names, case.inputs, strict=True))
    inputs = [
        helper.make_tensor_value_info(n, TensorProto.DOUBLE, v.shape)
        for n, v in arrays.items()
        if v.dtype == np.float64
    ]
    constants = [numpy_helper.from_array(v, n) for n, v in arrays.items() if v.dtype != np.float64]
    outputs = [helper.make_tensor_value_info(n, TensorProto.DOUBLE, ["not read"]) for n in results]
    graph = helper.make_graph([node], name, inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", case.opset)])


def check_derivative(model: Any, inputs: tuple[Any, ...]) -> None:
    """That of a weighted sum of all outputs, along one direction."""

    def weighted(*arrays: Any) -> Any:
        outputs = model.apply(model.variables, *arrays)[0]
        real = [y for y in outputs if jnp.issubdtype(y.dtype, jnp.floating)]
        return sum(jnp.vdot(y, jnp.cos(jnp.arange(y.size) + 1.0)) for y in real)

    directions = [np.sin(np.arange(x.size) + 1.0).reshape(x.shape) for x in inputs]
    grads = jax.grad(weighted, range(len(inputs)))(*inputs)
    given = sum(np.vdot(g, d) for g, d in zip(grads, directions, strict=True))
    after, before = (
        weighted(*(x + sign * STEP * d for x, d in zip(inputs, directions, strict=True)))
        for sign in (1, -1)
    )
    assert given != 0
    np.testing.assert_allclose(given, (after - before) / (2 * STEP), rtol=1e-6, atol=1e-8)


@pytest.mark.sampled(16)
@pytest.mark.parametrize("name", POINTS)
def test_derivative(name):
    case = POINTS[name]
    with jax.enable_x64(True):
        model = from_onnx(model_of(name, case))
        check_derivative(model, tuple(x for x in case.inputs if x.dtype == np.float64))
