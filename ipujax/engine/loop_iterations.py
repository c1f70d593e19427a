"""The loop variables, slices and stacks of one iteration of a loop that the host drives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ipujax.engine.loop_steps import Values
from ipujax.engine.queue_session import Session
from ipujax.engine.remote_storage import load_stored_value
from ipujax.engine.task_compilation import Compiled
from ipujax.ground import OutOfRangeError
from lowering import ir, set_weak_type

if TYPE_CHECKING:
    from ipujax.engine.replay import Machine

Step = Callable[[Values, Session], None]


def set_initial_carry(carry: Sequence[ir.Carry], values: Values) -> None:
    """Sets the loop variables that the first iteration reads."""
    for c in carry:
        values[c.entering, c.ipu] = values[c.initial, c.ipu]


def advance_carry(carry: Sequence[ir.Carry], values: Values) -> None:
    """Passes the loop variables that one iteration computed to the next iteration."""
    leaving = [values[c.leaving, c.ipu] for c in carry]
    for c, value in zip(carry, leaving, strict=True):
        values[c.entering, c.ipu] = value


def set_final_carry(carry: Sequence[ir.Carry], values: Values) -> None:
    """Sets the final values of the loop variables after the last iteration."""
    for c in carry:
        values[c.final, c.ipu] = values[c.entering, c.ipu]


def run_iteration(
    body: Step,
    node: ir.Repeat | ir.While,
    values: Values,
    session: Session,
    iterations_done: int,
    count: int | None,
) -> None:
    """Runs one iteration; an error of an infeed's end gets the loop variables of that time."""
    try:
        body(values, session)
        session.complete_iteration()
    except OutOfRangeError as error:
        if node.loop is None or error.carried is not None:
            raise
        # A `while_loop` counts its iterations in a variable before the user's.
        first = 0 if isinstance(node, ir.Repeat) else 1
        users = node.carry[first : first + node.loop.num_leaves]
        leaves = [load_stored_value(values[c.entering, c.ipu]) for c in users]
        carried = jax.tree.unflatten(node.loop, leaves)
        raise session.convert_to_loop_error(error, count, iterations_done, carried) from None


class Rows:
    """The rows of stacked arrays that the iterations of a loop read and write."""

    def __init__(self, machine: Machine, node: ir.Repeat):
        self.node = node
        # An array of no rows has none to read or write.
        has_rows = node.count != 0
        self.readers = [_compile_row_reader(machine, s) for s in node.slices] if has_rows else []
        self.writers = [_compile_row_writer(machine, s) for s in node.stacks] if has_rows else []
        self.blanks = [_compile_zeros(machine, s) for s in node.stacks]

    def prepare_loop_arrays(self, values: Values) -> list[jax.Array]:
        """Creates the arrays to write, and returns the arrays that the iterations read."""
        for s, blank in zip(self.node.stacks, self.blanks, strict=True):
            (values[s.stacked, s.ipu],) = blank()
        return [load_stored_value(values[s.stacked, s.ipu]) for s in self.node.slices]

    def read_rows(self, stacked_arrays: Sequence[jax.Array], values: Values, index: int) -> None:
        """Reads the rows of one iteration."""
        for s, stacked_array, row in zip(
            self.node.slices, stacked_arrays, self.readers, strict=True
        ):
            (values[s.element, s.ipu],) = row(stacked_array, np.int32(index))

    def write_rows(self, values: Values, index: int) -> None:
        """Writes the rows of one iteration."""
        for s, write_row in zip(self.node.stacks, self.writers, strict=True):
            stack_key = s.stacked, s.ipu
            row = load_stored_value(values[s.element, s.ipu])
            (values[stack_key],) = write_row(values[stack_key], row, np.int32(index))


def _compile_row_reader(machine: Machine, s: ir.Slice) -> Compiled:
    read_row = machine.placement.replicate_function(_take_row, s.ipu, [0, None], [0])
    structs = [machine.value_struct(s.stacked, s.ipu), _index_struct(machine, s)]
    shardings = machine.placement.result_shardings(s.ipu, [0])
    return machine.compilation.add_function(read_row, structs, out_shardings=shardings)


def _compile_row_writer(machine: Machine, s: ir.Stack) -> Compiled:
    write_row = machine.placement.replicate_function(_replace_row, s.ipu, [0, 0, None], [0])
    structs = [machine.value_struct(value, s.ipu) for value in (s.stacked, s.element)]
    shardings = machine.placement.result_shardings(s.ipu, [0])
    return machine.compilation.add_function(
        write_row, [*structs, _index_struct(machine, s)], donate_argnums=0, out_shardings=shardings
    )


def _compile_zeros(machine: Machine, s: ir.Stack) -> Compiled:
    struct = machine.value_struct(s.stacked, s.ipu)
    return machine.compilation.add_function(
        lambda: [set_weak_type(jnp.zeros(struct.shape, struct.dtype), struct.weak_type)],
        [],
        out_shardings=struct.sharding,
    )


def _index_struct(machine: Machine, s: ir.Slice | ir.Stack) -> jax.ShapeDtypeStruct:
    return machine.placement.array_struct(np.int32(0), s.ipu, None)


def _take_row(stacked: jax.Array, index: jax.Array) -> list[jax.Array]:
    return [lax.dynamic_index_in_dim(stacked, index, keepdims=False)]


def _replace_row(stacked: jax.Array, row: jax.Array, index: jax.Array) -> list[jax.Array]:
    updated = lax.dynamic_update_index_in_dim(stacked, row, index, 0)
    return [set_weak_type(updated, jax.typeof(stacked).weak_type)]
