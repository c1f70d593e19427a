"""Operators of the graph itself: values that get other names, and inner graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.doors.graphs import Call
from ipujax.frontends.pytorch.arrays import to_jax
from ipujax.frontends.pytorch.operators.table import operator


@operator("assign")
def assign(value: Any) -> Any:
    """Another name for a value."""
    return value


@operator("constant")
def constant(value: Any) -> Any:
    """A tensor that the graph holds."""
    return to_jax(value)


@operator("getitem")
def getitem(values: Sequence[Any], index: int) -> Any:
    """One of several results."""
    return values[index]


@operator("listed")
def listed(values: Sequence[Any]) -> list[Any]:
    """Several values by one name."""
    return list(values)


@operator("ipujax_backward.enter.default")
def enter(values: Sequence[Any], number: int) -> Sequence[Any]:
    """The inputs of a function none of whose results is used."""
    return values


@operator("ipujax_backward.gradients.default")
def gradients(values: Sequence[Any], number: int) -> list[Any]:
    """The gradients of what nobody uses."""
    return [jnp.zeros_like(value) for value in values]


@operator("higher_order.wrap_with_set_grad_enabled")
def set_grad_enabled(call: Call, enabled: bool, graph: str, *args: Any) -> Any:
    """What is computed under `torch.no_grad()`, or enabled again inside it."""
    outputs = call.graphs[graph](*args, key=call.inner_key)
    return outputs if enabled else jax.lax.stop_gradient(outputs)


@operator("higher_order.wrap_with_autocast")
def autocast(
    call: Call, device: str, dtype: Any, enabled: bool, cache: bool, graph: str, *args: Any
) -> Any:
    """What is computed under `torch.autocast`; the graph has the conversions."""
    return call.graphs[graph](*args, key=call.inner_key)


@operator("higher_order.cond")
def cond(call: Call, choice: Any, yes: str, no: str, operands: Sequence[Any] = ()) -> Any:
    """One of two graphs."""
    graphs = (call.graphs[yes], call.graphs[no])
    yes_of, no_of = (lambda *args, g=g: g(*args, key=call.inner_key) for g in graphs)
    return jax.lax.cond(choice, yes_of, no_of, *operands)


@operator("higher_order.while_loop")
def while_loop(
    call: Call, goes_on: str, body: str, carried: Sequence[Any], others: Sequence[Any] = ()
) -> Any:
    """A graph again and again, as long as another says so."""
    go, step = call.graphs[goes_on], call.graphs[body]

    def next_of(state: tuple[Any, ...]) -> tuple[Any, ...]:
        turn, *values = state
        return turn + 1, *step(*values, *others, key=_key_of(call, turn))

    state = (jnp.int32(0), *map(jnp.asarray, carried))
    return jax.lax.while_loop(lambda state: go(*state[1:], *others)[0], next_of, state)[1:]


@operator("higher_order.scan")
def scan(
    call: Call, graph: str, start: Sequence[Any], rows: Sequence[Any], others: Sequence[Any] = ()
) -> Any:
    """A graph for each row: it is given what it carries, the row, and other tensors."""
    step = call.graphs[graph]

    def next_of(state: tuple[Any, ...], row: Sequence[Any]) -> Any:
        turn, *values = state
        results = step(*values, *row, *others, key=_key_of(call, turn))
        return (turn + 1, *results[: len(start)]), results[len(start) :]

    (_, *end), stacked = jax.lax.scan(next_of, (jnp.int32(0), *start), tuple(rows))
    return (*end, *stacked)


def _key_of(call: Call, turn: jax.Array) -> jax.Array | None:
    return None if call.inner_key is None else jax.random.fold_in(call.inner_key, turn)
