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

from ipujax.engine.lanes import host_cores
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
    """

    def __init__(self, jitted: jax.stages.Wrapped, structs: Sequence[Struct], waits: bool):
        self._jitted, self._structs, self._waits = jitted, structs, waits
        # JAX 0.10.2 has an executable refuse committed arrays of fewer than 8 bits, of which it
        # believes the layout to be another than XLA's; its own dispatch runs what was compiled.
        self._is_called_by_jit = any(has_sub_byte_elements(s) for s in jax.tree.leaves(structs))
        self._lowered: jax.stages.Lowered | None = None
        self._executable: jax.stages.Compiled | None = None
        self._empty: list[int] = []

    def __call__(self, *operands: Any) -> list[jax.Array]:
        """Runs it on arrays of JAX's, committed to its devices or to none."""
        executable = self._executable or self.compile_function()
        results = (self._jitted if self._is_called_by_jit else executable)(*operands)
        if self._empty:
            results = self._with_shards(results)
        return jax.block_until_ready(results) if self._waits else results

    def from_numpy(self, *operands: Leaf) -> list[jax.Array]:
        """Runs it on NumPy's arrays, and arrays that are committed to no device.

        jit brings them to the device in half the time, and lets go of them when it has: it finds
        what was compiled, unless an array is committed.
        """
        results = self._jitted(*operands)
        return self._with_shards(results) if self._empty else results

    def _with_shards(self, results: Sequence[jax.Array]) -> list[jax.Array]:
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


class Compilation:
    """All functions of one program that XLA compiles.

    Args:
      waits: whether their calls end with the computation, as collectives of several processes need
        it: those of two computations that run at the same time wait for one another.
    """

    def __init__(self, waits: bool = False) -> None:
        self._waits = waits
        self._functions: list[Compiled] = []

    def add_function(
        self, function: Callable[..., Any], structs: Sequence[Struct], **options: Any
    ) -> Compiled:
        """Adds a function that will be compiled when `compile_all` is called.

        Args:
          function: a function of flat arrays.
          structs: the arrays that it is called with, see `Placement.array_struct`.
          options: options of `jax.jit`.
        """
        compiled_function = Compiled(jax.jit(function, **options), structs, self._waits)
        self._functions.append(compiled_function)
        return compiled_function

    def compile_all(self) -> None:
        """Compiles all functions: XLA works in threads while Python lowers the next ones.

        XLA does not use all cores for a single one.
        """
        pool = ThreadPoolExecutor(host_cores())
        try:
            compiled: list[Future[jax.stages.Compiled]] = []
            for function in self._functions:
                function.lower_function()
                compiled.append(pool.submit(function.compile_function))
            for future in compiled:
                future.result()
        finally:
            pool.shutdown(cancel_futures=True)  # after a failure, drop the rest


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
