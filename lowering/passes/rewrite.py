"""Tools of the passes: to find equations at any depth, and to put others in their place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lowering import marks
from lowering.equations import renamed
from lowering.jaxpr import (
    Atom,
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Var,
    call_body,
    fresh_var,
    in_context_of,
    is_dropped,
    map_sub_jaxprs,
    name_stack,
    sub_jaxprs,
    trace_flat,
    under,
    with_eqns,
)

JITTED = ("jit", "pjit", "closed_call", "core_call")
"""Calls that mean nothing but their bodies; others stand for a derivative, or recomputation."""


class Anywhere:
    """Whether an equation that passes a test occurs in a jaxpr, at any depth.

    Answers are remembered by jaxpr, since one body may be shared by many equations.

    Args:
      test: of an equation.
      closed: equations whose bodies do not count.
    """

    def __init__(
        self,
        test: Callable[[JaxprEqn], bool],
        closed: Callable[[JaxprEqn], bool] = lambda eqn: False,
    ):
        self.test = test
        self._closed = closed
        self._known: dict[int, bool] = {}

    def __call__(self, jaxpr: Jaxpr) -> bool:
        """Whether the jaxpr has one."""
        key = id(jaxpr)
        if key not in self._known:
            self._known[key] = any(self.test(eqn) or self.inside(eqn) for eqn in jaxpr.eqns)
        return self._known[key]

    def inside(self, eqn: JaxprEqn) -> bool:
        """Whether one of the equation's bodies has one."""
        return not self._closed(eqn) and any(self(inner) for inner in sub_jaxprs(eqn))


def rewritten(
    closed: ClosedJaxpr, where: Anywhere, change: Callable[[Rewriter, JaxprEqn], None]
) -> ClosedJaxpr:
    """Lets `change` deal with each equation that passes a test, at any depth, bodies first."""
    if not where(closed.jaxpr):
        return closed
    rewriter = Rewriter(closed.jaxpr)
    for original in closed.jaxpr.eqns:
        eqn = original
        if where.inside(original):
            eqn = map_sub_jaxprs(original, lambda inner: rewritten(inner, where, change))
        if where.test(original):
            with in_context_of(eqn):
                change(rewriter, eqn)
        else:
            rewriter.keep(eqn)
    return rewriter.closed(closed.consts)


def jits_opened(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The function without jitted ones, so that one can choose among the values in them."""

    def open_up(rewriter: Rewriter, eqn: JaxprEqn) -> None:
        body = call_body(eqn)
        if body is not None:
            rewriter.open(eqn, body)

    return rewritten(closed, Anywhere(_is_jitted), open_up)


def _is_jitted(eqn: JaxprEqn) -> bool:
    # An outlined function that must stay on one IPU is one operation for all that follows.
    return eqn.primitive.name in JITTED and marks.read(name_stack(eqn)).unit is None


class InBodies:
    """Changes jaxprs in which certain equations occur, and the bodies inside that have some.

    Bodies are remembered, so that equations that share one go on sharing it.

    Args:
      where: those equations.
      change: gives a jaxpr, whose jitted functions are opened, in another form, or None if it is to
        stay as it was before. Calls of `jax.checkpoint` are bodies by themselves: what they compute
        again never meets its first time.
    """

    def __init__(self, where: Anywhere, change: Callable[[ClosedJaxpr], ClosedJaxpr | None]):
        self._where, self._change = where, change
        self._known: dict[Any, tuple[ClosedJaxpr, ClosedJaxpr]] = {}

    def __call__(self, closed: ClosedJaxpr) -> ClosedJaxpr:
        """The jaxpr in its other form."""
        key = id(closed.jaxpr), *map(id, closed.consts)
        if key not in self._known:
            has_some = self._where(closed.jaxpr)
            self._known[key] = closed, self._changed(closed) if has_some else closed
        return self._known[key][1]

    def _changed(self, closed: ClosedJaxpr) -> ClosedJaxpr:
        whole = self._change(jits_opened(closed)) or closed
        jaxpr, inside = whole.jaxpr, self._where.inside
        eqns = [map_sub_jaxprs(eqn, self) if inside(eqn) else eqn for eqn in jaxpr.eqns]
        return ClosedJaxpr(with_eqns(jaxpr, eqns, jaxpr.outvars), whole.consts)


class Rewriter:
    """Copies equations one by one, and puts whole bodies in the place of single ones.

    Variables of opened bodies are renamed, since a body may be opened more than once.
    """

    def __init__(self, jaxpr: Jaxpr):
        self._jaxpr = jaxpr
        self._names: dict[Var, Atom] = {}
        self._eqns: list[JaxprEqn] = []
        self._constants: list[tuple[Var, Any]] = []

    def keep(self, eqn: JaxprEqn) -> None:
        """Takes an equation over as it is."""
        if self._names:
            eqn = eqn.replace(invars=renamed(eqn.invars, self._names))
        self._eqns.append(eqn)

    def skip(self, eqn: JaxprEqn) -> None:
        """Puts the operands of an equation in the place of its results."""
        operands = renamed(eqn.invars, self._names)
        self._names.update(zip(eqn.outvars, operands, strict=True))

    def trace(
        self, eqn: JaxprEqn, function: Callable[..., Any], axis: tuple[str, int] | None = None
    ) -> None:
        """Puts what `function` does with the operands, flat, in the equation's place."""
        self.open(eqn, trace_flat(function, [atom.aval for atom in eqn.invars], axis))

    def open(self, eqn: JaxprEqn, body: ClosedJaxpr) -> None:
        """Puts the equations of `body`, a function of the operands, in the equation's place."""
        results = self._inline(body, renamed(eqn.invars, self._names), eqn)
        for var, result in zip(eqn.outvars, results, strict=True):
            if not is_dropped(var):
                self._names[var] = result

    def _inline(self, body: ClosedJaxpr, operands: Sequence[Atom], outer: JaxprEqn) -> list[Atom]:
        jaxpr = body.jaxpr
        names: dict[Var, Atom] = dict(zip(jaxpr.invars, operands, strict=True))
        for var, value in zip(jaxpr.constvars, body.consts, strict=True):
            names[var] = fresh_var(var.aval)
            self._constants.append((names[var], value))

        for eqn in jaxpr.eqns:
            invars = renamed(eqn.invars, names)
            outvars = [v if is_dropped(v) else fresh_var(v.aval) for v in eqn.outvars]
            names.update(zip(eqn.outvars, outvars, strict=True))
            source = under(eqn, outer, jaxpr)
            self._eqns.append(eqn.replace(invars=invars, outvars=outvars, source_info=source))
        return renamed(jaxpr.outvars, names)

    def closed(self, consts: Sequence[Any]) -> ClosedJaxpr:
        """The rewritten jaxpr, given the constants of the original."""
        outvars = renamed(self._jaxpr.outvars, self._names)
        jaxpr = with_eqns(self._jaxpr, self._eqns, outvars)
        constvars = [*jaxpr.constvars, *(var for var, _ in self._constants)]
        values = [*consts, *(value for _, value in self._constants)]
        return ClosedJaxpr(jaxpr.replace(constvars=constvars), values)
