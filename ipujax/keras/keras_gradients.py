"""Keras's training step in two parts: gradients of a micro-batch, and the weight update."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import jax
import optax

from ipujax.ground import PyTree, count_with_noun
from ipujax.keras.keras_checks import check
from ipujax.keras.program_mode import ProgramMode
from ipujax.optimizers import GradientAccumulationReductionMethod as Reduction
from ipujax.system import log_once
from ipujax.training import Tree

if TYPE_CHECKING:
    import keras

Arrays = list[jax.Array]


class SplitTrainStep:
    """A model's `train_step` in two parts: computing gradients, and applying the optimizer.

    Args:
      model: a compiled Keras model, whose `train_step`, its own or Keras's, calls
        `self.optimizer.stateless_apply` once.
    """

    def __init__(self, model: keras.Model):
        self._model = model

    def compute_gradients_and_logs(
        self,
        non_trainable: Arrays,
        trainable: Arrays,
        optimizer: Arrays,
        metrics: Arrays,
        batch: PyTree,
    ) -> tuple[Arrays, Tree, Arrays, Arrays]:
        """Returns gradients of a batch, logs, new non-trainable and metrics' variables.

        Args:
          non_trainable: the non-trainable variables.
          trainable: the trainable variables.
          optimizer: the optimizer's variables, for the scale of the loss.
          metrics: the metrics' variables.
          batch: as Keras's step takes it.

        Raises:
          KerasError: (a `ValueError`) a step that makes no update, or several.
        """
        model = self._model
        with _collect_gradients(model.optimizer) as calls:
            logs, state = model.train_step((trainable, non_trainable, optimizer, metrics), batch)
        if len(calls) != 1:
            raise check.value_error(
                f"train_step of model {model.name!r} calls self.optimizer.stateless_apply "
                f"{len(calls)} times; replicas and gradient accumulation need one call, whose "
                "gradients they average",
                "compute all gradients first, and apply them once; or train without accumulation "
                "on a device with the IPUs of one replica",
            )
        return calls[0], logs, state[1], state[3]

    def as_optax_optimizer(
        self,
        to_tree: Callable[[Arrays], Tree] = list,
        to_list: Callable[[Tree], Arrays] = list,
    ) -> optax.GradientTransformation:
        """Returns the model's optimizer as one of optax, whose state is the optimizer's variables.

        Args:
          to_tree: turns a list of trainable variables into the pytree that is trained.
          to_list: turns that pytree into the list again.
        """
        keras_optimizer = self._model.optimizer

        def apply_keras_optimizer(
            updates: PyTree, state: PyTree, params: PyTree = None
        ) -> tuple[PyTree, PyTree]:
            old_values = to_list(params)
            new_values, state = keras_optimizer.stateless_apply(state, to_list(updates), old_values)
            return to_tree(
                [new - old for new, old in zip(new_values, old_values, strict=True)]
            ), state

        def read_optimizer_variables(params: PyTree) -> PyTree:
            del params
            return [variable.value for variable in keras_optimizer.variables]

        return optax.GradientTransformation(read_optimizer_variables, apply_keras_optimizer)


def log_gradient_reduction(mode: ProgramMode) -> None:
    """Logs, once, how gradients become a weight update, and how they did in the original.

    The original added them up over micro-batches unless it was told otherwise, and always over
    replicas.
    """
    micro_batches, replicas = mode.accumulation, mode.all_replicas if mode.reduces else 1
    if mode.kind != "train" or micro_batches * replicas == 1:
        return
    is_sum = mode.reduction is Reduction.SUM
    parts = [
        f"{verb} those of {count_with_noun(count, noun, f'{noun}{ending}')}"
        for verb, count, noun, ending in (
            ("adds up" if is_sum else "averages", micro_batches, "micro-batch", "es"),
            ("averages", replicas, "replica", "s"),
        )
        if count > 1
    ]
    factor = (1 if is_sum else micro_batches) * replicas
    log_once(
        f"For the gradients of a weight update, model `{mode.model.name}` {' and '.join(parts)} "
        f"(gradient_accumulation_reduction_method={mode.reduction.name}). Keras for the IPU added "
        "up those of micro-batches unless it was told otherwise, and always those of replicas"
        + (f": its optimizer got {factor} times as much" if factor > 1 else "")
    )


@contextlib.contextmanager
def _collect_gradients(optimizer: Any) -> Generator[list[Arrays]]:
    """Replaces an optimizer's `stateless_apply`, and collects the gradients it is called with."""
    calls: list[Arrays] = []

    def collect_call(
        variables: PyTree, gradients: PyTree, trained: PyTree
    ) -> tuple[PyTree, PyTree]:
        calls.append(list(gradients))
        return trained, variables

    # Written to `vars`, since Keras tracks the attributes that are set.
    vars(optimizer)["stateless_apply"] = collect_call
    try:
        yield calls
    finally:
        del vars(optimizer)["stateless_apply"]
