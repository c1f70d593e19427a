"""Dispatches the tasks of a pipeline from several threads, so that those of one CPU overlap."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING

import jax

from ipujax.engine.device_placement import Placement
from ipujax.ground import Worker
from lowering import jaxpr

if TYPE_CHECKING:
    from ipujax.engine.pipelines import Step

# A task of so many operations takes about a millisecond of a core; shorter ones are over before
# another thread has been woken. (Measured by `benchmarks/pipeline.py`.)
LANE_OPERATIONS = 2e7
# XLA computes the larger operations of one kernel on all cores already.
MAXIMUM_LANES = 4
# An interrupted program waits so long for the steps that its lanes are at: a data set may block.
INTERRUPT_SECONDS = 1.0


def count_host_cores() -> int:
    """Returns the number of host cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def count_lane_cores(placement: Placement) -> int:
    """Returns how many cores lanes may share: the host's, if one CPU device runs all IPUs."""
    if jax.default_backend() != "cpu" or not placement.uses_one_device:
        return 1
    return count_host_cores()


def run_lanes_if_configured_alike(
    lanes: Sequence[Iterable[Step]], run_step: Callable[[Step], None]
) -> bool:
    """Runs the steps of each lane in order; those of one micro-batch stay in order across lanes.

    The calling thread does the first lane's. An exception in any lane ends all of them, and so
    does one that finds the calling thread waiting for the others.

    Returns:
      False if nothing was run, since another thread would compile differently: the configuration
      of JAX can be changed for one thread (`jax.default_matmul_precision` and its like).
    """
    run = _Lanes(run_step)
    workers: list[Worker] = []
    futures: list[Future[None]] = []
    try:
        workers += (Worker("ipujax-lane") for _ in lanes[1:])
        contexts = [worker.submit_task(jaxpr.jit_configuration_of_thread) for worker in workers]
        if any(context.result() != jaxpr.jit_configuration_of_thread() for context in contexts):
            return False
        futures = [
            worker.submit_task(run.run_lane, steps)
            for worker, steps in zip(workers, lanes[1:], strict=True)
        ]
        run.run_lane(lanes[0])
        for future in futures:
            future.result()
    except BaseException as error:
        run.end_lanes(error)
        wait(futures, timeout=None if isinstance(error, Exception) else INTERRUPT_SECONDS)
        raise
    finally:
        for worker in workers:
            worker.stop_after_tasks()
    return True


class _Lanes:
    """The shared state of the lanes: the progress of each micro-batch, and the first failure."""

    def __init__(self, do: Callable[[Step], None]):
        self.do = do
        self.done: Counter[int] = Counter()
        self.turn = threading.Condition()
        self.failure: BaseException | None = None

    def run_lane(self, steps: Iterable[Step]) -> None:
        """Runs one lane's steps, each once its micro-batch is there.

        Raises:
          BaseException: the first failure of any lane.
        """
        for step in steps:
            number = step.task.micro_batch
            with self.turn:
                while self.done[number] != step.rank and self.failure is None:
                    self.turn.wait()
            if self.failure is not None:
                raise self.failure
            try:
                self.do(step)
            except BaseException as error:
                self.end_lanes(error)
                raise
            with self.turn:
                self.done[number] += 1
                if step.is_last:
                    del self.done[number]
                self.turn.notify_all()

    def end_lanes(self, error: BaseException) -> None:
        """Ends all lanes after their current steps."""
        with self.turn:
            self.failure = self.failure or error
            self.turn.notify_all()
