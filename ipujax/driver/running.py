"""One call of a program that is ready: from the user's arguments to the user's results."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import Any, NoReturn

import jax
import numpy as np

from ipujax import events
from ipujax.distribution.holding import brought_together
from ipujax.driver.arguments import Signature
from ipujax.driver.contexts import convert_argument
from ipujax.driver.device_mesh import refuse_mesh
from ipujax.engine.host_code import HostCode
from ipujax.engine.one_kernel import OneKernel
from ipujax.engine.replay import Machine
from ipujax.errors import ExecutableArgumentError, FloatingPointError
from ipujax.events import IpuTraceEventType
from ipujax.host.number_watch import NumberWatch, make_wanted_watch
from ipujax.host.synthetic import synthetic_array
from ipujax.system.devices import SYSTEM, LogicalDevice
from ipujax.utils import SyntheticDataCategory, use_synthetic_data_for
from lowering import Ref, any_wide, ir, is_ref, jaxpr, keep_wide_values, signature_of


class Ready:
    """A program that is compiled, or loaded, for a device.

    What follows from these is found out here, once: beside a small program, each line of a call
    counts.

    Args:
      program: what runs, fused or not.
      signature: how arguments and results become flat.
      device: the logical device.
      machine: the program on flat arguments.
      host_code: what it runs on the host.
      raises_faults: whether a fault that the program notes is an error, also where nothing that
        comes out of it is wrong.
    """

    def __init__(
        self,
        program: ir.Program,
        signature: Signature,
        device: LogicalDevice,
        machine: OneKernel | Machine,
        host_code: HostCode,
        *,
        raises_faults: bool = True,
    ):
        self._program, self._signature, self._device = program, signature, device
        self._name, self._draws = program.name, program.draws
        self._run = functools.partial(host_code.run, machine) if host_code else machine
        self._avals = [program.avals[value] for value in program.inputs]
        self._gives_zeros = device.results_are_zeros
        self._is_synthetic = use_synthetic_data_for(SyntheticDataCategory.Parameters)
        # A single kernel refuses by itself what does not fit, and finds that out faster.
        is_strict = isinstance(machine, OneKernel)
        self._looks_first = self._gives_zeros or self._is_synthetic or not is_strict
        # Who has what, as the machine was told; a single kernel wants all in every process.
        everyone = (None,) * len(signature.holders)
        self._holders = everyone if is_strict else signature.holders
        self._raises_faults = raises_faults
        self._is_wide = any_wide(program.avals)
        self._loaded = False

    def __call__(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        """Runs the program; see `Executable.__call__` for what it raises."""
        refuse_mesh(self._name)
        flat = self._signature.flatten(args, kwargs)
        if self._holders:
            flat = brought_together(flat, self._holders)
        touched = self._signature.refs.among(flat)
        if touched:
            flat = [leaf[...] if is_ref(leaf) else leaf for leaf in flat]
        if self._draws:
            flat.append(SYSTEM.next_seed(self._device.name))
        is_quick = self._loaded and not events.ACTIVE
        if self._looks_first or not is_quick:
            self._check(flat)
        if self._gives_zeros:
            results = [self._program.avals[value] for value in self._program.outputs]
            return self._signature.unflatten([np.zeros(aval.shape, aval.dtype) for aval in results])
        if self._is_synthetic:
            flat = [synthetic_array(aval) for aval in self._avals]
        if is_quick:
            SYSTEM.attach(self._device)
            return self._results(flat, touched)
        self._load()
        events.emit(IpuTraceEventType.EXECUTE, self._name)
        with events.span("execute", self._name):
            return settled(self._results(flat, touched))

    def _load(self) -> None:
        with events.span("load", self._name) as span:
            span.told = not self._loaded  # later ones find everything in its place
            SYSTEM.attach(self._device)
        if not self._loaded:
            events.emit(IpuTraceEventType.LOAD_ENGINE, self._name)
            self._loaded = True

    def _results(self, flat: list[Any], touched: Sequence[Ref]) -> Any:
        watch = make_wanted_watch() if jaxpr.is_debugging() else None
        with watch.watch_run() if watch is not None else contextlib.nullcontext():
            results = self._computed(flat)
        code = int(results.pop()) if self._program.faults else 0
        if code and self._raises_faults:
            _raise_fault(self._program.faults[code - 1])
        if watch is not None:
            self._look_at(watch, results, code)
        if touched:
            first = self._signature.out_tree.num_leaves
            for ref, value in zip(touched, results[first:], strict=True):
                ref[...] = jax.device_put(value, ref.sharding)
        return self._signature.unflatten(results)

    def _computed(self, flat: list[Any]) -> list[Any]:
        try:
            if not self._is_wide:
                return self._run(flat)
            flat = list(map(convert_argument, flat))
            with keep_wide_values(wide=True):
                return self._run(flat)
        except (TypeError, ValueError):
            self._check(flat)
            raise

    def _look_at(self, watch: NumberWatch, results: Sequence[Any], code: int) -> None:
        """Raises for a number that is wrong, with the operation that was the first to make one."""
        for name, result in zip(self._signature.result_names(), results, strict=False):
            watch.look_at(name, result)
        if not watch.found:
            return
        fault = self._program.faults[code - 1] if code else None
        made = "no operation that is watched made it"
        if fault is not None:
            made = f"the first fault was {fault.kind} in `{fault.primitive}`"
        raise FloatingPointError(
            f"`{self._name}`: {' and '.join(dict.fromkeys(watch.found))} (jax.debug_nans or "
            f"jax.debug_infs is on); {made}",
            where=(fault.origin if fault is not None else "") or "unknown",
            fix="mend the operands there"
            if fault is not None
            else "look for it in the arguments; if the program was compiled before the check was "
            "switched on, call the function that ipu.compile returned, or compile again",
        )

    def _check(self, flat: Sequence[object]) -> None:
        is_traced = not jaxpr.trace_state_clean()
        for number, (leaf, wanted) in enumerate(zip(flat, self._avals, strict=True)):
            if is_traced and jaxpr.is_tracer(leaf):
                self._refuse(number, f"traced, {leaf}")
            if (
                isinstance(leaf, (jax.Array, np.ndarray))
                and leaf.shape == wanted.shape
                and leaf.dtype == wanted.dtype
            ):
                continue  # found out fast
            try:
                given = jax.typeof(leaf)
            except TypeError:
                self._refuse(number, f"a {type(leaf).__name__}, {leaf!r}")
            if signature_of([given]) != signature_of([wanted]):
                self._refuse(number, given.str_short())

    def _refuse(self, number: int, given: str) -> NoReturn:
        names = dict(enumerate(self._signature.argument_names()))
        wanted = self._avals[number].str_short()
        raise ExecutableArgumentError(
            f"`{self._program.name}`: argument {names.get(number, number)} is {given}, the program "
            f"was lowered for {wanted}",
            fix=f"give an array of {wanted}; or call the function that ipu.compile returned, which "
            "compiles for each signature and can be traced, or lower again",
        ) from None  # JAX says the same in its own words


def settled(results: object) -> object:
    """The results; if somebody records how long things take, once they are there."""
    return jax.block_until_ready(results) if events.timing() else results


def _raise_fault(fault: ir.Fault) -> NoReturn:
    raise FloatingPointError(
        f"{fault.kind} in `{fault.primitive}`",
        where=fault.origin or "unknown",
        fix="mend the operands, or switch the check off in IPUConfig.floating_point_behaviour",
    )
