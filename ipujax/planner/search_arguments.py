"""What a plan may be chosen from, read from the arguments of `search` and `ipu.plan`."""

from __future__ import annotations

import dataclasses as dc
import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ipujax.planner.plan_checks import check
from lowering import schedules as _schedules


@dc.dataclass(frozen=True)
class SearchArguments:
    """The arguments that say what a plan may be chosen from.

    Attributes:
      ipus: how many IPUs there are, of all replicas together.
      micro_batches: the numbers of micro-batches of an update to choose from.
      names: the registered names of the schedules to choose from; None for all.
      recompute: the choices of whether stages recompute activations.
      offload: the choices of whether activations that wait go to host memory.
      replicas: the numbers of replicas to choose from.
      memory: float64 [ipus]: the bytes of each IPU; inf for no limit.
      budget_seconds: how long to search.
      deadline: when to stop, as `time.monotonic` has it.
    """

    ipus: int
    micro_batches: Sequence[int]
    names: Sequence[str] | None
    recompute: Sequence[bool]
    offload: Sequence[bool]
    replicas: Sequence[int]
    memory: np.ndarray
    budget_seconds: float
    deadline: float

    def restart(self) -> SearchArguments:
        """Returns the same arguments with the whole time budget from now on."""
        return dc.replace(self, deadline=time.monotonic() + self.budget_seconds)

    def is_out_of_time(self, budget_share: float = 1.0) -> bool:
        """Returns whether a share of the time budget is spent.

        Args:
          budget_share: 1 for the whole budget.
        """
        return time.monotonic() > self.deadline - (1 - budget_share) * self.budget_seconds


def read_search_arguments(
    *,
    ipus: Any,
    micro_batches: Any,
    schedules: Any,
    recompute: Any,
    offload: Any,
    replicas: Any,
    memory: Any,
    budget_seconds: Any,
) -> SearchArguments:
    """Checks the arguments of a search.

    Raises:
      PlanError: one of them is wrong.
    """
    count = check.require_integer(ipus, "ipus", 1)
    budget = check.require_number(budget_seconds, "budget_seconds", "give a number of seconds")
    if not budget > 0:
        raise check.value_error(
            f"budget_seconds is {budget:g}: nothing can be searched in no time",
            "give a positive number of seconds",
        )
    return SearchArguments(
        ipus=count,
        micro_batches=read_counts("micro_batches", micro_batches),
        names=_read_names(schedules),
        recompute=read_flags("recompute", recompute),
        offload=read_flags("offload", offload),
        replicas=read_counts("replicas", replicas),
        memory=_read_memory(memory, count),
        budget_seconds=budget,
        deadline=time.monotonic() + budget,
    )


def read_counts(name: str, values: Any) -> list[int]:
    """Returns the distinct positive ints of an argument that is one of them or several.

    Raises:
      PlanError: the argument is something else, or is empty.
    """
    entries = check.require_sequence(values, name, "ints") if _is_row(values) else [values]
    if not entries:
        raise check.value_error(f"{name} is empty", "give at least one number")
    numbers = [check.require_integer(value, f"a number in {name}", 1) for value in entries]
    return list(dict.fromkeys(numbers))


def read_flags(name: str, values: Any) -> list[bool]:
    """Returns the distinct flags of an argument that is one of them or several.

    Raises:
      PlanError: the argument is something else, or is empty.
    """
    entries = check.require_sequence(values, name, "bools") if _is_row(values) else [values]
    if not entries:
        raise check.value_error(f"{name} is empty", "give (False,), (True,) or (False, True)")
    return list(
        dict.fromkeys(check.require_flag(value, f"an entry of {name}") for value in entries)
    )


def _is_row(values: Any) -> bool:
    return isinstance(values, list | tuple)


def _read_names(names: Any) -> list[str] | None:
    if names is None:
        return None
    registered = _schedules.list_schedules()
    registered_names = [schedule.name for schedule in registered]
    chosen = [names] if isinstance(names, str) else check.require_sequence(names, "schedules")
    if not chosen:
        raise check.value_error("schedules is empty", "name at least one, or pass None for all")
    chosen_names = [
        check.require_one_of(name, registered_names, "an entry of schedules") for name in chosen
    ]
    if unplannable := [s.name for s in registered if s.name in chosen_names and not s.is_plain]:
        raise check.value_error(
            f"no plan can be made for {unplannable[0]}: costs say nothing of copies of stages, or "
            "of segments of sequences",
            f"leave {unplannable[0]} out, and give it to the pipeline yourself",
        )
    return chosen_names


def _read_memory(memory: Any, ipus: int) -> np.ndarray:
    if memory is None:
        return np.full(ipus, math.inf)
    entries = check.require_sequence(memory, "memory") if _is_row(memory) else [memory] * ipus
    if len(entries) != ipus:
        raise check.value_error(
            f"memory has {len(entries)} entries for {ipus} IPUs", "give one for each, or one number"
        )
    sizes = [check.require_number(size, "memory", "give the bytes of an IPU") for size in entries]
    if not all(size > 0 for size in sizes):
        raise check.value_error(
            f"memory is {memory}: nothing fits in that", "give the bytes of an IPU, or None"
        )
    return np.array(sizes)
