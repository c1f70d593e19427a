"""The recomputation of cheap values in backward passes outside pipelines."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence
from typing import Any

from lowering import marks
from lowering.jaxprs import (
    Atom,
    ClosedJaxpr,
    EquationFinder,
    JaxprEqn,
    Var,
    fresh_var,
    inline_jitted_calls,
    is_dropped,
    map_sub_jaxprs,
    name_stack,
    rename_atoms,
    replace_equations,
    trace_flat,
    typed_jax,
    unique_variables,
)
from lowering.keeping import insert_recomputation_before_readers, select_equations_to_recompute
from lowering.passes.drop_dead import drop_dead
from lowering.passes.plan_pipelines import is_pipeline


def recompute_cheap(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Makes backward passes keep the fewest bytes, and recompute the rest elementwise.

    Equations of a backward pass are known by their name stacks. Equations that run again read the
    kept values behind barriers, so that XLA does not merge both runs.

    Before: draws are resolved, and have become values like others: they are never made again.
    After:  no jitted function is left around a derivative; each equation that runs again does so
            in front of the first that needs it. Pipelines, which choose for themselves, stay.
            Unchanged without backward passes outside pipelines.
    """
    backward = EquationFinder(_is_backward, closed=is_pipeline)
    return drop_dead(_recompute_in_body(closed, backward)) if backward(closed.jaxpr) else closed


def _is_backward(eqn: JaxprEqn) -> bool:
    return marks.read_marks(name_stack(eqn)).backward


def _recompute_in_body(closed: ClosedJaxpr, backward: EquationFinder) -> ClosedJaxpr:
    if not backward(closed.jaxpr):
        return closed
    opened = inline_jitted_calls(closed)
    jaxpr = opened.jaxpr
    eqns = [
        eqn
        if is_pipeline(eqn)
        else map_sub_jaxprs(eqn, lambda body: _recompute_in_body(body, backward))
        for eqn in jaxpr.eqns
    ]
    lasting = {*jaxpr.constvars, *unique_variables(jaxpr.outvars)}
    for turn in _pair_forward_and_backward(eqns):
        eqns = turn.recompute_in_backward(eqns, lasting)
    return ClosedJaxpr(replace_equations(jaxpr, eqns, jaxpr.outvars), opened.consts)


@dc.dataclass(slots=True)
class _ForwardBackwardPair:
    """A forward pass, and the backward pass behind it.

    Attributes:
      ahead: the equations of the forward pass.
      behind: the equations of the backward pass.
    """

    ahead: list[JaxprEqn] = dc.field(default_factory=list[JaxprEqn])
    behind: list[JaxprEqn] = dc.field(default_factory=list[JaxprEqn])

    def recompute_in_backward(
        self, eqns: Sequence[JaxprEqn], permanent: set[Var]
    ) -> list[JaxprEqn]:
        """Returns the equations of a body, whose backward pass keeps less of its forward pass.

        Args:
          eqns: all equations of the body.
          permanent: the variables that are there until the end.
        """
        forward_values = {var for eqn in self.ahead for var in eqn.outvars}
        read = set(unique_variables(atom for eqn in self.behind for atom in eqn.invars))
        required = read & forward_values
        available = (read - forward_values) | permanent
        recomputed = select_equations_to_recompute(self.ahead, required - available, available)
        if not recomputed:
            return list(eqns)
        repeated, names = _repeat_behind_barriers(recomputed)
        backward_ids = set(map(id, self.behind))
        other_eqns = [
            e.replace(invars=rename_atoms(e.invars, names)) if id(e) in backward_ids else e
            for e in eqns
        ]
        return insert_recomputation_before_readers(repeated, other_eqns)


def _pair_forward_and_backward(eqns: Sequence[JaxprEqn]) -> list[_ForwardBackwardPair]:
    """Pairs the passes of a body; a forward pass may read results of a backward pass."""
    pairs: dict[int, _ForwardBackwardPair] = {}
    pass_of_variable: dict[Var, tuple[int, bool]] = {}
    for eqn in eqns:
        is_backward = _is_backward(eqn)
        passes_of_operands = [
            pass_of_variable[var] for var in unique_variables(eqn.invars) if var in pass_of_variable
        ]
        pair_index = max(
            (n + (is_late and not is_backward) for n, is_late in passes_of_operands), default=0
        )
        pass_of_variable.update((var, (pair_index, is_backward)) for var in eqn.outvars)
        pair = pairs.setdefault(pair_index, _ForwardBackwardPair())
        (pair.behind if is_backward else pair.ahead).append(eqn)
    return [pairs[number] for number in sorted(pairs)]


def _repeat_behind_barriers(
    recomputed: Sequence[JaxprEqn],
) -> tuple[list[JaxprEqn], dict[Var, Atom]]:
    """Returns copies of equations behind barriers, and their results' new names."""
    names: dict[Var, Atom] = {}
    repeated: list[JaxprEqn] = []
    for eqn in recomputed:
        for var in unique_variables(eqn.invars):
            if var not in names:
                names[var] = fresh_var(var.aval)
                repeated.append(_barrier_equation(var, names[var], eqn))
        outvars = [v if is_dropped(v) else fresh_var(v.aval) for v in eqn.outvars]
        repeated.append(eqn.replace(invars=rename_atoms(eqn.invars, names), outvars=outvars))
        names.update(zip(eqn.outvars, outvars, strict=True))
    recomputed_values = {var for eqn in recomputed for var in eqn.outvars}
    return repeated, {var: name for var, name in names.items() if var in recomputed_values}


def _barrier_equation(var: Var, name: Any, reader: JaxprEqn) -> JaxprEqn:
    (eqn,) = trace_flat(typed_jax.optimization_barrier, [var.aval]).jaxpr.eqns
    return eqn.replace(invars=[var], outvars=[name], source_info=reader.source_info)
