"""The base of `Training` and `Inference`: a program of many steps, compiled once, and its runs."""

from __future__ import annotations

import abc
import dataclasses as dc
import functools
import threading
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from ipujax.driver import (
    DEFAULT_DEVICE,
    CompiledFunction,
    Executable,
    Traced,
    compile,
    read_compile_context,
)
from ipujax.ground import OutOfRangeError, api_boundary
from ipujax.host import IPUInfeedQueue, IPUOutfeedMode, IPUOutfeedQueue
from ipujax.operators import current_device
from ipujax.system import check_meshes, get_logger
from ipujax.training.feeds import CompiledLoop, Data, Feed, Feeds
from ipujax.training.pipeline_model import Pipeline
from ipujax.training.state_devices import gathers_results
from ipujax.training.training_callbacks import Callback, Run
from ipujax.training.training_checks import check
from ipujax.training.training_state import TrainState, Tree, drop_weak_types
from ipujax.training.weight_update import SelfDifferentiating

POLL_SECONDS = 0.005
Queues = tuple[IPUInfeedQueue, IPUOutfeedQueue]


class Advance(NamedTuple):
    """The result of one device loop.

    Attributes:
      state: the state after the loop.
      results: the results of the loop, as `Callback.after_run` gets them.
      steps: the number of steps that the loop made.
    """

    state: TrainState
    results: Tree
    steps: int


