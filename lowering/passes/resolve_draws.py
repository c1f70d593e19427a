"""Says which random numbers each draw from the device's seed gives."""

from __future__ import annotations

import dataclasses as dc
from typing import Any

import jax.numpy as jnp
from jax import lax

from lowering.control_flow import ControlFlow, is_control_flow
from lowering.equations import evaluate_with, function_of
from lowering.errors import InternalError
from lowering.jaxpr import (
    ClosedJaxpr,
    JaxprEqn,
    ShapedArray,
    at_source_of,
    bind_equation,
    call_body,
    trace_flat,
)
from lowering.ops.collectives import REPLICAS, axis_of
from lowering.ops.draws import SEED_WORDS, WORDS, draw_p, first_key, is_draw, key_of, keys_of
from lowering.passes.rewrite import Anywhere
from lowering.passes.thread import Stepped, Values, threaded

_WORDS = ShapedArray((WORDS,), jnp.uint32.dtype)


def resolve_draws(closed: ClosedJaxpr, replicas: int) -> tuple[ClosedJaxpr, bool]:
    """Gives the program one more argument, last: the seed (see `draws.first_key`).

    Every body gets a key of its own; in a loop, one for each iteration. The draws of a body are
    numbered. So no two draws of a run are alike, and an equal run draws the same.

    Before: collectives are resolved, and derivatives taken.
    After:  no `ipu_draw` is left; whether the program draws at all. Unchanged if it does not.
    """
    draws = Anywhere(is_draw)
    if not draws(closed.jaxpr):
        return closed, False
    axis = axis_of(replicas)
    resolver = _Resolver(draws, axis)

    def seeded(*operands: Any) -> list[Any]:
        *arguments, seed = operands
        replica = lax.axis_index(REPLICAS) if axis else 0
        return resolver.run(closed, arguments, first_key(seed, replica))

    seed = ShapedArray((SEED_WORDS,), jnp.uint32.dtype)
    return trace_flat(seeded, [*closed.in_avals, seed], axis), True


@dc.dataclass(slots=True)
class _Resolver:
    """Evaluates jaxprs with a key at their side; used inside a trace.

    Attributes:
      draws: whether a jaxpr draws, at any depth.
      axis: the replicas, if there are several.
      functions: of calls, by their bodies, so that equal calls go on sharing one.
    """

    draws: Anywhere
    axis: tuple[str, int] | None
    functions: dict[int, ClosedJaxpr] = dc.field(default_factory=dict[int, ClosedJaxpr])

    def run(self, closed: ClosedJaxpr, operands: Values, words: Any) -> list[Any]:
        """Evaluates a body whose draws follow from `words`."""
        number = 0

        def resolved(eqn: JaxprEqn, inputs: Values) -> Values:
            nonlocal number
            if eqn.primitive is not draw_p and not self.draws.inside(eqn):
                return bind_equation(eqn, inputs)
            number += 1
            with at_source_of(eqn):
                if eqn.primitive is draw_p:
                    return [keys_of(words, number, eqn.params["examples"])]
                key = key_of(words, number)
            return self.inside(eqn, inputs, key)

        return evaluate_with(closed, operands, resolved)

    def inside(self, eqn: JaxprEqn, inputs: Values, words: Any) -> Values:
        """Evaluates an equation with bodies that draw."""
        body = call_body(eqn)
        if body is not None and eqn.primitive.name == "jit":
            return bind_equation(self.shared(eqn, body), [words, *inputs])
        with at_source_of(eqn):
            if is_control_flow(eqn):
                return self.control_flow(eqn, inputs, words)
            if body is not None:
                return self.run(body, inputs, words)
        raise InternalError(f"`{eqn.primitive.name}` draws from the device's seed")

    def shared(self, eqn: JaxprEqn, body: ClosedJaxpr) -> JaxprEqn:
        """A call whose function takes words as well; one function for all calls that share one."""
        identity = id(body.jaxpr)
        if identity not in self.functions:

            def function(words: Any, *operands: Any) -> list[Any]:
                return self.run(body, operands, words)

            self.functions[identity] = trace_flat(function, [_WORDS, *body.in_avals], self.axis)
        p = eqn.params
        unspecified = (*p["in_shardings"], *p["out_shardings"])[0]
        more = {
            "jaxpr": self.functions[identity],
            "donated_invars": (False, *p["donated_invars"]),
            "in_shardings": (unspecified, *p["in_shardings"]),
            "in_layouts": (None, *p["in_layouts"]),
        }
        return eqn.replace(params={**p, **more})

    def control_flow(self, eqn: JaxprEqn, inputs: Values, words: Any) -> Values:
        """Counts the iterations of a loop (or of each task of a pipeline) for their keys."""
        flow = ControlFlow.of(eqn)
        of_body = [key_of(words, n) for n in range(2)] if flow.kind == "while" else []

        def run(number: int, closed: ClosedJaxpr, operands: Values, counter: Values) -> Stepped:
            key = of_body[number] if of_body else words
            if flow.pipeline is not None:
                if not self.draws(closed.jaxpr):
                    return function_of(closed)(*operands), counter
                key = key_of(words, number)
            for count in counter:
                key = key_of(key, count)
            results = self.run(closed, operands, key)
            return results, [] if flow.is_condition(number) else [count + 1 for count in counter]

        start = [jnp.uint32(0)] if flow.is_loop else []
        return threaded(eqn, inputs, start, run, self.axis)[0]
