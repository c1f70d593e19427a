"""The state of a training, and the output of a step."""

from __future__ import annotations

import dataclasses as dc
from typing import Any, NamedTuple, TypeAlias

import jax

from ipujax.operators import without_weak_type
from ipujax.training.training_checks import check

Tree: TypeAlias = Any
"""A pytree of arrays."""


@check.guard
@jax.tree_util.register_dataclass
@dc.dataclass(frozen=True)
class TrainState:
    """The state that a training goes on from; a pytree.

    Attributes:
      variables: the trained variables: leaves of float and complex. Other leaves are constant.
      optimizer_state: the optimizer's state for these variables.
      state: the untrained state, which the model changes, such as moving statistics; None for none.
      step: weight updates so far, or what `Training.step_size` makes of them.
    """

    variables: Tree
    optimizer_state: Tree = None
    state: Tree = None
    step: int = 0


@check.guard
class StepOutput(NamedTuple):
    """The output of a model that returns more than a loss, or than a result to send.

    Attributes:
      loss: a floating-point scalar, of one micro-batch; an `Inference` needs none.
      send: a pytree to send to the host; None for the loss.
      state: the new untrained state, in the structure that the model got.
      optimizer: the optimizer of this step instead of the training's, with state of the same form,
        such as one whose learning rate the model computes; only without accumulation.
    """

    loss: jax.Array | None = None
    send: Tree = None
    state: Tree = None
    optimizer: Tree = None


def drop_weak_types(tree: Tree) -> Tree:
    """Returns a tree of arrays without weak types, which Python numbers have."""
    return jax.tree.map(without_weak_type, tree)
