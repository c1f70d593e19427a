"""The state that a mode begins with: remembered, restored from a checkpoint, or new."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable

import jax

from ipujax.doors.estimators.estimator_mode import EstimatorMode
from ipujax.doors.estimators.estimator_spec import ModeKeys
from ipujax.doors.estimators.model_fn import features_and_labels, split_element_arguments
from ipujax.doors.estimators.model_folder import OPTIMIZER, STATE, STEP, VARIABLES, ModelFolder
from ipujax.doors.estimators.workers import Workers
from ipujax.training import TrainState, Tree


class InitialStates:
    """The source of the states that modes begin with.

    Args:
      folder: the folder of checkpoints.
      init_fn: the user's function that makes variables; None for no variables.
      warm_start_from: a checkpoint whose variables a new state has; None for those of `init_fn`.
      seed: the seed of the key that `init_fn` gets.
      workers: the workers, which all begin with the chief's state.
    """

    def __init__(
        self,
        folder: ModelFolder,
        init_fn: Callable[..., Tree] | None,
        warm_start_from: str | None,
        seed: int,
        workers: Workers,
    ):
        self._folder, self._init_fn, self._workers = folder, init_fn, workers
        self._warm_start_from, self._seed = warm_start_from, seed
        self._latest: tuple[str | None, TrainState] | None = None

    def remember_state(self, path: str | None, state: TrainState) -> None:
        """Remembers the final state of a training, and the path of its checkpoint or None."""
        self._latest = path, self._workers.average_untrained(state)

    def global_step_of(self, path: str | None) -> int:
        """Returns the global step of a checkpoint, or of the remembered state."""
        remembered_state = self._find_remembered_state(path)
        if remembered_state is not None:
            return remembered_state.step
        return 0 if path is None else self._folder.step_of_checkpoint(path)

    def load_or_init_state(self, path: str | None, element: Tree) -> TrainState:
        """Returns variables, untrained state and step: remembered, restored or new.

        Args:
          path: the path of the checkpoint; None if there is none.
          element: an element of the data set, whose shapes `init_fn` may need.
        """
        remembered_state = self._find_remembered_state(path)
        if remembered_state is not None:
            return dc.replace(remembered_state, optimizer_state=None)
        new_state = self._init_state(element)
        if path is not None:
            return self._folder.restore_parts(path, new_state, (VARIABLES, STATE, STEP))
        if self._warm_start_from is not None:
            return self._folder.restore_parts(self._warm_start_from, new_state, (VARIABLES,))
        return new_state

    def load_loop_state(self, mode: EstimatorMode, path: str | None, element: Tree) -> TrainState:
        """Returns the state in the form of a mode's loop; with optimizer state to train."""
        remembered_state = self._find_remembered_state(path)
        if remembered_state is not None and mode.mode == ModeKeys.TRAIN:
            return mode.prepare_loop_state(remembered_state, element)
        state = self.load_or_init_state(path, element)
        prepared = mode.prepare_loop_state(state, element)
        if path is None or mode.mode != ModeKeys.TRAIN:
            return prepared
        full_state = dc.replace(state, optimizer_state=prepared.optimizer_state)
        restored = self._folder.restore_parts(path, full_state, (OPTIMIZER,))
        return dc.replace(prepared, optimizer_state=restored.optimizer_state)

    def _find_remembered_state(self, path: str | None) -> TrainState | None:
        if self._latest is None or self._latest[0] != path:
            return None
        return self._latest[1]

    def _init_state(self, element: Tree) -> TrainState:
        """Returns the new state that `init_fn` makes."""
        if self._init_fn is None:
            return TrainState({})
        features, _ = features_and_labels(*split_element_arguments(element))
        variables = self._workers.broadcast_tree_of_chief(
            self._init_fn(jax.random.key(self._seed), features)
        )
        if (
            isinstance(variables, tuple)
            and len(variables) == 2
            and not hasattr(variables, "_fields")
        ):
            return TrainState(variables[0], state=variables[1])
        return TrainState(variables)
