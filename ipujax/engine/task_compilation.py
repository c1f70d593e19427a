"""Collects every function that a program has XLA compile, and compiles them together.

A run only calls these functions and transfers, which need no compiling;
so no call of a program compiles, not the first one either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.engine.copied_executables import copy_executable
from ipujax.engine.lanes import count_host_cores
from ipujax.engine.queue_session import Leaf
from lowering import has_sub_byte_elements, is_numeric_dtype, size_of

Struct = jax.ShapeDtypeStruct | Sequence[jax.ShapeDtypeStruct]
"""The shape, dtype and sharding of an operand, or of each array of a list."""


class Compiled:
    """A function that XLA compiles before its first call.

    Args:
      jitted: the function.
      structs: the shapes, dtypes and shardings of its operands.
      waits: whether a call ends with the computation.
      follows_operands: whether jit compiles it at its first call, for its operands' shardings.
      twin: an equal function on another device, and the device for which to load it.
    """

    def __init__(
        self,
        jitted: jax.stages.Wrapped,
        structs: Sequence[Struct],
        *,
        waits: bool,
        follows_operands: bool,
        twin: tuple[Compiled, Any] | None = None,
    ):
        self._jitted, self._structs, self._waits = jitted, structs, waits
        # JAX 0.10.2 has an executable refuse committed arrays of fewer than 8 bits, of which it
        # believes the layout to be another than XLA's; its own dispatch runs what was compiled.
        self._is_called_by_jit = any(has_sub_byte_elements(s) for s in jax.tree.leaves(structs))
        self._twin = None if self._is_called_by_jit else twin
        self._follows_operands = follows_operands
        self._lowered: jax.stages.Lowered | None = None
        self._executable: jax.stages.Compiled | None = None
        self._empty: list[int] = []

    def __call__(self, *operands: Any) -> list[jax.Array]:
        """Runs it on arrays of JAX's, committed to its devices or to none."""
        if self._follows_operands:
            return self._jitted(*operands)
        executable = self._executable or self.compile_function()
        results = (self._jitted if self._is_called_by_jit else executable)(*operands)
        if self._empty:
            results = self._shard_empty_results(results)
        return jax.block_until_ready(results) if self._waits else results

    def run_on_uncommitted_arrays(self, *operands: Leaf | Sequence[jax.Array]) -> list[jax.Array]:
        """Runs it on NumPy's arrays, and arrays that are committed to no device.

        jit's own dispatch takes a fifth of the time, and finds what was compiled, unless an array
        is committed. NumPy's arrays may be read until the results are computed.
        """
        results = self._jitted(*operands)
        return self._shard_empty_results(results) if self._empty else results

    def _shard_empty_results(self, results: Sequence[jax.Array]) -> list[jax.Array]:
        """Replaces empty results on several devices, which XLA does not shard as JAX expects.

        XLA replicates such an array on each device, whatever sharding JAX reports.
        """
        arrays = list(results)
        for number in self._empty:
            result = arrays[number]
            # NumPy's need no compiling, but NumPy knows no keys.
            zeros: Any = np.zeros if is_numeric_dtype(result.dtype) else jnp.zeros
            arrays[number] = jax.device_put(zeros(result.shape, result.dtype), result.sharding)
        return arrays

    def lower_function(self) -> jax.stages.Lowered:
        """Traces and lowers the function, unless that has been done."""
        if self._lowered is None:
            self._lowered = self._jitted.lower(*self._structs)
        return self._lowered

    def compile_function(self) -> jax.stages.Compiled:
        """Compiles the function, unless that has been done."""
        if self._executable is None:
            lowered = self.lower_function()
            self._executable = lowered.compile()
            results = jax.tree.leaves(lowered.out_info)
            shardings = jax.tree.leaves(self._executable.output_shardings)
            self._empty = [
                number
                for number, (result, sharding) in enumerate(zip(results, shardings, strict=True))
                if not size_of(result) and sharding.num_devices > 1
            ]
        return self._executable

    @property
    def has_twin(self) -> bool:
        """True if an equal function of another device may be loaded for this one's."""
        return self._twin is not None

    def load_twin(self) -> bool:
        """Loads what has been compiled for the twin; returns whether JAX could do that."""
        if self._twin is not None and self._executable is None:
            function, device = self._twin
            self._executable = copy_executable(function.compile_function(), device)
        return self._executable is not None


class Compilation:
    """All functions of one program that XLA compiles.

    Args:
      waits: whether their calls end with the computation, as collectives of several processes need
        it: those of two computations that run at the same time wait for one another.
      follows_operands: whether functions are compiled at their first calls instead, for the
        shardings that their operands then have.
    """

    def __init__(self, *, waits: bool = False, follows_operands: bool = False) -> None:
        self._waits, self._follows_operands = waits, follows_operands
        self._functions: list[Compiled] = []

    def add_function(
        self,
        function: Callable[..., Any],
        structs: Sequence[Struct],
        *,
        twin: tuple[Compiled, Any] | None = None,
        **options: Any,
    ) -> Compiled:
        """Adds a function that will be compiled when `compile_all` is called.

        Args:
          function: a function of flat arrays.
          structs: the arrays that it is called with, see `Placement.array_struct`.
          twin: an equal function for one other device, and the device that this one is for.
          options: options of `jax.jit`.
        """
        compiled_function = Compiled(
            jax.jit(function, **options),
            structs,
            waits=self._waits,
            follows_operands=self._follows_operands,
            twin=twin,
        )
        self._functions.append(compiled_function)
        return compiled_function

    def compile_all(self) -> None:
        """Compiles all functions: XLA works in threads while Python lowers the next ones.

        XLA does not use all cores for a single one. Functions that follow their operands wait.
        """
        if self._follows_operands:
            return
        pool = ThreadPoolExecutor(count_host_cores())
        try:
            self._compile_in_threads(pool, [f for f in self._functions if not f.has_twin])
            twins = [f for f in self._functions if f.has_twin and not f.load_twin()]
            self._compile_in_threads(pool, twins)
        finally:
            pool.shutdown(cancel_futures=True)  # after a failure, drop the rest

    def _compile_in_threads(self, pool: ThreadPoolExecutor, functions: Sequence[Compiled]) -> None:
        """Compiles functions in a pool; they are lowered here, under this thread's settings."""
        compiled: list[Future[jax.stages.Compiled]] = []
        for function in functions:
            function.lower_function()
            compiled.append(pool.submit(function.compile_function))
        for future in compiled:
            future.result()


def sum_cost_analyses(kernels: Sequence[Compiled]) -> dict[str, float]:
    """Sums XLA's cost estimates over some functions."""
    total: dict[str, float] = {}
    for kernel in kernels:
        for key, value in (kernel.compile_function().cost_analysis() or {}).items():
            total[key] = total.get(key, 0.0) + float(value)
    return total


def list_memory_analyses(kernels: Sequence[Compiled]) -> list[object]:
    """Returns XLA's memory statistics of each function."""
    return [kernel.compile_function().memory_analysis() for kernel in kernels]
