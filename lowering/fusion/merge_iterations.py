"""Evaluates several iterations of an accumulating loop at once.

The iterations of such a loop share their weights, and their results are only added up. With few
rows per micro-batch every matrix product waits for its weights to come from memory; side by side,
several micro-batches read them once. Sums of gradients become longer contractions, so the result
is the same up to the order in which numbers are added.
"""

from __future__ import annotations

import dataclasses as dc
from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from lowering.avals import size_in_bytes
from lowering.jaxpr import (
    Atom,
    ClosedJaxpr,
    JaxprEqn,
    Literal,
    Var,
    bind_equation,
    run_equations,
    sub_jaxprs,
)
from lowering.pipelines.slices import dependent, needed_for, read_from_outside, sliced, variables
from lowering.workload import count_operations

# Measured on CPUs: merging pays where the weights do not fit the caches, and where a micro-batch
# does too little with them to hide the time that they take to arrive.
MINIMUM_BYTES = 8 << 20
MAXIMUM_OPERATIONS_PER_BYTE = 128.0
# What is not a product of two varying operands is summed after it has been made for each.
MAXIMUM_STACKED_BYTES = 4 << 20
MERGES = (8, 4, 2)

_LINEAR = frozenset({"transpose", "reshape", "neg", "copy"})
# Vectorized, these do more work than one after the other, or other work.
_UNFIT = frozenset({"while", "cond", "conv_general_dilated", "scatter", "scatter-add", "sort"})


@dc.dataclass(frozen=True, slots=True)
class Accumulation:
    """An iteration whose loop variables are kept, replaced, or added to.

    Attributes:
      jaxpr: of one iteration: loop variables, elements, what is outside -> loop variables, results.
      state: how many loop variables.
      elements: how many elements.
      added: for each loop variable, what is added to it; None for the others.
    """

    jaxpr: ClosedJaxpr
    state: int
    elements: int
    added: tuple[Atom | None, ...]


def as_accumulation(closed: ClosedJaxpr, state: int, elements: int) -> Accumulation | None:
    """An iteration as one that can be merged with others, if it can and should be."""
    jaxpr = closed.jaxpr
    if any(map(_is_unfit, jaxpr.eqns)):
        return None
    makers = {var: eqn for eqn in jaxpr.eqns for var in eqn.outvars}
    uses = Counter(v for eqn in jaxpr.eqns for v in eqn.invars if not isinstance(v, Literal))
    uses.update(v for v in jaxpr.outvars if not isinstance(v, Literal))
    added: list[Atom | None] = []
    sums: list[Var] = []
    for var, out in zip(jaxpr.invars[:state], jaxpr.outvars[:state], strict=True):
        eqn = None if isinstance(out, Literal) else makers.get(out)
        term = None if eqn is None else _term(eqn, var)
        if term is not None and uses[var] == 1 and uses[out] == 1:
            added.append(term)
            sums.append(var)
        elif out is var or not uses[var]:
            added.append(None)  # unchanged, or what the last iteration leaves
        else:
            return None  # every iteration needs what the one before it has made
    if not sums:
        return None
    if not merging_pays(count_operations(jaxpr), sum(size_in_bytes(v.aval) for v in sums)):
        return None
    found = Accumulation(closed, state, elements, tuple(added))
    return found if _stacked_bytes(found) <= MAXIMUM_STACKED_BYTES else None


def _term(eqn: JaxprEqn, var: Var) -> Atom | None:
    """What an equation adds to a variable, if that is what it does."""
    if eqn.primitive.name not in ("add", "add_any") or var not in variables(eqn.invars):
        return None
    first, second = eqn.invars
    return second if first is var else first


def _is_unfit(eqn: JaxprEqn) -> bool:
    if eqn.effects or eqn.primitive.name in _UNFIT or "callback" in eqn.primitive.name:
        return True
    return any(map(_is_unfit, (e for body in sub_jaxprs(eqn) for e in body.eqns)))


def merging_pays(arithmetic: float, size: int) -> bool:
    """Whether iterations are better evaluated side by side.

    Args:
      arithmetic: operations of one iteration.
      size: bytes of what is added up, about those of the weights.
    """
    return size >= MINIMUM_BYTES and arithmetic < MAXIMUM_OPERATIONS_PER_BYTE * size


def _stacked_bytes(found: Accumulation) -> int:
    """Bytes of the sums' terms that are made for each iteration on its own."""
    tails = _Tails(found)
    return sum(
        size_in_bytes(a.aval) for a in tails.sources if isinstance(a, Var) and a in tails.whole
    )


