"""The combination of updates that are added up, such as gradients of one table's lookups."""

from __future__ import annotations

import collections
import dataclasses as dc
import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from jax import lax

from lowering import ir
from lowering.jaxprs import (
    Atom,
    ClosedJaxpr,
    EquationFinder,
    EquationRewriter,
    JaxprEqn,
    Literal,
    Var,
    broadcasts_zero,
    dtype_name,
    shape_of,
    unique_variables,
)
from lowering.passes.combine import rewrite_bodies_in_kernels, settings_of, take_index_list

_SUMS = ("add", "add_any")


def combine_updates(program: ir.Program) -> ir.Program:
    """Combines updates of zeros that are only added up.

    Before: every lookup's gradient is a `scatter-add` of its rows to zeros as large as the table,
            and the table's gradient the sum of these.
    After:  in each kernel, and each body inside, those of one sum that differ in nothing but how
            many rows they have are one `scatter-add` of all their rows. Numbers differ by rounding,
            since the sum has another order.
    """
    return rewrite_bodies_in_kernels(program, EquationFinder(_is_update), _combine_updates_in)


def _is_update(eqn: JaxprEqn) -> bool:
    """Returns whether an equation adds rows to a table, the rows' dimensions being last."""
    if eqn.primitive is not lax.scatter_add_p:
        return False
    batch = len(shape_of(eqn.invars[1].aval)) - 1
    rank = len(shape_of(eqn.invars[2].aval))
    numbers: lax.ScatterDimensionNumbers = eqn.params["dimension_numbers"]
    window = tuple(numbers.update_window_dims)
    return not numbers.operand_batching_dims and window == tuple(range(batch, rank))


def _combine_updates_in(closed: ClosedJaxpr) -> ClosedJaxpr | None:
    eqns = closed.jaxpr.eqns
    sums = _Sums(eqns, closed.jaxpr.outvars)
    reduced_sums = {
        eqn.outvars[0]: reduced_sum
        for eqn in eqns
        if (reduced_sum := sums.reduce_sum_at(eqn)) is not None
    }
    if not reduced_sums:
        return None
    unread_variables = {var for total in reduced_sums.values() for var in total.gone}
    rewriter = EquationRewriter(closed.jaxpr)
    for eqn in eqns:
        if (reduced_sum := reduced_sums.get(eqn.outvars[0]) if eqn.outvars else None) is not None:
            rewriter.replace_by_function(
                eqn.replace(invars=reduced_sum.operands), reduced_sum.function
            )
        elif unread_variables.isdisjoint(eqn.outvars):
            rewriter.keep_equation(eqn)
    return rewriter.build_rewritten_jaxpr(closed.consts)


@dc.dataclass(frozen=True, slots=True)
class _ReducedSum:
    """A sum with fewer terms.

    Attributes:
      terms: the terms that stay as they are.
      updates: for each combined update, the updates that it replaces.
      gone: the variables that nobody reads any more.
    """

    terms: list[Atom]
    updates: list[list[JaxprEqn]]
    gone: Sequence[Var]

    @property
    def operands(self) -> list[Atom]:
        """The operands of `function`: the terms, and zeros, indices and rows of each update."""
        flat = list(self.terms)
        for combined in self.updates:
            flat.append(combined[0].invars[0])
            flat += [eqn.invars[operand] for operand in (1, 2) for eqn in combined]
        return flat

    @property
    def function(self) -> Callable[..., Any]:
        """The function that computes the sum."""

        def add_terms_and_updates(*operands: Any) -> Any:
            remaining = iter(operands)
            terms = [next(remaining) for _ in self.terms]
            for combined in self.updates:
                zeros = next(remaining)
                indices, rows = ([next(remaining) for _ in combined] for _ in range(2))
                terms.append(_update_all_rows(combined[0], zeros, indices, rows))
            return functools.reduce(lax.add, terms)

        return add_terms_and_updates


