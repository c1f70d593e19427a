"""PopART's own layers, against PyTorch; gradients too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")
pytest.importorskip("torch", reason="the extra torch is not installed")

import torch

from ipujax import popart
from ipujax.doors.graphs import Call, Node
from ipujax.doors.onnx.operators import graphcore_layers as layers

DRAW = np.random.default_rng(0)


def drawn(*shape: int) -> np.ndarray:
    return DRAW.normal(size=shape).astype(np.float32)


def agree(ours: Callable[..., Any], theirs: Callable[..., Any], *arrays: np.ndarray) -> None:
    """Compares results, and gradients of their sum of squares."""
    tensors = [torch.tensor(array, requires_grad=True) for array in arrays]
    expected = theirs(*tensors)
    sum((e**2).sum() for e in expected).backward()

    def loss(*arrays: Any) -> tuple[Any, Any]:
        results = ours(*arrays)
        return sum((r**2).sum() for r in results), results

    places = tuple(range(len(arrays)))
    gradients, results = jax.grad(loss, places, has_aux=True)(*map(jax.numpy.asarray, arrays))
    for result, other in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, other.detach().numpy(), rtol=1e-4, atol=1e-5)
    for gradient, tensor in zip(gradients, tensors, strict=True):
        wanted: Any = tensor.grad
        np.testing.assert_allclose(gradient, wanted.numpy(), rtol=2e-3, atol=1e-4)


@pytest.mark.exhaustive
@pytest.mark.parametrize("output_full_sequence", [1, 0])
def test_lstm(output_full_sequence: int) -> None:
    forget, enter, new, out = range(4)

    def theirs(x: Any, weights: Any, bias: Any, state: Any) -> Any:
        hidden, cell = state
        steps = []
        for entry in x:
            gates = torch.cat([entry, hidden], 1) @ weights + bias[:, None]
            cell = gates[forget].sigmoid() * cell + gates[enter].sigmoid() * gates[new].tanh()
            hidden = gates[out].sigmoid() * cell.tanh()
            steps.append(hidden)
        return torch.stack(steps) if output_full_sequence else hidden, cell

    def ours(*arrays: Any) -> Any:
        return layers.lstm(*arrays, output_full_sequence=output_full_sequence)  # type: ignore

    agree(ours, theirs, drawn(3, 2, 4), drawn(4, 9, 5), drawn(4, 5), drawn(2, 2, 5))


@pytest.mark.exhaustive
def test_lstm_ends_with_its_sequences() -> None:
    x, weights = drawn(4, 2, 3), drawn(4, 5, 2)
    outputs, cell = layers.lstm(x, weights, lengths=np.array([4, 2]))  # type: ignore
    _, shorter = layers.lstm(x[:2, 1:], weights)  # type: ignore
    np.testing.assert_allclose(cell[1:], shorter, rtol=1e-6)
    assert not outputs[2:, 1].any()


@pytest.mark.exhaustive
def test_convolutions_side_by_side() -> None:
    def theirs(x: Any, v: Any, y: Any, w: Any, b: Any) -> Any:
        first = torch.nn.functional.conv1d(x, v, padding=1, dilation=2)
        return first, torch.nn.functional.conv2d(y, w, b, stride=(1, 2))

    def ours(x: Any, v: Any, y: Any, w: Any, b: Any) -> Any:
        return layers.multi_conv(
            x, v, None, y, w, b,
            numConvs=2, pads=[1, 1, 0, 0, 0, 0], dilations=[2, 1, 1], strides=[1, 1, 2],
        )  # fmt: skip

    agree(
        ours, theirs, drawn(2, 3, 8), drawn(4, 3, 3), drawn(1, 2, 5, 6), drawn(3, 2, 2, 2), drawn(3)
    )


def test_moving_variances_are_unbiased() -> None:
    x, scale, bias, mean = drawn(4, 3, 5), drawn(3), drawn(3), drawn(3)
    variance = np.abs(drawn(3))
    layer = torch.nn.BatchNorm1d(3, momentum=0.2, eps=1e-3)
    layer.load_state_dict(
        {
            "weight": torch.tensor(scale),
            "bias": torch.tensor(bias),
            "running_mean": torch.tensor(mean),
            "running_var": torch.tensor(variance),
            "num_batches_tracked": torch.tensor(0),
        }
    )
    call = Call(Node("", results=("y", "mean", "variance", "m", "v")), 0, {}, None)
    found = layers.batch_normalization(call, x, scale, bias, mean, variance, epsilon=1e-3,
                                       momentum=0.8)  # type: ignore  # fmt: skip
    expected: Any = layer(torch.tensor(x)), layer.running_mean, layer.running_var
    for one, other in zip(found, expected, strict=False):
        np.testing.assert_allclose(one, other.detach().numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[4], x.var((0, 2), ddof=1), rtol=1e-4)


def test_multiconv_in_a_builder() -> None:
    builder = popart.Builder()
    data = [
        builder.addInputTensor(popart.TensorInfo("FLOAT", s)) for s in ([1, 2, 6], [1, 2, 4, 4])
    ]
    weights = [builder.addInitializedInputTensor(drawn(*s)) for s in ((3, 2, 3), (5, 2, 2, 2))]
    pairs = list(zip(data, weights, strict=True))
    bias = builder.addInitializedInputTensor(drawn(5))
    first, second = builder.aiGraphcore.multiconv(
        [pairs[0], [*pairs[1], bias]], strides=[[2], [1, 1]], pads=[[1, 0], [0, 0, 1, 1]]
    )
    assert builder.getTensorShape(first) == [1, 3, 3]
    assert builder.getTensorShape(second) == [1, 5, 4, 4]
    with pytest.raises(popart.popart_exception, match="at least two inputs"):
        builder.aiGraphcore.multiconv([[data[0]]])
    with pytest.raises(popart.popart_exception, match=r"strides parameter sets \(1\)"):
        builder.aiGraphcore.multiconv(pairs, strides=[[1]])
