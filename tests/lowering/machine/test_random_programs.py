"""Random programs with control flow on four IPUs: the model's promises hold for all of them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from hypothesis import HealthCheck, given, settings

from lowering import HOST, ir
from tests.ipujax.driver.test_random_programs import function, steps
from tests.lowering.machine.samples import check_liveness, end, held, homes, modelled, overlaps
from tests.lowering.samples import lowered

ARGUMENT = jax.ShapeDtypeStruct((3,), jnp.int32)


class Least:
    """Bytes of the values that must be there together on each IPU, whatever lies where."""

    def __init__(self, program: ir.Program) -> None:
        self.program, self.needs = program, ir.PlacesOfReads()
        self.bytes = [0] * program.ipus
        self.body(program.body, set(), {(v, HOST) for v in program.outputs}, set())

    def see(self, live: set[ir.Place]) -> None:
        total = [0] * self.program.ipus
        for value, ipu in live:
            if ipu != HOST:
                aval = self.program.avals[value]
                total[ipu] += aval.size * aval.dtype.itemsize
        self.bytes = list(map(max, self.bytes, total))

    def body(self, body: ir.Sequence, start, after, through) -> None:
        """`start` enters the body, `after` is needed behind it, `through` in every iteration."""
        needed = [set(after)]
        for node in reversed(body.steps):
            needed.append(needed[-1] | set(self.needs(node)))
        known = start | through
        self.see((start & needed.pop()) | through)
        for node in body.steps:
            later = needed.pop()
            self.inside(node, known, (known & later) | through)
            known |= set(ir.places_of_writes(node))
            self.see((known & later) | through)

    def inside(self, node: ir.Node, known, through) -> None:
        if isinstance(node, ir.Switch):
            for branch in node.branches:
                results = set(zip(branch.results, node.ipus, strict=True))
                self.body(branch.body, known & set(self.needs(node)), results, through)
        if not isinstance(node, ir.Repeat | ir.While):
            return
        entering = {(carry.entering, carry.ipu) for carry in node.carry}
        leaving = {(carry.leaving, carry.ipu) for carry in node.carry}
        bodies = [node.body] if isinstance(node, ir.Repeat) else [node.condition, node.body]
        read = {place for body in bodies for step in body.steps for place in self.needs(step)}
        through = through | (known & (read | leaving))
        if isinstance(node, ir.While):
            self.body(node.condition, entering, entering, through)
            self.body(node.body, entering, leaving, through)
            return
        through |= {(s.stacked, s.ipu) for s in (*node.slices, *node.stacks)}
        slices = {(s.element, s.ipu) for s in node.slices}
        stacks = {(s.element, s.ipu) for s in node.stacks}
        self.body(node.body, entering | slices, leaving | stacks, through)


@pytest.mark.exhaustive
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(steps(2))
def test_random_programs(program):
    lowered_ = lowered(function(program), ARGUMENT, ARGUMENT, ipus=4)
    found = modelled(lowered_)
    assert found.cycles == end(found.steps) == found.steps.trace.span
    assert found.breakdown is not None
    assert min(cycles.min() for cycles in found.breakdown.values()) >= 0
    assert not overlaps(found.steps)
    check_liveness(found)
    assert (found.memory.tile_peak_bytes >= 0).all()
    for home, least in zip(homes(lowered_), Least(lowered_).bytes, strict=True):
        assert held(home) >= least