class _Tails:
    """How each sum's term comes from values that are cheap to stack.

    Attributes:
      chains: for each term, the equations to run on the sum of their operands, last one first.
      products: for each term, the matrix product at the end of its chain, if there is one.
      sources: what must be had for each iteration.
      whole: those sources that are terms themselves, or lead to one by a chain.
    """

    def __init__(self, found: Accumulation):
        jaxpr = found.jaxpr.jaxpr
        self.makers = {var: eqn for eqn in jaxpr.eqns for var in eqn.outvars}
        varying = jaxpr.invars[found.state : found.state + found.elements]
        self.varying = dependent(jaxpr.eqns, varying)
        self.chains: list[list[JaxprEqn]] = []
        self.products: list[JaxprEqn | None] = []
        self.sources: list[Atom] = []
        self.whole: set[Var] = set()
        for term in (a for a in found.added if a is not None):
            chain, source = self.chain(term)
            eqn = None if isinstance(source, Literal) else self.makers.get(source)
            is_product = eqn is not None and eqn.primitive.name == "dot_general"
            self.chains.append(chain)
            self.products.append(eqn if is_product else None)
            if is_product and eqn is not None:
                self.sources += eqn.invars
            else:
                self.sources.append(source)
                self.whole.update(variables([source]))

    def chain(self, term: Atom) -> tuple[list[JaxprEqn], Atom]:
        """The linear equations that end in a term, last one first, and what they start from."""
        chain: list[JaxprEqn] = []
        while not isinstance(term, Literal) and term in self.makers:
            eqn = self.makers[term]
            if not _is_linear(eqn):
                break
            chain.append(eqn)
            term = eqn.invars[0]
        return chain, term


def _is_linear(eqn: JaxprEqn) -> bool:
    name = eqn.primitive.name
    if name == "mul":
        return not isinstance(eqn.invars[0], Literal) and isinstance(eqn.invars[1], Literal)
    return name in _LINEAR and not isinstance(eqn.invars[0], Literal)


class Merged:
    """Several iterations, called with flat arrays.

    Args:
      found: one iteration.
      count: how many of them.
      outside: what the caller calls the values from outside.
    """

    def __init__(self, found: Accumulation, count: int, outside: Sequence[Any] = ()):
        self.outside = tuple(outside)
        self.found, self.count, self.tails = found, count, _Tails(found)
        jaxpr = found.jaxpr.jaxpr
        self.plain = [
            out for out, term in zip(jaxpr.outvars, found.added, strict=False) if term is None
        ]
        self.results = list(jaxpr.outvars[found.state :])
        self.wanted = [*self.tails.sources, *self.plain, *self.results]
        eqns = needed_for(jaxpr.eqns, self.wanted)
        self.reads = read_from_outside(eqns, self.wanted)
        self.body = sliced(jaxpr, self.reads, self.wanted, eqns)

    def __call__(self, *flat: Any) -> list[Any]:
        """Loop variables, stacked elements, outside -> new loop variables, stacked results."""
        found, jaxpr = self.found, self.found.jaxpr.jaxpr
        values = dict(zip(jaxpr.constvars, found.jaxpr.consts, strict=True))
        values.update(zip(jaxpr.invars, flat, strict=True))
        elements = set(jaxpr.invars[found.state : found.state + found.elements])
        axes = tuple(0 if v in elements else None for v in self.reads)

        def one(*operands: Any) -> list[Any]:
            return run_equations(self.body.jaxpr, (), operands)

        each = jax.vmap(one, in_axes=axes, axis_size=self.count)
        stacked = each(*(values[v] for v in self.reads))
        first = len(self.tails.sources)
        sources = iter(stacked[:first])
        plain = iter(stacked[first : first + len(self.plain)])
        terms = iter(self.term(i, sources) for i in range(len(self.tails.chains)))
        state = [
            next(plain)[-1] if term is None else value + next(terms)
            for value, term in zip(flat, found.added, strict=False)
        ]
        return [*state, *stacked[first + len(self.plain) :]]

    def term(self, number: int, sources: Any) -> Any:
        """The sum over the iterations of one term."""
        product = self.tails.products[number]
        if product is None:
            source = next(sources)
            total = jnp.sum(source, axis=0, dtype=source.dtype)
        else:
            total = _contracted(product, next(sources), next(sources))
        for eqn in reversed(self.tails.chains[number]):
            operands = [total, *(a.val for a in eqn.invars[1:] if isinstance(a, Literal))]
            (total,) = bind_equation(eqn, operands)
        return total


def _contracted(eqn: JaxprEqn, left: Any, right: Any) -> Any:
    """The sum of the iterations' matrix products, as one product that contracts over them too."""
    (left_axes, right_axes), (left_batch, right_batch) = eqn.params["dimension_numbers"]

    def moved(axes: Sequence[int]) -> tuple[int, ...]:
        return tuple(axis + 1 for axis in axes)

    numbers = (
        ((0, *moved(left_axes)), (0, *moved(right_axes))),
        (moved(left_batch), moved(right_batch)),
    )
    return lax.dot_general(
        left,
        right,
        numbers,
        precision=eqn.params["precision"],
        preferred_element_type=eqn.params["preferred_element_type"],
    )
