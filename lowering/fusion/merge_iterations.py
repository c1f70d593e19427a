"""Evaluates several iterations of an accumulating loop at once.

The iterations of such a loop share their weights, and their results are only added up. With few
rows per micro-batch every matrix product waits for its weights to come from memory; side by side,
several micro-batches read them once. Sums of gradients become longer contractions, so the result
is the same up to the order in which numbers are added.
"""

from __future__ import annotations

import dataclasses as dc
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from lowering.avals import size_in_bytes
from lowering.equations import function_of, sliced, variables, walk
from lowering.jaxpr import Atom, ClosedJaxpr, JaxprEqn, Literal, Var, bind_equation
from lowering.pipelines.slices import needed_for, read_from_outside
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
    if any(map(_is_unfit, walk(jaxpr))):
        return None
    makers = {var: eqn for eqn in jaxpr.eqns for var in eqn.outvars}
    read = (*(a for eqn in jaxpr.eqns for a in eqn.invars), *jaxpr.outvars)
    uses = Counter(a for a in read if not isinstance(a, Literal))
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
    iteration = Accumulation(closed, state, elements, tuple(added))
    return iteration if _stacked_bytes(iteration) <= MAXIMUM_STACKED_BYTES else None


def _term(eqn: JaxprEqn, var: Var) -> Atom | None:
    """What an equation adds to a variable, if that is what it does."""
    if eqn.primitive.name not in ("add", "add_any") or var not in variables(eqn.invars):
        return None
    first, second = eqn.invars
    return second if first is var else first


def _is_unfit(eqn: JaxprEqn) -> bool:
    name = eqn.primitive.name
    return bool(eqn.effects) or name in _UNFIT or "callback" in name


def merging_pays(arithmetic: float, size: int) -> bool:
    """Whether iterations are better evaluated side by side.

    Args:
      arithmetic: operations of one iteration.
      size: bytes of what is added up, about those of the weights.
    """
    return size >= MINIMUM_BYTES and arithmetic < MAXIMUM_OPERATIONS_PER_BYTE * size


def _stacked_bytes(iteration: Accumulation) -> int:
    """Bytes of the sums' terms that are made for each iteration on its own."""
    tails = _tails(iteration)
    whole = {*variables(a for tail in tails if tail.product is None for a in tail.sources)}
    sources = [a for tail in tails for a in tail.sources if isinstance(a, Var)]
    return sum(size_in_bytes(var.aval) for var in sources if var in whole)


@dc.dataclass(frozen=True, slots=True)
class _Tail:
    """How a sum's term comes from values that are cheap to stack.

    Attributes:
      chain: the equations to run on the sum of their operands, last one first.
      product: the matrix product at the end of the chain, if there is one.
      sources: what must be had for each iteration: the product's operands, or what the chain
        starts from.
    """

    chain: list[JaxprEqn]
    product: JaxprEqn | None
    sources: list[Atom]


def _tails(iteration: Accumulation) -> list[_Tail]:
    makers = {var: eqn for eqn in iteration.jaxpr.jaxpr.eqns for var in eqn.outvars}
    return [_tail(term, makers) for term in iteration.added if term is not None]


def _tail(term: Atom, makers: Mapping[Var, JaxprEqn]) -> _Tail:
    chain: list[JaxprEqn] = []
    eqn = None if isinstance(term, Literal) else makers.get(term)
    while eqn is not None and _is_linear(eqn):
        chain.append(eqn)
        term = eqn.invars[0]
        eqn = makers.get(term)
    if eqn is not None and eqn.primitive.name == "dot_general":
        return _Tail(chain, eqn, eqn.invars)
    return _Tail(chain, None, [term])


def _is_linear(eqn: JaxprEqn) -> bool:
    name = eqn.primitive.name
    if name == "mul":
        return not isinstance(eqn.invars[0], Literal) and isinstance(eqn.invars[1], Literal)
    return name in _LINEAR and not isinstance(eqn.invars[0], Literal)


class Merged:
    """Several iterations, called with flat arrays.

    Args:
      iteration: one of them.
      count: how many there are.
      outside: what the caller calls the values from outside.
    """

    def __init__(self, iteration: Accumulation, count: int, outside: Sequence[Any] = ()):
        self.outside = tuple(outside)
        self.iteration, self.count, self.tails = iteration, count, _tails(iteration)
        jaxpr = iteration.jaxpr.jaxpr
        self.plain = [
            out for out, term in zip(jaxpr.outvars, iteration.added, strict=False) if term is None
        ]
        self.sources = [atom for tail in self.tails for atom in tail.sources]
        wanted = [*self.sources, *self.plain, *jaxpr.outvars[iteration.state :]]
        eqns = needed_for(jaxpr.eqns, wanted)
        self.reads = read_from_outside(eqns, wanted)
        self.body = sliced(jaxpr, self.reads, wanted, eqns)

    def __call__(self, *flat: Any) -> list[Any]:
        """Loop variables, stacked elements, outside -> new loop variables, stacked results."""
        iteration, jaxpr = self.iteration, self.iteration.jaxpr.jaxpr
        values = dict(zip(jaxpr.constvars, iteration.jaxpr.consts, strict=True))
        values.update(zip(jaxpr.invars, flat, strict=True))
        elements = set(jaxpr.invars[iteration.state : iteration.state + iteration.elements])
        axes = tuple(0 if v in elements else None for v in self.reads)

        each = jax.vmap(function_of(self.body), in_axes=axes, axis_size=self.count)
        stacked = each(*(values[v] for v in self.reads))
        first, last = len(self.sources), len(self.sources) + len(self.plain)
        sources, plain = iter(stacked[:first]), iter(stacked[first:last])
        terms = (_summed(tail, sources) for tail in self.tails)
        state = [
            next(plain)[-1] if term is None else value + next(terms)
            for value, term in zip(flat, iteration.added, strict=False)
        ]
        return [*state, *stacked[last:]]


def _summed(tail: _Tail, sources: Iterator[jax.Array]) -> jax.Array:
    """The sum over the iterations of one term."""
    source = next(sources)
    if tail.product is None:
        total = jnp.sum(source, axis=0, dtype=source.dtype)
    else:
        total = _contracted(tail.product, source, next(sources))
    for eqn in reversed(tail.chain):
        operands = [total, *(a.val for a in eqn.invars[1:] if isinstance(a, Literal))]
        (total,) = bind_equation(eqn, operands)
    return total


def _contracted(eqn: JaxprEqn, left: jax.Array, right: jax.Array) -> jax.Array:
    """The sum of the iterations' matrix products, as one product that contracts over them too."""
    (left_axes, right_axes), (left_batch, right_batch) = eqn.params["dimension_numbers"]

    def moved(axes: Sequence[int]) -> tuple[int, ...]:
        return tuple(axis + 1 for axis in axes)

    contracted = (0, *moved(left_axes)), (0, *moved(right_axes))
    numbers = contracted, (moved(left_batch), moved(right_batch))
    kept = {name: eqn.params[name] for name in ("precision", "preferred_element_type")}
    return lax.dot_general(left, right, numbers, **kept)
