"""The parameters that the segments of a function read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.pipelines.function_segments import Step
from ipujax.pipelines.micro_batch_arguments import ArgumentLeaf, Role
from ipujax.pipelines.staged_model import dtype_of_sum
from ipujax.pipelines.traced_function import TracedFunction
from lowering import jaxpr, pipelines, size_in_bytes

_PARAMETERS = (Role.DIFFERENTIATED, Role.WHOLE)


def bytes_of_parameters(
    function: TracedFunction, parts: Sequence[Sequence[Step]]
) -> tuple[list[float], tuple[tuple[int, int, float], ...]]:
    """Returns the bytes of the parameters that each segment is the first to read.

    What is differentiated counts with the sum of its gradients. And those that a later segment
    reads too, as `Costs.tied_bytes`.
    """
    leaves = function.leaves_by_variable()
    sources = _parameters_behind_variables(function, parts)
    last_reader: dict[jaxpr.Var, int] = {}
    tied: dict[tuple[int, int], float] = {}
    sizes = [0.0] * len(parts)
    for number, part in enumerate(parts):
        for leaf, read_share in _list_reads(part, sources):
            size = read_share * _bytes_of_leaf(leaves[leaf])
            reader_before = last_reader.get(leaf)
            if reader_before is None or read_share < 1:
                sizes[number] += size
            elif reader_before < number:
                pair = reader_before, number
                tied[pair] = tied.get(pair, 0.0) + size
            if read_share == 1:
                last_reader[leaf] = number
    return sizes, tuple((*pair, size) for pair, size in tied.items())


def _list_reads(
    part: Sequence[Step], sources: Mapping[jaxpr.Var, Sequence[jaxpr.Var]]
) -> Iterator[tuple[jaxpr.Var, float]]:
    """Lists the parameters that a segment reads, and the share of each."""
    for step in part:
        stacked, length = _find_stacked_operands(step)
        for atom in step.eqn.invars:
            for leaf in sources.get(atom, ()) if isinstance(atom, jaxpr.Var) else ():
                yield leaf, 1 / length if atom in stacked else 1.0


def _bytes_of_leaf(leaf: ArgumentLeaf) -> float:
    aval = jax.typeof(leaf.value)
    if leaf.role is not Role.DIFFERENTIATED:
        return float(size_in_bytes(aval))
    return float(size_in_bytes(aval) + aval.size * jnp.dtype(dtype_of_sum(aval)).itemsize)


def _find_stacked_operands(step: Step) -> tuple[set[Any], int]:
    """Returns the operands of which each iteration of a step's scan reads a slice."""
    if step.iteration is None:
        return set(), 1
    num_consts, num_carry = jaxpr.count_scan_constants_and_variables(step.eqn)
    stacked = step.eqn.invars[num_consts + num_carry :]
    return {v for v in stacked if isinstance(v, jaxpr.Var)}, step.eqn.params["length"]


def _parameters_behind_variables(
    function: TracedFunction, parts: Sequence[Sequence[Step]]
) -> dict[jaxpr.Var, tuple[jaxpr.Var, ...]]:
    """Returns the parameters of which each variable is made, by what is in no segment."""
    in_parts = {id(step.eqn) for part in parts for step in part}
    leaves = function.leaves_by_variable()
    sources = {v: (v,) for v, leaf in leaves.items() if leaf.role in _PARAMETERS}
    for eqn in function.closed.jaxpr.eqns:
        if id(eqn) not in in_parts:
            origins = [
                s for v in pipelines.unique_variables(eqn.invars) for s in sources.get(v, ())
            ]
            sources |= dict.fromkeys(eqn.outvars, tuple(dict.fromkeys(origins)))
    return sources
