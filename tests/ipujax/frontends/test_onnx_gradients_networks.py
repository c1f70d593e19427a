"""Derivatives of ONNX's layers, losses, images and signals against finite differences."""

import dataclasses as dc
from typing import Any

import pytest

pytest.importorskip("onnx", reason="needs the package onnx")

import jax
import numpy as np
from onnx import TensorProto

from ipujax.doors.onnx.operators import ONNX
from ipujax.frontends import from_onnx
from tests.ipujax.frontends import test_onnx_gradients as others
from tests.ipujax.frontends.onnx_points import (
    Case,
    at,
    check_derivative,
    ints,
    model_of,
    positive,
    values,
)

DOUBLE = TensorProto.DOUBLE
IMAGE = values(1, 2, 4, 4)
SEQUENCE = values(3, 2, 2)
CHANNELS = (values(2), values(2) + 1)


def recurrent(gates: int, directions: int = 1, units: int = 2) -> tuple[Any, ...]:
    """An input [3, 2, 2] and the weights of a layer, and the lengths of its sequences."""
    return (
        SEQUENCE,
        values(directions, gates * units, 2),
        values(directions, gates * units, units) * 0.5,
        values(directions, 2 * gates * units),
        np.asarray([3, 2], np.int32),
        values(directions, 2, units),
    )


def floats(*numbers: float) -> Any:
    """Values that are constants."""
    return np.asarray(numbers, np.float32)


