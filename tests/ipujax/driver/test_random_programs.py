"""Random programs: whatever is marked how, the Program holds its promises and the numbers stay.

All arithmetic is on integers, so that no engine has an excuse for other numbers than `jax.jit`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax import lax

import ipujax as ipu
from lowering import HOST, ir
from tests.numbers import same, use_ipus

LEAVES: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "multiply": lambda a, b: a * b,
    "larger": jnp.maximum,
    "flip bits": lambda a, b: a ^ b,
    "negate": lambda a, b: -a,
    "roll": lambda a, b: jnp.roll(a, 1),
    "total": lambda a, b: a + b.sum(),
    "constant": lambda a, b: a + np.arange(3, dtype=np.int32),
    "outer constant": lambda a, b: jnp.asarray([5, 6, 7], jnp.int32) - b,
}
BRANCHES = ("scan", "reverse scan", "while", "cond", "switch", "jit", "remat", "vmapped while")
INPUTS = np.array([3, -1, 4], np.int32), np.array([-1, 5, 9], np.int32)


@dataclass(frozen=True)
class Step:
    """An operation of a random program on two of the values before it."""

    kind: str
    shard: int | None
    first: int
    second: int
    bodies: tuple[tuple[Step, ...], ...] = ()


def marked(shard: int | None) -> contextlib.AbstractContextManager[Any]:
    return contextlib.nullcontext() if shard is None else ipu.scopes.ipu_shard(shard)


def run(steps: Sequence[Step], values: Sequence[Any]) -> list[Any]:
    values = list(values)
    for step in steps:
        a, b = (values[number % len(values)] for number in (step.first, step.second))
        with marked(step.shard):
            if step.kind in LEAVES:
                values.append(LEAVES[step.kind](a, b))
            else:
                values.extend(branch(step, a, b, values[0]))
    return values


def branch(step: Step, a: Any, b: Any, captured: Any) -> Sequence[Any]:
    body, other = step.bodies

    def evaluate(steps: Sequence[Step], *values: Any) -> tuple[Any, Any]:
        results = run(steps, [captured, *values])
        return results[-1], results[-2]

    def slices(c: Any, row: Any) -> Any:
        c = evaluate(body, *c, row)
        return c, c[0] + row

    def counted(c: Any) -> Any:
        return c[0] + 1, *evaluate(body, *c[1:])

    match step.kind:
        case "scan" | "reverse scan":
            rows = jnp.stack([a, b, a - b])
            reverse = step.kind == "reverse scan"
            carry, stacked = lax.scan(slices, (a, b), rows, reverse=reverse)
            return *carry, stacked[0]
        case "while":
            return lax.while_loop(lambda c: c[0] < c[1].sum() % 4, counted, (jnp.int32(0), a, b))[
                1:
            ]
        case "vmapped while":

            def one(limit: Any) -> Any:
                return lax.while_loop(lambda c: c[0] < limit, counted, (jnp.int32(0), a, b))[1:]

            return [rows.sum(0) for rows in jax.vmap(one)(abs(a) % 3)]
        case "cond":
            return lax.cond(
                a.sum() > b[0], lambda: evaluate(body, a, b), lambda: evaluate(other, a)
            )
        case "switch":
            ways = [lambda: (a, b), lambda: evaluate(body, b), lambda: evaluate(other, a, b)]
            return lax.switch(a[0] % 3, ways)
        case "jit":
            return jax.jit(lambda *values: evaluate(body, *values))(a, b)
        case _:
            return jax.checkpoint(lambda *values: evaluate(body, *values))(a, b)


def steps(depth: int) -> st.SearchStrategy[tuple[Step, ...]]:
    shards = st.sampled_from([None, 0, 1, 2, 3])
    operands = st.integers(0, 7)
    leaves = st.builds(Step, st.sampled_from(sorted(LEAVES)), shards, operands, operands)
    if depth == 0:
        return st.lists(leaves, min_size=1, max_size=4).map(tuple)
    bodies = st.tuples(steps(depth - 1), steps(depth - 1))
    inner = st.builds(Step, st.sampled_from(BRANCHES), shards, operands, operands, bodies)
    return st.lists(leaves | leaves | inner, min_size=2, max_size=6).map(tuple)


def function(program: Sequence[Step]) -> Callable[..., Any]:
    return lambda x, y: tuple(run(program, [x, y])[-4:])


def check_kernels(program: ir.Program) -> None:
    """No two IPUs in one kernel, no value made twice, no copy of what is there."""
    present: set[ir.Place] = {(value, HOST) for value in program.inputs}
    for node in program.body.steps:
        if isinstance(node, ir.Copy):
            assert not present & set(ir.places_of_writes(node))
        present |= set(ir.places_of_writes(node))
    written = [value for node in ir.walk_nodes(program.body) for value in ir.places_of_writes(node)
               if not isinstance(node, ir.Copy)]  # fmt: skip
    assert len(set(written)) == len(written)


@pytest.mark.exhaustive
@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(steps(2))
def test_lowered_verified_and_of_the_same_numbers(program):
    use_ipus(4)
    fn = function(program)
    wanted = jax.jit(fn)(*INPUTS)
    lowered = ipu.compile(fn, engine="replay").lower(*INPUTS)
    check_kernels(lowered.program)
    same(lowered.compile()(*INPUTS), wanted)
    same(ipu.compile(fn, engine="fused")(*INPUTS), wanted)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(steps(2), st.sampled_from([1, 3]))
def test_programs_on_one_shard_use_no_other(program, shard):

    def remarked(steps: Sequence[Step]) -> tuple[Step, ...]:
        return tuple(
            Step(s.kind, shard, s.first, s.second, tuple(map(remarked, s.bodies))) for s in steps
        )

    use_ipus(4)
    lowered = ipu.compile(function(remarked(program))).lower(*INPUTS)
    kernels = {
        node.ipu for node in ir.walk_nodes(lowered.program.body) if isinstance(node, ir.Execute)
    }
    assert kernels <= {shard}
    copies = [node for node in ir.walk_nodes(lowered.program.body) if isinstance(node, ir.Copy)]
    assert all(HOST in (copy.source, copy.target) for copy in copies)
