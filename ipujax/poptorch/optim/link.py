"""The link between a torch optimizer and the program that trains with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch

from ipujax.ground import OptimizerStateError
from ipujax.poptorch.optim.attributes import Optimizer
from ipujax.poptorch.optim.optimizer_log import OptimizerLog
from ipujax.poptorch.optim.rules import Rule, State, build_rule, replace_state_hyperparameters
from ipujax.poptorch.poptorch_log import logger
from ipujax.training import LossScaling


def select_names(selected: Iterable[str], names: Mapping[int, str]) -> dict[int, str]:
    """Selects the names of some variables, by the `id` of torch's parameters."""
    selected_names = frozenset(selected)
    return {key: name for key, name in names.items() if name in selected_names}


class OptimizerLink:
    """A link that keeps an optimizer's `state_dict` and a program's state equal.

    The optimizer's `state_dict()` first reads the program's state, if that is newer; the program
    gets what `load_state_dict` loads before it runs again.

    Args:
      optimizer: an optimizer of torch or of `poptorch.optim`.
      names: the names of the variables, by the `id` of torch's parameters.
      get_program_state: a function that returns the program's state; None if there is no program
        any more.
      log: the log of the numbers that the program uses.
      scaling: the settings of automatic loss scaling; None without it.

    Raises:
      PopTorchError: (a `ValueError`) as `build_rule`.

    Attributes:
      optimizer: the optimizer.
      rule: the rule of the optimizer when the program last started with it.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        names: Mapping[int, str],
        get_program_state: Callable[[], State | None],
        log: OptimizerLog,
        scaling: LossScaling | None = None,
    ):
        self.optimizer, self.rule = optimizer, build_rule(optimizer, names, scaling)
        self._current, self._log = get_program_state, log
        self._newer_there = self._newer_here = self._has_begun = False
        self._hooks = [
            optimizer.register_state_dict_pre_hook(lambda _: self.copy_state_to_optimizer()),
            optimizer.register_load_state_dict_post_hook(lambda _: self._mark_loaded()),
        ]
        log.log_ignored_attributes(optimizer)

    def start_program_state(
        self,
        old_state: State | None = None,
        old_rule: Rule | None = None,
        trained: Iterable[str] | None = None,
    ) -> State:
        """Returns the state to train with from now on, with the optimizer's current numbers.

        Args:
          old_state: the state of a program until now, which is continued unless the optimizer
            brings a state of its own.
          old_rule: the rule of that state.
          trained: the names of the variables that are trained from now on; None for the same as
            before. Other variables have no state, as in torch those without gradients.
        """
        names = self.rule.names if trained is None else select_names(trained, self.rule.names)
        self.rule = build_rule(self.optimizer, names, self.rule.scaling)
        has_own_state = self._newer_here or (not self._has_begun and self._optimizer_has_state())
        if old_state is not None and not has_own_state and self.rule == old_rule:
            state = replace_state_hyperparameters(
                old_state, self.rule.read_hyperparameters(self.optimizer)
            )
        else:
            state = self.rule.load_torch_state(self.optimizer)
            if old_state is not None and not has_own_state:
                state = self.rule.adopt_state(state, old_state)
        self._has_begun = True
        self._mark_written()
        self._log.log_ignored_attributes(self.optimizer)
        self._log.log_changed_numbers(self.optimizer)
        return state

    def take_loaded_state(self, state: State) -> State:
        """Returns the state that was loaded since the last run, if any; else the state given.

        Raises:
          OptimizerStateError: (a `ValueError`) settings were loaded that need another program.
        """
        if not self._newer_here:
            return state
        if build_rule(self.optimizer, self.rule.names, self.rule.scaling) != self.rule:
            raise OptimizerStateError(
                "the state that the optimizer loaded has settings that need another program",
                fix="call setOptimizer(optimizer) after load_state_dict",
            )
        fresh = self.rule.load_torch_state(self.optimizer)
        self._mark_written()
        return fresh

    def mark_program_newer(self) -> None:
        """Records that the program has a newer state than the optimizer."""
        self._newer_there = True
        # Learning rate schedulers read this, and else warn that the optimizer makes no steps.
        setattr(self.optimizer, "_opt_called", True)  # noqa: B010
        if isinstance(self.optimizer, Optimizer):
            self.optimizer.host_state_is_dirty = True

    def copy_state_to_optimizer(self) -> None:
        """Copies the program's state to the optimizer, if it is newer."""
        logs = isinstance(self.optimizer, Optimizer)  # the original read the state of no other
        state = self._current() if self._newer_there else None
        if state is None:
            if logs:
                logger.debug("Using cached optimiser state dict")
            return
        if logs:
            logger.info("Writing optimiser state tensors from IPU to host.")
        self.rule.store_torch_state(self.optimizer, state)
        self._newer_there = False

    def release_optimizer(self) -> None:
        """Copies the state a last time, and removes the hooks from the optimizer."""
        self.copy_state_to_optimizer()
        for hook in self._hooks:
            hook.remove()

    def _optimizer_has_state(self) -> bool:
        has_ipu_state = isinstance(self.optimizer, Optimizer) and self.optimizer.has_state()
        return has_ipu_state or bool(self.optimizer.state)

    def _mark_loaded(self) -> None:
        self._newer_here, self._newer_there = True, False

    def _mark_written(self) -> None:
        self._newer_here = False
        if isinstance(self.optimizer, Optimizer):
            if self.optimizer.ipu_state_is_dirty and self.optimizer.has_state():
                logger.info("Writing optimiser state tensors from host to IPU memory.")
            self.optimizer.ipu_state_is_dirty = False
