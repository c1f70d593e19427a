"""What `Training` and `Inference` share: a program for many steps, compiled once, and its runs."""

from __future__ import annotations

import abc
import dataclasses as dc
import functools
import threading
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from ipujax.checks.lines import api_boundary
from ipujax.driver.compiler import CompiledFunction, compile
from ipujax.driver.contexts import read_compile_context
from ipujax.driver.options import DEFAULT_DEVICE
from ipujax.driver.stages import Executable, Traced
from ipujax.errors import OutOfRangeError
from ipujax.ipu_infeed_queue import IPUInfeedQueue
from ipujax.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
from ipujax.scopes import current_device
from ipujax.system.log import get_logger
from ipujax.training.callbacks import Callback, Run
from ipujax.training.checks import check
from ipujax.training.feeds import Data, Feed, Feeds, Ready
from ipujax.training.stages import Pipeline
from ipujax.training.state import TrainState, Tree, on_device
from ipujax.training.step import SelfDifferentiating

POLL_SECONDS = 0.005
Queues = tuple[IPUInfeedQueue, IPUOutfeedQueue]


class Advance(NamedTuple):
    """What one device loop has done.

    Attributes:
      state: after it.
      results: what it sent, as `Callback.after_run` gets it.
      steps: that it made.
    """

    state: TrainState
    results: Tree
    steps: int


