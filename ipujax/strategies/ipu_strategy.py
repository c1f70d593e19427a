"""`IPUStrategy`: in its scope, Keras's models are trained and used by programs on IPUs."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from ipujax.doors.keras import keras_backend
from ipujax.driver import CompiledFunction, compile
from ipujax.ground import PyTree, check, count_replica_groups
from ipujax.keras import extension, strategy
from ipujax.operators import ipu_scope
from ipujax.system import SYSTEM


@check.guard
class IPUStrategy:
    """Runs functions and Keras's models on an IPU device.

    In `scope()`, `fit`, `evaluate`, `predict`, `train_on_batch`, `test_on_batch` and
    `predict_on_batch` of Keras's models (3.x, on its JAX backend) run as compiled programs, with
    loops of `steps_per_execution` batches on the device, and give what Keras gives. Outside, Keras
    is as it was.

    Where several instances run (see `ipurun`), they train and evaluate together: each gives batches
    of its own, as many as the others; all begin with the weights of instance 0, and have the same
    weights and logs after each execution. Each predicts for itself. Of Keras's callbacks those of
    instance 0 write files: `ModelCheckpoint`, `BackupAndRestore`, `CSVLogger` and `TensorBoard`.

    Args:
      ipu_device: a logical device.
      add_ipu_cross_replica_reductions: whether the gradients of several replicas are averaged;
        without, each replica trains its own copy, and only the first one's is kept.
      cpu_device: the host, of which there is one: "/device:CPU:0".
      enable_dataset_iterators: True or False; iterators of data sets are given to functions as any
        others, so that it changes nothing.
      enable_keras_extensions: must be True: in the scope Keras's models run as programs on IPUs.

    Raises:
      ConfigTypeError: (a `TypeError`) arguments of another type.
      OperatorError: (a `ValueError`) another host, or `enable_keras_extensions=False`.
      DeviceError: (a `ValueError`) no such device.
    """

    def __init__(
        self,
        ipu_device: str = "/device:IPU:0",
        add_ipu_cross_replica_reductions: bool = True,
        *,
        cpu_device: str = "/device:CPU:0",
        enable_dataset_iterators: bool = True,
        enable_keras_extensions: bool = True,
    ):
        check.require_text(ipu_device, "ipu_device")
        check.require_one_of(cpu_device, ("/device:CPU:0",), "cpu_device")
        check.require_flag(enable_dataset_iterators, "enable_dataset_iterators")
        if not check.require_flag(enable_keras_extensions, "enable_keras_extensions"):
            raise check.value_error(
                "IPUStrategy without enable_keras_extensions is not there",
                "use Keras's models outside of its scope, where Keras is as it was",
            )
        check.require_flag(add_ipu_cross_replica_reductions, "add_ipu_cross_replica_reductions")
        SYSTEM.device(ipu_device)
        self._strategy = strategy.Strategy(ipu_device, add_ipu_cross_replica_reductions)
        self._compiled: dict[tuple[int, ...], CompiledFunction[..., Any]] = {}

    @property
    def num_replicas_in_sync(self) -> int:
        """Copies of a model of one IPU that the device runs, and those of other instances."""
        return self._strategy.count_replicas() * count_replica_groups()

    @contextlib.contextmanager
    def scope(self) -> Generator[IPUStrategy]:
        """Opens the scope in which models are built, compiled and run.

        Raises:
          KerasError: (a `ValueError`) Keras is imported, on another backend than JAX.
        """
        if keras_backend.choose_jax_backend():
            extension.extend_keras()
        with ipu_scope(self._strategy.device), strategy.enter_strategy(self._strategy):
            yield self

    def run(
        self,
        fn: Callable[..., PyTree],
        args: Sequence[PyTree] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> PyTree:
        """Compiles a function for the device, once, and runs it.

        Args:
          fn: any function that `ipu.compile` takes.
          args: of the function.
          kwargs: of the function, by name.
        """
        check.require_function(fn, "fn of IPUStrategy.run")
        positional = check.require_sequence(args, "args of IPUStrategy.run")
        check.require_instance(kwargs, Mapping, "kwargs of IPUStrategy.run", optional=True)
        key = _function_key(fn)
        if key not in self._compiled:
            self._compiled[key] = compile(fn, device=self._strategy.device)
        return self._compiled[key](*positional, **dict(kwargs or {}))

    experimental_run_v2 = run  # its name in TensorFlow 1 and 2.0


def _function_key(fn: Callable[..., PyTree]) -> tuple[int, ...]:
    """Returns a key that identifies a function as an object; equal functions have other keys."""
    if isinstance(fn, types.MethodType):  # a new one each time that it is looked up
        return id(fn.__self__), id(fn.__func__)
    return (id(fn),)


IPUStrategyV1 = IPUStrategy
