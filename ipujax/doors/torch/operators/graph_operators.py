"""Operators of the graph itself: assignments, constants and inner graphs."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from ipujax.doors.graphs import Call, Operand
from ipujax.doors.torch.operators.table import operator
from ipujax.doors.torch.tensor_arrays import to_jax


@operator("assign")
def assign_name(value: ArrayLike) -> Operand:
    """Returns the value itself: the node only gives it another name."""
    return value


@operator("constant")
def convert_constant(value: Operand) -> Operand:
    """Returns a tensor that the graph holds, as a JAX array."""
    return to_jax(value)


@operator("getitem")
def getitem(values: Sequence[Operand], index: int) -> Operand:
    """Returns one of several results."""
    return values[index]


@operator("listed")
def collect_values(values: Sequence[Operand]) -> list[Operand]:
    """Returns several values as one list."""
    return list(values)


@operator("ipujax_backward.enter.default")
def pass_unused_inputs(values: Sequence[Operand], number: int) -> Sequence[Operand]:
    """Returns the inputs of a function whose results are unused."""
    return values


@operator("ipujax_backward.gradients.default")
def zero_unused_gradients(values: Sequence[Operand], number: int) -> list[Operand]:
    """Returns zero gradients for unused outputs."""
    return [jnp.zeros_like(value) for value in values]


@operator("higher_order.cond", takes_call=True)
def cond(
    call: Call, choice: Operand, yes: str, no: str, operands: Sequence[Operand] = ()
) -> Operand:
    """Runs one of two graphs."""
    graphs = (call.graphs[yes], call.graphs[no])
    run_yes, run_no = (lambda *args, g=g: g(*args, key=call.inner_key) for g in graphs)
    return jax.lax.cond(choice, run_yes, run_no, *operands)


@operator("higher_order.while_loop", takes_call=True)
def while_loop(
    call: Call,
    goes_on: str,
    body: str,
    carried: Sequence[Operand],
    constants: Sequence[Operand] = (),
) -> Operand:
    """Runs a graph while another graph returns true."""
    check_condition, run_body = call.graphs[goes_on], call.graphs[body]

    def advance_while_loop(state: tuple[Operand, ...]) -> tuple[Operand, ...]:
        iteration, *values = state
        return iteration + 1, *run_body(*values, *constants, key=_key_of_iteration(call, iteration))

    state = (jnp.int32(0), *map(jnp.asarray, carried))
    return jax.lax.while_loop(
        lambda state: check_condition(*state[1:], *constants)[0], advance_while_loop, state
    )[1:]


@operator("higher_order.scan", takes_call=True)
def scan(
    call: Call,
    graph: str,
    start: Sequence[Operand],
    rows: Sequence[Operand],
    constants: Sequence[Operand] = (),
) -> Operand:
    """Runs a graph for each row, with carried values, the row and constant tensors."""
    run_body = call.graphs[graph]

    def advance_scan(state: tuple[Operand, ...], row: Sequence[Operand]) -> Operand:
        iteration, *values = state
        results = run_body(*values, *row, *constants, key=_key_of_iteration(call, iteration))
        return (iteration + 1, *results[: len(start)]), results[len(start) :]

    (_, *end), stacked = jax.lax.scan(advance_scan, (jnp.int32(0), *start), tuple(rows))
    return (*end, *stacked)


def _key_of_iteration(call: Call, iteration: jax.Array) -> jax.Array | None:
    return None if call.inner_key is None else jax.random.fold_in(call.inner_key, iteration)
