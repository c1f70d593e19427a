"""Lookups in a trained table, as a layer."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from ipujax.ground import Json, PyTree, check
from ipujax.keras.layers.shared import (
    Layer,
    convert_variable,
    keras,
    refuse_unsupported,
    resolve_initializer,
    serializable,
)
from ipujax.operators import host_embedding as embedding_ops

_UNSUPPORTED = {
    "embeddings_regularizer": None,
    "activity_regularizer": None,
    "embeddings_constraint": None,
    "mask_zero": False,
    "input_length": None,
}


@check.guard
@serializable
class Embedding(Layer):
    """Looks up rows of a table: `[batch, length]` to `[batch, length, output_dim]`.

    Seed 001, 18.13; on `embedding_ops.embedding_lookup`. Its variable is `embeddings`,
    `[input_dim, output_dim]`.

    Args:
      input_dim: the number of rows, at least 1.
      output_dim: the length of a row, at least 0.
      embeddings_initializer: an initializer of Keras, or its name.
      **kwargs: arguments of `keras.layers.Layer`, except `activity_regularizer`.

    Raises:
      OperatorError: (a `ValueError`) for other dimensions, and for arguments that only Keras's own
        `Embedding` has; when built, for inputs that are not `[batch, length]` (fact
        `embedding.layer_bad_shape`).
      ConfigTypeError: (a `TypeError`) for dimensions that are no integers.
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        embeddings_initializer: Any = "uniform",
        **kwargs: Any,
    ):
        refuse_unsupported("Embedding", kwargs, _UNSUPPORTED, "keras.layers.Embedding")
        super().__init__(**{key: kwargs[key] for key in kwargs if key not in _UNSUPPORTED})
        self.input_dim = check.require_integer(input_dim, f"the input_dim of {self.name}", 1)
        self.output_dim = check.require_integer(output_dim, f"the output_dim of {self.name}", 0)
        self.embeddings_initializer = resolve_initializer(embeddings_initializer, "uniform")
        self.autocast = False  # of the inputs, which are integers

    def build(self, input_shape: Any) -> None:
        """Makes the table."""
        if len(input_shape) != 2:
            raise check.value_error(
                f"the input shape of {self.name} is {list(input_shape)}, but should be a 2D "
                "(batch, length)",
                "reshape the indices, as keras.ops.reshape(indices, (batch, -1))",
            )
        self.embeddings = self.add_weight(
            shape=(self.input_dim, self.output_dim),
            initializer=self.embeddings_initializer,
            name="embeddings",
        )

    def call(self, inputs: PyTree, training: bool | None = None) -> PyTree:
        """Returns the rows of the table at the inputs; `training` changes nothing.

        Inputs that are no integers, as Keras's own inputs are by default, are cast to int32.
        """
        if not jnp.issubdtype(inputs.dtype, jnp.integer):
            inputs = jnp.asarray(inputs, jnp.int32)
        table = convert_variable(self.embeddings, self.compute_dtype)
        return embedding_ops.embedding_lookup(table, inputs, self.name)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Returns the shape of the inputs with the length of a row appended."""
        return (*input_shape, self.output_dim)

    def get_config(self) -> dict[str, Json]:
        """Returns the arguments of the layer."""
        return super().get_config() | {
            "input_dim": self.input_dim,
            "output_dim": self.output_dim,
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
        }
