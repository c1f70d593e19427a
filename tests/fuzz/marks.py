"""Marks: runs of statements, in bodies too, are dealt out to IPUs or named otherwise."""

from __future__ import annotations

import dataclasses as dc
import random
from collections.abc import Sequence

from tests.fuzz.source import Define, Line, Marked, Statement, printed

OTHERS = (
    "ipu_jit_scope('inner')", "frontend_attribute('a', 'b')", "jax.named_scope('named')",
    "jax.threefry_partitionable(False)", "jax.default_matmul_precision('highest')",
    "set_xla_metadata(a='b')",
)  # fmt: skip


def sprinkled(body: Sequence[Statement], ipus: int, chance: random.Random) -> tuple[Statement, ...]:
    """The same statements, some of them on an IPU below `ipus`, or in other scopes."""
    out: list[Statement] = []
    rest = [_inside(statement, ipus, chance) for statement in body]
    while rest:
        count = chance.choice([1, 1, 2, 3, 5])
        run, rest = rest[:count], rest[count:]
        if chance.random() < 0.6:
            out.append(Marked(f"ipu_shard({chance.randrange(ipus)})", tuple(run)))
        elif chance.random() < 0.1:
            out.append(Marked(chance.choice(OTHERS), tuple(run)))
        else:
            out += run
    return tuple(out)


def _inside(statement: Statement, ipus: int, chance: random.Random) -> Statement:
    if not isinstance(statement, Define):
        return statement
    return dc.replace(statement, body=sprinkled(statement.body, ipus, chance))


def outside(body: Sequence[Statement], chance: random.Random) -> tuple[Statement, ...]:
    """The same statements of the top level, a few of them on the host."""

    def moves(statement: Statement) -> bool:
        simple = isinstance(statement, Line) and statement.plain is not None
        return simple and "callback" not in printed([statement]) and chance.random() < 0.2

    scope = "outside_compilation_scope()"
    return tuple(Marked(scope, (each,)) if moves(each) else each for each in body)
