"""The compiled functions of a program's kernels; equal ones, as of repeated layers, share one."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import jax
from jax.sharding import SingleDeviceSharding

from ipujax.engine.device_placement import Placement
from ipujax.engine.task_compilation import Compilation, Compiled
from lowering import ir, jaxpr, structure_key


class NodeKernels:
    """The kernels of one program.

    Args:
      compilation: compiles them.
      placement: the devices of the program's IPUs.
    """

    def __init__(self, compilation: Compilation, placement: Placement):
        self._compilation, self._placement = compilation, placement
        self._kernels: dict[Any, Compiled] = {}
        self._first_of_equals: dict[Any, Compiled] = {}

    def compile_kernel(self, node: ir.Execute, donated: Collection[ir.Place] = ()) -> Compiled:
        """Returns the function of a node's kernel, which may overwrite the `donated` values."""
        closed, placement = node.kernel.jaxpr, self._placement
        spare = tuple(i for i, v in enumerate(node.reads) if (v, node.ipu) in donated)
        sharding = None if placement.is_default else placement.sharding(node.ipu)
        key = (structure_key(closed), spare, sharding)
        if key not in self._kernels:

            def run_node_kernel(*operands: jax.Array) -> list[jax.Array]:
                return jaxpr.run_equations(closed.jaxpr, closed.consts, operands)

            in_axes, out_axes = [0] * len(node.reads), [0] * len(node.writes)
            replicated_kernel = placement.replicate_function(
                run_node_kernel, node.ipu, in_axes, out_axes
            )
            # A kernel that reads nothing would run wherever JAX likes.
            result_shardings: Any = placement.result_shardings(node.ipu, out_axes)
            if not node.reads:
                result_shardings = sharding
            structs = [
                placement.array_struct(aval, node.ipu) for aval in node.kernel.jaxpr.in_avals
            ]
            first = self._first_of_equals.get(key[:2])
            is_on_one_device = isinstance(sharding, SingleDeviceSharding)
            twin = (
                (first, self._placement.devices[node.ipu]) if first and is_on_one_device else None
            )
            self._kernels[key] = self._compilation.add_function(
                replicated_kernel,
                structs,
                twin=twin,
                donate_argnums=spare,
                out_shardings=result_shardings,
            )
            if is_on_one_device:
                self._first_of_equals.setdefault(key[:2], self._kernels[key])
        return self._kernels[key]
