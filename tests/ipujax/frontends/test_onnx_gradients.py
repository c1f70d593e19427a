"""Derivatives of ONNX's operators against finite differences, in double precision."""

import pytest

pytest.importorskip("onnx", reason="needs the package onnx")

import jax
import numpy as np
from onnx import TensorProto

from ipujax.doors.onnx.operators import ONNX
from ipujax.frontends import from_onnx
from tests.ipujax.frontends.onnx_points import (
    Case,
    at,
    check_derivative,
    ints,
    model_of,
    positive,
    values,
)

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
        for name in ONNX.list_operator_names()
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


@pytest.mark.sampled(16)
@pytest.mark.parametrize("name", POINTS)
def test_derivative(name):
    case = POINTS[name]
    with jax.enable_x64(True):
        model = from_onnx(model_of(name, case))
        check_derivative(model, case)
