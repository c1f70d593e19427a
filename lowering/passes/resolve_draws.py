"""The choice of the random numbers that each draw from the device's seed gives."""

from __future__ import annotations

import dataclasses as dc
from typing import Any

import jax.numpy as jnp
from jax import lax

from lowering.ground import InternalError
from lowering.jaxprs import (
    ClosedJaxpr,
    EquationFinder,
    JaxprEqn,
    ShapedArray,
    bind_equation,
    body_of_call,
    evaluate_equations_with,
    function_of_jaxpr,
    trace_flat,
    use_source_of,
)
from lowering.ops import (
    REPLICAS,
    SEED_WORDS,
    WORDS,
    ControlFlow,
    axis_of_replicas,
    derive_key_words,
    derive_keys_of_examples,
    draw_p,
    first_key_of_run,
    is_control_flow,
    is_draw,
)
from lowering.passes.thread_state import ResultsAndState, Values, thread_state_through

_WORDS = ShapedArray((WORDS,), jnp.uint32.dtype)


def resolve_draws(closed: ClosedJaxpr, replicas: int) -> tuple[ClosedJaxpr, bool]:
    """Gives the program one more argument, last: the seed (see `draws.first_key_of_run`).

    Every body gets a key of its own; in a loop, one for each iteration. The draws of a body are
    numbered. So no two draws of a run are alike, and an equal run draws the same.

    Before: collectives are resolved, and derivatives taken.
    After:  no `ipu_draw` is left; the second result is whether the program draws at all. Unchanged
            if it does not.
    """
    draws = EquationFinder(is_draw)
    if not draws(closed.jaxpr):
        return closed, False
    axis = axis_of_replicas(replicas)
    resolver = _DrawResolver(draws, axis)

    def run_with_seed(*operands: Any) -> list[Any]:
        *arguments, seed = operands
        replica = lax.axis_index(REPLICAS) if axis else 0
        return resolver.evaluate_with_key(closed, arguments, first_key_of_run(seed, replica))

    seed = ShapedArray((SEED_WORDS,), jnp.uint32.dtype)
    return trace_flat(run_with_seed, [*closed.in_avals, seed], axis), True


@dc.dataclass(slots=True)
class _DrawResolver:
    """An evaluator of jaxprs that carries a key; used inside a trace.

    Attributes:
      draws: tests whether a jaxpr draws, at any depth.
      axis: the axis of the replicas, if there are several.
      functions: the functions of calls, by their bodies, so that equal calls go on sharing one.
    """

    draws: EquationFinder
    axis: tuple[str, int] | None
    functions: dict[int, ClosedJaxpr] = dc.field(default_factory=dict[int, ClosedJaxpr])

    def evaluate_with_key(self, closed: ClosedJaxpr, operands: Values, words: Any) -> list[Any]:
        """Evaluates a body whose draws follow from `words`."""
        number = 0

        def evaluate_numbered_draw(eqn: JaxprEqn, inputs: Values) -> Values:
            nonlocal number
            if eqn.primitive is not draw_p and not self.draws.occurs_inside(eqn):
                return bind_equation(eqn, inputs)
            number += 1
            with use_source_of(eqn):
                if eqn.primitive is draw_p:
                    return [derive_keys_of_examples(words, number, **eqn.params)]
                key = derive_key_words(words, number)
            return self.evaluate_bodies_with_key(eqn, inputs, key)

        return evaluate_equations_with(closed, operands, evaluate_numbered_draw)

    def evaluate_bodies_with_key(self, eqn: JaxprEqn, inputs: Values, words: Any) -> Values:
        """Evaluates an equation with bodies that draw."""
        body = body_of_call(eqn)
        if body is not None and eqn.primitive.name == "jit":
            return bind_equation(self.call_with_key(eqn, body), [words, *inputs])
        with use_source_of(eqn):
            if is_control_flow(eqn):
                return self.evaluate_control_flow_with_key(eqn, inputs, words)
            if body is not None:
                return self.evaluate_with_key(body, inputs, words)
        raise InternalError(f"`{eqn.primitive.name}` draws from the device's seed")

    def call_with_key(self, eqn: JaxprEqn, body: ClosedJaxpr) -> JaxprEqn:
        """Returns a call whose function takes a key as well; calls go on sharing functions."""
        identity = id(body.jaxpr)
        if identity not in self.functions:

            def run_shared_body_with_key(words: Any, *operands: Any) -> list[Any]:
                return self.evaluate_with_key(body, operands, words)

            self.functions[identity] = trace_flat(
                run_shared_body_with_key, [_WORDS, *body.in_avals], self.axis
            )
        p = eqn.params
        unspecified = (*p["in_shardings"], *p["out_shardings"])[0]
        new_params = {
            "jaxpr": self.functions[identity],
            "donated_invars": (False, *p["donated_invars"]),
            "in_shardings": (unspecified, *p["in_shardings"]),
            "in_layouts": (None, *p["in_layouts"]),
        }
        return eqn.replace(params={**p, **new_params})

    def evaluate_control_flow_with_key(self, eqn: JaxprEqn, inputs: Values, words: Any) -> Values:
        """Evaluates control flow; counts iterations (or those of each task) for keys."""
        flow = ControlFlow.view_of_equation(eqn)
        keys_of_bodies = (
            [derive_key_words(words, n) for n in range(2)] if flow.kind == "while" else []
        )

        def run_body_with_derived_key(
            body_index: int, closed: ClosedJaxpr, operands: Values, counters: Values
        ) -> ResultsAndState:
            key = keys_of_bodies[body_index] if keys_of_bodies else words
            if flow.pipeline is not None:
                if not self.draws(closed.jaxpr):
                    return function_of_jaxpr(closed)(*operands), counters
                key = derive_key_words(words, body_index)
            for count in counters:
                key = derive_key_words(key, count)
            results = self.evaluate_with_key(closed, operands, key)
            return results, [] if flow.is_condition(body_index) else [
                count + 1 for count in counters
            ]

        start = [jnp.uint32(0)] if flow.is_loop else []
        return thread_state_through(eqn, inputs, start, run_body_with_derived_key, self.axis)[0]
