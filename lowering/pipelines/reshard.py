"""The distribution of a function's layers over several IPUs, to model what it would gain."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence

from lowering import marks
from lowering.jaxprs import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    add_innermost_scope,
    map_sub_jaxprs,
    name_stack,
    replace_equations,
    size_in_bytes,
    sub_jaxprs,
    unique_variables,
)
from lowering.pipelines.cuts import ForwardAndBackward, StageMemory, has_product


class ShardedBody(ForwardAndBackward):
    """The body of a function that has its layers, with the pass of each equation.

    An equation that no backward pass needs, such as one of an optimizer, goes to the IPU of its
    operands.

    Args:
      jaxpr: the jaxpr of the function, or the body of a loop or call in it.
    """

    def __init__(self, jaxpr: Jaxpr) -> None:
        self.jaxpr = jaxpr
        eqns = jaxpr.eqns
        backward = [n for n, e in enumerate(eqns) if marks.read_marks(name_stack(e)).backward]
        forward = (
            _equations_needed_by_backward(jaxpr, backward) if backward else list(range(len(eqns)))
        )
        super().__init__([eqns[n] for n in forward], [eqns[n] for n in backward])
        self.place_of = dict(zip(forward, range(len(forward)), strict=True))
        self.place_of.update(zip(backward, self.places, strict=True))

    @classmethod
    def find_layers_in(cls, closed: ClosedJaxpr) -> ShardedBody | None:
        """Returns the body of a function with the most products; None if there are none."""
        counted = [
            (sum(map(has_product, body.eqns)), -number, body)
            for number, body in enumerate(_jaxprs_at_any_depth(closed.jaxpr))
        ]
        most, _, body = max(counted, key=lambda entry: entry[:2])
        return cls(body) if most else None

    def choose_starts_of_ipus(self, ipus: int) -> list[int] | None:
        """Returns where the layers of each IPU begin, so that the fullest IPU holds least."""
        end = len(self.forward)
        weights = sum(size_in_bytes(v.aval) for v in self.readers if v not in self.makers)
        input_bytes = sum(size_in_bytes(v.aval) for v in self.jaxpr.invars)
        copies = input_bytes / max(weights, 1) + bool(self.backward)  # with the optimizer's state
        stage_memory = StageMemory(copies, [1] * ipus, recomputes=False)
        return self.choose_starts(range(1, end), end, ipus, stage_memory) if end else None

    def mark_equations_with_ipu_of_layer(
        self, closed: ClosedJaxpr, starts: Sequence[int]
    ) -> ClosedJaxpr:
        """Returns the function with the body's equations marked with the IPU of their layer."""
        if closed.jaxpr is self.jaxpr:
            return ClosedJaxpr(self._add_shard_marks(starts), closed.consts)
        eqns = [
            map_sub_jaxprs(eqn, lambda body: self.mark_equations_with_ipu_of_layer(body, starts))
            for eqn in closed.jaxpr.eqns
        ]
        return ClosedJaxpr(
            replace_equations(closed.jaxpr, eqns, closed.jaxpr.outvars), closed.consts
        )

    def _add_shard_marks(self, starts: Sequence[int]) -> Jaxpr:
        eqns: list[JaxprEqn] = []
        for index, eqn in enumerate(self.jaxpr.eqns):
            forward_position = self.place_of.get(index)
            if forward_position is not None:
                shard = bisect.bisect_right(starts, forward_position) - 1
                eqn = add_innermost_scope(eqn, marks.write_mark(marks.SHARD, str(shard)))
            eqns.append(eqn)
        return replace_equations(self.jaxpr, eqns, self.jaxpr.outvars)


def _equations_needed_by_backward(jaxpr: Jaxpr, backward: Sequence[int]) -> list[int]:
    """Returns the numbers of the other equations that a backward pass needs.

    Equations after the backward pass belong to the optimizer, even if they need nothing of it.
    """
    needed = {var for n in backward for var in unique_variables(jaxpr.eqns[n].invars)}
    backward_set, leading = set(backward), list[int]()
    for index in range(backward[-1], -1, -1):
        eqn = jaxpr.eqns[index]
        if index not in backward_set and not needed.isdisjoint(eqn.outvars):
            leading.append(index)
            needed.update(unique_variables(eqn.invars))
    return leading[::-1]


def _jaxprs_at_any_depth(jaxpr: Jaxpr) -> Iterator[Jaxpr]:
    """Yields a jaxpr, and those in its equations, at any depth."""
    yield jaxpr
    for eqn in jaxpr.eqns:
        for body in sub_jaxprs(eqn):
            yield from _jaxprs_at_any_depth(body)
