"""Branches and loops."""

from __future__ import annotations

import dataclasses as dc
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.doors.graphs import Call, Node
from ipujax.errors import FrontendError
from ipujax.frontends.checks import check
from ipujax.frontends.onnx.operators.arrays import axis_of, int64, known
from ipujax.frontends.onnx.operators.table import operator

_MOST_STEPS = 10_000
"""How often a loop is written out one after the other."""

Body = Callable[..., tuple[Any, ...]]


@operator("If")
def if_(
    call: Call, cond: Any, then_branch: str, else_branch: str, captured: Sequence[Any] = ()
) -> tuple[Any, ...]:
    """Only one branch is there if the condition is known."""
    then, other = (_branch(call, name, captured) for name in (then_branch, else_branch))
    if known(cond):
        return then() if np.reshape(cond, ()) else other()
    try:
        return jax.lax.cond(
            jnp.reshape(cond, ()).astype(bool), lambda: _arrays(then()), lambda: _arrays(other())
        )
    except TypeError as error:  # of the branches' forms: to ask for them first would be slower
        forms = [jax.eval_shape(lambda f=f: _arrays(f())) for f in (then, other)]
        shapes = " and ".join(str([f"{f.dtype}{list(f.shape)}" for f in form]) for form in forms)
        raise check.refuse(
            f"the branches give arrays of different forms, {shapes}, and only running the model "
            "tells which one it takes",
            "give the condition by from_onnx(..., constants={...}) if it is an input",
        ) from error


def _branch(call: Call, name: str, captured: Sequence[Any]) -> Callable[[], tuple[Any, ...]]:
    return functools.partial(call.graphs[name], *captured, key=call.inner_key)


def _stacks(node: Node) -> tuple[str, ...]:
    """How often a loop runs decides the shapes of what it collects."""
    return ("trip", "cond") if len(node.results) > len(node.args[2:]) else ()


@operator("Loop", static=_stacks)
def loop(
    call: Call, trip: Any = None, cond: Any = None, *carried: Any, body: str, captured: Any = ()
) -> tuple[Any, ...]:
    """A scan if it is known how often it runs; else a `while`, which collects nothing.

    It is written out step by step where a step needs its number, or what it carries, to be known:
    as the place of a slice, or because shapes change.
    """

    def step(number: Any, going: Any, *values: Any) -> tuple[Any, ...]:
        return call.graphs[body](
            number, going, *values, *captured, key=_key_of(call.inner_key, number)
        )

    count = None if trip is None else int(np.reshape(trip, ())) if known(trip) else trip
    going = np.asarray(True) if cond is None else cond
    if known(count, going, *carried, *captured):
        return _written_out(step, count, going, carried)
    try:
        form = _form_of(step, going, carried)
    except FrontendError:  # something in it must be known: perhaps the number of the step
        return _written_out(step, count, going, carried)
    endless = known(going) and bool(going) and form.goes_on
    if endless and known(count) and count is not None and form.keeps:
        return _scanned(step, count, carried)
    if endless and count is None:
        raise check.refuse("a loop has no end", "give it a number of steps, or a condition")
    if form.keeps and form.collects == 0:
        return _while(step, count, going, carried)
    return _written_out(step, count, going, carried)


@dc.dataclass(frozen=True)
class _Form:
    """What a step of a loop gives, as far as it does not depend on values.

    Attributes:
      keeps: whether what it carries keeps its shapes and dtypes.
      goes_on: whether its condition is always true.
      collects: how many values it gives besides.
    """

    keeps: bool
    goes_on: bool
    collects: int


def _form_of(step: Body, going: Any, carried: Sequence[Any]) -> _Form:
    goes_on = False

    def run(number: Any, values: Sequence[Any]) -> tuple[Any, ...]:
        nonlocal goes_on
        onward, *rest = step(number, going, *values)
        goes_on = known(onward) and bool(np.reshape(onward, ()))
        return _arrays(rest)

    values = _arrays(carried)
    after = jax.eval_shape(run, jnp.zeros((), int64()), values)
    pairs = zip(values, after, strict=False)
    keeps = all(v.shape == a.shape and v.dtype == a.dtype for v, a in pairs)
    return _Form(keeps, goes_on, len(after) - len(values))


