"""One iteration of a loop that the host drives: what goes in, and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ipujax.engine.compilation import Compiled
from ipujax.engine.loops import Values
from ipujax.engine.storage import load
from ipujax.errors import OutOfRangeError
from ipujax.host.session import Session
from lowering import ir

if TYPE_CHECKING:
    from ipujax.engine.replay import Machine

Step = Callable[[Values, Session], None]


def enter(carry: Sequence[ir.Carry], values: Values) -> None:
    """The loop variables as the first iteration sees them."""
    for c in carry:
        values[c.entering, c.ipu] = values[c.initial, c.ipu]


def advance(carry: Sequence[ir.Carry], values: Values) -> None:
    """What one iteration computed becomes what the next one sees."""
    leaving = [values[c.leaving, c.ipu] for c in carry]
    for c, value in zip(carry, leaving, strict=True):
        values[c.entering, c.ipu] = value


def finish(carry: Sequence[ir.Carry], values: Values) -> None:
    """The loop variables after the last iteration."""
    for c in carry:
        values[c.final, c.ipu] = values[c.entering, c.ipu]


def iterate(
    body: Step,
    node: ir.Repeat | ir.While,
    values: Values,
    session: Session,
    done: int,
    count: int | None,
) -> None:
    """One iteration; a data set that ends in it learns what the loop had computed."""
    try:
        body(values, session)
        session.completed()
    except OutOfRangeError as error:
        if node.loop is None or error.carried is not None:
            raise
        # A `while_loop` counts its iterations in a variable before the user's.
        first = 0 if isinstance(node, ir.Repeat) else 1
        users = node.carry[first : first + node.loop.num_leaves]
        leaves = [load(values[c.entering, c.ipu]) for c in users]
        carried = jax.tree.unflatten(node.loop, leaves)
        raise session.of_the_loop(error, count, done, carried) from None


class Rows:
    """What the iterations of a loop read of stacked arrays, and what they leave in others."""

    def __init__(self, machine: Machine, node: ir.Repeat):
        self.node = node
        # An array of no rows has none to read or write.
        has_rows = node.count != 0
        self.readers = [_reading(machine, s) for s in node.slices] if has_rows else []
        self.writers = [_writing(machine, s) for s in node.stacks] if has_rows else []
        self.blanks = [_blank(machine, s) for s in node.stacks]

    def begin(self, values: Values) -> list[jax.Array]:
        """Before the first iteration; gives the arrays that iterations read."""
        for s, blank in zip(self.node.stacks, self.blanks, strict=True):
            (values[s.stacked, s.ipu],) = blank()
        return [load(values[s.stacked, s.ipu]) for s in self.node.slices]

    def read(self, wholes: Sequence[jax.Array], values: Values, index: int) -> None:
        """What an iteration reads."""
        for s, whole, row in zip(self.node.slices, wholes, self.readers, strict=True):
            (values[s.element, s.ipu],) = row(whole, np.int32(index))

    def write(self, values: Values, index: int) -> None:
        """What an iteration leaves."""
        for s, put in zip(self.node.stacks, self.writers, strict=True):
            place = s.stacked, s.ipu
            row = load(values[s.element, s.ipu])
            (values[place],) = put(values[place], row, np.int32(index))


def _reading(machine: Machine, s: ir.Slice) -> Compiled:
    whole = machine.placement.replicated(_row, s.ipu, [0, None], [0])
    structs = [machine.struct(s.stacked, s.ipu), _index(machine, s)]
    homes = machine.placement.result_homes(s.ipu, [0])
    return machine.compilation.add(whole, structs, out_shardings=homes)


def _writing(machine: Machine, s: ir.Stack) -> Compiled:
    whole = machine.placement.replicated(_with_row, s.ipu, [0, 0, None], [0])
    structs = [machine.struct(value, s.ipu) for value in (s.stacked, s.element)]
    homes = machine.placement.result_homes(s.ipu, [0])
    return machine.compilation.add(
        whole, [*structs, _index(machine, s)], donate_argnums=0, out_shardings=homes
    )


def _blank(machine: Machine, s: ir.Stack) -> Compiled:
    struct = machine.struct(s.stacked, s.ipu)
    return machine.compilation.add(
        lambda: [typed(jnp.zeros(struct.shape, struct.dtype), struct.weak_type)],
        [],
        out_shardings=struct.sharding,
    )


def _index(machine: Machine, s: ir.Slice | ir.Stack) -> jax.ShapeDtypeStruct:
    return machine.placement.struct(np.int32(0), s.ipu, None)


def _row(whole: jax.Array, index: jax.Array) -> list[jax.Array]:
    return [lax.dynamic_index_in_dim(whole, index, keepdims=False)]


def _with_row(whole: jax.Array, row: jax.Array, index: jax.Array) -> list[jax.Array]:
    updated = lax.dynamic_update_index_in_dim(whole, row, index, 0)
    return [typed(updated, jax.typeof(whole).weak_type)]


def typed(array: jax.Array, is_weak: bool) -> jax.Array:
    """The array, of a weak type if what it stands for is: JAX promotes the two differently."""
    if not is_weak:
        return array
    return lax.convert_element_type_p.bind(
        array, new_dtype=array.dtype, weak_type=True, sharding=None
    )
