"""The layers of a function, shared out to several IPUs, for models of what that would bring."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence

from lowering import marks
from lowering.avals import size_in_bytes
from lowering.equations import variables
from lowering.jaxpr import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    map_sub_jaxprs,
    name_stack,
    sub_jaxprs,
    with_eqns,
    with_scope,
)
from lowering.pipelines.order import Need, Order, has_product


class ShardedBody(Order):
    """The body of a function that has its layers, and which equations are of which pass.

    What no backward pass needs, such as an optimizer, goes where its operands are.

    Args:
      jaxpr: of the function, or of the body of a loop or call in it.
    """

    def __init__(self, jaxpr: Jaxpr) -> None:
        self.jaxpr = jaxpr
        eqns = jaxpr.eqns
        backward = [n for n, e in enumerate(eqns) if marks.read(name_stack(e)).backward]
        forward = _leading_to(jaxpr, backward) if backward else list(range(len(eqns)))
        super().__init__([eqns[n] for n in forward], [eqns[n] for n in backward])
        self.place_of = dict(zip(forward, range(len(forward)), strict=True))
        self.place_of.update(zip(backward, self.places, strict=True))

    @classmethod
    def of(cls, closed: ClosedJaxpr) -> ShardedBody | None:
        """The body of a function in which most products are; None if there are none."""
        counted = [
            (sum(map(has_product, body.eqns)), -number, body)
            for number, body in enumerate(_bodies(closed.jaxpr))
        ]
        most, _, body = max(counted, key=lambda entry: entry[:2])
        return cls(body) if most else None

    def starts(self, ipus: int) -> list[int] | None:
        """Where the layers of each IPU begin, so that the fullest holds least."""
        end = len(self.forward)
        weights = sum(size_in_bytes(v.aval) for v in self.readers if v not in self.makers)
        given = sum(size_in_bytes(v.aval) for v in self.jaxpr.invars)
        copies = given / max(weights, 1) + bool(self.backward)  # what an optimizer keeps included
        need = Need(copies, [1] * ipus, recomputes=False)
        return self.starts_among(range(1, end), end, ipus, need) if end else None

    def mark(self, closed: ClosedJaxpr, starts: Sequence[int]) -> ClosedJaxpr:
        """The function, in whose body equations are marked with the IPU of their layer."""
        if closed.jaxpr is self.jaxpr:
            return ClosedJaxpr(self._marked(starts), closed.consts)
        eqns = [
            map_sub_jaxprs(eqn, lambda inner: self.mark(inner, starts)) for eqn in closed.jaxpr.eqns
        ]
        return ClosedJaxpr(with_eqns(closed.jaxpr, eqns, closed.jaxpr.outvars), closed.consts)

    def _marked(self, starts: Sequence[int]) -> Jaxpr:
        eqns: list[JaxprEqn] = []
        for index, eqn in enumerate(self.jaxpr.eqns):
            place = self.place_of.get(index)
            if place is not None:
                shard = bisect.bisect_right(starts, place) - 1
                eqn = with_scope(eqn, marks.write(marks.SHARD, str(shard)))
            eqns.append(eqn)
        return with_eqns(self.jaxpr, eqns, self.jaxpr.outvars)


def _leading_to(jaxpr: Jaxpr, backward: Sequence[int]) -> list[int]:
    """The equations, by number, of which a backward pass needs something and that are not its own.

    What comes after a backward pass, though it needs nothing of it, belongs to the optimizer.
    """
    needed = {var for n in backward for var in variables(jaxpr.eqns[n].invars)}
    own, found = set(backward), list[int]()
    for index in range(backward[-1], -1, -1):
        eqn = jaxpr.eqns[index]
        if index not in own and not needed.isdisjoint(eqn.outvars):
            found.append(index)
            needed.update(variables(eqn.invars))
    return found[::-1]


def _bodies(jaxpr: Jaxpr) -> Iterator[Jaxpr]:
    """A jaxpr, and those in its equations, at any depth."""
    yield jaxpr
    for eqn in jaxpr.eqns:
        for inner in sub_jaxprs(eqn):
            yield from _bodies(inner)
