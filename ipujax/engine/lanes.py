"""Dispatches the tasks of a pipeline from several threads, so that those of one CPU overlap."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import jax

from ipujax.engine.placement import Placement
from lowering import jaxpr

if TYPE_CHECKING:
    from ipujax.engine.pipelines import Step

# A task of so many operations takes about a millisecond of a core; shorter ones are over before
# another thread has been woken. (Measured by `benchmarks/pipeline.py`.)
LANE_OPERATIONS = 2e7
# XLA computes the larger operations of one kernel on all cores already.
MAXIMUM_LANES = 4


def cores_of(placement: Placement) -> int:
    """The cores that lanes may share: the host's, where one CPU device stands for all IPUs."""
    if jax.default_backend() != "cpu" or not placement.uses_one_device:
        return 1
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def run_lanes(lanes: Sequence[Sequence[Step]], do: Callable[[Step], None]) -> bool:
    """Runs the steps of each lane in order; those of one micro-batch stay in order across lanes.

    The calling thread does the first lane's. An exception of any lane ends all of them.

    Returns:
      False if nothing was run, since another thread would compile differently: the configuration
      of JAX can be changed for one thread (`jax.default_matmul_precision` and its like).
    """
    run = _Lanes(do, _ranks(lanes))
    context = jaxpr.trace_context()
    agreed: list[bool] = []
    asked = threading.Barrier(len(lanes))

    def other(steps: Sequence[Step]) -> None:
        agreed.append(jaxpr.trace_context() == context)
        asked.wait()
        if all(agreed):
            run.lane(steps)

    threads = [threading.Thread(target=other, args=(steps,), daemon=True) for steps in lanes[1:]]
    for thread in threads:
        thread.start()
    asked.wait()
    if not all(agreed):
        return False
    run.lane(lanes[0])
    for thread in threads:
        thread.join()
    if run.failure is not None:
        raise run.failure
    return True


def _ranks(lanes: Sequence[Sequence[Step]]) -> dict[int, int]:
    """For each step, by identity, how many tasks of its micro-batch stand before it."""
    done: Counter[int] = Counter()
    ranks: dict[int, int] = {}
    for step in sorted((s for lane in lanes for s in lane), key=lambda step: step.position):
        ranks[id(step)] = done[step.task.micro_batch]
        done[step.task.micro_batch] += 1
    return ranks


class _Lanes:
    """What the lanes know of one another: how far each micro-batch is, and the first failure."""

    def __init__(self, do: Callable[[Step], None], ranks: dict[int, int]):
        self.do, self.ranks = do, ranks
        self.done: Counter[int] = Counter()
        self.turn = threading.Condition()
        self.failure: BaseException | None = None

    def lane(self, steps: Sequence[Step]) -> None:
        """Runs one lane's steps, each once its micro-batch is there."""
        try:
            for step in steps:
                number, rank = step.task.micro_batch, self.ranks[id(step)]
                with self.turn:
                    while self.done[number] != rank and self.failure is None:
                        self.turn.wait()
                if self.failure is not None:
                    return
                self.do(step)
                with self.turn:
                    self.done[number] += 1
                    self.turn.notify_all()
        except BaseException as error:
            with self.turn:
                self.failure = self.failure or error
                self.turn.notify_all()
