"""Runs one call of a compiled program, from the user's arguments to the user's results."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import Any, NoReturn

import jax
import numpy as np

from ipujax.distribution import share_held_arrays
from ipujax.driver.argument_shardings import (
    keep_shardings,
    log_moved_arguments,
    pair_results_with_arguments,
)
from ipujax.driver.call_arguments import Signature
from ipujax.driver.contexts import convert_argument
from ipujax.driver.device_mesh import refuse_ambient_mesh
from ipujax.engine import HostCode, Machine, NumberWatch, OneKernel, make_number_watch_if_enabled
from ipujax.ground import (
    ExecutableArgumentError,
    FloatingPointError,
    IpuTraceEventType,
    PyTree,
    events,
)
from ipujax.host import make_synthetic_array, use_synthetic_data_for
from ipujax.system import SYSTEM, LogicalDevice, SyntheticDataCategory
from lowering import (
    Ref,
    has_wide_avals,
    ir,
    is_ref,
    jaxpr,
    keep_wide_values,
    signature_of,
    word_of_primitive,
)


class ReadyProgram:
    """A program that is compiled or loaded for a device, ready to be called.

    Everything that does not depend on a call is computed here, once: in a small program, each line
    of a call counts.

    Args:
      program: the program that runs, fused or not.
      signature: maps arguments and results to flat ones.
      device: the logical device.
      machine: runs the program on flat arguments.
      host_code: the code of the program that runs on the host.
      raises_faults: whether a fault that the program notes is an error, even if no result is wrong
        because of it.
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
        self._run = (
            functools.partial(host_code.run_and_explain_errors, machine) if host_code else machine
        )
        self._avals = [program.avals[value] for value in program.inputs]
        self._gives_zeros = device.only_compiles_programs
        self._is_synthetic = use_synthetic_data_for(SyntheticDataCategory.Parameters)
        # A single kernel checks its arguments itself, and does so faster.
        is_strict = isinstance(machine, OneKernel)
        self._looks_first = self._gives_zeros or self._is_synthetic or not is_strict
        # The process that holds each argument; a single kernel takes all of them in every process.
        no_holders = (None,) * len(signature.holders)
        self._holders = no_holders if is_strict else signature.holders
        self._raises_faults = raises_faults
        self._machine, self._meshes = machine, machine.placement.meshes
        self._pairs = ()
        if self._meshes and not machine.placement.gather:
            self._pairs = pair_results_with_arguments(signature)
        self._is_wide = has_wide_avals(program.avals)
        self._accepted_types: list[Any] | None = None
        self._loaded = False

    def __call__(self, args: tuple[object, ...], kwargs: dict[str, object]) -> PyTree:
        """Runs the program; see `Executable.__call__` for what it raises."""
        refuse_ambient_mesh(self._name, self._meshes)
        flat = self._signature.flatten_arguments(args, kwargs)
        if self._holders:
            flat = share_held_arrays(flat, self._holders)
        touched = self._signature.refs.find_refs(flat)
        if touched:
            flat = [leaf[...] if is_ref(leaf) else leaf for leaf in flat]
        if self._draws:
            flat.append(SYSTEM.take_next_seed(self._device.name))
        is_quick = self._loaded and not events.ACTIVE
        if self._looks_first or not is_quick:
            self._check_flat_arguments(flat)
        if self._gives_zeros:
            results = [self._program.avals[value] for value in self._program.outputs]
            return self._signature.unflatten_results(
                [np.zeros(aval.shape, aval.dtype) for aval in results]
            )
        if self._is_synthetic:
            flat = [make_synthetic_array(aval) for aval in self._avals]
        if is_quick:
            SYSTEM.attach(self._device)
            return self._compute_results(flat, touched)
        self._attach_device_and_load(flat)
        events.emit(IpuTraceEventType.EXECUTE, self._name)
        with events.span("execute", self._name):
            return wait_if_timed(self._compute_results(flat, touched))

    def place_arguments(self, args: tuple[object, ...]) -> tuple[PyTree, ...]:
        """Returns positional arguments with each array on the device of an IPU that reads it."""
        machine, placement, signature = self._machine, self._machine.placement, self._signature
        is_together = placement.gather or placement.is_default or placement.process_of_ipu
        if is_together or not isinstance(machine, Machine):
            return args
        signature.flatten_arguments(args, {})  # checks their structure
        leaves, structure = jax.tree.flatten(signature.static.split_arguments(args, {})[1])
        placed = machine.place_arguments(signature.stacked.split_arguments(leaves))
        dynamic = jax.tree.unflatten(structure, signature.stacked.join_arguments(placed))
        return signature.static.merge_arguments(args, {}, dynamic)[0]

    def _attach_device_and_load(self, flat: Sequence[object]) -> None:
        with events.span("load", self._name) as span:
            span.told = not self._loaded  # later runs find everything loaded
            SYSTEM.attach(self._device)
        if not self._loaded:
            if isinstance(self._machine, Machine) and self._meshes:
                log_moved_arguments(self._machine, self._signature, flat)
            events.emit(IpuTraceEventType.LOAD_ENGINE, self._name)
            self._loaded = True

    def _compute_results(self, flat: list[object], touched: Sequence[Ref]) -> PyTree:
        watch = make_number_watch_if_enabled() if jaxpr.is_debugging() else None
        with watch.watch_run() if watch is not None else contextlib.nullcontext():
            results = self._run_machine(flat)
        if self._pairs:
            keep_shardings(self._pairs, flat, results)
        code = int(results.pop()) if self._program.faults else 0
        if code and self._raises_faults:
            _raise_fault(self._program.faults[code - 1])
        if watch is not None:
            self._refuse_nan_and_infinity(watch, results, code)
        if touched:
            first = self._signature.out_tree.num_leaves
            for ref, value in zip(touched, results[first:], strict=True):
                ref[...] = jax.device_put(value, ref.sharding)
        return self._signature.unflatten_results(results)

    def _run_machine(self, flat: list[Any]) -> list[PyTree]:
        try:
            if not self._is_wide:
                return self._run(flat)
            flat = list(map(convert_argument, flat))
            with keep_wide_values(wide=True):
                return self._run(flat)
        except (TypeError, ValueError):
            self._check_flat_arguments(flat)
            raise

    def _refuse_nan_and_infinity(
        self, watch: NumberWatch, results: Sequence[Any], code: int
    ) -> None:
        """Raises an error for a NaN or infinity, with the first operation that made one."""
        for name, result in zip(self._signature.result_paths(), results, strict=False):
            watch.refuse_nan_and_infinity(name, result)
        if not watch.found:
            return
        fault = self._program.faults[code - 1] if code else None
        cause = "no operation that is watched made it"
        if fault is not None:
            cause = f"the first fault was {_describe_fault(fault)}"
        raise FloatingPointError(
            f"`{self._name}`: {' and '.join(dict.fromkeys(watch.found))} (jax.debug_nans or "
            f"jax.debug_infs is on); {cause}",
            where=(fault.origin if fault is not None else "") or "unknown",
            fix="mend the operands there"
            if fault is not None
            else "look for it in the arguments; if the program was compiled before the check was "
            "switched on, call the function that ipu.compile returned, or compile again",
        )

    def _check_flat_arguments(self, flat: Sequence[object]) -> None:
        is_traced = not jaxpr.trace_state_clean()
        types = None if is_traced else [getattr(leaf, "aval", None) for leaf in flat]
        if types is not None and types == self._accepted_types:
            return  # mostly the same objects as at the last call
        for number, (leaf, expected) in enumerate(zip(flat, self._avals, strict=True)):
            if is_traced and jaxpr.is_tracer(leaf):
                self._refuse_argument(number, f"traced, {leaf}")
            if (
                isinstance(leaf, (jax.Array, np.ndarray))
                and leaf.shape == expected.shape
                and leaf.dtype == expected.dtype
            ):
                continue  # the fast path
            try:
                actual = jax.typeof(leaf)
            except TypeError:
                self._refuse_argument(number, f"a {type(leaf).__name__}, {leaf!r}")
            if signature_of([actual]) != signature_of([expected]):
                self._refuse_argument(number, actual.str_short())
        if types is not None and None not in types:
            self._accepted_types = types

    def _refuse_argument(self, number: int, actual: str) -> NoReturn:
        names = dict(enumerate(self._signature.argument_paths()))
        expected = self._avals[number].str_short()
        raise ExecutableArgumentError(
            f"`{self._program.name}`: argument {names.get(number, number)} is {actual}, the "
            f"program was lowered for {expected}",
            where=jaxpr.current_user_line(),
            fix=f"give an array of {expected}; or call the function that ipu.compile returned, "
            "which compiles for each signature and can be traced, or lower again",
        ) from None  # JAX's error says the same


def wait_if_timed(results: object) -> object:
    """Returns results, waiting for them first if execution times are recorded."""
    return jax.block_until_ready(results) if events.is_anyone_recording_spans() else results


def _describe_fault(fault: ir.Fault) -> str:
    """Returns the kind of a fault and its operation, as ``overflow in `matmul` (dot_general)``."""
    word = word_of_primitive(fault.primitive)
    primitive = f" ({fault.primitive})" if word != fault.primitive else ""
    return f"{fault.kind} in `{word}`{primitive}"


def _raise_fault(fault: ir.Fault) -> NoReturn:
    raise FloatingPointError(
        _describe_fault(fault),
        where=fault.origin or "unknown",
        fix="mend the operands, or switch the check off in IPUConfig.floating_point_behaviour",
    )
