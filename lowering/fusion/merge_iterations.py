"""The evaluation of several iterations of an accumulating loop at once.

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

from lowering.jaxprs import (
    Atom,
    ClosedJaxpr,
    JaxprEqn,
    Literal,
    Var,
    bind_equation,
    count_operations,
    function_of_jaxpr,
    jaxpr_of_equations,
    size_in_bytes,
    typed_jax,
    unique_variables,
    walk_equations,
)
from lowering.pipelines import select_equations_for, variables_read_from_outside

# Measured on CPUs: merging pays where the weights do not fit the caches, and where a micro-batch
# does too little with them to hide the time that they take to arrive.
MINIMUM_BYTES = 8 << 20
MAXIMUM_OPERATIONS_PER_BYTE = 128.0
# A term that is no product of two varying operands is made for each iteration, then summed.
MAXIMUM_STACKED_BYTES = 4 << 20
MERGES = (8, 4, 2)

_LINEAR = frozenset({"transpose", "reshape", "neg", "copy"})
# Primitives that, vectorized, do more work than one after the other, or other work.
_UNFIT = frozenset({"while", "cond", "conv_general_dilated", "scatter", "scatter-add", "sort"})


@dc.dataclass(frozen=True, slots=True)
class Accumulation:
    """An iteration whose loop variables stay, are replaced, or are added to.

    Attributes:
      jaxpr: one iteration: loop variables, elements, outside values -> loop variables, results.
      state: the number of loop variables.
      elements: the number of elements.
      added: for each loop variable, the term that is added to it; None for the others.
    """

    jaxpr: ClosedJaxpr
    state: int
    elements: int
    added: tuple[Atom | None, ...]


def match_accumulating_iteration(
    closed: ClosedJaxpr, state: int, elements: int
) -> Accumulation | None:
    """Returns an iteration in a form that can be merged with others, or None."""
    jaxpr = closed.jaxpr
    if any(map(_cannot_be_merged, walk_equations(jaxpr))):
        return None
    producer_of_variable = {var: eqn for eqn in jaxpr.eqns for var in eqn.outvars}
    read = (*(a for eqn in jaxpr.eqns for a in eqn.invars), *jaxpr.outvars)
    uses = Counter(a for a in read if not isinstance(a, Literal))
    terms: list[Atom | None] = []
    accumulators: list[Var] = []
    for var, out in zip(jaxpr.invars[:state], jaxpr.outvars[:state], strict=True):
        eqn = None if isinstance(out, Literal) else producer_of_variable.get(out)
        term = None if eqn is None else _term_added_to(eqn, var)
        if isinstance(out, Var) and term is not None and uses[var] == 1 and uses[out] == 1:
            terms.append(term)
            accumulators.append(var)
        elif out is var or not uses[var]:
            terms.append(None)  # unchanged, or what the last iteration leaves
        else:
            return None  # every iteration needs what the one before it has made
    if not accumulators:
        return None
    if not is_merging_iterations_faster(
        count_operations(jaxpr), sum(size_in_bytes(v.aval) for v in accumulators)
    ):
        return None
    iteration = Accumulation(closed, state, elements, tuple(terms))
    return iteration if _count_stacked_bytes(iteration) <= MAXIMUM_STACKED_BYTES else None


def _term_added_to(eqn: JaxprEqn, var: Var) -> Atom | None:
    """Returns the term that an equation adds to a variable; None if it does not add."""
    if eqn.primitive.name not in ("add", "add_any") or var not in unique_variables(eqn.invars):
        return None
    first, second = eqn.invars
    return second if first is var else first


def _cannot_be_merged(eqn: JaxprEqn) -> bool:
    name = eqn.primitive.name
    return bool(eqn.effects) or name in _UNFIT or "callback" in name


def is_merging_iterations_faster(operations_per_iteration: float, accumulated_bytes: int) -> bool:
    """Returns whether iterations are faster side by side.

    Args:
      operations_per_iteration: arithmetic operations of one iteration.
      accumulated_bytes: bytes of the accumulators, about those of the weights.
    """
    return (
        accumulated_bytes >= MINIMUM_BYTES
        and operations_per_iteration < MAXIMUM_OPERATIONS_PER_BYTE * accumulated_bytes
    )


def _count_stacked_bytes(iteration: Accumulation) -> int:
    """Returns the bytes of the terms that are made for each iteration on its own."""
    tails = _find_linear_tails_of_terms(iteration)
    stacked_variables = {
        *unique_variables(a for tail in tails if tail.product is None for a in tail.sources)
    }
    sources = [a for tail in tails for a in tail.sources if isinstance(a, Var)]
    return sum(size_in_bytes(var.aval) for var in sources if var in stacked_variables)


@dc.dataclass(frozen=True, slots=True)
class _Tail:
    """The equations that make a sum's term from values that are cheap to stack.

    Attributes:
      chain: the equations to run on the sum of their operands, last one first.
      product: the matrix product at the end of the chain, if there is one.
      sources: the values that every iteration makes: the product's operands, or the first
        operand of the chain.
    """

    chain: list[JaxprEqn]
    product: JaxprEqn | None
    sources: list[Atom]


def _find_linear_tails_of_terms(iteration: Accumulation) -> list[_Tail]:
    producer_of_variable = {var: eqn for eqn in iteration.jaxpr.jaxpr.eqns for var in eqn.outvars}
    return [
        _find_linear_tail_of_term(term, producer_of_variable)
        for term in iteration.added
        if term is not None
    ]


def _find_linear_tail_of_term(term: Atom, producer_of_variable: Mapping[Var, JaxprEqn]) -> _Tail:
    chain: list[JaxprEqn] = []
    eqn = None if isinstance(term, Literal) else producer_of_variable.get(term)
    while eqn is not None and _is_linear_equation(eqn):
        chain.append(eqn)
        term = eqn.invars[0]
        eqn = None if isinstance(term, Literal) else producer_of_variable.get(term)
    if eqn is not None and eqn.primitive.name == "dot_general":
        return _Tail(chain, eqn, eqn.invars)
    return _Tail(chain, None, [term])


def _is_linear_equation(eqn: JaxprEqn) -> bool:
    name = eqn.primitive.name
    if name == "mul":
        return not isinstance(eqn.invars[0], Literal) and isinstance(eqn.invars[1], Literal)
    return name in _LINEAR and not isinstance(eqn.invars[0], Literal)


class MergedIterations:
    """Several iterations of a loop as one function of flat arrays.

    Args:
      iteration: one iteration.
      count: the number of iterations.
      outside: the caller's names of the values from outside.
    """

    def __init__(self, iteration: Accumulation, count: int, outside: Sequence[Any] = ()):
        self.outside = tuple(outside)
        self.iteration, self.count, self.tails = (
            iteration,
            count,
            _find_linear_tails_of_terms(iteration),
        )
        jaxpr = iteration.jaxpr.jaxpr
        self.plain = [
            out for out, term in zip(jaxpr.outvars, iteration.added, strict=False) if term is None
        ]
        self.sources = [atom for tail in self.tails for atom in tail.sources]
        results = [*self.sources, *self.plain, *jaxpr.outvars[iteration.state :]]
        eqns = select_equations_for(jaxpr.eqns, results)
        self.reads = variables_read_from_outside(eqns, results)
        self.body = jaxpr_of_equations(jaxpr, self.reads, results, eqns)

    def __call__(self, *flat: Any) -> list[Any]:
        """Returns the new loop variables and the stacked results of all iterations."""
        iteration, jaxpr = self.iteration, self.iteration.jaxpr.jaxpr
        values = dict(zip(jaxpr.constvars, iteration.jaxpr.consts, strict=True))
        values.update(zip(jaxpr.invars, flat, strict=True))
        elements = set(jaxpr.invars[iteration.state : iteration.state + iteration.elements])
        axes = tuple(0 if v in elements else None for v in self.reads)

        run_all_iterations = jax.vmap(
            function_of_jaxpr(self.body), in_axes=axes, axis_size=self.count
        )
        stacked = run_all_iterations(*(values[v] for v in self.reads))
        first, last = len(self.sources), len(self.sources) + len(self.plain)
        sources, plain = iter(stacked[:first]), iter(stacked[first:last])
        terms = (_sum_term(tail, sources) for tail in self.tails)
        state = [
            next(plain)[-1] if term is None else value + next(terms)
            for value, term in zip(flat, iteration.added, strict=False)
        ]
        return [*state, *stacked[last:]]


def _sum_term(tail: _Tail, sources: Iterator[jax.Array]) -> jax.Array:
    """Returns the sum of one term over the iterations."""
    source = next(sources)
    if tail.product is None:
        total = jnp.sum(source, axis=0, dtype=source.dtype)
    else:
        total = _contract_over_iterations(tail.product, source, next(sources))
    for eqn in reversed(tail.chain):
        operands = [total, *(a.val for a in eqn.invars[1:] if isinstance(a, Literal))]
        (total,) = bind_equation(eqn, operands)
    return total


def _contract_over_iterations(
    eqn: JaxprEqn, left_operand: jax.Array, right_operand: jax.Array
) -> jax.Array:
    """Returns the sum of the iterations' matrix products, as one that contracts over them too."""
    (left_axes, right_axes), (left_batch, right_batch) = eqn.params["dimension_numbers"]

    def shift_axes(axes: Sequence[int]) -> tuple[int, ...]:
        return tuple(axis + 1 for axis in axes)

    contracted_axes = (0, *shift_axes(left_axes)), (0, *shift_axes(right_axes))
    dimension_numbers = contracted_axes, (shift_axes(left_batch), shift_axes(right_batch))
    other_params = {name: eqn.params[name] for name in ("precision", "preferred_element_type")}
    return typed_jax.dot_general(left_operand, right_operand, dimension_numbers, **other_params)
