"""The tools of passes: they find equations at any depth, and replace them by others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from lowering import marks
from lowering.jaxprs.caller_frames import source_info_in_call
from lowering.jaxprs.equations import rename_atoms, unique_variables
from lowering.jaxprs.folding import fold_conversion
from lowering.jaxprs.jaxpr import (
    Atom,
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Var,
    body_of_call,
    equations_with_bodies,
    fresh_var,
    is_dropped,
    map_sub_jaxprs,
    name_stack,
    replace_equations,
    sub_jaxprs,
    trace_flat,
    use_configuration_of,
)

if TYPE_CHECKING:
    from lowering.jaxprs.jaxpr import SourceInfo

JITTED = ("jit", "pjit", "closed_call", "core_call")
"""Calls that mean nothing but their bodies; others stand for a derivative, or recomputation."""


class EquationFinder:
    """A test of whether a jaxpr has an equation of some kind, at any depth.

    Answers are cached by jaxpr, since one body may be shared by many equations.

    Args:
      test: tells whether an equation is of the kind.
      closed: tells whether an equation's bodies do not count.
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
        """Returns whether a jaxpr has such an equation."""
        known = self._known.get(id(jaxpr))
        if known is None:
            eqns_with_bodies = equations_with_bodies(jaxpr)
            known = any(map(self.test, jaxpr.eqns)) or any(
                map(self.occurs_inside, eqns_with_bodies)
            )
            self._known[id(jaxpr)] = known
        return known

    def occurs_inside(self, eqn: JaxprEqn) -> bool:
        """Returns whether one of an equation's bodies has such an equation."""
        bodies = sub_jaxprs(eqn)
        return bool(bodies) and not self._closed(eqn) and any(map(self, bodies))


def rewrite_equations(
    closed: ClosedJaxpr,
    finder: EquationFinder,
    change: Callable[[EquationRewriter, JaxprEqn], None],
) -> ClosedJaxpr:
    """Calls `change` for each equation that a finder finds, at any depth, bodies first."""
    if not finder(closed.jaxpr):
        return closed
    rewriter = EquationRewriter(closed.jaxpr)
    with_bodies = {id(eqn) for eqn in equations_with_bodies(closed)}
    for original in closed.jaxpr.eqns:
        eqn = original
        if id(original) in with_bodies and finder.occurs_inside(original):
            eqn = map_sub_jaxprs(original, lambda inner: rewrite_equations(inner, finder, change))
        if finder.test(original):
            with use_configuration_of(eqn):
                change(rewriter, eqn)
        else:
            rewriter.keep_equation(eqn)
    return rewriter.build_rewritten_jaxpr(closed.consts)


