"""Between an optimizer of torch and the program that trains with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch

from ipujax.errors import OptimizerStateError
from ipujax.poptorch.log import logger
from ipujax.poptorch.optim.attributes import Optimizer
from ipujax.poptorch.optim.log import OptimizerLog
from ipujax.poptorch.optim.rules import Rule, State, rule_of, with_hyper
from ipujax.training.loss_scaling import LossScaling


def only(wanted: Iterable[str], names: Mapping[int, str]) -> dict[int, str]:
    """Those of the names, by the `id` of torch's parameters, that are wanted."""
    kept = frozenset(wanted)
    return {key: name for key, name in names.items() if name in kept}


class Link:
    """Keeps an optimizer's `state_dict` and a program's state the same.

    The optimizer's `state_dict()` first asks for the program's state, where that is newer, and
    what `load_state_dict` loads is given to the program before it next runs.

    Args:
      optimizer: of torch or of `poptorch.optim`.
      names: of the variables, by the `id` of torch's parameters.
      current: gives the program's state; None where there is no program any more.
      log: that is told what the program works with.
      scaling: how the loss is scaled automatically; None for not at all.

    Raises:
      PopTorchError: (a `ValueError`) as `rule_of`.

    Attributes:
      optimizer: as given.
      rule: of the optimizer as it was when the program last began with it.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        names: Mapping[int, str],
        current: Callable[[], State | None],
        log: OptimizerLog,
        scaling: LossScaling | None = None,
    ):
        self.optimizer, self.rule = optimizer, rule_of(optimizer, names, scaling)
        self._current, self._log = current, log
        self._newer_there = self._newer_here = self._has_begun = False
        self._hooks = [
            optimizer.register_state_dict_pre_hook(lambda _: self.read()),
            optimizer.register_load_state_dict_post_hook(lambda _: self._loaded()),
        ]
        log.given(optimizer)

    def begin(
        self,
        before: State | None = None,
        rule: Rule | None = None,
        trained: Iterable[str] | None = None,
    ) -> State:
        """The state to train with from here on, with the numbers that the optimizer has now.

        Args:
          before: what a program has kept until now, which goes on, unless the optimizer brings a
            state of its own.
          rule: with which it was kept.
          trained: the names of the variables that are trained from here on; None for those of
            before. Of the others nothing is kept, as torch keeps nothing of what has no gradient.
        """
        names = self.rule.names if trained is None else only(trained, self.rule.names)
        self.rule = rule_of(self.optimizer, names, self.rule.scaling)
        brings = self._newer_here or (not self._has_begun and self._has_state())
        if before is not None and not brings and self.rule == rule:
            state = with_hyper(before, self.rule.hyper(self.optimizer))
        else:
            state = self.rule.from_torch(self.optimizer)
            if before is not None and not brings:
                state = self.rule.adopted(state, before)
        self._has_begun = True
        self._written()
        self._log.given(self.optimizer)
        self._log.updated(self.optimizer)
        return state

    def refreshed(self, state: State) -> State:
        """The state to run with: this one, or what has been loaded since, if there is anything.

        Raises:
          OptimizerStateError: (a `ValueError`) settings were loaded that need another program.
        """
        if not self._newer_here:
            return state
        if rule_of(self.optimizer, self.rule.names, self.rule.scaling) != self.rule:
            raise OptimizerStateError(
                "the state that the optimizer loaded has settings that need another program",
                fix="call setOptimizer(optimizer) after load_state_dict",
            )
        fresh = self.rule.from_torch(self.optimizer)
        self._written()
        return fresh

    def changed(self) -> None:
        """Notes that the program has another state now."""
        self._newer_there = True
        # What a schedule looks at: else it warns that the optimizer makes no steps.
        setattr(self.optimizer, "_opt_called", True)  # noqa: B010
        if isinstance(self.optimizer, Optimizer):
            self.optimizer.host_state_is_dirty = True

    def read(self) -> None:
        """Gives the optimizer the program's state, where that is newer."""
        told = isinstance(self.optimizer, Optimizer)  # the original read the state of no other
        state = self._current() if self._newer_there else None
        if state is None:
            if told:
                logger.debug("Using cached optimiser state dict")
            return
        if told:
            logger.info("Writing optimiser state tensors from IPU to host.")
        self.rule.to_torch(self.optimizer, state)
        self._newer_there = False

    def close(self) -> None:
        """Reads the state for the last time, and leaves the optimizer alone."""
        self.read()
        for hook in self._hooks:
            hook.remove()

    def _has_state(self) -> bool:
        own = isinstance(self.optimizer, Optimizer) and self.optimizer.has_state()
        return own or bool(self.optimizer.state)

    def _loaded(self) -> None:
        self._newer_here, self._newer_there = True, False

    def _written(self) -> None:
        self._newer_here = False
        if isinstance(self.optimizer, Optimizer):
            if self.optimizer.ipu_state_is_dirty and self.optimizer.has_state():
                logger.info("Writing optimiser state tensors from host to IPU memory.")
            self.optimizer.ipu_state_is_dirty = False