def _update_all_rows(eqn: JaxprEqn, zeros: Any, indices: Sequence[Any], rows: Sequence[Any]) -> Any:
    """Updates a table once with all rows."""
    params = take_index_list(eqn, "update_window_dims").params
    window = len(params["dimension_numbers"].update_window_dims)
    index_lists = [index.reshape(-1, index.shape[-1]) for index in indices]
    row_lists = [row.reshape(-1, *row.shape[row.ndim - window :]) for row in rows]
    operands = zeros, lax.concatenate(index_lists, 0), lax.concatenate(row_lists, 0)
    return eqn.primitive.bind(*operands, **params)


class _Sums:
    """The sums of a body."""

    def __init__(self, eqns: Sequence[JaxprEqn], results: Sequence[Atom]):
        self._made = {var: eqn for eqn in eqns for var in eqn.outvars}
        read = (atom for atoms in (*(eqn.invars for eqn in eqns), results) for atom in atoms)
        self._reads = collections.Counter(a for a in read if not isinstance(a, Literal))
        sums = [eqn for eqn in eqns if eqn.primitive.name in _SUMS]
        self._inside = {id(self._producer_for_single_reader(a)) for eqn in sums for a in eqn.invars}

    def reduce_sum_at(self, eqn: JaxprEqn) -> _ReducedSum | None:
        """Returns an outermost sum with fewer terms, if several updates in it can be one."""
        if eqn.primitive.name not in _SUMS or id(eqn) in self._inside:
            return None
        terms, unread = self._terms_of_sum(eqn)
        groups: dict[Hashable, list[JaxprEqn]] = {}
        for term in terms:
            update = self._producer_for_single_reader(term)
            if update is not None and self._starts_from_zeros(update):
                groups.setdefault(_key_of_update(update), []).append(update)
        updates = [group for group in groups.values() if len(group) > 1]
        if not updates:
            return None
        replaced_terms = {update.outvars[0] for group in updates for update in group}
        zeros = unique_variables(u.invars[0] for group in updates for u in group[1:])
        unread += [
            *replaced_terms,
            *(var for var in zeros if self._producer_for_single_reader(var)),
        ]
        other_terms = [t for t in terms if isinstance(t, Literal) or t not in replaced_terms]
        return _ReducedSum(other_terms, updates, unread)

    def _producer_for_single_reader(self, atom: Atom) -> JaxprEqn | None:
        """Returns the equation that makes a value with a single reader."""
        if isinstance(atom, Literal) or self._reads[atom] != 1:
            return None
        return self._made.get(atom)

    def _terms_of_sum(self, eqn: JaxprEqn) -> tuple[list[Atom], list[Var]]:
        """Returns the terms of a sum, in order, and the sums inside it."""
        terms: list[Atom] = []
        inner_sums: list[Var] = []
        waiting = list(reversed(eqn.invars))
        while waiting:
            term = waiting.pop()
            producer = self._producer_for_single_reader(term)
            if producer is not None and producer.primitive.name in _SUMS:
                inner_sums += producer.outvars
                waiting += reversed(producer.invars)
            else:
                terms.append(term)
        return terms, inner_sums

    def _starts_from_zeros(self, eqn: JaxprEqn) -> bool:
        """Returns whether an equation adds rows to zeros."""
        table = eqn.invars[0] if _is_update(eqn) else None
        producer = self._made.get(table) if isinstance(table, Var) else None
        return producer is not None and broadcasts_zero(producer)


def _key_of_update(eqn: JaxprEqn) -> Hashable:
    """Returns a key, equal for updates that can be combined."""
    indices = eqn.invars[1].aval
    extents = shape_of(indices)[-1], shape_of(eqn.outvars[0].aval)
    dtypes = dtype_name(indices), dtype_name(eqn.outvars[0].aval)
    return extents, dtypes, settings_of(take_index_list(eqn, "update_window_dims"))