@dc.dataclass(frozen=True, eq=False)
class DeviceLoop(abc.ABC):
    """Steps on the device, in compiled programs of `steps_per_loop` steps.

    Attributes:
      model: a function, or the stages of a `Pipeline`.
      awaits_results: whether a device loop is over when its results are computed. Where False,
        which takes `outfeed_mode=IPUOutfeedMode.LAST`, and where there is a single replica, the
        last result may be arrays of JAX's that are not computed yet.
      names: a state with texts in place of arrays, which reports call the arrays by; None for
        their paths in the state.
    """

    model: Callable[..., Tree] | Pipeline | SelfDifferentiating
    _: dc.KW_ONLY
    accumulation: int = 1
    steps_per_loop: int | None = None
    step_size: int = 1
    prefetch_depth: int | None = None
    inputs: Callable[[TrainState], Sequence[Tree]] | None = None
    state_reduction: Callable[[Tree, Tree], Tree] | None = None
    outfeed_mode: IPUOutfeedMode = IPUOutfeedMode.ALL
    device: str = dc.field(default_factory=lambda: current_device() or DEFAULT_DEVICE)
    engine: str = "auto"
    name: str | None = None
    replicas: int | None = None
    alone: bool = False
    names: TrainState | None = None
    meshes: Sequence[Mesh] | None = None
    awaits_results: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.model, Pipeline | SelfDifferentiating):
            fix = "wrap a list of stages in ipu.training.Pipeline"
            check.require_function(self.model, "the model", fix)
        check.require_integer(self.accumulation, "accumulation", at_least=1)
        if self.steps_per_loop is not None:
            check.require_integer(self.steps_per_loop, "steps_per_loop", at_least=1)
        check.require_integer(self.step_size, "step_size", at_least=1)
        check.require_function(self.inputs, "inputs", optional=True)
        check.require_function(self.state_reduction, "state_reduction", optional=True)
        check.require_instance(self.outfeed_mode, IPUOutfeedMode, "outfeed_mode")
        check.require_flag(self.alone, "alone")
        check.require_flag(self.awaits_results, "awaits_results")
        if not self.awaits_results and self.outfeed_mode is not IPUOutfeedMode.LAST:
            raise check.value_error(
                f"awaits_results is False, and outfeed_mode is {self.outfeed_mode}: results of "
                "several steps are given once they are computed",
                "use outfeed_mode=IPUOutfeedMode.LAST, or leave awaits_results out",
            )
        check_meshes(self.meshes)
        check.require_instance(self.names, TrainState, "names", optional=True)

    @abc.abstractmethod
    def build_program(self, steps: int, queues: Queues) -> Callable[..., Tree]:
        """Returns the function to trace: a number of steps, from carry and inputs to new carry.

        Reports name the arguments after the function's parameters.
        """

    @abc.abstractmethod
    def select_program_arguments(self, state: TrainState) -> tuple[Tree, ...]:
        """Returns the parts of a state that the program takes."""

    @abc.abstractmethod
    def replace_program_arguments(
        self, state: TrainState, arguments: tuple[Tree, ...]
    ) -> TrainState:
        """Returns a state with other values of the parts that the program takes."""

    @abc.abstractmethod
    def build_state_after_steps(self, state: TrainState, carry: Tree, steps: int) -> TrainState:
        """Returns the state after some more steps, from the program's results."""

    def count_complete_steps(self, error: OutOfRangeError, steps: int) -> int:
        """Returns how many of some steps were complete when the data ended."""
        return error.available * steps // error.requested

    @api_boundary
    def compile(self, state: TrainState, data: Data, steps: int | None = None) -> Executable:
        """Compiles and returns the first program of a run with these arguments.

        That run compiles nothing more. The first element of the data set is read, and kept.

        Args:
          state: the state to begin with.
          data: the data set, as in a run.
          steps: the number of steps, as in a run.

        Raises:
          OutOfRangeError: an empty data set.
          LoweringError: (or a subclass) a program that does not fit the device.
        """
        return self._compile_first_loop(
            self._new_run(state, steps), self._feeds.feed_for_data(data)
        ).executable

    @api_boundary
    def trace(self, state: TrainState, data: Data, steps: int | None = None) -> Traced:
        """Traces the first program of a run with these arguments, without compiling it."""
        run, feed = self._new_run(state, steps), self._feeds.feed_for_data(data)
        return self._build_compiled_function(self._steps_of_next_loop(run), feed.queue)[0].trace(
            *self._program_arguments(run.state)
        )

    def run_single_loop(self, state: TrainState, data: Data, steps: int) -> Advance:
        """Runs one device loop, for callers that repeat the loop themselves.

        Args:
          state: the state to go on from.
          data: the data set, as in a run; the same iterator goes on where the last loop left it.
          steps: the number of steps; fewer are made where the data ends.

        Returns:
          The new state, the results that were sent, and the number of steps that were made.
        """
        feed = self._feeds.feed_for_data(data)
        run = self._new_run(state, steps)
        results, steps_done = self._run_one_loop(run, feed, ())
        return Advance(run.state, results, steps_done)

    @property
    def executable(self) -> Executable | None:
        """The program that was compiled last, for the latest data set; None before."""
        feed = self._feeds.latest
        programs = [] if feed is None else list(feed.programs.values())
        return programs[-1].executable if programs else None

    @api_boundary
    def iterate_loops(
        self, run: Run, data: Data, callbacks: Sequence[Callback]
    ) -> Generator[Tree, None, None]:
        """Runs device loops until the run is over; yields the results of each."""
        feed = self._feeds.feed_for_data(data)
        if not run.is_over:
            self._compile_first_loop(run, feed)
        for callback in callbacks:
            callback.begin(run)
        while not run.is_over:
            results, steps_done = self._run_one_loop(run, feed, callbacks)
            if not steps_done and run.exhausted:
                break
            for callback in callbacks:
                callback.after_run(run, results)
            yield results
        if run.exhausted and run.steps is not None:
            get_logger().info(
                "The data set ended after %d of %d steps of `%s`",
                run.done,
                run.steps,
                self._program_name,
            )
        for callback in callbacks:
            callback.end(run)

    def _new_run(
        self, state: TrainState, steps: int | None, callbacks: Sequence[Callback] = ()
    ) -> Run:
        check.require_instance(state, TrainState, "the state to begin with")
        for callback in callbacks:
            check.require_instance(callback, Callback, "each of the callbacks")
        if steps is not None:
            check.require_integer(steps, "steps", at_least=0)
        elif self.steps_per_loop is None:
            raise check.value_error(
                "neither `steps` nor `steps_per_loop` is given, so that the number of steps in a "
                "program is not known",
                "give one of them",
            )
        self._check_number_of_names(state)
        arrays = drop_weak_types(state)
        return Run(dc.replace(arrays, step=int(state.step)), steps, self.accumulation)

    def _check_number_of_names(self, state: TrainState) -> None:
        if self.names is None:
            return
        num_texts, num_arrays = (
            len(jax.tree.leaves(self.select_program_arguments(structure)))
            for structure in (self.names, state)
        )
        if num_texts != num_arrays:
            raise check.value_error(
                f"`names` has {num_texts} texts, and the state to begin with has {num_arrays} "
                "arrays",
                "give a TrainState of the state's own structure, with a text for each array",
            )

    def _compile_first_loop(self, run: Run, feed: Feed) -> CompiledLoop:
        return self._find_or_compile_loop(
            run, feed, self._steps_of_next_loop(run), self._program_arguments(run.state)
        )

    def _steps_of_next_loop(self, run: Run) -> int:
        """Returns the number of steps of the next device loop."""
        remaining_steps = None if run.steps is None else run.steps - run.done
        return min(bound for bound in (remaining_steps, self.steps_per_loop) if bound is not None)

    def _run_one_loop(
        self, run: Run, feed: Feed, callbacks: Sequence[Callback]
    ) -> tuple[Tree, int]:
        """Runs one device loop; returns its results and the number of steps that it made."""
        steps, arguments = self._steps_of_next_loop(run), self._program_arguments(run.state)
        compiled_loop = self._find_or_compile_loop(run, feed, steps, arguments)
        *parts, inputs = compiled_loop.executable.place_arguments(*arguments)
        run.state = self.replace_program_arguments(run.state, tuple(parts))
        for callback in callbacks:
            callback.before_run(run)
        live_callbacks = [callback for callback in callbacks if callback.is_live]
        with _ResultReader(compiled_loop.outfeed, run, live_callbacks) as results:
            try:
                carry, steps_done = compiled_loop.executable(*parts, inputs), steps
            except OutOfRangeError as error:
                if error.infeed is not feed.queue or error.carried is None:
                    raise
                run.exhausted = True
                carry, steps_done = error.carried, self.count_complete_steps(error, steps)
        run.state, run.done = (
            self.build_state_after_steps(run.state, carry, steps_done),
            run.done + steps_done,
        )
        return results.results_of_steps(steps_done), steps_done

    def _program_arguments(self, state: TrainState) -> tuple[Tree, ...]:
        inputs = () if self.inputs is None else tuple(self.inputs(state))
        return *self.select_program_arguments(state), drop_weak_types(inputs)

    def _find_or_compile_loop(
        self, run: Run, feed: Feed, steps: int, arguments: tuple[Tree, ...]
    ) -> CompiledLoop:
        """Returns the compiled program for a number of steps and these shapes."""
        leaves, structure = jax.tree.flatten(arguments)
        key = steps, structure, tuple(map(jax.typeof, leaves)), read_compile_context()
        compiled_loop = feed.programs.get(key)
        if compiled_loop is None:
            function, outfeed = self._build_compiled_function(steps, feed.queue)
            compiled_loop = feed.programs[key] = CompiledLoop(
                function.lower(*arguments).compile(), outfeed
            )
        run.replicas = compiled_loop.executable.lowered.replicas
        return compiled_loop

    def _build_compiled_function(
        self, steps: int, infeed: IPUInfeedQueue
    ) -> tuple[CompiledFunction[..., Any], IPUOutfeedQueue]:
        """Builds the function of some steps, to be compiled, and its outfeed."""
        outfeed = IPUOutfeedQueue(
            outfeed_mode=self.outfeed_mode, device_ordinal=infeed.device_ordinal
        )
        outfeed.is_awaited = self.awaits_results
        function = compile(
            self.build_program(steps, (infeed, outfeed)),
            device=self.device,
            engine=self.engine,
            name=self._program_name,
            replicas=self.replicas,
            alone=self.alone,
            gather=gathers_results(alone=self.alone) if self.meshes is None else None,
            meshes=self.meshes,
        )
        names = () if self.names is None else self.select_program_arguments(self.names)
        return function.name_arguments_in_reports(jax.tree.leaves(names)), outfeed

    @property
    def _program_name(self) -> str:
        """The name of the program."""
        return self.name or type(self).__name__.lower()

    @functools.cached_property
    def _feeds(self) -> Feeds:
        return Feeds(self.device, self.prefetch_depth)


