"""The choice between keeping values for a backward pass and computing them again.

A value can be kept, or computed again from others that are available; the kept values shall have as
few bytes as possible. That is a minimum cut: bytes flow from the values that must not be computed
again, through the equations that may run twice, to the values that the backward pass reads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from lowering.jaxprs import (
    ELEMENTWISE,
    JaxprEqn,
    Var,
    body_of_call,
    size_in_bytes,
    unique_variables,
)
from lowering.keeping.minimum_cut import UNBOUNDED, Network

_MOVING = frozenset({
    "broadcast_in_dim", "concatenate", "expand_dims", "iota", "pad", "reshape", "rev", "slice",
    "split", "squeeze", "transpose",
})  # fmt: skip


def is_cheap_to_recompute(eqn: JaxprEqn) -> bool:
    """Returns whether an equation may run twice to save memory: elementwise, or moves data."""
    if eqn.effects:
        return False
    body = body_of_call(eqn)
    if body is not None:
        return all(map(is_cheap_to_recompute, body.jaxpr.eqns))
    return eqn.primitive.name in ELEMENTWISE or eqn.primitive.name in _MOVING


def select_equations_to_recompute(
    eqns: Sequence[JaxprEqn],
    required: Collection[Var],
    available: Collection[Var],
    may_run_twice: Callable[[JaxprEqn], bool] = is_cheap_to_recompute,
) -> list[JaxprEqn]:
    """Returns the equations to run once more, so that the fewest bytes must be kept.

    Where choices keep as many bytes, the one that runs fewer equations again is taken.

    Args:
      eqns: the equations that make the values, in order.
      required: the values that are read later.
      available: the values that the reader has in any case.
      may_run_twice: returns whether an equation may run twice.

    Returns:
      The equations, in order. They and the later readers read available values, recomputed values,
      and the values to be kept.
    """
    producer_of_variable = {var: eqn for eqn in eqns if may_run_twice(eqn) for var in eqn.outvars}
    recomputed = _choose_recomputed_values(
        producer_of_variable, set(required).difference(available), available
    )
    return [eqn for eqn in eqns if not recomputed.isdisjoint(eqn.outvars)]


def _choose_recomputed_values(
    producer_of_variable: Mapping[Var, JaxprEqn],
    required: Collection[Var],
    available: Collection[Var],
) -> set[Var]:
    network = Network()
    source, sink = network.add_network_node(), network.add_network_node()
    # A value behind the cut is available; its equation is behind it too if it runs again.
    node_of_value: dict[Var, int] = {}
    node_of_equation: dict[Var, int] = {}
    for var in _values_behind_requirements(producer_of_variable, required, available):
        node_of_value[var], node_of_equation[var] = (
            network.add_network_node(),
            network.add_network_node(),
        )
        network.add_arc(node_of_equation[var], node_of_value[var], size_in_bytes(var.aval))
    for var, value in node_of_value.items():
        if var in required:
            network.add_arc(value, sink, UNBOUNDED)
        if var not in producer_of_variable:
            network.add_arc(source, node_of_equation[var], UNBOUNDED)
            continue
        for operand in unique_variables(producer_of_variable[var].invars):
            if operand not in available:
                network.add_arc(node_of_value[operand], node_of_equation[var], UNBOUNDED)
    sink_side = network.nodes_behind_minimum_cut(source, sink)
    return {
        var
        for var, node in node_of_equation.items()
        if node in sink_side and var in producer_of_variable
    }


def _values_behind_requirements(
    producer_of_variable: Mapping[Var, JaxprEqn],
    required: Collection[Var],
    available: Collection[Var],
) -> list[Var]:
    """Returns the required values, and all values they can be computed from, each once."""
    reachable = dict.fromkeys(required)
    waiting = list(reachable)
    while waiting:
        producer = producer_of_variable.get(waiting.pop())
        for operand in unique_variables(producer.invars) if producer is not None else ():
            if operand not in reachable and operand not in available:
                reachable[operand] = None
                waiting.append(operand)
    return list(reachable)


def insert_recomputation_before_readers(
    recomputed_eqns: Sequence[JaxprEqn], backward_eqns: Sequence[JaxprEqn]
) -> list[JaxprEqn]:
    """Merges recomputed equations into the backward pass, each before its first reader.

    So a recomputed value does not wait for its readers any longer than it must.
    """
    position_of_first_reader: dict[Var, int] = {}
    for position, eqn in enumerate(backward_eqns):
        for var in unique_variables(eqn.invars):
            position_of_first_reader.setdefault(var, position)
    positions: list[int] = []
    for eqn in reversed(recomputed_eqns):
        positions.append(
            min(position_of_first_reader.get(var, len(backward_eqns)) for var in eqn.outvars)
        )
        for var in unique_variables(eqn.invars):
            position_of_first_reader[var] = min(
                positions[-1], position_of_first_reader.get(var, len(backward_eqns))
            )
    positioned_eqns = [
        *zip(reversed(positions), recomputed_eqns, strict=True),
        *enumerate(backward_eqns),
    ]
    return [eqn for _, eqn in sorted(positioned_eqns, key=lambda entry: entry[0])]
