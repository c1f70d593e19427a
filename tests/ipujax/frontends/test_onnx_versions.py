"""What ONNX's operators meant in each of their versions, beside onnxruntime."""

import dataclasses as dc
from typing import Any

import pytest

pytest.importorskip("onnx", reason="needs the package onnx")
pytest.importorskip("onnxruntime", reason="compares with onnxruntime")

import numpy as np
import onnxruntime

from tests.ipujax.frontends.onnx_models import of_node
from tests.onnx_operators.compare import check_same, results_of


@dc.dataclass(frozen=True)
class Case:
    operator: str
    opset: int
    inputs: tuple[Any, ...]
    attributes: dict[str, Any]
    outputs: int

    def __str__(self) -> str:
        told = [f"{name}={value}" for name, value in self.attributes.items()]
        return "-".join([self.operator, str(self.opset), *told])


def at(operator: str, opset: int, *inputs: Any, outputs: int = 1, **attributes: Any) -> Case:
    arrays = tuple(None if x is None else np.asarray(x) for x in inputs)
    return Case(operator, opset, arrays, attributes, outputs)


def normal(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


def ints(*numbers: int) -> Any:
    return np.asarray(numbers, np.int64)


def bytes_of(*shape: int, dtype: Any = np.uint8) -> Any:
    return np.random.default_rng(0).integers(0, 100, shape).astype(dtype)


X, CUBE, IMAGE = normal(2, 3), normal(2, 3, 4), normal(1, 8, 2, 4)
TIES = np.asarray([[3, 1, 3, 0], [0, 0, 2, 2]], np.float32)
ONE, TWO = np.asarray(1.0, np.float32), np.asarray([2, 2], np.float32)
SCALES = np.asarray([0.5, 0.1, 0.25], np.float32)

POOLED = {"kernel_shape": [2, 2], "pads": [0, 1, 1, 0]}
NORMAL = (SCALES, SCALES - 1, SCALES * 2, SCALES)
SIZED, EMPTY = np.asarray([1, 1, 2, 1.5], np.float32), np.asarray([], np.float32)
REGION = np.asarray([[0, 0.5, 2.5, 1.5]], np.float32), ints(0)
ALIGNED = {"output_height": 2, "output_width": 2, "sampling_ratio": 2}
GRID = np.tanh(normal(1, 3, 2, 2))


def recurrent(name: str) -> tuple[Any, ...]:
    """Inputs [steps, batch, 3] and weights of a layer with two hidden units."""
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[name]
    return normal(4, 2, 3), normal(1, 2 * gates, 3), normal(1, 2 * gates, 2)


CASES = [
    *(at(name, 12, CUBE) for name in ("Softmax", "LogSoftmax", "Hardmax")),
    *(at(name, 11, CUBE, axis=-2) for name in ("Softmax", "LogSoftmax", "Hardmax")),
    *(at(name, 13, CUBE) for name in ("Softmax", "LogSoftmax", "Hardmax")),
    *(at(name, 13, CUBE, axis=0) for name in ("Softmax", "LogSoftmax", "Hardmax")),
    at("Clip", 7, X, min=-0.5, max=0.25),
    at("Clip", 7, X, min=0.0),
    at("Clip", 12, X, None, ONE * 0.3),
    at("Clip", 13, ints(-5, 0, 7), np.asarray(-2), np.asarray(5)),
    at("Slice", 7, CUBE, starts=[1, -2], ends=[9, -1], axes=[1, 2]),
    at("Slice", 10, CUBE, ints(3), ints(-9), ints(2), ints(-2)),
    at("Slice", 13, CUBE, ints(-1, 0), ints(-(2**63), 2**63 - 1), ints(1, 0), ints(-1, 1)),
    at("Slice", 13, CUBE, ints(0), ints(2)),
    at("Squeeze", 7, CUBE[:1]),
    at("Squeeze", 11, CUBE[:1], axes=[-3]),
    at("Squeeze", 13, CUBE[:1], ints(0)),
    at("Unsqueeze", 7, X, axes=[0, 3]),
    at("Unsqueeze", 13, X, ints(-1, 0)),
    at("Split", 7, CUBE, axis=1, split=[1, 2], outputs=2),
    at("Split", 7, CUBE, axis=2, outputs=2),
    at("Split", 13, CUBE, ints(3, 1), axis=-1, outputs=2),
    at("Split", 18, normal(2, 7), axis=1, num_outputs=3, outputs=3),
    at("Pad", 7, X, pads=[1, 0, 0, 2], value=1.5),
    at("Pad", 10, X, pads=[0, -1, 1, 0], mode="edge"),
    at("Pad", 11, X, ints(0, 2, 1, 1), mode="reflect"),
    at("Pad", 13, X, ints(1, -1, 0, 2), ONE),
    at("Pad", 18, CUBE, ints(1, 2), ONE, ints(-1)),
    at("Pad", 19, X, ints(1, 2, 0, 3), mode="wrap"),
    at("ReduceSum", 11, CUBE, axes=[1, -1], keepdims=0),
    at("ReduceSum", 13, CUBE, ints(0)),
    at("ReduceSum", 13, CUBE, ints(), noop_with_empty_axes=1),
    at("ReduceMean", 11, CUBE, axes=[2]),
    at("ReduceMean", 18, CUBE, ints(2, 0), keepdims=0),
    at("ReduceMax", 12, bytes_of(2, 3, dtype=np.int8), axes=[1]),
    at("ReduceMin", 20, CUBE > 0, ints(1)),
    at("ReduceProd", 13, bytes_of(2, 3, dtype=np.int32)),
    at("ReduceL2", 18, CUBE, ints(-2)),
    at("ReduceLogSumExp", 11, CUBE * 100, axes=[0]),
    at("TopK", 7, TIES, k=2, outputs=2),
    at("TopK", 10, CUBE, ints(2), axis=1, outputs=2),
    at("TopK", 11, TIES, ints(3), largest=0, outputs=2),
    at("TopK", 11, bytes_of(5, dtype=np.int64), ints(3), largest=0, outputs=2),
    at("ArgMax", 11, TIES, axis=1),
    at("ArgMax", 12, TIES, axis=-1, select_last_index=1, keepdims=0),
    at("ArgMin", 13, TIES, axis=1, select_last_index=1),
    at("CumSum", 11, X, np.asarray(1), exclusive=1, reverse=1),
    at("LpNormalization", 7, X, p=1, axis=0),
    at("DepthToSpace", 7, IMAGE, blocksize=2),
    at("DepthToSpace", 11, IMAGE, blocksize=2, mode="CRD"),
    at("SpaceToDepth", 7, IMAGE, blocksize=2),
    at("Flatten", 7, CUBE, axis=0),
    at("Flatten", 11, CUBE, axis=-1),
    at("Reshape", 7, CUBE, ints(0, -1)),
    at("Reshape", 14, np.zeros((0, 3), np.float32), ints(3, 0), allowzero=1),
    at("Gemm", 7, X, X, ONE, alpha=0.5, beta=2.0, transB=1),
    at("Gemm", 11, X, CUBE[0]),
    at("Gemm", 13, CUBE[0], X, normal(4, 1), transA=1, transB=1),
    at("MatMul", 13, bytes_of(2, 3, dtype=np.int32), bytes_of(3, 2, dtype=np.int32)),
    at("Pow", 7, np.abs(X), X),
    at("Pow", 12, bytes_of(3, dtype=np.int32) % 9, TWO[:1] / 4),
    at("Pow", 15, X, ints(2, 3, 1)),
    at("Div", 14, ints(7, -7, 7), ints(2, 2, -2)),
    at("Mod", 10, ints(7, -7, 7), ints(2, 2, -3)),
    at("Mod", 13, X, np.abs(normal(3)), fmod=1),
    at("BitShift", 11, bytes_of(3), bytes_of(3) % 8, direction="LEFT"),
    at("BitShift", 11, bytes_of(3), bytes_of(3) % 8, direction="RIGHT"),
    at("Max", 8, X, normal(3), ONE),
    at("Mean", 8, X, normal(3), ONE),
    at("PRelu", 9, X, normal(3)),
    at("Selu", 7, X, alpha=2.0, gamma=3.0),
    at("Celu", 12, X, alpha=0.5),
    at("Elu", 7, X, alpha=0.5),
    at("ThresholdedRelu", 10, X, alpha=0.2),
    at("Shrink", 9, X, bias=0.1, lambd=0.2),
    at("HardSigmoid", 7, X, alpha=0.3, beta=0.4),
    at("Gelu", 20, X, approximate="tanh"),
    at("IsInf", 10, np.asarray([np.inf, -np.inf, 1, np.nan], np.float32), detect_negative=0),
    at("Round", 11, np.asarray([0.5, 1.5, -2.5, 2.4], np.float32)),
    at("Cast", 9, X * 10, to=6),
    at("Cast", 13, X, to=10),
    at("Cast", 13, X, to=9),
    at("Scatter", 9, X, ints(2, 0).reshape(1, 2), X[:1, :2], axis=1),
    at("ScatterElements", 11, X, ints(-1, 0).reshape(1, 2), X[:1, :2], axis=1),
    at("ScatterElements", 16, X, ints(1, 1).reshape(1, 2), X[:1, :2], reduction="mul", axis=1),
    at("ScatterElements", 18, X, ints(1, 1).reshape(1, 2), X[:1, :2], reduction="max", axis=1),
    at("ScatterND", 11, CUBE, ints(1, 2, 0, -1).reshape(2, 2), normal(2, 4)),
    at("ScatterND", 18, CUBE, ints(1, 1).reshape(2, 1), normal(2, 3, 4), reduction="min"),
    at("Gather", 7, CUBE, ints(-1, 0).reshape(1, 2), axis=1),
    at("GatherElements", 11, X, ints(-1, 0, 1).reshape(1, 3)),
    at("GatherND", 11, CUBE, ints(1, -1).reshape(1, 2)),
    at("GatherND", 12, CUBE, ints(1, -1).reshape(2, 1), batch_dims=1),
    at("OneHot", 9, ints(0, 2), np.asarray(3), normal(2)),
    at("OneHot", 11, ints(-1, 7), ints(3), normal(2), axis=0),
    at("Range", 11, np.asarray(10, np.int32), np.asarray(3, np.int32), np.asarray(-3, np.int32)),
    at("Range", 11, *(np.asarray(v, np.float32) for v in (1, 2, 0.3))),
    at("EyeLike", 9, X, k=1, dtype=7),
    at("Trilu", 14, CUBE, np.asarray(-1), upper=0),
    at("Compress", 9, X, np.asarray([True, False, False, True])),
    at("Compress", 11, X, np.asarray([False, True]), axis=-1),
    at("NonZero", 9, TIES),
    at("Unique", 11, TIES, outputs=4),
    at("Unique", 11, TIES.T, sorted=0, axis=1, outputs=4),
    at("ReverseSequence", 10, CUBE, ints(1, 2), batch_axis=0, time_axis=1),
    at("Shape", 13, CUBE),
    at("Shape", 15, CUBE, start=-2, end=9),
    at("ConstantOfShape", 9, ints(2, 1)),
    at("Expand", 8, X, ints(2, 1, 1)),
    at("Tile", 7, X, ints(2, 2)),
    at("Einsum", 12, X, CUBE, equation="ij,kjl"),
    at("Det", 11, normal(2, 3, 3)),
    at("QuantizeLinear", 10, X, ONE / 4, np.asarray(7, np.uint8)),
    at("QuantizeLinear", 13, X, SCALES, np.asarray([0, 1, 2], np.int8), axis=1),
    at("QuantizeLinear", 21, X, X[:, :2] ** 2 + 0.1, block_size=2, axis=1),
    at("DequantizeLinear", 10, bytes_of(2, 3), ONE / 4),
    at("DequantizeLinear", 13, bytes_of(2, 3), SCALES[:2], bytes_of(2), axis=-2),
    at("DequantizeLinear", 21, bytes_of(2, 3), X[:1] ** 2, bytes_of(1, 3), block_size=2, axis=0),
    at("DynamicQuantizeLinear", 11, X, outputs=3),
    at("MatMulInteger", 10, bytes_of(2, 3), bytes_of(3, 2), bytes_of(1)[0], bytes_of(2)),
    *(at(name, version, IMAGE, **POOLED) for name, version in (("MaxPool", 7), ("LpPool", 7))),
    *(at(name, version, IMAGE, **POOLED) for name, version in (("MaxPool", 8), ("LpPool", 18))),
    at("MaxPool", 8, IMAGE, storage_order=1, outputs=2, **POOLED),
    at("MaxPool", 10, IMAGE, ceil_mode=1, dilations=[1, 2], strides=[1, 2], **POOLED),
    at("AveragePool", 7, IMAGE, count_include_pad=1, **POOLED),
    at("AveragePool", 10, IMAGE, ceil_mode=1, strides=[1, 2], **POOLED),
    at("AveragePool", 11, IMAGE, auto_pad="SAME_LOWER", kernel_shape=[2, 2]),
    at("AveragePool", 19, IMAGE, dilations=[1, 2], **POOLED),
    *(at("BatchNormalization", version, CUBE, *NORMAL) for version in (7, 9, 14)),
    *(at(name, version, X) for name, version in (("Dropout", 7), ("Dropout", 12))),
    *(at(f"Reduce{name}", 11, CUBE, axes=[1]) for name in ("L1", "L2", "SumSquare", "Min")),
    *(at(f"Reduce{name}", 18, CUBE, ints(1)) for name in ("L1", "SumSquare", "LogSumExp", "Max")),
    at("ReduceLogSum", 11, abs(CUBE), axes=[2], keepdims=0),
    at("ReduceLogSum", 18, abs(CUBE), ints(0, 2)),
    at("ReduceProd", 18, CUBE, ints(-1)),
    at("ArgMin", 11, TIES, axis=1),
    at("Upsample", 7, IMAGE, scales=[1.0, 1.0, 2.0, 1.5]),
    at("Upsample", 9, IMAGE, SIZED),
    at("Resize", 10, IMAGE, SIZED, mode="linear"),
    at("Resize", 11, IMAGE, EMPTY, SIZED, nearest_mode="ceil"),
    at("Resize", 13, IMAGE, None, None, ints(1, 8, 3, 3), mode="linear"),
    at("Resize", 18, IMAGE, None, SIZED[2:], axes=[2, 3], antialias=1, mode="linear"),
    *(at("RoiAlign", version, IMAGE, *REGION, **ALIGNED) for version in (10, 16)),
    *(at("GridSample", version, IMAGE, GRID) for version in (16, 20)),
    *(at(name, 7, *recurrent(name), hidden_size=2) for name in ("RNN", "GRU", "LSTM")),
    *(at(name, 14, *recurrent(name), hidden_size=2) for name in ("RNN", "GRU", "LSTM")),
    at("DFT", 17, CUBE[..., None], axis=1),
    at("DFT", 20, CUBE[..., None], None, np.asarray(2), onesided=1),
]


@pytest.mark.sampled(24)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_version(case):
    model = of_node(
        case.operator, *case.inputs, opset=case.opset, outputs=case.outputs, **case.attributes
    )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    given = [x for x in case.inputs if x is not None]
    names = [i.name for i in model.graph.input]
    wanted = session.run(None, dict(zip(names, given, strict=True)))
    for result, value in zip(results_of(model, given), wanted, strict=True):
        check_same(result, np.asarray(value), rtol=1e-5, atol=1e-6)
