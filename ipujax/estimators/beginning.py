"""The state that a mode begins with: what is remembered, what a checkpoint holds, or a new one."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable

import jax

from ipujax.estimators.folder import OPTIMIZER, STATE, STEP, VARIABLES, ModelFolder
from ipujax.estimators.mode import Mode
from ipujax.estimators.model_fn import body_arguments, features_and_labels
from ipujax.estimators.spec import ModeKeys
from ipujax.estimators.workers import Workers
from ipujax.training import TrainState
from ipujax.training.state import Tree


class Beginning:
    """Where states come from.

    Args:
      folder: of the checkpoints.
      init_fn: the user's; None for no variables.
      warm_start_from: a checkpoint whose variables a new state has; None for those of `init_fn`.
      seed: of the key that `init_fn` gets.
      workers: that begin with what the chief has.
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

    def remember(self, path: str | None, state: TrainState) -> None:
        """A state that a training ended with, and the checkpoint that holds it, if one does."""
        self._latest = path, self._workers.averaged(state)

    def step(self, path: str | None) -> int:
        """The global step of a checkpoint, or of what is remembered."""
        known = self._remembered(path)
        if known is not None:
            return known.step
        return 0 if path is None else self._folder.step_of(path)

    def state(self, path: str | None, element: Tree) -> TrainState:
        """Variables, untrained state and step.

        Args:
          path: of the checkpoint; None if there is none.
          element: of the data set, whose shapes `init_fn` may need.
        """
        known = self._remembered(path)
        if known is not None:
            return dc.replace(known, optimizer_state=None)
        made = self._made(element)
        if path is not None:
            return self._folder.restore(path, made, (VARIABLES, STATE, STEP))
        if self._warm_start_from is not None:
            return self._folder.restore(self._warm_start_from, made, (VARIABLES,))
        return made

    def prepared(self, mode: Mode, path: str | None, element: Tree) -> TrainState:
        """The same, as the loop of a mode carries it; to train, with the optimizer's state."""
        known = self._remembered(path)
        if known is not None and mode.mode == ModeKeys.TRAIN:
            return mode.prepared(known, element)
        state = self.state(path, element)
        prepared = mode.prepared(state, element)
        if path is None or mode.mode != ModeKeys.TRAIN:
            return prepared
        whole = dc.replace(state, optimizer_state=prepared.optimizer_state)
        restored = self._folder.restore(path, whole, (OPTIMIZER,))
        return dc.replace(prepared, optimizer_state=restored.optimizer_state)

    def _remembered(self, path: str | None) -> TrainState | None:
        if self._latest is None or self._latest[0] != path:
            return None
        return self._latest[1]

    def _made(self, element: Tree) -> TrainState:
        """What `init_fn` gives."""
        if self._init_fn is None:
            return TrainState({})
        features, _ = features_and_labels(*body_arguments(element))
        made = self._workers.of_chief(self._init_fn(jax.random.key(self._seed), features))
        if isinstance(made, tuple) and len(made) == 2 and not hasattr(made, "_fields"):
            return TrainState(made[0], state=made[1])
        return TrainState(made)