def _scanned(step: Body, count: int, carried: Sequence[Any]) -> tuple[Any, ...]:
    def run(values: tuple[Any, ...], number: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        _, *rest = step(number, np.asarray(True), *values)
        rest = _arrays(rest)
        return rest[: len(values)], rest[len(values) :]

    numbers = jnp.arange(count).astype(int64())
    last, collected = jax.lax.scan(run, _arrays(carried), numbers)
    return *last, *collected


def _while(step: Body, count: Any, going: Any, carried: Sequence[Any]) -> tuple[Any, ...]:
    def goes_on(state: tuple[Any, ...]) -> Any:
        number, onward, *_ = state
        return onward if count is None else onward & (number < count)

    def run(state: tuple[Any, ...]) -> tuple[Any, ...]:
        number, onward, *values = state
        after, *rest = step(number, onward, *values)
        return number + 1, _truth(after), *_arrays(rest)

    count = None if count is None else jnp.reshape(count, ())
    start = (jnp.zeros((), int64()), _truth(going), *_arrays(carried))
    return jax.lax.while_loop(goes_on, run, start)[2:]


def _written_out(step: Body, count: Any, going: Any, carried: Sequence[Any]) -> tuple[Any, ...]:
    values = tuple(carried)
    collected: list[tuple[Any, ...]] = []
    while count is None or not known(count) or len(collected) < count:
        if not known(going, count):
            raise check.refuse(
                "how often a loop runs depends on values, and what it gives on how often it runs",
                "give its number of steps and its condition by from_onnx(..., constants={...})",
            )
        if not np.reshape(going, ()):
            break
        if len(collected) == _MOST_STEPS:
            raise check.refuse(
                f"a loop that cannot be a scan takes more than {_MOST_STEPS} steps",
                "leave out of it what needs the number of the step to be known, such as slices",
            )
        going, *rest = step(np.asarray(len(collected), np.int64), going, *values)
        values = tuple(rest[: len(carried)])
        collected.append(tuple(rest[len(carried) :]))
    return *values, *_stacked(step, collected, going, carried)


def _stacked(
    step: Body, collected: Sequence[tuple[Any, ...]], going: Any, carried: Sequence[Any]
) -> tuple[Any, ...]:
    """What the steps of a loop gave besides, each as one array; of no step, an empty one."""
    if not collected:
        forms = jax.eval_shape(lambda: _arrays(step(np.asarray(0), going, *carried)[1:]))
        return tuple(np.zeros((0, *f.shape), f.dtype) for f in forms[len(carried) :])
    stack = [np.stack if known(*values) else jnp.stack for values in zip(*collected, strict=True)]
    return tuple(f(values) for f, values in zip(stack, zip(*collected, strict=True), strict=True))


@operator("Scan", 9)
def scan(
    call: Call, *values: Any, scan_output_axes: Sequence[int] = (), **attributes: Any
) -> tuple[Any, ...]:
    """The first of the values are states; of the others, each step has a slice."""
    states, collected = _collected(call, values, **attributes)
    axes = zip(collected, _endless(scan_output_axes), strict=False)
    return *states, *(jnp.moveaxis(value, 0, axis_of(axis, value.ndim)) for value, axis in axes)


@operator("ai.graphcore.Scan")
def scan_joined(
    call: Call, *values: Any, scan_output_axes: Sequence[int] = (), **attributes: Any
) -> tuple[Any, ...]:
    """As PopART has it: slices of vectors are vectors, and what the steps give is joined."""
    states, collected = _collected(call, values, least_rank=1, **attributes)
    axes = zip(collected, _endless(scan_output_axes), strict=False)
    return *states, *(_joined(value, axis_of(axis, value.ndim - 1)) for value, axis in axes)


def _collected(
    call: Call,
    values: Sequence[Any],
    *,
    body: str,
    num_scan_inputs: int,
    scan_input_axes: Sequence[int] = (),
    scan_input_directions: Sequence[int] = (),
    scan_output_directions: Sequence[int] = (),
    captured: Any = (),
    least_rank: int = 0,
) -> tuple[tuple[Any, ...], list[jax.Array]]:
    """The last states of a scan, and what its steps give besides, `[steps, ...]` each."""
    count = len(values) - num_scan_inputs

    def step(states: tuple[Any, ...], given: tuple[Any, ...]) -> tuple[Any, Any]:
        number, *slices = given
        slices = [jnp.reshape(v, v.shape or (1,) * least_rank) for v in slices]
        key = _key_of(call.inner_key, number)
        found = _arrays(call.graphs[body](*states, *slices, *captured, key=key))
        return found[:count], found[count:]

    axes, directions = _endless(scan_input_axes), _endless(scan_input_directions)
    scanned = [
        _turned(jnp.moveaxis(value, axis, 0), direction)
        for value, axis, direction in zip(values[count:], axes, directions, strict=False)
    ]
    numbers = jnp.arange(scanned[0].shape[0])
    states, collected = jax.lax.scan(step, _arrays(values[:count]), (numbers, *scanned))
    turns = zip(collected, _endless(scan_output_directions), strict=False)
    return states, [_turned(value, direction) for value, direction in turns]


def _joined(values: jax.Array, axis: int) -> jax.Array:
    """Arrays `[steps, ...]` one after the other along an axis of theirs."""
    _, *shape = values.shape
    shape[axis] *= len(values)
    return jnp.reshape(jnp.moveaxis(values, 0, axis), shape)


@operator("Scan", 8)
def scan_batch(
    call: Call,
    lengths: Any,
    *values: Any,
    body: str,
    num_scan_inputs: int,
    directions: Sequence[int] = (),
    captured: Any = (),
) -> tuple[Any, ...]:
    """Of version 8: for each sample of a batch by itself."""
    if lengths is not None:
        raise check.refuse(
            "Scan of version 8 is given lengths of sequences", "use version 9, or sequences as long"
        )
    one = functools.partial(
        scan,
        call,
        body=body,
        num_scan_inputs=num_scan_inputs,
        scan_input_directions=directions,
        captured=captured,
    )
    return jax.vmap(one)(*_arrays(values))


def _endless(numbers: Sequence[int]) -> Iterator[int]:
    """Axes or directions, which are 0 where nothing is said."""
    return itertools.chain(numbers, itertools.repeat(0))


def _turned(value: Any, direction: int) -> Any:
    return jnp.flip(value, 0) if direction else value


def _arrays(values: Sequence[Any]) -> tuple[jax.Array, ...]:
    return tuple(jnp.asarray(value) for value in values)


def _truth(value: Any) -> jax.Array:
    return jnp.reshape(value, ()).astype(bool)


def _key_of(key: jax.Array | None, number: Any) -> jax.Array | None:
    return None if key is None else jax.random.fold_in(key, number)
