"""What training changes, and what a step of it gives."""

from __future__ import annotations

import dataclasses as dc
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

Tree: TypeAlias = Any
"""A pytree of arrays."""


@jax.tree_util.register_dataclass
@dc.dataclass(frozen=True)
class TrainState:
    """Everything that a training goes on from; a pytree.

    Attributes:
      variables: what is trained, floating-point arrays.
      optimizer_state: of the optimizer, for these variables.
      state: what the model changes without training it, such as moving statistics; None for none.
      step: weight updates so far.
    """

    variables: Tree
    optimizer_state: Tree = None
    state: Tree = None
    step: int = 0


class StepOutput(NamedTuple):
    """What a model may return in place of a loss alone.

    Attributes:
      loss: a floating-point scalar, of one micro-batch.
      send: a pytree to be sent to the host; None for the loss.
      state: the new untrained state, as the model got it.
    """

    loss: jax.Array
    send: Tree = None
    state: Tree = None


def on_device(tree: Tree) -> Tree:
    """Arrays whose dtypes give way to no other, as those of Python numbers would."""

    def strong(leaf: Tree) -> jax.Array:
        array = jnp.asarray(leaf)
        return lax.convert_element_type(array, array.dtype)

    return jax.tree.map(strong, tree)
