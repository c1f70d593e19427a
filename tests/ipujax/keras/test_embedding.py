"""The layer Embedding: lookups, gradients, and what it does not take."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from ipujax.errors import ConfigTypeError, OperatorError

keras = pytest.importorskip("keras")
from ipujax.keras import layers  # noqa: E402


def embedding(table: np.ndarray[Any, Any], **options: Any) -> Any:
    initial = keras.initializers.Constant(table)
    return layers.Embedding(*table.shape, embeddings_initializer=initial, **options)


@pytest.mark.parametrize("ids", [[[1, 2, 3]], [[1, 2, 3], [3, 4, 5]]])
@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.float32])
def test_rows_are_looked_up(ids, dtype):
    table = np.array([[10], [20], [80], [40], [50], [60]], np.float32)
    np.testing.assert_array_equal(embedding(table)(np.array(ids, dtype)), table[np.array(ids)])


def test_a_large_table():
    table = np.arange(240000, dtype=np.float32).reshape(1200, 200)
    ids = np.arange(0, 8, dtype=np.int32)[None]
    layer = embedding(table)
    np.testing.assert_array_equal(layer(ids), table[ids])
    assert [(v.name, v.shape) for v in layer.variables] == [("embeddings", (1200, 200))]


def test_the_gradient_adds_rows_up():
    layer = embedding(np.zeros((4, 2), np.float32))
    layer.build((1, 3))

    def total(table: Any) -> Any:
        return layer.stateless_call([table], [], np.array([[1, 1, 3]]))[0].sum()

    expected = np.outer([0, 2, 0, 1], [1, 1])
    np.testing.assert_array_equal(jax.grad(total)(np.zeros((4, 2), np.float32)), expected)


def test_in_a_model():
    model = keras.Sequential([keras.Input((3,)), layers.Embedding(5, 2)])
    assert model.output_shape == (None, 3, 2)
    assert layers.Embedding(5, 2).compute_output_shape((None, 3)) == (None, 3, 2)


@pytest.mark.fact("embedding.layer_bad_shape")
@pytest.mark.parametrize("shape", [(16,), (2, 3, 4)])
def test_other_ranks_are_refused(shape):
    with pytest.raises(OperatorError, match=r"input shape .* should be a 2D \(batch, length\)"):
        layers.Embedding(32, 4)(np.zeros(shape, np.int32))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("embeddings_regularizer", "l2"),
        ("activity_regularizer", "l2"),
        ("embeddings_constraint", "non_neg"),
        ("mask_zero", True),
        ("input_length", 3),
    ],
)
def test_arguments_of_keras_alone_are_refused(name, value):
    with pytest.raises(OperatorError, match=f"the {name} of Embedding"):
        layers.Embedding(3, 4, **{name: value})
    layers.Embedding(3, 4, **{name: False if name == "mask_zero" else None})
    with pytest.raises(ValueError, match="lora_rank"):
        layers.Embedding(3, 4, lora_rank=2)


def test_dimensions_that_cannot_be_are_refused():
    with pytest.raises(OperatorError, match="the input_dim of"):
        layers.Embedding(0, 4)
    with pytest.raises(OperatorError, match="the output_dim of"):
        layers.Embedding(3, -1)
    with pytest.raises(ConfigTypeError, match="the output_dim of"):
        layers.Embedding(3, 1.5)