@dc.dataclass(frozen=True, eq=False)
class DeviceLoop(abc.ABC):
    """Steps on the device, in programs of `steps_per_loop` of them.

    Attributes:
      model: a function, or the stages of a `Pipeline`.
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

    def __post_init__(self) -> None:
        if not isinstance(self.model, Pipeline | SelfDifferentiating):
            fix = "wrap a list of stages in ipu.training.Pipeline"
            check.function(self.model, "the model", fix)
        check.integer(self.accumulation, "accumulation", at_least=1)
        if self.steps_per_loop is not None:
            check.integer(self.steps_per_loop, "steps_per_loop", at_least=1)
        check.integer(self.step_size, "step_size", at_least=1)
        check.function(self.inputs, "inputs", optional=True)
        check.function(self.state_reduction, "state_reduction", optional=True)
        check.instance(self.outfeed_mode, IPUOutfeedMode, "outfeed_mode")
        check.flag(self.alone, "alone")
        check.instance(self.names, TrainState, "names", optional=True)

    @abc.abstractmethod
    def program(self, steps: int, queues: Queues) -> Callable[..., Tree]:
        """The traced function: so many steps, from what the loop carries and the inputs.

        Reports call its arguments as its parameters are called.
        """

    @abc.abstractmethod
    def carried(self, state: TrainState) -> tuple[Tree, ...]:
        """What the program takes of a state."""

    @abc.abstractmethod
    def after(self, state: TrainState, carried: Tree, steps: int) -> TrainState:
        """The state after so many more steps, from what the program gave."""

    def steps_made(self, error: OutOfRangeError, steps: int) -> int:
        """How many of so many steps were complete when the data ended."""
        return error.available * steps // error.requested

    @api_boundary
    def compile(self, state: TrainState, data: Data, steps: int | None = None) -> Executable:
        """The program that a run with these arguments begins with; that run compiles nothing.

        It also looks at the first element of the data set, which stays there.

        Args:
          state: to begin with.
          data: as in a run.
          steps: as in a run.

        Raises:
          OutOfRangeError: an empty data set.
          LoweringError: and its kinds, for programs that do not fit the device.
        """
        return self._first(self._new_run(state, steps), self._feeds.of(data)).executable

    @api_boundary
    def trace(self, state: TrainState, data: Data, steps: int | None = None) -> Traced:
        """As `compile`, but the program is only traced."""
        run, feed = self._new_run(state, steps), self._feeds.of(data)
        return self._compiled(self._size(run), feed.queue)[0].trace(*self._arguments(run.state))

    def advance(self, state: TrainState, data: Data, steps: int) -> Advance:
        """One device loop of at most so many steps, for callers that keep the loop over them.

        Args:
          state: to go on from.
          data: as in a run; the same iterator goes on where the loop before left it.
          steps: how many; fewer are made where the data ends.

        Returns:
          What has become of the state, what was sent, and how many steps were made.
        """
        feed = self._feeds.of(data)
        run = self._new_run(state, steps)
        results, done = self._one_loop(run, feed, ())
        return Advance(run.state, results, done)

    @property
    def executable(self) -> Executable | None:
        """The program for the latest data set that was compiled last; None before there is one."""
        feed = self._feeds.latest
        programs = [] if feed is None else list(feed.programs.values())
        return programs[-1].executable if programs else None

    @api_boundary
    def run(
        self, run: Run, data: Data, callbacks: Sequence[Callback]
    ) -> Generator[Tree, None, None]:
        """Runs device loop after device loop, until the run is over; yields what each has sent."""
        feed = self._feeds.of(data)
        if not run.is_over:
            self._first(run, feed)
        for callback in callbacks:
            callback.begin(run)
        while not run.is_over:
            results, done = self._one_loop(run, feed, callbacks)
            if not done and run.exhausted:
                break
            for callback in callbacks:
                callback.after_run(run, results)
            yield results
        if run.exhausted and run.steps is not None:
            get_logger().info(
                "The data set ended after %d of %d steps of `%s`", run.done, run.steps, self._title
            )
        for callback in callbacks:
            callback.end(run)

    def _new_run(
        self, state: TrainState, steps: int | None, callbacks: Sequence[Callback] = ()
    ) -> Run:
        check.instance(state, TrainState, "the state to begin with")
        for callback in callbacks:
            check.instance(callback, Callback, "each of the callbacks")
        if steps is not None:
            check.integer(steps, "steps", at_least=0)
        elif self.steps_per_loop is None:
            raise check.refuse(
                "neither `steps` nor `steps_per_loop` is given, so that nobody knows how many "
                "steps a program makes",
                "give one of them",
            )
        self._check_names(state)
        arrays = on_device(state)
        return Run(dc.replace(arrays, step=int(state.step)), steps, self.accumulation)

    def _check_names(self, state: TrainState) -> None:
        if self.names is None:
            return
        given, wanted = (len(jax.tree.leaves(self.carried(s))) for s in (self.names, state))
        if given != wanted:
            raise check.refuse(
                f"`names` has {given} texts, and the state to begin with has {wanted} arrays",
                "give a TrainState of the state's own structure, with a text for each array",
            )

    def _first(self, run: Run, feed: Feed) -> Ready:
        return self._ready(run, feed, self._size(run), self._arguments(run.state))

    def _size(self, run: Run) -> int:
        """Steps of the next device loop."""
        left = None if run.steps is None else run.steps - run.done
        return min(n for n in (left, self.steps_per_loop) if n is not None)

    def _one_loop(self, run: Run, feed: Feed, callbacks: Sequence[Callback]) -> tuple[Tree, int]:
        """Runs one device loop: what it sent, and how many steps it made."""
        steps, arguments = self._size(run), self._arguments(run.state)
        ready = self._ready(run, feed, steps, arguments)
        for callback in callbacks:
            callback.before_run(run)
        live = [callback for callback in callbacks if callback.is_live]
        with _Results(ready.outfeed, run, live) as results:
            try:
                carried, done = ready.executable(*arguments), steps
            except OutOfRangeError as error:
                if error.infeed is not feed.queue or error.carried is None:
                    raise
                run.exhausted = True
                carried, done = error.carried, self.steps_made(error, steps)
        run.state, run.done = self.after(run.state, carried, done), run.done + done
        return results.of(done), done

    def _arguments(self, state: TrainState) -> tuple[Tree, ...]:
        inputs = () if self.inputs is None else tuple(self.inputs(state))
        return *self.carried(state), on_device(inputs)

    def _ready(self, run: Run, feed: Feed, steps: int, arguments: tuple[Tree, ...]) -> Ready:
        """The compiled program for so many steps of these shapes."""
        leaves, structure = jax.tree.flatten(arguments)
        key = steps, structure, tuple(map(jax.typeof, leaves)), read_compile_context()
        ready = feed.programs.get(key)
        if ready is None:
            compiled, outfeed = self._compiled(steps, feed.queue)
            ready = feed.programs[key] = Ready(compiled.lower(*arguments).compile(), outfeed)
        run.replicas = ready.executable.lowered.replicas
        return ready

    def _compiled(
        self, steps: int, infeed: IPUInfeedQueue
    ) -> tuple[CompiledFunction, IPUOutfeedQueue]:
        """The function of so many steps, and where it sends."""
        outfeed = IPUOutfeedQueue(
            outfeed_mode=self.outfeed_mode, device_ordinal=infeed.device_ordinal
        )
        compiled = compile(
            self.program(steps, (infeed, outfeed)),
            device=self.device,
            engine=self.engine,
            name=self._title,
            replicas=self.replicas,
            alone=self.alone,
        )
        names = () if self.names is None else self.carried(self.names)
        return compiled.calling_arguments(jax.tree.leaves(names)), outfeed

    @property
    def _title(self) -> str:
        """Of the program."""
        return self.name or type(self).__name__.lower()

    @functools.cached_property
    def _feeds(self) -> Feeds:
        return Feeds(self.device, self.prefetch_depth)


class _Results:
    """Takes from an outfeed what a device loop sends; at once, if somebody wants it live."""

    def __init__(self, outfeed: IPUOutfeedQueue, run: Run, live: Sequence[Callback]):
        self._outfeed, self._run, self._live = outfeed, run, live
        self._taken: list[Tree] = []
        self._failure: BaseException | None = None
        self._over = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True) if live else None
        self._all: Tree = None

    def __enter__(self) -> _Results:
        if self._reader is not None:
            self._reader.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._over.set()
        if self._reader is not None:
            self._reader.join()
        if self._outfeed.discards or self._outfeed.keeps_last:
            return
        # Also after an error: nothing of this loop may be left for the next one.
        rest, taken = self._outfeed.dequeue(), self._taken
        self._all = jax.tree.map(lambda *rows: np.stack(rows), *taken) if taken else rest

    def of(self, steps: int) -> Tree:
        """What a loop that made so many steps has sent, once it has ended.

        All of it, stacked, or the last element, if the queue keeps no more: None without a step.
        Raises what a callback raised in the other thread.
        """
        if self._failure is not None:
            raise self._failure
        if self._outfeed.discards:
            return self._outfeed.stand_in(steps)
        if self._outfeed.keeps_last:
            return self._outfeed.dequeue() if steps else None
        return self._all

    def _read(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._over.wait(POLL_SECONDS)
            for result in self._outfeed:  # ends when nothing runs, such as before the loop
                self._taken.append(result)
                self._tell(result)

    def _tell(self, result: Tree) -> None:
        try:
            for callback in self._live if self._failure is None else ():
                callback.result(self._run, result)
        except BaseException as error:
            self._failure = error
            self._run.request_stop()