class _ResultReader:
    """A reader that takes a device loop's results from an outfeed, at once for live callbacks."""

    def __init__(self, outfeed: IPUOutfeedQueue, run: Run, live: Sequence[Callback]):
        self._outfeed, self._run, self._live = outfeed, run, live
        self._taken: list[Tree] = []
        self._failure: BaseException | None = None
        self._over = threading.Event()
        self._reader = threading.Thread(target=self._read_outfeed, daemon=True) if live else None
        self._all: Tree = None

    def __enter__(self) -> _ResultReader:
        if self._reader is not None:
            self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._reader is not None:
            self._reader.join()
        if self._outfeed.discards or self._outfeed.keeps_last:
            return
        # Also after an error: no result of this loop may be left for the next one.
        undelivered, live_results = self._outfeed.dequeue(), self._taken
        self._all = (
            jax.tree.map(lambda *rows: np.stack(rows), *live_results)
            if live_results
            else undelivered
        )

    def results_of_steps(self, steps: int) -> Tree:
        """Returns the results of a loop that made some steps, once it has ended.

        They are stacked, or the last result if the queue keeps no more: None without a step.
        An exception that a callback raised in the other thread is raised here.
        """
        if self._failure is not None:
            raise self._failure
        if self._outfeed.discards:
            return self._outfeed.make_zero_results(steps)
        if self._outfeed.keeps_last:
            return self._outfeed.dequeue() if steps else None
        return self._all

    def _read_outfeed(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._over.wait(POLL_SECONDS)
            for result in self._outfeed:  # ends while no program runs, such as before the loop
                self._taken.append(result)
                self._notify_live_callbacks(result)

    def _notify_live_callbacks(self, result: Tree) -> None:
        try:
            for callback in self._live if self._failure is None else ():
                callback.result(self._run, result)
        except BaseException as error:
            self._failure = error
            self._run.request_stop()
