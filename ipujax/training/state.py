"""What training changes, and what a step of it gives."""

from __future__ import annotations

import dataclasses as dc
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

from ipujax.training.checks import check

Tree: TypeAlias = Any
"""A pytree of arrays."""


@check.guard
@jax.tree_util.register_dataclass
@dc.dataclass(frozen=True)
class TrainState:
    """Everything that a training goes on from; a pytree.

    Attributes:
      variables: what is trained: its leaves of float and complex. Other leaves stay as they are.
      optimizer_state: of the optimizer, for these variables.
      state: what the model changes without training it, such as moving statistics; None for none.
      step: weight updates so far, or what `Training.step_size` makes of them.
    """

    variables: Tree
    optimizer_state: Tree = None
    state: Tree = None
    step: int = 0


@check.guard
class StepOutput(NamedTuple):
    """What a model may return in place of a loss, or of what an `Inference` sends, alone.

    Attributes:
      loss: a floating-point scalar, of one micro-batch; an `Inference` needs none.
      send: a pytree to be sent to the host; None for the loss.
      state: the new untrained state, as the model got it.
      optimizer: for this step, in the place of the training's and with state of the same form, as
        where a learning rate is computed by the model; only without accumulation.
    """

    loss: jax.Array | None = None
    send: Tree = None
    state: Tree = None
    optimizer: Any = None


def on_device(tree: Tree) -> Tree:
    """Arrays whose dtypes give way to no other, as those of Python numbers would."""

    def strong(leaf: Tree) -> jax.Array:
        if isinstance(leaf, jax.Array) and not getattr(leaf, "weak_type", False):  # keys have none
            return leaf
        array = jnp.asarray(leaf)
        return lax.convert_element_type(array, array.dtype)

    return jax.tree.map(strong, tree)
