"""Models of opsets 1 to 6, beside NumPy, and those that the package onnx ships."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("onnx", reason="needs the package onnx")

import jax
import numpy as np
import onnx
from onnx import helper, numpy_helper

from ipujax.errors import FrontendError
from ipujax.frontends import from_onnx
from tests.ipujax.frontends.onnx_models import model

RANDOM = np.random.default_rng(0)


def normal(*shape: int) -> Any:
    return RANDOM.normal(size=shape).astype(np.float32)


IMAGE, PART, ONES = normal(2, 3, 4, 5), normal(3, 4), np.ones(3, np.float32)
SCALE, BIAS, MEAN, VARIANCE = normal(3), normal(3), normal(3), np.abs(normal(3))
A, B = normal(2, 3), normal(3, 4)


def run_node(
    operator: str,
    opset: int,
    *arrays: Any,
    outputs: int = 1,
    training: bool = False,
    **attributes: Any,
) -> Any:
    """Runs a model of one node, as files of IR version 3 have it."""
    names = [f"x{i}" for i in range(len(arrays))]
    results = [f"y{i}" for i in range(outputs)]
    kinds = [helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype) for array in arrays]
    made = model(
        [helper.make_node(operator, names, results, **attributes)],
        [(n, k, np.shape(a)) for n, k, a in zip(names, kinds, arrays, strict=True)],
        [(name, kinds[0], ["unknown"]) for name in results],
        opset=opset,
    )
    made.ir_version = 3
    constants = {"x1": arrays[1], "x2": arrays[2]} if operator == "Tile" else {}
    converted = from_onnx(made, constants=constants)
    given = [a for n, a in zip(names, arrays, strict=True) if n not in constants]
    values, _ = converted.apply(converted.variables, *given, key=jax.random.key(0))
    return values if outputs > 1 else values[0]


def normalized(x: Any, mean: Any, variance: Any, scale: Any, bias: Any) -> Any:
    by_channel = [np.reshape(v, (1, -1, 1, 1)) for v in (mean, variance, scale, bias)]
    mean, variance, scale, bias = by_channel
    return (x - mean) / np.sqrt(variance + 1e-5) * scale + bias


ALONG_1 = PART[None, :, :, None]
CASES: dict[str, tuple[Any, Any]] = {
    "Add along an axis": (
        lambda: run_node("Add", 6, IMAGE, PART, broadcast=1, axis=1),
        IMAGE + ALONG_1,
    ),
    "Add along a negative axis": (
        lambda: run_node("Add", 6, IMAGE, PART, broadcast=1, axis=-3),
        IMAGE + ALONG_1,
    ),
    "Sub of a suffix": (
        lambda: run_node("Sub", 6, IMAGE, IMAGE[0, 0], broadcast=1),
        IMAGE - IMAGE[0, 0],
    ),
    "Div by a scalar": (
        lambda: run_node("Div", 6, IMAGE, np.float32(3), broadcast=1),
        IMAGE / np.float32(3),
    ),
    "Mul in place": (
        lambda: run_node("Mul", 1, IMAGE, IMAGE, consumed_inputs=[0, 0]),
        IMAGE * IMAGE,
    ),
    "Pow along an axis": (
        lambda: run_node("Pow", 1, abs(IMAGE), PART, broadcast=1, axis=1),
        abs(IMAGE) ** ALONG_1,
    ),
    "Gemm": (
        lambda: run_node("Gemm", 6, A, B, normal(4) * 0 + 2, broadcast=1, beta=0.5),
        A @ B + 1,
    ),
    "PRelu for each channel": (
        lambda: run_node("PRelu", 6, IMAGE, SCALE),
        np.where(IMAGE < 0, SCALE[None, :, None, None] * IMAGE, IMAGE),
    ),
    "PRelu of one slope": (
        lambda: run_node("PRelu", 1, IMAGE, SCALE[:1]),
        np.where(IMAGE < 0, SCALE[0] * IMAGE, IMAGE),
    ),
    "BatchNormalization in inference": (
        lambda: run_node("BatchNormalization", 6, IMAGE, SCALE, BIAS, MEAN, VARIANCE, is_test=1),
        normalized(IMAGE, MEAN, VARIANCE, SCALE, BIAS),
    ),
    "BatchNormalization in training": (
        lambda: run_node("BatchNormalization", 6, IMAGE, SCALE, BIAS, MEAN, VARIANCE),
        normalized(IMAGE, IMAGE.mean((0, 2, 3)), IMAGE.var((0, 2, 3)), SCALE, BIAS),
    ),
    "BatchNormalization of each element": (
        lambda: run_node(
            "BatchNormalization",
            6,
            A[:, :, None],
            SCALE[:, None],
            BIAS[:, None],
            MEAN[:, None],
            VARIANCE[:, None],
            is_test=1,
            spatial=0,
        ),
        ((A - MEAN) / np.sqrt(VARIANCE + 1e-5) * SCALE + BIAS)[:, :, None],
    ),
    "Dropout in inference": (lambda: run_node("Dropout", 6, IMAGE, is_test=1), IMAGE),
    "Upsample": (
        lambda: run_node("Upsample", 1, IMAGE, height_scale=2.0, width_scale=3.0, mode="nearest"),
        IMAGE.repeat(2, 2).repeat(3, 3),
    ),
    "Reshape": (lambda: run_node("Reshape", 1, IMAGE, shape=[6, -1]), IMAGE.reshape(6, 20)),
    "Pad": (
        lambda: run_node("Pad", 1, A, paddings=[0, 1, 2, 0], value=2.0),
        np.pad(A, [(0, 2), (1, 0)], constant_values=2),
    ),
    "Tile": (lambda: run_node("Tile", 1, A, np.float32(2), np.float32(1)), np.tile(A, (1, 2))),
    "Concat": (lambda: run_node("Concat", 1, A, A), np.concatenate([A, A], 1)),
    "Clip": (lambda: run_node("Clip", 1, A, min=-0.5), np.maximum(A, -0.5)),
    "Neg in place": (lambda: run_node("Neg", 1, A, consumed_inputs=[0]), -A),
    "GlobalLpPool": (
        lambda: run_node("GlobalLpPool", 1, IMAGE, p=2.0),
        np.sqrt((IMAGE**2).sum((2, 3), keepdims=True)),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_operators_mean_what_they_meant(case: str) -> None:
    run, wanted = CASES[case]
    np.testing.assert_allclose(run(), wanted, rtol=2e-5, atol=2e-6)


def test_comparisons_and_types() -> None:
    greater = run_node("Greater", 1, IMAGE, PART, broadcast=1, axis=1)
    np.testing.assert_array_equal(greater, IMAGE > ALONG_1)
    cast = run_node("Cast", 1, A * 10, to="INT32")
    assert cast.dtype == np.int32
    np.testing.assert_array_equal(cast, np.trunc(A * 10))
    first, second = run_node("Split", 1, A, outputs=2, axis=1, split=[1, 2])
    np.testing.assert_array_equal(np.concatenate([first, second], 1), A)


def test_dropout_drops_unless_it_is_a_test() -> None:
    dropped = np.asarray(run_node("Dropout", 6, np.ones((64, 64), np.float32), ratio=0.25))
    assert set(np.unique(dropped)) == {np.float32(0), np.float32(1 / 0.75)}
    assert 0.7 < (dropped != 0).mean() < 0.8


def test_training_gives_moving_statistics_and_those_of_the_batch() -> None:
    _, mean, variance, own_mean, own_variance = run_node(
        "BatchNormalization", 6, IMAGE, SCALE, BIAS, MEAN, VARIANCE, outputs=5, momentum=0.75
    )
    wanted_mean, wanted_variance = IMAGE.mean((0, 2, 3)), IMAGE.var((0, 2, 3))
    np.testing.assert_allclose(own_mean, wanted_mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(own_variance, wanted_variance, rtol=1e-4)
    np.testing.assert_allclose(mean, MEAN * 0.75 + wanted_mean * 0.25, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(variance, VARIANCE * 0.75 + wanted_variance * 0.25, rtol=1e-4)


@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
def test_recurrent_layers(name: str) -> None:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[name]
    arrays = normal(4, 2, 3), normal(1, 2 * gates, 3), normal(1, 2 * gates, 2)
    old = run_node(name, 1, *arrays, outputs=2, hidden_size=2, output_sequence=1)
    new = run_node(name, 7, *arrays, outputs=2, hidden_size=2)
    for a, b in zip(old, new, strict=True):
        np.testing.assert_array_equal(a, b)


REFUSED = {
    "no broadcast": (
        lambda: run_node("Add", 6, IMAGE, ONES),
        r"shapes .* and no attribute `broadcast`",
    ),
    "another axis": (
        lambda: run_node("Add", 6, IMAGE, PART, broadcast=1, axis=2),
        "cannot broadcast .* axis 2",
    ),
    "an axis that is not there": (
        lambda: run_node("Add", 6, IMAGE, PART, broadcast=1, axis=3),
        "cannot broadcast",
    ),
    "another type": (lambda: run_node("Cast", 1, A, to="TENSOR"), "no type of ONNX"),
    "Gemm without broadcast": (
        lambda: run_node("Gemm", 6, A, B, normal(4)),
        "no attribute `broadcast`",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    run, message = REFUSED[case]
    with pytest.raises(FrontendError, match=message):
        run()


def shipped_models() -> list[Path]:
    """The folders of models before opset 7 that the package onnx ships with data."""
    root = Path(onnx.__file__).parent / "backend" / "test" / "data"
    paths = sorted(root.glob("pytorch-*/*/model.onnx"))
    return [p.parent for p in paths if onnx.load(p).opset_import[0].version < 7]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("folder", shipped_models(), ids=lambda path: path.name)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_models_that_onnx_ships(folder: Path) -> None:
    def arrays(what: str) -> list[Any]:
        paths = sorted((folder / "test_data_set_0").glob(f"{what}_*.pb"))
        return [numpy_helper.to_array(onnx.load_tensor(str(path))) for path in paths]

    converted = from_onnx(folder / "model.onnx")
    results, _ = converted.apply(converted.variables, *arrays("input"))
    for result, wanted in zip(results, arrays("output"), strict=True):
        if wanted.dtype == np.float64:  # JAX has 32 bits: some of the package's numbers overflow
            is_small = np.isfinite(wanted.astype(np.float32))
            result, wanted = np.asarray(result)[is_small], wanted[is_small]
        np.testing.assert_allclose(result, wanted, rtol=1e-3, atol=1e-5)
