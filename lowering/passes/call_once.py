"""Has callbacks of the host made once, not once for each replica."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from lowering.errors import InternalError
from lowering.jaxpr import (
    ClosedJaxpr,
    JaxprEqn,
    ShapedArray,
    at_source_of,
    bind_equation,
    call_body,
    in_context_of,
    map_sub_jaxprs,
    trace_flat,
)
from lowering.ops.collectives import REPLICAS
from lowering.ops.first_callback import call_first, is_shared_callback
from lowering.ops.streams import repeat, repeat_p
from lowering.passes.evaluate import evaluate_with
from lowering.passes.rewrite import Anywhere, Rewriter


def call_once(closed: ClosedJaxpr, replicas: int) -> ClosedJaxpr:
    """Makes every callback with an effect one of the first replica's, at any depth.

    A condition may differ between replicas; vmap then runs all branches, and loops until the last
    replica is done. So branches and loops are told whether the first replica gets there.

    Before: collectives are resolved.
    After:  the host is called as often as the first replica alone would call it. Unchanged if
            there is one replica.
    """
    if replicas == 1:
        return closed
    return _Caller(Anywhere(is_shared_callback), (REPLICAS, replicas)).body(closed)


@dc.dataclass(slots=True)
class _Caller:
    """Rewrites bodies.

    Attributes:
      calls: whether a jaxpr has such callbacks, at any depth.
      axis: the replicas.
    """

    calls: Anywhere
    axis: tuple[str, int]

    def body(self, closed: ClosedJaxpr) -> ClosedJaxpr:
        """A body that the first replica gets to whenever the others do."""
        if not self.calls(closed.jaxpr):
            return closed
        rewriter = Rewriter(closed.jaxpr)
        for eqn in closed.jaxpr.eqns:
            if self.calls.test(eqn) or (eqn.primitive.name in _PARTING and self.calls.inside(eqn)):
                rewriter.open(eqn, self.traced(eqn))
            elif self.calls.inside(eqn):
                rewriter.keep(map_sub_jaxprs(eqn, self.body))
            else:
                rewriter.keep(eqn)
        return rewriter.closed(closed.consts)

    def traced(self, eqn: JaxprEqn) -> ClosedJaxpr:
        """What an equation does, as a function of its operands."""

        def function(*operands: Any) -> Sequence[Any]:
            return self.equation(eqn, operands, None if self.calls.test(eqn) else jnp.bool_(True))

        with in_context_of(eqn):
            return trace_flat(function, [atom.aval for atom in eqn.invars], self.axis)

    def run(self, closed: ClosedJaxpr, operands: Sequence[Any], here: Any) -> list[Any]:
        """Evaluates a body that the first replica gets to if `here`, a bool[], is true for it."""

        def evaluated(eqn: JaxprEqn, inputs: list[Any]) -> Sequence[Any]:
            if not self.calls.test(eqn) and not self.calls.inside(eqn):
                return bind_equation(eqn, inputs)
            with at_source_of(eqn):
                return self.equation(eqn, inputs, here)

        return evaluate_with(closed, operands, evaluated)

    def equation(self, eqn: JaxprEqn, inputs: Sequence[Any], here: Any) -> Sequence[Any]:
        """Evaluates a callback, or an equation with callbacks inside."""
        if self.calls.test(eqn):
            return call_first(eqn, inputs, here)
        branch = _BRANCHES.get(eqn.primitive.name)
        if branch is not None:
            return branch(self, eqn, inputs, here)
        body = call_body(eqn)
        if body is None:
            raise InternalError(f"`{eqn.primitive.name}` calls the host inside a condition")
        return self.run(body, inputs, here)


def _cond(caller: _Caller, eqn: JaxprEqn, inputs: Sequence[Any], here: Any) -> Sequence[Any]:
    def chosen(number: int, branch: ClosedJaxpr) -> Callable[..., list[Any]]:
        def function(index: Any, *operands: Any) -> list[Any]:
            return caller.run(branch, operands, here & (index == number))

        return function

    branches = [chosen(n, branch) for n, branch in enumerate(eqn.params["branches"])]
    return lax.switch(inputs[0], branches, jnp.int32(inputs[0]), *inputs[1:])


def _while(caller: _Caller, eqn: JaxprEqn, inputs: Sequence[Any], here: Any) -> Sequence[Any]:
    """The condition is evaluated at the end of an iteration: the next one knows whether it is."""
    p = eqn.params
    first, second = p["cond_nconsts"], p["body_nconsts"]

    def goes_on(state: Sequence[Any], here: Any) -> Any:
        return caller.run(p["cond_jaxpr"], [*inputs[:first], *state], here)[0]

    def step(carried: Any) -> Any:
        going, *state = carried
        operands = [*inputs[first : first + second], *state]
        state = caller.run(p["body_jaxpr"], operands, here & going)
        return [goes_on(state, here & going), *state]

    initial = inputs[first + second :]
    start = [goes_on(initial, here), *initial]
    return lax.while_loop(lambda carried: carried[0], step, start)[1:]


def _scan(caller: _Caller, eqn: JaxprEqn, inputs: Sequence[Any], here: Any) -> Sequence[Any]:
    p = eqn.params
    consts, carry = p["num_consts"], p["num_carry"]

    def step(carried: Any, sliced: Any) -> Any:
        results = caller.run(p["jaxpr"], [*inputs[:consts], *carried, *sliced], here)
        return results[:carry], results[carry:]

    start, rows = list(inputs[consts : consts + carry]), list(inputs[consts + carry :])
    how = {name: p[name] for name in ("length", "reverse", "unroll")}
    state, stacked = lax.scan(step, start, rows, **how)
    return [*state, *stacked]


def _repeat(caller: _Caller, eqn: JaxprEqn, inputs: Sequence[Any], here: Any) -> Sequence[Any]:
    p = eqn.params
    if p["pipeline"] is not None:
        return bind_equation(map_sub_jaxprs(eqn, caller.body), inputs)
    trips = p["count"] if p["count"] is not None else inputs[0]
    operands = inputs if p["count"] is not None else inputs[1:]
    consts, carry = operands[: p["num_consts"]], operands[p["num_consts"] :]

    def told(here: Any, *operands: Any) -> list[Any]:
        return caller.run(p["body"], operands, here)

    body = trace_flat(told, [_FLAG, *p["body"].in_avals], caller.axis)
    return repeat(body, [here, *consts], carry, trips, p["loop"])


_FLAG = ShapedArray((), jnp.bool_.dtype)

_PARTING = ("cond", "while")  # whose conditions may differ between replicas

_BRANCHES: dict[str, Callable[[_Caller, JaxprEqn, Sequence[Any], Any], Sequence[Any]]] = {
    "cond": _cond,
    "while": _while,
    "scan": _scan,
    repeat_p.name: _repeat,
}
