"""Keras's training step, taken apart: gradients of a micro-batch, and the weight update."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Any

import jax
import optax

from ipujax.keras.checks import check
from ipujax.training.state import Tree
from lowering import ops

Arrays = list[jax.Array]


class Update:
    """A model's `train_step` in two: its gradients, and what its optimizer makes of them.

    Args:
      model: a compiled Keras model, whose `train_step`, its own or Keras's, calls
        `self.optimizer.stateless_apply` once.
    """

    def __init__(self, model: Any):
        self._model = model

    def gradients(
        self, kept: Arrays, trained: Arrays, optimizer: Arrays, metrics: Arrays, batch: Any
    ) -> tuple[Arrays, Tree, Arrays, Arrays]:
        """Gradients of a batch, what the step says, new non-trainable and metrics' variables.

        Args:
          kept: the non-trainable variables.
          trained: the trainable variables.
          optimizer: its variables, for the scale of the loss.
          metrics: their variables.
          batch: as Keras's step takes it.

        Raises:
          KerasError: (a `ValueError`) a step that makes no update, or several.
        """
        model = self._model
        with _collecting(model.optimizer) as collected:
            said, state = model.train_step((trained, kept, optimizer, metrics), batch)
        if len(collected) != 1:
            raise check.refuse(
                f"train_step of model {model.name!r} calls self.optimizer.stateless_apply "
                f"{len(collected)} times; replicas and gradient accumulation need one call, whose "
                "gradients they average",
                "compute all gradients first, and apply them once; or train without accumulation "
                "on a device with the IPUs of one replica",
            )
        return collected[0], said, state[1], state[3]

    def optimizer(
        self,
        form: Callable[[Arrays], Tree] = list,
        formless: Callable[[Tree], Arrays] = list,
    ) -> optax.GradientTransformation:
        """The model's optimizer, as one of optax; its state are the optimizer's variables.

        Args:
          form: gives a list of trainable variables the form in which they are trained.
          formless: undoes that.
        """
        own = self._model.optimizer

        def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
            olds = formless(params)
            news, state = own.stateless_apply(state, formless(updates), olds)
            return form([new - old for new, old in zip(news, olds, strict=True)]), state

        def init(params: Any) -> Any:
            del params
            return [variable.value for variable in own.variables]

        return optax.GradientTransformation(init, update)


def keep_state_between_updates(
    optimizer: optax.GradientTransformation, storage: ops.Storage, name: str | None
) -> optax.GradientTransformation:
    """Has an optimizer's state wait somewhere else while gradients are accumulated.

    Args:
      optimizer: of the model.
      storage: where its state is between two updates.
      name: a named scope for what an update computes.
    """

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        with jax.named_scope(name) if name else contextlib.nullcontext():
            loaded = jax.tree.map(lambda leaf: ops.load(leaf, storage), state)
            news, state = optimizer.update(updates, loaded, params)
            return news, jax.tree.map(lambda leaf: ops.store(leaf, storage), state)

    return optax.GradientTransformation(optimizer.init, update)


@contextlib.contextmanager
def _collecting(optimizer: Any) -> Generator[list[Arrays]]:
    """Keeps an optimizer from applying gradients; gives what it was to apply."""
    collected: list[Arrays] = []

    def instead(variables: Any, gradients: Any, trained: Any) -> tuple[Any, Any]:
        collected.append(list(gradients))
        return trained, variables

    # Past Keras's tracking of attributes, which a function is none of.
    vars(optimizer)["stateless_apply"] = instead
    try:
        yield collected
    finally:
        del vars(optimizer)["stateless_apply"]
