"""Everything of a program that XLA compiles: listed while the program is made ready, then compiled.

Whatever a run does to arrays is one of these functions or a transfer, which needs no compiling;
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
from ipujax.host.session import Leaf
from lowering import has_sub_byte_elements, is_number, size_of

Struct = jax.ShapeDtypeStruct | Sequence[jax.ShapeDtypeStruct]
"""What XLA is told of an operand: of an array, or of a list of them."""


class Compiled:
    """A function that XLA compiles before it is called.

    Args:
      jitted: the function.
      structs: what it is called with, on the devices that it runs on.
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
        executable = self._executable or self.compile()
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
        """The results, with others in the place of those of several devices without elements.

        XLA gives each device the whole of such an array, whatever JAX says of it.
        """
        arrays = list(results)
        for number in self._empty:
            result = arrays[number]
            # NumPy's need no compiling, but NumPy knows no keys.
            zeros: Any = np.zeros if is_number(result.dtype) else jnp.zeros
            arrays[number] = jax.device_put(zeros(result.shape, result.dtype), result.sharding)
        return arrays

    def lower(self) -> jax.stages.Lowered:
        """Traces it, unless that has been done."""
        if self._lowered is None:
            self._lowered = self._jitted.lower(*self._structs)
        return self._lowered

    def compile(self) -> jax.stages.Compiled:
        """Compiles it, unless that has been done."""
        if self._executable is None:
            lowered = self.lower()
            self._executable = lowered.compile()
            results = jax.tree.leaves(lowered.out_info)
            homes = jax.tree.leaves(self._executable.output_shardings)
            self._empty = [
                number
                for number, (result, home) in enumerate(zip(results, homes, strict=True))
                if not size_of(result) and home.num_devices > 1
            ]
        return self._executable


class Compilation:
    """The functions of one program.

    Args:
      waits: whether their calls end with the computation, as collectives of several processes need
        it: those of two computations that run at the same time wait for one another.
    """

    def __init__(self, waits: bool = False) -> None:
        self._waits = waits
        self._functions: list[Compiled] = []

    def add(
        self, function: Callable[..., Any], structs: Sequence[Struct], **options: Any
    ) -> Compiled:
        """A function that will be ready when the program is.

        Args:
          function: of flat arrays.
          structs: the arrays that it is called with, see `Placement.struct`.
          options: of `jax.jit`.
        """
        added = Compiled(jax.jit(function, **options), structs, self._waits)
        self._functions.append(added)
        return added

    def finish(self) -> None:
        """Compiles all of them: XLA, in threads, while Python lowers the next ones.

        XLA does not use all cores for a single one.
        """
        pool = ThreadPoolExecutor(host_cores())
        try:
            compiled: list[Future[jax.stages.Compiled]] = []
            for function in self._functions:
                function.lower()
                compiled.append(pool.submit(function.compile))
            for future in compiled:
                future.result()
        finally:
            pool.shutdown(cancel_futures=True)  # after a failure, what nobody needs any more


def cost_analysis(kernels: Sequence[Compiled]) -> dict[str, float]:
    """XLA's cost estimates, summed over some functions."""
    total: dict[str, float] = {}
    for kernel in kernels:
        for key, value in (kernel.compile().cost_analysis() or {}).items():
            total[key] = total.get(key, 0.0) + float(value)
    return total


def memory_analysis(kernels: Sequence[Compiled]) -> list[object]:
    """XLA's memory statistics of each function."""
    return [kernel.compile().memory_analysis() for kernel in kernels]
