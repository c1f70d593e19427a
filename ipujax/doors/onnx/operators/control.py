"""ONNX branches, loops and scans."""

from __future__ import annotations

import dataclasses as dc
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.doors.graphs import Call, Node, Operand
from ipujax.doors.models import check
from ipujax.doors.onnx.operators.arrays import are_constant, int64_dtype, normalize_axis
from ipujax.doors.onnx.operators.table import operator
from ipujax.ground import FrontendError

_MAX_UNROLLED_STEPS = 10_000
"""The maximum number of steps of an unrolled loop."""

Body = Callable[..., tuple[Operand, ...]]


@operator("If", takes_call=True)
def if_(
    call: Call, cond: Operand, then_branch: str, else_branch: str, captured: Sequence[Operand] = ()
) -> tuple[Operand, ...]:
    """Runs one of two branches; only one is traced if the condition is constant."""
    then, otherwise = (_bind_branch(call, name, captured) for name in (then_branch, else_branch))
    if are_constant(cond):
        return then() if np.reshape(cond, ()) else otherwise()
    try:
        return jax.lax.cond(
            jnp.reshape(cond, ()).astype(bool),
            lambda: _to_arrays(then()),
            lambda: _to_arrays(otherwise()),
        )
    except TypeError as error:  # branch results differ; checking this first would be slower
        avals_of_branches = [jax.eval_shape(lambda f=f: _to_arrays(f())) for f in (then, otherwise)]
        shapes = " and ".join(
            str([f"{f.dtype}{list(f.shape)}" for f in branch_avals])
            for branch_avals in avals_of_branches
        )
        raise check.value_error(
            f"the branches give arrays of different forms, {shapes}, and which one is taken is "
            "known only when the model runs",
            "give the condition by from_onnx(..., constants={...}) if it is an input",
        ) from error


def _bind_branch(
    call: Call, name: str, captured: Sequence[Operand]
) -> Callable[[], tuple[Operand, ...]]:
    return functools.partial(call.graphs[name], *captured, key=call.inner_key)


def _static_loop_inputs(node: Node) -> tuple[str, ...]:
    """Returns the inputs that must be constant because the loop collects outputs."""
    return ("trip", "cond") if len(node.results) > len(node.args[2:]) else ()


@operator("Loop", static=_static_loop_inputs, takes_call=True)
def loop(
    call: Call,
    trip: Operand = None,
    cond: Operand = None,
    *carried: Operand,
    body: str,
    captured: Operand = (),
) -> tuple[Operand, ...]:
    """Runs a loop as a scan if its count is known, else as a `while` that collects nothing.

    It is unrolled where a step needs its number or its carried values as constants: as the position
    of a slice, or because shapes change.
    """

    def run_loop_body(number: Operand, condition: Operand, *values: Operand) -> tuple[Operand, ...]:
        return call.graphs[body](
            number, condition, *values, *captured, key=_fold_step_into_key(call.inner_key, number)
        )

    count = None if trip is None else int(np.reshape(trip, ())) if are_constant(trip) else trip
    condition = np.asarray(True) if cond is None else cond
    if are_constant(count, condition, *carried, *captured):
        return _run_unrolled(run_loop_body, count, condition, carried)
    try:
        step_form = _analyze_loop_step(run_loop_body, condition, carried)
    except FrontendError:  # a step needs a constant, perhaps its number
        return _run_unrolled(run_loop_body, count, condition, carried)
    is_endless = are_constant(condition) and bool(condition) and step_form.is_always_true
    if is_endless and are_constant(count) and count is not None and step_form.keeps_shapes:
        return _run_as_scan(run_loop_body, count, carried)
    if is_endless and count is None:
        raise check.value_error("a loop has no end", "give it a number of steps, or a condition")
    if step_form.keeps_shapes and step_form.collected_count == 0:
        return _run_as_while_loop(run_loop_body, count, condition, carried)
    return _run_unrolled(run_loop_body, count, condition, carried)


@dc.dataclass(frozen=True)
class _LoopStepForm:
    """The properties of a loop step that do not depend on values.

    Attributes:
      keeps_shapes: whether the carried values keep their shapes and dtypes.
      is_always_true: whether its condition is always true.
      collected_count: the number of outputs that are collected over the steps.
    """

    keeps_shapes: bool
    is_always_true: bool
    collected_count: int


