"""One call of a program that is ready: from the user's arguments to the user's results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ipujax import events
from ipujax.driver.arguments import Signature
from ipujax.driver.device_mesh import refuse_mesh
from ipujax.engine.host_code import HostCode
from ipujax.errors import ExecutableArgumentError, FloatingPointError
from ipujax.events import IpuTraceEventType
from ipujax.host.synthetic import synthetic_array
from ipujax.system.devices import SYSTEM, LogicalDevice
from ipujax.utils import SyntheticDataCategory, use_synthetic_data_for
from lowering import ir, is_ref, jaxpr, signature_of


class Ready:
    """A program that is compiled, or loaded, for a device.

    Args:
      program: what runs, fused or not.
      signature: how arguments and results become flat.
      device: the logical device.
      machine: the program on flat arguments.
      host_code: what it runs on the host.
    """

    def __init__(
        self,
        program: ir.Program,
        signature: Signature,
        device: LogicalDevice,
        machine: Callable[[Sequence[Any]], list[jax.Array]],
        host_code: HostCode,
    ):
        self._program, self._signature, self._device = program, signature, device
        self._machine, self._host_code = machine, host_code
        self._avals = [program.avals[value] for value in program.inputs]
        self._loaded = False

    def __call__(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        """Runs the program; see `Executable.__call__` for what it raises."""
        signature, device, program = self._signature, self._device, self._program
        refuse_mesh(program.name)
        given = signature.flatten(args, kwargs)
        touched = signature.refs.among(given)
        flat = [leaf[...] if is_ref(leaf) else leaf for leaf in given]
        if program.draws:
            flat.append(SYSTEM.next_seed(device.name))
        self._check(flat)
        if device.results_are_zeros:
            results = [program.avals[value] for value in program.outputs]
            return signature.unflatten([np.zeros(aval.shape, aval.dtype) for aval in results])
        with events.span("load", program.name) as span:
            span.told = not self._loaded  # later ones find everything in its place
            SYSTEM.attach(device)
        if use_synthetic_data_for(SyntheticDataCategory.Parameters):
            flat = [synthetic_array(aval) for aval in self._avals]
        if not self._loaded:
            events.emit(IpuTraceEventType.LOAD_ENGINE, program.name)
            self._loaded = True
        events.emit(IpuTraceEventType.EXECUTE, program.name)
        with events.span("execute", program.name):
            results = self._host_code.run(self._machine, flat)
            if program.faults:
                _raise_fault(program, int(results.pop()))
            first = signature.out_tree.num_leaves
            for ref, value in zip(touched, results[first:], strict=True):
                ref[...] = jax.device_put(value, ref.sharding)
            return settled(signature.unflatten(results))

    def _check(self, flat: Sequence[object]) -> None:
        is_traced = not jaxpr.trace_state_clean()
        for number, (leaf, wanted) in enumerate(zip(flat, self._avals, strict=True)):
            if is_traced and jaxpr.is_tracer(leaf):
                raise self._unfit(number, f"traced, {leaf}")
            if (
                isinstance(leaf, (jax.Array, np.ndarray))
                and leaf.shape == wanted.shape
                and leaf.dtype == wanted.dtype
            ):
                continue  # found out fast
            try:
                given = jax.typeof(leaf)
            except TypeError:
                raise self._unfit(number, f"a {type(leaf).__name__}, {leaf!r}") from None
            if signature_of([given]) != signature_of([wanted]):
                raise self._unfit(number, given.str_short())

    def _unfit(self, number: int, given: str) -> ExecutableArgumentError:
        names = dict(enumerate(self._signature.argument_names()))
        wanted = self._avals[number].str_short()
        return ExecutableArgumentError(
            f"`{self._program.name}`: argument {names.get(number, number)} is {given}, the program "
            f"was lowered for {wanted}",
            fix=f"give an array of {wanted}; or call the function that ipu.compile returned, which "
            "compiles for each signature and can be traced, or lower again",
        )


def settled(results: object) -> object:
    """The results; if somebody records how long things take, once they are there."""
    return jax.block_until_ready(results) if events.timing() else results


def _raise_fault(program: ir.Program, code: int) -> None:
    if code:
        fault = program.faults[code - 1]
        raise FloatingPointError(
            f"{fault.kind} in `{fault.primitive}`",
            where=fault.origin or "unknown",
            fix="mend the operands, or switch the check off in IPUConfig.floating_point_behaviour",
        )
