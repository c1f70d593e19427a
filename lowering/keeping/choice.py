"""Which values are kept for a backward pass, and which are computed again.

A value can be kept, or made again of others that can be had; what is kept in all shall be as few
bytes as possible. That is a minimum cut: bytes flow from the values that must not be made again,
through the equations that may run twice, to the values that the backward pass reads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from lowering.avals import size_in_bytes
from lowering.equations import variables
from lowering.jaxpr import JaxprEqn, Var, call_body
from lowering.keeping.minimum_cut import UNBOUNDED, Network

# What every element of a result takes of one element of each operand, or that only moves data.
_ELEMENTWISE = frozenset({
    "abs", "acos", "acosh", "add", "add_any", "and", "asin", "asinh", "atan", "atan2", "atanh",
    "bitcast_convert_type", "cbrt", "ceil", "clamp", "convert_element_type", "copy", "cos", "cosh",
    "digamma", "div", "eq", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1", "floor", "ge", "gt",
    "integer_pow", "is_finite", "le", "lgamma", "log", "log1p", "logistic", "lt", "max", "min",
    "mul", "ne", "neg", "nextafter", "not", "or", "pow", "reduce_precision", "rem", "round",
    "rsqrt", "select_n", "shift_left", "shift_right_arithmetic", "shift_right_logical", "sign",
    "sin", "sinh", "sqrt", "square", "stop_gradient", "sub", "tan", "tanh", "xor",
})  # fmt: skip
_MOVING = frozenset({
    "broadcast_in_dim", "concatenate", "expand_dims", "iota", "pad", "reshape", "rev", "slice",
    "split", "squeeze", "transpose",
})  # fmt: skip


def is_cheap(eqn: JaxprEqn) -> bool:
    """Whether an equation may run twice to save memory: it is elementwise, or moves data only."""
    if eqn.effects:
        return False
    body = call_body(eqn)
    if body is not None:
        return all(map(is_cheap, body.jaxpr.eqns))
    return eqn.primitive.name in _ELEMENTWISE or eqn.primitive.name in _MOVING


def run_again(
    eqns: Sequence[JaxprEqn],
    required: Collection[Var],
    available: Collection[Var],
    may_run_twice: Callable[[JaxprEqn], bool] = is_cheap,
) -> list[JaxprEqn]:
    """The equations to be run once more, so that the fewest bytes must be kept.

    Where choices keep as many bytes, the one that runs fewer equations again is taken.

    Args:
      eqns: those that make the values, in order.
      required: what somebody reads later.
      available: what that reader has in any case.
      may_run_twice: which equations may.

    Returns:
      The equations, in order. They, and whoever reads the required values, read available values,
      those that are made again, and the ones to be kept.
    """
    makers = {var: eqn for eqn in eqns if may_run_twice(eqn) for var in eqn.outvars}
    made_again = _made_again(makers, set(required).difference(available), available)
    return [eqn for eqn in eqns if not made_again.isdisjoint(eqn.outvars)]


def _made_again(
    makers: Mapping[Var, JaxprEqn], required: Collection[Var], available: Collection[Var]
) -> set[Var]:
    network = Network()
    source, sink = network.node(), network.node()
    # A value that is behind the cut can be had; its maker is behind it too if it runs again.
    values: dict[Var, int] = {}
    runs: dict[Var, int] = {}
    for var in _behind(makers, required, available):
        values[var], runs[var] = network.node(), network.node()
        network.arc(runs[var], values[var], size_in_bytes(var.aval))
    for var, value in values.items():
        if var in required:
            network.arc(value, sink, UNBOUNDED)
        if var not in makers:
            network.arc(source, runs[var], UNBOUNDED)
            continue
        for operand in variables(makers[var].invars):
            if operand not in available:
                network.arc(values[operand], runs[var], UNBOUNDED)
    behind = network.sink_side(source, sink)
    return {var for var, node in runs.items() if node in behind and var in makers}


def _behind(
    makers: Mapping[Var, JaxprEqn], required: Collection[Var], available: Collection[Var]
) -> list[Var]:
    """The required values, and what they can be made of, each once."""
    found = dict.fromkeys(required)
    waiting = list(found)
    while waiting:
        maker = makers.get(waiting.pop())
        for operand in variables(maker.invars) if maker is not None else ():
            if operand not in found and operand not in available:
                found[operand] = None
                waiting.append(operand)
    return list(found)


def just_in_time(again: Sequence[JaxprEqn], behind: Sequence[JaxprEqn]) -> list[JaxprEqn]:
    """Both runs of equations as one, each of `again` in front of the first that needs it.

    So what is made again does not wait for its readers any longer than it must.
    """
    first: dict[Var, int] = {}
    for place, eqn in enumerate(behind):
        for var in variables(eqn.invars):
            first.setdefault(var, place)
    places: list[int] = []
    for eqn in reversed(again):
        places.append(min(first.get(var, len(behind)) for var in eqn.outvars))
        for var in variables(eqn.invars):
            first[var] = min(places[-1], first.get(var, len(behind)))
    placed = [*zip(reversed(places), again, strict=True), *enumerate(behind)]
    return [eqn for _, eqn in sorted(placed, key=lambda each: each[0])]
