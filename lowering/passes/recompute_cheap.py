"""The recomputation of cheap values in backward passes outside pipelines."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from lowering import marks
from lowering.jaxprs import (
    Atom,
    ClosedJaxpr,
    EquationFinder,
    Jaxpr,
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
from lowering.keeping import (
    cheap_in_composed_functions,
    insert_recomputation_before_readers,
    is_cheap_to_recompute,
    mark_composed_calls,
    peaks_of_live_bytes,
    reduce_stacks_of_scans,
    select_equations_to_recompute,
)
from lowering.passes.drop_dead import drop_dead
from lowering.passes.plan_pipelines import is_pipeline

# Elementwise vertices that a program had no code for, by the machine model: up to 2.3 KB on each
# tile for a gelu of float32 in a program of float16.
_BYTES_OF_CODE = 4 << 20


def recompute_cheap(closed: ClosedJaxpr, *, everywhere: bool) -> ClosedJaxpr:
    """Makes backward passes keep the fewest bytes, and recompute the rest elementwise.

    Equations of a backward pass are known by their name stacks. Where recomputation was asked for,
    equations that run again read the kept values behind barriers, so that XLA does not merge both
    runs; in composed functions XLA may, so that numbers stay bit for bit.

    Args:
      closed: the whole function.
      everywhere: recompute all that is cheap; otherwise what composed functions would leave, such
        as a gelu, which the original has as one operation, and casts; and this only where the peak
        of live bytes of a body falls by more than the code for it takes.

    Before: draws are resolved, and have become values like others: they are never made again.
    After:  no jitted function is left around a derivative that keeps less than before; each
            equation that runs again does so in front of the first that needs it. Pipelines, which
            choose for themselves, stay. Unchanged where nothing can be saved.
    """
    recomputation = _CheapRecomputation(everywhere)
    changed = recomputation.recompute_in_body(closed)
    return drop_dead(changed) if recomputation.num_changes else closed


def _is_backward(eqn: JaxprEqn) -> bool:
    return marks.read_marks(name_stack(eqn)).backward


class _CheapRecomputation:
    """The recomputation of cheap values in all backward passes of a function.

    Attributes:
      everywhere: whether all that is cheap is recomputed, not only in composed functions.
      num_changes: the number of backward passes that keep less by now.
    """

    def __init__(self, everywhere: bool) -> None:
        self.everywhere, self.num_changes = everywhere, 0
        self._has_backward = EquationFinder(_is_backward, closed=is_pipeline)

    def recompute_in_body(self, closed: ClosedJaxpr) -> ClosedJaxpr:
        """Returns a body whose backward passes keep less; the same object if they cannot."""
        if not self._has_backward(closed.jaxpr):
            return closed
        changes_before = self.num_changes
        opened = inline_jitted_calls(closed if self.everywhere else mark_composed_calls(closed))
        jaxpr = opened.jaxpr
        eqns = [
            eqn if is_pipeline(eqn) else map_sub_jaxprs(eqn, self.recompute_in_body)
            for eqn in jaxpr.eqns
        ]
        for pair in _pair_forward_and_backward(eqns):
            changed = self._recompute_in_pair(pair, eqns, jaxpr)
            if changed is not None:
                self.num_changes += 1
                eqns = changed
        if self.num_changes == changes_before:
            return closed
        return ClosedJaxpr(replace_equations(jaxpr, eqns, jaxpr.outvars), opened.consts)

    def _test_for(self, backward_eqns: Iterable[JaxprEqn]) -> Callable[[JaxprEqn], bool]:
        if self.everywhere:
            return is_cheap_to_recompute
        return cheap_in_composed_functions(backward_eqns)

    def _recompute_in_pair(
        self, pair: _ForwardBackwardPair, eqns: Sequence[JaxprEqn], jaxpr: Jaxpr
    ) -> list[JaxprEqn] | None:
        """Returns the equations of a body, whose backward pass keeps less of its forward pass.

        None if nothing is saved, or unasked too little of the peak.
        """
        permanent = {*jaxpr.constvars, *jaxpr.invars, *unique_variables(jaxpr.outvars)}
        ahead, behind = reduce_stacks_of_scans(
            pair.ahead, pair.behind, pair.find_available_values(permanent), self._test_for
        )
        reduced = _ForwardBackwardPair(ahead, behind)
        available = reduced.find_available_values(permanent)
        required = reduced.values_read_from_forward() - available
        recomputed = select_equations_to_recompute(
            ahead, required, available, self._test_for(behind)
        )
        if not recomputed and ahead == pair.ahead:
            return None
        repeated, names = _repeat_equations(recomputed, behind_barriers=self.everywhere)
        new_of_old = dict(zip(map(id, pair.ahead), ahead, strict=True))
        new_of_old.update(
            (id(old), new.replace(invars=rename_atoms(new.invars, names)))
            for old, new in zip(pair.behind, behind, strict=True)
        )
        changed = insert_recomputation_before_readers(
            repeated, [new_of_old.get(id(eqn), eqn) for eqn in eqns]
        )
        return changed if self.everywhere or _saves_enough(eqns, changed, jaxpr) else None


def _saves_enough(eqns: Sequence[JaxprEqn], changed: Sequence[JaxprEqn], body: Jaxpr) -> bool:
    """Returns whether a body needs less, by more than the code of what runs again takes.

    It does where products and the like run, which need work space beside the values; and never
    more, wherever that is.
    """
    lasting = [*body.invars, *body.outvars]
    (anywhere_before, at_products_before), (anywhere_after, at_products_after) = (
        peaks_of_live_bytes(each, lasting, lambda eqn: not is_cheap_to_recompute(eqn))
        for each in (eqns, changed)
    )
    saved = at_products_before - at_products_after
    return saved >= _BYTES_OF_CODE and anywhere_after <= anywhere_before


@dc.dataclass(slots=True)
class _ForwardBackwardPair:
    """A forward pass, and the backward pass behind it.

    Attributes:
      ahead: the equations of the forward pass.
      behind: the equations of the backward pass.
    """

    ahead: list[JaxprEqn] = dc.field(default_factory=list[JaxprEqn])
    behind: list[JaxprEqn] = dc.field(default_factory=list[JaxprEqn])

    def values_read_from_forward(self) -> set[Var]:
        """Returns the values of the forward pass that the backward pass reads."""
        return self._values_read() & {var for eqn in self.ahead for var in eqn.outvars}

    def find_available_values(self, permanent: Collection[Var]) -> set[Var]:
        """Returns the values that the backward pass has in any case."""
        return (self._values_read() - self.values_read_from_forward()).union(permanent)

    def _values_read(self) -> set[Var]:
        return set(unique_variables(atom for eqn in self.behind for atom in eqn.invars))


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


def _repeat_equations(
    recomputed: Sequence[JaxprEqn], *, behind_barriers: bool
) -> tuple[list[JaxprEqn], dict[Var, Atom]]:
    """Returns copies of equations, and their results' new names.

    Args:
      recomputed: the equations, in order.
      behind_barriers: let copies read what others give behind barriers.
    """
    names: dict[Var, Atom] = {}
    repeated: list[JaxprEqn] = []
    for eqn in recomputed:
        for var in unique_variables(eqn.invars) if behind_barriers else ():
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
