"""Runs programs of a single kernel as plain JAX functions, which `jax.jit` can trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from ipujax.engine.device_placement import Device, Placement, make_shape_struct
from ipujax.engine.task_compilation import Compilation, Compiled
from lowering import ir, jaxpr


def run_kernel(program: ir.Program, placement: Placement, flat: Sequence[Any]) -> list[jax.Array]:
    """Evaluates a one-kernel program on arrays or tracers."""
    values: dict[ir.ValueId, jax.Array] = dict(zip(program.inputs, flat, strict=True))
    values.update(program.constants)
    for node in program.body.steps:
        if isinstance(node, ir.Execute):
            closed = node.kernel.jaxpr

            def run_only_kernel(
                *operands: jax.Array, closed: jaxpr.ClosedJaxpr = closed
            ) -> list[jax.Array]:
                return jaxpr.run_equations(closed.jaxpr, closed.consts, operands)

            shared = [None] * len(node.reads)
            function = placement.replicate_function(
                run_only_kernel, 0, shared, [0] * len(node.writes)
            )
            results = function(*[values[value] for value in node.reads])
            if placement.replicas > 1:
                results = [result[0] for result in results]
            values.update(zip(node.writes, results, strict=True))
    return [values[value] for value in program.outputs]


class OneKernel:
    """A program of a single kernel on JAX's first device; call it after compiling.

    Args:
      program: fused.
      placement: the device of its only IPU.
      donated: which flat arguments may be overwritten.
    """

    def __init__(self, program: ir.Program, placement: Placement, donated: Sequence[int]):
        self.program, self.placement = program, placement
        self.compilation = Compilation()
        avals = [program.avals[value] for value in program.inputs]
        self._kernel = self.compilation.add_function(
            lambda *flat: run_kernel(program, placement, flat),
            [make_shape_struct(aval.shape, aval, None) for aval in avals],
            donate_argnums=donated,
        )

    def __call__(self, flat: Sequence[jax.typing.ArrayLike]) -> list[jax.Array]:
        """Runs the program on flat arguments, wherever they are; gives flat results.

        Raises:
          TypeError: an argument of another shape or dtype, or that is traced; nothing has run.
        """
        try:
            return self._kernel(*flat)
        except ValueError:  # JAX's own compiled functions insist on their device
            device = jax.local_devices()[0]
            if not any(_is_on_other_device(x, device) for x in flat):
                raise
        return self._kernel(*jax.device_put(flat, device))

    def list_compiled_kernels(self) -> list[Compiled]:
        """Returns the program's only kernel."""
        return [self._kernel]


def _is_on_other_device(value: object, device: Device) -> bool:
    return isinstance(value, jax.Array) and value.committed and value.devices() != {device}