def _analyze_loop_step(step: Body, condition: Operand, carried: Sequence[Operand]) -> _LoopStepForm:
    goes_on = False

    def trace_step(number: Operand, values: Sequence[Operand]) -> tuple[Operand, ...]:
        nonlocal goes_on
        next_condition, *outputs = step(number, condition, *values)
        goes_on = are_constant(next_condition) and bool(np.reshape(next_condition, ()))
        return _to_arrays(outputs)

    values = _to_arrays(carried)
    output_avals = jax.eval_shape(trace_step, jnp.zeros((), int64_dtype()), values)
    pairs = zip(values, output_avals, strict=False)
    keeps = all(v.shape == a.shape and v.dtype == a.dtype for v, a in pairs)
    return _LoopStepForm(keeps, goes_on, len(output_avals) - len(values))


def _run_as_scan(step: Body, count: int, carried: Sequence[Operand]) -> tuple[Operand, ...]:
    def scan_body(
        values: tuple[Operand, ...], number: Operand
    ) -> tuple[tuple[Operand, ...], tuple[Operand, ...]]:
        _, *outputs = step(number, np.asarray(True), *values)
        outputs = _to_arrays(outputs)
        return outputs[: len(values)], outputs[len(values) :]

    numbers = jnp.arange(count).astype(int64_dtype())
    last, collected = jax.lax.scan(scan_body, _to_arrays(carried), numbers)
    return *last, *collected


def _run_as_while_loop(
    step: Body, count: Operand, condition: Operand, carried: Sequence[Operand]
) -> tuple[Operand, ...]:
    def goes_on(state: tuple[Operand, ...]) -> Operand:
        number, condition, *_ = state
        return condition if count is None else condition & (number < count)

    def while_body(state: tuple[Operand, ...]) -> tuple[Operand, ...]:
        number, condition, *values = state
        next_condition, *outputs = step(number, condition, *values)
        return number + 1, _to_scalar_bool(next_condition), *_to_arrays(outputs)

    count = None if count is None else jnp.reshape(count, ())
    start = (jnp.zeros((), int64_dtype()), _to_scalar_bool(condition), *_to_arrays(carried))
    return jax.lax.while_loop(goes_on, while_body, start)[2:]


def _run_unrolled(
    step: Body, count: Operand, condition: Operand, carried: Sequence[Operand]
) -> tuple[Operand, ...]:
    values = tuple(carried)
    collected: list[tuple[Operand, ...]] = []
    while count is None or not are_constant(count) or len(collected) < count:
        if not are_constant(condition, count):
            raise check.value_error(
                "how often a loop runs depends on values, and the shapes of its outputs depend on "
                "how often it runs",
                "give its number of steps and its condition by from_onnx(..., constants={...})",
            )
        if not np.reshape(condition, ()):
            break
        if len(collected) == _MAX_UNROLLED_STEPS:
            raise check.value_error(
                f"a loop that cannot be a scan takes more than {_MAX_UNROLLED_STEPS} steps",
                "remove operators from it that need the step number as a constant, such as slices",
            )
        condition, *outputs = step(np.asarray(len(collected), np.int64), condition, *values)
        values = tuple(outputs[: len(carried)])
        collected.append(tuple(outputs[len(carried) :]))
    return *values, *_stack_step_outputs(step, collected, condition, carried)


def _stack_step_outputs(
    step: Body,
    collected: Sequence[tuple[Operand, ...]],
    condition: Operand,
    carried: Sequence[Operand],
) -> tuple[Operand, ...]:
    """Stacks the collected outputs of each step; without steps, returns empty arrays."""
    if not collected:
        forms = jax.eval_shape(lambda: _to_arrays(step(np.asarray(0), condition, *carried)[1:]))
        return tuple(np.zeros((0, *f.shape), f.dtype) for f in forms[len(carried) :])
    stack = [
        np.stack if are_constant(*values) else jnp.stack for values in zip(*collected, strict=True)
    ]
    return tuple(f(values) for f, values in zip(stack, zip(*collected, strict=True), strict=True))


@operator("Scan", 9, takes_call=True)
def scan(
    call: Call, *values: Operand, scan_output_axes: Sequence[int] = (), **attributes: Any
) -> tuple[Operand, ...]:
    """Scans: the first values are states, each step takes a slice of the others."""
    states, collected = _run_scan_body(call, values, **attributes)
    axes = zip(collected, _pad_with_zeros(scan_output_axes), strict=False)
    return *states, *(
        jnp.moveaxis(value, 0, normalize_axis(axis, value.ndim)) for value, axis in axes
    )