POINTS: dict[str, list[Case]] = {
    "AffineGrid": [at(values(2, 2, 3), ints(2, 1, 2, 3), align_corners=1)],
    "Attention": [
        at(values(1, 4, 2, 3), values(1, 2, 3, 3), values(1, 2, 3, 2), is_causal=1, softcap=2.0,
           softmax_precision=DOUBLE),
        at(values(1, 2, 4), values(1, 2, 2), values(1, 2, 2) + 1, values(2, 3),
           values(1, 1, 1, 2), values(1, 1, 1, 2) + 1, q_num_heads=2, kv_num_heads=1, outputs=4,
           softmax_precision=DOUBLE),
        at(values(1, 1, 3, 2), values(1, 1, 3, 2), values(1, 1, 3, 2), None, None, None, ints(2),
           is_causal=1, softmax_precision=DOUBLE),
    ],
    "AveragePool": [
        at(IMAGE, kernel_shape=[3, 2], pads=[1, 0, 0, 1], strides=[2, 2], ceil_mode=1),
        at(IMAGE, kernel_shape=[2, 2], dilations=[2, 1], pads=[1] * 4, count_include_pad=1),
    ],
    "BatchNormalization": [
        at(IMAGE, *CHANNELS, values(2), positive(2), training_mode=1, outputs=3),
        at(IMAGE, *CHANNELS, values(2), positive(2)),
        at(IMAGE, *CHANNELS, values(2), positive(2), opset=9, outputs=5),
        at(values(2, 3), values(3), values(3), values(3), positive(3), opset=7, spatial=0),
    ],
    "CausalConvWithState": [
        at(values(1, 2, 4), values(2, 1, 3), values(2), values(1, 2, 2), activation="silu",
           outputs=2, single=True),
    ],
    "CenterCropPad": [at(IMAGE, ints(6, 3), axes=[2, -1])],
    "Col2Im": [at(values(1, 4, 4), ints(3, 3), ints(2, 2))],
    "Conv": [
        at(IMAGE, values(4, 1, 3, 3), values(4), group=2, strides=[2, 1], auto_pad="SAME_LOWER"),
        at(values(1, 2, 6), values(2, 2, 2), dilations=[2], pads=[1, 0]),
    ],
    "ConvTranspose": [
        at(values(1, 2, 3, 3), values(2, 2, 2, 3), values(4), group=2, strides=[2, 1],
           output_padding=[1, 0], pads=[1, 0, 0, 1], dilations=[1, 2]),
        at(values(1, 2, 3), values(2, 1, 2), strides=[2], output_shape=[5]),
    ],
    "DFT": [
        at(values(2, 5, 1), None, ints(1)[0]),
        at(values(2, 4, 2), ints(6)[0], ints(1)[0], inverse=1),
        at(values(2, 4, 1), axis=1, onesided=1, opset=19),
        at(values(2, 3, 2), axis=1, onesided=1, inverse=1, opset=19),
    ],
    "DeformConv": [
        at(IMAGE, values(2, 1, 2, 2), values(1, 8, 3, 3), values(2), positive(1, 4, 3, 3), group=2)
    ],
    "Dropout": [
        at(IMAGE, floats(0.5)[0], np.asarray(True), seed=3),
        at(IMAGE, opset=10), at(IMAGE, opset=7),
    ],
    "GRU": [
        at(*recurrent(3), hidden_size=2, outputs=2),
        at(*recurrent(3, 2), hidden_size=2, linear_before_reset=1, direction="bidirectional",
           outputs=2),
    ],
    "GlobalAveragePool": [at(IMAGE)],
    "GlobalLpPool": [at(IMAGE, p=3)],
    "GlobalMaxPool": [at(IMAGE)],
    "GridSample": [
        at(IMAGE, values(1, 2, 3, 2) * 0.7, mode=mode, padding_mode=padding, align_corners=aligned)
        for mode, padding, aligned in (
            ("linear", "zeros", 1), ("linear", "border", 0), ("linear", "reflection", 0),
            ("cubic", "zeros", 0),
        )
    ],
    "GroupNormalization": [
        at(values(2, 4, 3), values(4), values(4), num_groups=2, stash_type=DOUBLE)
    ],
    "InstanceNormalization": [at(values(2, 2, 3), *CHANNELS)],
    "LRN": [at(values(1, 4, 2, 2), size=3, alpha=0.5)],
    "LSTM": [
        at(*recurrent(4), values(1, 2, 2), values(1, 6), hidden_size=2, outputs=3, clip=3.0,
           direction="reverse"),
        at(*recurrent(4, 2), hidden_size=2, outputs=3, direction="bidirectional", input_forget=1,
           activations=["HardSigmoid", "ScaledTanh", "Affine"] * 2,
           activation_alpha=[0.1, 0.8, 1.1] * 2, activation_beta=[0.45, 0.7, 0.1] * 2),
    ],
    "LayerNormalization": [
        at(values(2, 3, 2), values(3, 2), values(2), axis=1, outputs=3, single=True)
    ],
    "LinearAttention": [
        at(values(1, 3, 4), values(1, 3, 2), values(1, 3, 2) + 1, values(1, 1, 2, 2),
           values(1, 3, 1), positive(1, 3, 1), q_num_heads=2, kv_num_heads=1, outputs=2,
           single=True),
        at(values(1, 3, 2), values(1, 3, 2) + 1, values(1, 3, 2), q_num_heads=1, kv_num_heads=1,
           update_rule="linear", outputs=2, single=True),
    ],
    "LpPool": [at(IMAGE, kernel_shape=[2, 2], p=3, dilations=[1, 2])],
    "MaxPool": [
        at(IMAGE, kernel_shape=[2, 3], strides=[2, 1], pads=[0, 1, 1, 1], ceil_mode=1),
        at(IMAGE, kernel_shape=[2, 2], dilations=[2, 2], outputs=2),
    ],
    "MaxRoiPool": [at(IMAGE, np.asarray([[0.0, 0, 1, 3, 3]]), pooled_shape=[2, 2], constants=(1,))],
    "MaxUnpool": [
        at(values(1, 1, 2, 2), ints(1, 6, 8, 15).reshape(1, 1, 2, 2), kernel_shape=[2, 2],
           strides=[2, 2])
    ],
    "MeanVarianceNormalization": [at(values(2, 2, 2, 2))],
    "NegativeLogLikelihoodLoss": [
        at(values(3, 4, 2), ints(0, 3, 1, 2, 2, 2).reshape(3, 2), positive(4), reduction=reduction,
           ignore_index=2)
        for reduction in ("mean", "sum", "none")
    ],
    "RMSNormalization": [at(values(2, 3), values(3), stash_type=DOUBLE)],
    "RNN": [
        at(*recurrent(1), hidden_size=2, outputs=2),
        at(SEQUENCE, *recurrent(1, 2)[1:3], hidden_size=2, direction="bidirectional", outputs=2,
           activations=["Softsign", "Softplus"], layout=1),
    ],
    "Resize": [
        at(IMAGE, None, None, ints(6, 3), axes=[2, 3], mode=mode, **attributes)
        for mode, attributes in (
            ("linear", {}), ("cubic", {"antialias": 1}), ("nearest", {}),
            ("linear", {"coordinate_transformation_mode": "align_corners"}),
            ("cubic", {"exclude_outside": 1, "keep_aspect_ratio_policy": "not_larger"}),
        )
    ],
    "RoiAlign": [
        at(IMAGE, np.asarray([[0.3, 0.2, 3.1, 2.7]]), ints(0), output_height=2,
           output_width=2, constants=(1,), **attributes)
        for attributes in ({}, {"sampling_ratio": 2, "mode": "max"}, {"opset": 10})
    ],
    "RotaryEmbedding": [
        at(values(1, 2, 2, 4), values(3, 1), values(3, 1) + 1, ints(2, 0).reshape(1, 2),
           rotary_embedding_dim=2, single=True),
        at(values(1, 2, 4), values(1, 2, 1), values(1, 2, 1) + 1, num_heads=2, interleaved=1,
           single=True),
    ],
    "STFT": [at(values(1, 8, 1), ints(2)[0], positive(4))],
    "SoftmaxCrossEntropyLoss": [
        at(values(3, 4), ints(0, 3, 2), positive(4), ignore_index=2, outputs=2)
    ],
    "Upsample": [
        at(IMAGE, floats(1, 1, 2, 1.5), mode="linear", opset=9),
        at(IMAGE, scales=[1.0, 1.0, 2.0, 2.0], opset=7),
    ],
    "ai.onnx.ml.ArrayFeatureExtractor": [at(values(2, 3), ints(2, 0))],
    "ai.onnx.ml.FeatureVectorizer": [at(values(2, 3), values(2, 1))],
    "ai.onnx.ml.Imputer": [
        at(values(2, 3), imputed_value_floats=[1.0], replaced_value_float=float("nan"))
    ],
    "ai.onnx.ml.LinearClassifier": [
        at(values(2, 3), coefficients=[0.1, -1.0, 2.0], intercepts=[0.3], classlabels_ints=[0, 1],
           post_transform=transform, outputs=2)
        for transform in ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")
    ],
    "ai.onnx.ml.LinearRegressor": [
        at(values(2, 3), coefficients=[0.1, -1.0, 2.0] * 2, targets=2)
    ],
    "ai.onnx.ml.Normalizer": [at(values(2, 3), norm=norm) for norm in ("MAX", "L1", "L2")],
    "ai.onnx.ml.Scaler": [at(values(2, 3), offset=[0.5], scale=[1.0, 2.0, 3.0])],
    "ai.onnx.preview.FlexAttention": [
        at(values(1, 2, 2, 3), values(1, 1, 3, 3), values(1, 1, 3, 2), softmax_precision=DOUBLE)
    ],
    **{
        f"ai.onnx.preview.training.{name}": [
            at(np.asarray(0.1), ints(2)[0], *(positive(3) + i for i in range(count)),
               outputs=count - 1, **attributes)
        ]
        for name, count, attributes in (
            ("Adagrad", 3, {}), ("Adam", 4, {}),
            ("Momentum", 3, {"alpha": 0.9, "beta": 0.5, "mode": "nesterov",
                             "norm_coefficient": 0.1}),
        )
    },
}  # fmt: skip

