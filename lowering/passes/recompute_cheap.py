"""Lets backward passes outside pipelines compute again what is cheap, instead of keeping it."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence
from typing import Any

from jax import lax

from lowering import marks
from lowering.equations import renamed, variables
from lowering.jaxpr import (
    Atom,
    ClosedJaxpr,
    JaxprEqn,
    Var,
    fresh_var,
    is_dropped,
    map_sub_jaxprs,
    name_stack,
    trace_flat,
    with_eqns,
)
from lowering.keeping.choice import just_in_time, run_again
from lowering.passes.drop_dead import drop_dead
from lowering.passes.plan_pipelines import is_pipeline
from lowering.passes.rewrite import Anywhere, jits_opened


def recompute_cheap(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Has backward passes keep the fewest bytes of which elementwise operations give the rest.

    Equations of a backward pass are known by their name stacks. What it runs again reads what is
    kept behind barriers, so that nobody takes both runs for one.

    Before: draws are resolved, and have become values like others: they are never made again.
    After:  no jitted function is left around a derivative; each equation that runs again does so
            in front of the first that needs it. Pipelines, which choose for themselves, stay.
            Unchanged without backward passes outside pipelines.
    """
    backward = Anywhere(_is_backward, closed=is_pipeline)
    return drop_dead(_recomputed(closed, backward)) if backward(closed.jaxpr) else closed


def _is_backward(eqn: JaxprEqn) -> bool:
    return marks.read(name_stack(eqn)).backward


def _recomputed(closed: ClosedJaxpr, backward: Anywhere) -> ClosedJaxpr:
    if not backward(closed.jaxpr):
        return closed
    opened = jits_opened(closed)
    jaxpr = opened.jaxpr
    eqns = [
        eqn if is_pipeline(eqn) else map_sub_jaxprs(eqn, lambda body: _recomputed(body, backward))
        for eqn in jaxpr.eqns
    ]
    lasting = {*jaxpr.constvars, *variables(jaxpr.outvars)}
    for turn in _turns(eqns):
        eqns = turn.kept_less(eqns, lasting)
    return ClosedJaxpr(with_eqns(jaxpr, eqns, jaxpr.outvars), opened.consts)


@dc.dataclass(slots=True)
class _Turn:
    """A forward pass, and the backward pass behind it.

    Attributes:
      ahead: the equations of the one.
      behind: those of the other.
    """

    ahead: list[JaxprEqn] = dc.field(default_factory=list[JaxprEqn])
    behind: list[JaxprEqn] = dc.field(default_factory=list[JaxprEqn])

    def kept_less(self, eqns: Sequence[JaxprEqn], lasting: set[Var]) -> list[JaxprEqn]:
        """The equations of a body, where this backward pass keeps less of its forward pass.

        Args:
          eqns: all of them.
          lasting: what is there until the end.
        """
        made = {var for eqn in self.ahead for var in eqn.outvars}
        read = set(variables(atom for eqn in self.behind for atom in eqn.invars))
        required = read & made
        available = (read - made) | lasting
        again = run_again(self.ahead, required - available, available)
        if not again:
            return list(eqns)
        repeated, names = _repeated(again)
        late = set(map(id, self.behind))
        rest = [e.replace(invars=renamed(e.invars, names)) if id(e) in late else e for e in eqns]
        return just_in_time(repeated, rest)


def _turns(eqns: Sequence[JaxprEqn]) -> list[_Turn]:
    """The derivatives of a body: a forward pass may begin with what a backward pass gave."""
    turns: dict[int, _Turn] = {}
    passed: dict[Var, tuple[int, bool]] = {}
    for eqn in eqns:
        is_backward = _is_backward(eqn)
        before = [passed[var] for var in variables(eqn.invars) if var in passed]
        number = max((n + (late and not is_backward) for n, late in before), default=0)
        passed.update((var, (number, is_backward)) for var in eqn.outvars)
        turn = turns.setdefault(number, _Turn())
        (turn.behind if is_backward else turn.ahead).append(eqn)
    return [turns[number] for number in sorted(turns)]


def _repeated(again: Sequence[JaxprEqn]) -> tuple[list[JaxprEqn], dict[Var, Atom]]:
    """Equations once more, with barriers before what they read, and their results' new names."""
    names: dict[Var, Atom] = {}
    repeated: list[JaxprEqn] = []
    for eqn in again:
        for var in variables(eqn.invars):
            if var not in names:
                names[var] = fresh_var(var.aval)
                repeated.append(_barrier(var, names[var], eqn))
        outvars = [v if is_dropped(v) else fresh_var(v.aval) for v in eqn.outvars]
        repeated.append(eqn.replace(invars=renamed(eqn.invars, names), outvars=outvars))
        names.update(zip(eqn.outvars, outvars, strict=True))
    made = {var for eqn in again for var in eqn.outvars}
    return repeated, {var: name for var, name in names.items() if var in made}


def _barrier(var: Var, name: Any, reader: JaxprEqn) -> JaxprEqn:
    (eqn,) = trace_flat(lax.optimization_barrier, [var.aval]).jaxpr.eqns
    return eqn.replace(invars=[var], outvars=[name], source_info=reader.source_info)