def inline_jitted_calls(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Replaces calls of jitted functions by their bodies, so that their values are visible."""

    def replace_by_own_body(rewriter: EquationRewriter, eqn: JaxprEqn) -> None:
        body = body_of_call(eqn)
        if body is not None:
            rewriter.replace_by_jaxpr(eqn, body)

    return rewrite_equations(closed, EquationFinder(_is_jitted), replace_by_own_body)


def _is_jitted(eqn: JaxprEqn) -> bool:
    # An outlined function that must stay on one IPU is one operation for all that follows.
    return eqn.primitive.name in JITTED and marks.read_marks(name_stack(eqn)).unit is None


class BodyRewriter:
    """A rewriter of the jaxprs in which certain equations occur, and of their bodies.

    Bodies are remembered, so that equations that share one go on sharing it.

    Args:
      finder: finds those equations.
      change: returns a new form of a jaxpr, whose jitted functions are opened, or None if it is to
        stay as it was. Calls of `jax.checkpoint` are bodies by themselves: recomputed equations are
        never in one body with the original ones.
    """

    def __init__(self, finder: EquationFinder, change: Callable[[ClosedJaxpr], ClosedJaxpr | None]):
        self._where, self._change = finder, change
        self._known: dict[Any, tuple[ClosedJaxpr, ClosedJaxpr]] = {}

    def __call__(self, closed: ClosedJaxpr) -> ClosedJaxpr:
        """Returns the new form of a jaxpr."""
        key = id(closed.jaxpr), *map(id, closed.consts)
        if key not in self._known:
            occurs = self._where(closed.jaxpr)
            self._known[key] = closed, self._rewrite_jaxpr_and_bodies(closed) if occurs else closed
        return self._known[key][1]

    def _rewrite_jaxpr_and_bodies(self, closed: ClosedJaxpr) -> ClosedJaxpr:
        changed_jaxpr = self._change(inline_jitted_calls(closed)) or closed
        jaxpr, occurs_inside = changed_jaxpr.jaxpr, self._where.occurs_inside
        eqns = [map_sub_jaxprs(eqn, self) if occurs_inside(eqn) else eqn for eqn in jaxpr.eqns]
        return ClosedJaxpr(replace_equations(jaxpr, eqns, jaxpr.outvars), changed_jaxpr.consts)


class EquationRewriter:
    """A copier of equations that can replace single ones by whole bodies.

    Variables of opened bodies are renamed, since a body may be opened more than once.
    """

    def __init__(self, jaxpr: Jaxpr):
        self._jaxpr = jaxpr
        self._names: dict[Var, Atom] = {}
        self._eqns: list[JaxprEqn] = []
        self._constants: list[tuple[Var, Any]] = []

    def keep_equation(self, eqn: JaxprEqn) -> None:
        """Takes an equation over as it is."""
        if self._names and not self._names.keys().isdisjoint(unique_variables(eqn.invars)):
            eqn = eqn.replace(invars=rename_atoms(eqn.invars, self._names))
        self._eqns.append(eqn)

    def replace_by_operands(self, eqn: JaxprEqn) -> None:
        """Replaces the results of an equation by its operands."""
        operands = rename_atoms(eqn.invars, self._names)
        self._names.update(zip(eqn.outvars, operands, strict=True))

    def replace_by_function(
        self, eqn: JaxprEqn, function: Callable[..., Any], axis: tuple[str, int] | None = None
    ) -> None:
        """Replaces an equation by a function of its operands, flat, which is traced."""
        self.replace_by_jaxpr(eqn, trace_flat(function, [atom.aval for atom in eqn.invars], axis))

    def replace_by_jaxpr(self, eqn: JaxprEqn, body: ClosedJaxpr) -> None:
        """Replaces an equation by the equations of `body`, a function of its operands."""
        self._replace_by_copies(
            eqn, body, lambda inner: source_info_in_call(inner, eqn, body.jaxpr)
        )

    def replace_by_evaluation(self, eqn: JaxprEqn, body: ClosedJaxpr) -> None:
        """Replaces an equation by those that tracing an evaluation of `body` would give.

        They keep their own lines, and get the name stack of the equation before their own.
        """
        outer_stack = eqn.source_info.name_stack

        def source_of(inner: JaxprEqn) -> SourceInfo:
            source = inner.source_info
            if not outer_stack.stack:
                return source
            return source.replace(name_stack=outer_stack + source.name_stack)

        self._replace_by_copies(eqn, body, source_of, folds=True)

    def _replace_by_copies(
        self,
        eqn: JaxprEqn,
        body: ClosedJaxpr,
        source_of: Callable[[JaxprEqn], SourceInfo],
        *,
        folds: bool = False,
    ) -> None:
        operands = rename_atoms(eqn.invars, self._names)
        results = self._copy_equations_of(body, operands, source_of, folds=folds)
        for var, result in zip(eqn.outvars, results, strict=True):
            if not is_dropped(var):
                self._names[var] = result

    def _copy_equations_of(
        self,
        body: ClosedJaxpr,
        operands: Sequence[Atom],
        source_of: Callable[[JaxprEqn], SourceInfo],
        *,
        folds: bool,
    ) -> list[Atom]:
        jaxpr = body.jaxpr
        names: dict[Var, Atom] = dict(zip(jaxpr.invars, operands, strict=True))
        for var, value in zip(jaxpr.constvars, body.consts, strict=True):
            constant = names[var] = fresh_var(var.aval)
            self._constants.append((constant, value))

        for eqn in jaxpr.eqns:
            invars = rename_atoms(eqn.invars, names)
            known = fold_conversion(eqn, invars) if folds else None
            if known is not None:
                names.update(zip(eqn.outvars, known, strict=True))
                continue
            outvars = [v if is_dropped(v) else fresh_var(v.aval) for v in eqn.outvars]
            names.update(zip(eqn.outvars, outvars, strict=True))
            self._eqns.append(
                eqn.replace(invars=invars, outvars=outvars, source_info=source_of(eqn))
            )
        return rename_atoms(jaxpr.outvars, names)

    def build_rewritten_jaxpr(self, consts: Sequence[Any]) -> ClosedJaxpr:
        """Returns the rewritten jaxpr, given the constants of the original."""
        outvars = rename_atoms(self._jaxpr.outvars, self._names)
        jaxpr = replace_equations(self._jaxpr, self._eqns, outvars)
        constvars = [*jaxpr.constvars, *(var for var, _ in self._constants)]
        values = [*consts, *(value for _, value in self._constants)]
        return ClosedJaxpr(jaxpr.replace(constvars=constvars), values)