@operator("ai.graphcore.Scan", takes_call=True)
def scan_and_concatenate(
    call: Call, *values: Operand, scan_output_axes: Sequence[int] = (), **attributes: Any
) -> tuple[Operand, ...]:
    """Scans as PopART does: slices of vectors stay vectors, and outputs are concatenated."""
    states, collected = _run_scan_body(call, values, least_rank=1, **attributes)
    axes = zip(collected, _pad_with_zeros(scan_output_axes), strict=False)
    return *states, *(
        _concatenate_steps(value, normalize_axis(axis, value.ndim - 1)) for value, axis in axes
    )


def _run_scan_body(
    call: Call,
    values: Sequence[Operand],
    *,
    body: str,
    num_scan_inputs: int,
    scan_input_axes: Sequence[int] = (),
    scan_input_directions: Sequence[int] = (),
    scan_output_directions: Sequence[int] = (),
    captured: Operand = (),
    least_rank: int = 0,
) -> tuple[tuple[Operand, ...], list[jax.Array]]:
    """Returns the last states of a scan, and its collected outputs, `[steps, ...]` each."""
    count = len(values) - num_scan_inputs

    def scan_step(
        states: tuple[Operand, ...], number_and_slices: tuple[Operand, ...]
    ) -> tuple[Operand, Operand]:
        number, *slices = number_and_slices
        slices = [jnp.reshape(v, v.shape or (1,) * least_rank) for v in slices]
        key = _fold_step_into_key(call.inner_key, number)
        outputs = _to_arrays(call.graphs[body](*states, *slices, *captured, key=key))
        return outputs[:count], outputs[count:]

    axes, directions = _pad_with_zeros(scan_input_axes), _pad_with_zeros(scan_input_directions)
    scanned = [
        _flip_if_backward(jnp.moveaxis(value, axis, 0), direction)
        for value, axis, direction in zip(values[count:], axes, directions, strict=False)
    ]
    numbers = jnp.arange(scanned[0].shape[0])
    states, collected = jax.lax.scan(scan_step, _to_arrays(values[:count]), (numbers, *scanned))
    turns = zip(collected, _pad_with_zeros(scan_output_directions), strict=False)
    return states, [_flip_if_backward(value, direction) for value, direction in turns]


def _concatenate_steps(values: jax.Array, axis: int) -> jax.Array:
    """Concatenates arrays `[steps, ...]` along one of their axes."""
    _, *shape = values.shape
    shape[axis] *= len(values)
    return jnp.reshape(jnp.moveaxis(values, 0, axis), shape)


@operator("Scan", 8, takes_call=True)
def scan_batch(
    call: Call,
    lengths: Operand,
    *values: Operand,
    body: str,
    num_scan_inputs: int,
    directions: Sequence[int] = (),
    captured: Operand = (),
) -> tuple[Operand, ...]:
    """Scans each sample of a batch independently, as version 8 of `Scan` does."""
    if lengths is not None:
        raise check.value_error(
            "Scan of version 8 is given sequence lengths", "use version 9, or equal lengths"
        )
    scan_sample = functools.partial(
        scan,
        call,
        body=body,
        num_scan_inputs=num_scan_inputs,
        scan_input_directions=directions,
        captured=captured,
    )
    return jax.vmap(scan_sample)(*_to_arrays(values))


def _pad_with_zeros(numbers: Sequence[int]) -> Iterator[int]:
    """Yields axes or directions, followed by endless zeros as default."""
    return itertools.chain(numbers, itertools.repeat(0))


def _flip_if_backward(value: Operand, direction: int) -> Operand:
    return jnp.flip(value, 0) if direction else value


def _to_arrays(values: Sequence[Operand]) -> tuple[jax.Array, ...]:
    return tuple(jnp.asarray(value) for value in values)


def _to_scalar_bool(value: Operand) -> jax.Array:
    return jnp.reshape(value, ()).astype(bool)


def _fold_step_into_key(key: jax.Array | None, number: Operand) -> jax.Array | None:
    return None if key is None else jax.random.fold_in(key, number)
