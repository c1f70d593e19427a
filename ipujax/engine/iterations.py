"""One iteration of a loop that the host drives: what goes in, and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ipujax.engine.feeds import Session, of_the_loop
from ipujax.engine.loops import Values
from ipujax.engine.storage import load
from ipujax.errors import OutOfRangeError
from lowering import ir

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
    except OutOfRangeError as error:
        if node.loop is None or error.carried is not None:
            raise
        # A `while_loop` counts its iterations in a variable before the user's.
        first = 0 if isinstance(node, ir.Repeat) else 1
        own = node.carry[first : first + node.loop.num_leaves]
        carried = [load(values[c.entering, c.ipu]) for c in own]
        raise of_the_loop(error, node.loop, count, done, carried, session.replicas) from None


def row_of(stacked: Any, index: int, replicas: int) -> Any:
    """What one iteration reads of a stacked array, for all replicas."""
    return stacked[index] if replicas == 1 else stacked[:, index]
