"""Makes one update of several that are added up, such as the gradients of one table's lookups."""

from __future__ import annotations

import collections
import dataclasses as dc
import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from jax import lax

from lowering import ir
from lowering.avals import dtype_name, shape_of
from lowering.equations import fills_with_zeros
from lowering.jaxpr import Atom, ClosedJaxpr, JaxprEqn, Literal, Var
from lowering.passes.rewrite import Anywhere, Rewriter
from lowering.passes.together import in_kernels, settings_of

_SUMS = ("add", "add_any")


def combine_updates(program: ir.Program) -> ir.Program:
    """Combines updates of zeros that are only added up.

    Before: every lookup's gradient is a `scatter-add` of its rows to zeros as large as the table,
            and the table's gradient the sum of these.
    After:  in each kernel, and each body inside, those of one sum that differ in nothing but how
            many rows they have are one `scatter-add` of all their rows. Numbers differ by rounding,
            since the sum has another order.
    """
    return in_kernels(program, Anywhere(_is_update), _combined)


def _is_update(eqn: JaxprEqn) -> bool:
    """Whether an equation adds rows to a table, with the rows' dimensions behind all others."""
    if eqn.primitive is not lax.scatter_add_p:
        return False
    batch = len(shape_of(eqn.invars[1].aval)) - 1
    rank = len(shape_of(eqn.invars[2].aval))
    numbers: lax.ScatterDimensionNumbers = eqn.params["dimension_numbers"]
    window = tuple(numbers.update_window_dims)
    return not numbers.operand_batching_dims and window == tuple(range(batch, rank))


def _of_a_list(eqn: JaxprEqn) -> JaxprEqn:
    """An update as it is of a list of rows, [count, *row]."""
    numbers: lax.ScatterDimensionNumbers = eqn.params["dimension_numbers"]
    window = tuple(range(1, 1 + len(numbers.update_window_dims)))
    listed = numbers._replace(update_window_dims=window)
    params = {**eqn.params, "dimension_numbers": listed}
    return eqn.replace(params={**params, "indices_are_sorted": False, "unique_indices": False})


def _combined(closed: ClosedJaxpr) -> ClosedJaxpr | None:
    eqns = closed.jaxpr.eqns
    sums = _Sums(eqns, closed.jaxpr.outvars)
    totals = {eqn.outvars[0]: total for eqn in eqns if (total := sums.total(eqn)) is not None}
    if not totals:
        return None
    gone = {var for total in totals.values() for var in total.gone}
    rewriter = Rewriter(closed.jaxpr)
    for eqn in eqns:
        if (total := totals.get(eqn.outvars[0]) if eqn.outvars else None) is not None:
            rewriter.trace(eqn.replace(invars=total.operands), total.function)
        elif gone.isdisjoint(eqn.outvars):
            rewriter.keep(eqn)
    return rewriter.closed(closed.consts)


@dc.dataclass(frozen=True, slots=True)
class _Total:
    """A sum with fewer terms.

    Attributes:
      terms: those that stay as they are.
      updates: for each that takes the place of several, these.
      gone: what nobody reads any more.
    """

    terms: list[Atom]
    updates: list[list[JaxprEqn]]
    gone: Sequence[Atom]

    @property
    def operands(self) -> list[Atom]:
        """What `function` takes: the terms, and of each update zeros, indices and rows."""
        flat = list(self.terms)
        for together in self.updates:
            flat.append(together[0].invars[0])
            flat += [eqn.invars[operand] for operand in (1, 2) for eqn in together]
        return flat

    @property
    def function(self) -> Callable[..., Any]:
        """The sum."""

        def total(*operands: Any) -> Any:
            waiting = iter(operands)
            terms = [next(waiting) for _ in self.terms]
            for together in self.updates:
                zeros = next(waiting)
                indices, rows = ([next(waiting) for _ in together] for _ in range(2))
                terms.append(_updated(together[0], zeros, indices, rows))
            return functools.reduce(lax.add, terms)

        return total


def _updated(eqn: JaxprEqn, zeros: Any, indices: Sequence[Any], rows: Sequence[Any]) -> Any:
    """The update of a list of all rows."""
    params = _of_a_list(eqn).params
    window = len(params["dimension_numbers"].update_window_dims)
    where = [index.reshape(-1, index.shape[-1]) for index in indices]
    what = [row.reshape(-1, *row.shape[row.ndim - window :]) for row in rows]
    operands = zeros, lax.concatenate(where, 0), lax.concatenate(what, 0)
    return eqn.primitive.bind(*operands, **params)


class _Sums:
    """The sums of a body."""

    def __init__(self, eqns: Sequence[JaxprEqn], results: Sequence[Atom]):
        self._made = {var: eqn for eqn in eqns for var in eqn.outvars}
        read = (atom for atoms in (*(eqn.invars for eqn in eqns), results) for atom in atoms)
        self._reads = collections.Counter(a for a in read if not isinstance(a, Literal))
        sums = [eqn for eqn in eqns if eqn.primitive.name in _SUMS]
        self._inside = {id(self._only(a)) for eqn in sums for a in eqn.invars}

    def total(self, eqn: JaxprEqn) -> _Total | None:
        """An outermost sum, if several updates in it can be one."""
        if eqn.primitive.name not in _SUMS or id(eqn) in self._inside:
            return None
        terms, gone = self._terms(eqn)
        groups: dict[Hashable, list[JaxprEqn]] = {}
        for term in terms:
            update = self._only(term)
            if update is not None and self._starts_from_zeros(update):
                groups.setdefault(_key(update), []).append(update)
        updates = [group for group in groups.values() if len(group) > 1]
        if not updates:
            return None
        together = {update.outvars[0] for group in updates for update in group}
        zeros = {update.invars[0] for group in updates for update in group[1:]}
        gone += [*together, *(var for var in zeros if self._only(var))]
        return _Total([term for term in terms if term not in together], updates, gone)

    def _only(self, atom: Atom) -> JaxprEqn | None:
        """The equation that makes what nobody else reads."""
        if isinstance(atom, Literal) or self._reads[atom] != 1:
            return None
        return self._made.get(atom)

    def _terms(self, eqn: JaxprEqn) -> tuple[list[Atom], list[Atom]]:
        """What a sum adds up, in order, and the sums inside."""
        terms: list[Atom] = []
        inside: list[Atom] = []
        waiting = list(reversed(eqn.invars))
        while waiting:
            term = waiting.pop()
            maker = self._only(term)
            if maker is not None and maker.primitive.name in _SUMS:
                inside += maker.outvars
                waiting += reversed(maker.invars)
            else:
                terms.append(term)
        return terms, inside

    def _starts_from_zeros(self, eqn: JaxprEqn) -> bool:
        """Whether an equation adds rows to nothing."""
        table = eqn.invars[0] if _is_update(eqn) else None
        maker = self._made.get(table) if isinstance(table, Var) else None
        return maker is not None and fills_with_zeros(maker)


def _key(eqn: JaxprEqn) -> Hashable:
    """Equal for updates that can be one."""
    indices = eqn.invars[1].aval
    extents = shape_of(indices)[-1], shape_of(eqn.outvars[0].aval)
    dtypes = dtype_name(indices), dtype_name(eqn.outvars[0].aval)
    return extents, dtypes, settings_of(_of_a_list(eqn))