WITHOUT = {
    "And", "ArgMax", "ArgMin", "Bernoulli", "BitCast", "BitShift", "BitwiseAnd", "BitwiseNot",
    "BitwiseOr", "BitwiseXor", "BlackmanWindow", "Ceil", "Constant", "ConstantOfShape",
    "ConvInteger", "DequantizeLinear", "DynamicQuantizeLinear", "Equal", "EyeLike", "Floor",
    "Greater", "GreaterOrEqual", "HammingWindow", "HannWindow", "Hardmax", "ImageDecoder", "IsInf",
    "IsNaN", "Less", "LessOrEqual", "MatMulInteger", "MelWeightMatrix", "Multinomial",
    "NonMaxSuppression", "NonZero", "Not", "Or", "QLinearConv", "QLinearMatMul", "QuantizeLinear",
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Range", "Round",
    "Shape", "Sign", "Size", "Unique", "Xor", "ai.onnx.ml.Binarizer", "ai.onnx.ml.ZipMap",
    "ai.onnx.preview.training.Gradient",
}  # fmt: skip
"""Operators of numbers that have no derivative or one of zero, and those that are refused."""

CONTROL = {"If", "Loop", "Scan"}
"""Operators with graphs inside, which `test_onnx_control.py` differentiates."""

CASES = [(name, case) for name, cases in POINTS.items() for case in cases]
IDS = [f"{name}-{i}" for i, (name, _) in enumerate(CASES)]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("name", "case"), CASES, ids=[f"{n}-{i}" for i, (n, _) in enumerate(CASES)]
)
def test_derivative(name, case):
    domain, _, operator = name.rpartition(".")
    opset = 1 if domain and case.opset == Case.opset else case.opset
    case = dc.replace(case, opset=opset, domain=domain)
    with jax.enable_x64(True):
        check_derivative(from_onnx(model_of(operator, case)), case)


def test_every_operator_is_differentiated_or_has_no_derivative():
    told = POINTS.keys() | others.POINTS.keys() | WITHOUT | CONTROL
    assert {
        n for n in ONNX.list_operator_names() if not n.startswith("ai.graphcore")
    } - told == set()
