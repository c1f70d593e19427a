"""Says which random numbers each draw from the device's seed gives."""

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
    scan_counts,
    trace_flat,
)
from lowering.ops.collectives import REPLICAS
from lowering.ops.draws import SEED_WORDS, WORDS, draw_p, first_key, is_draw, key_of, keys_of
from lowering.ops.streams import repeat, repeat_p
from lowering.ops.tasks import TaskSpec, is_task, task_p
from lowering.passes.evaluate import evaluate_with
from lowering.passes.rewrite import Anywhere

_WORDS = ShapedArray((WORDS,), jnp.uint32.dtype)
_COUNTER = ShapedArray((), jnp.uint32.dtype)


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
    axis = (REPLICAS, replicas) if replicas > 1 else None
    resolver = _Resolver(draws, axis)

    def seeded(*operands: Any) -> list[Any]:
        *given, seed = operands
        replica = lax.axis_index(REPLICAS) if axis else 0
        return resolver.run(closed, given, first_key(seed, replica))

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

    def run(self, closed: ClosedJaxpr, operands: Sequence[Any], words: Any) -> list[Any]:
        """Evaluates a body whose draws follow from `words`."""
        number = 0

        def resolved(eqn: JaxprEqn, inputs: list[Any]) -> Sequence[Any]:
            nonlocal number
            if eqn.primitive is not draw_p and not self.draws.inside(eqn):
                return bind_equation(eqn, inputs)
            number += 1
            with at_source_of(eqn):
                if eqn.primitive is draw_p:
                    return [keys_of(words, number, eqn.params["examples"])]
                own = key_of(words, number)
            return self.inside(eqn, inputs, own)

        return evaluate_with(closed, operands, resolved)

    def inside(self, eqn: JaxprEqn, inputs: list[Any], words: Any) -> Sequence[Any]:
        """Evaluates an equation with bodies that draw."""
        branch, body = _BRANCHES.get(eqn.primitive.name), call_body(eqn)
        if branch is None and body is not None and eqn.primitive.name == "jit":
            return bind_equation(self.shared(eqn, body), [words, *inputs])
        with at_source_of(eqn):
            if branch is not None:
                return branch(self, eqn, inputs, words)
            if body is not None:
                return self.run(body, inputs, words)
        raise InternalError(f"`{eqn.primitive.name}` draws from the device's seed")

    def shared(self, eqn: JaxprEqn, body: ClosedJaxpr) -> JaxprEqn:
        """A call whose function takes words as well; one function for all calls that share one."""
        key = id(body.jaxpr)
        if key not in self.functions:

            def function(words: Any, *operands: Any) -> list[Any]:
                return self.run(body, operands, words)

            self.functions[key] = trace_flat(function, [_WORDS, *body.in_avals], self.axis)
        p = eqn.params
        unspecified = (*p["in_shardings"], *p["out_shardings"])[0]
        more = {
            "jaxpr": self.functions[key],
            "donated_invars": (False, *p["donated_invars"]),
            "in_shardings": (unspecified, *p["in_shardings"]),
            "in_layouts": (None, *p["in_layouts"]),
        }
        return eqn.replace(params={**p, **more})

    def body(self, closed: ClosedJaxpr, results: int) -> ClosedJaxpr:
        """words, operands, counter -> `results` results, the counter plus one, the others."""

        def counted(words: Any, *operands: Any) -> list[Any]:
            *given, counter = operands
            outputs = self.run(closed, given, key_of(words, counter))
            return [*outputs[:results], counter + 1, *outputs[results:]]

        return trace_flat(counted, [_WORDS, *closed.in_avals, _COUNTER], self.axis)


def _scan(resolver: _Resolver, eqn: JaxprEqn, inputs: list[Any], words: Any) -> list[Any]:
    p = eqn.params
    (consts, carry), closed = scan_counts(eqn), p["jaxpr"]

    def step(carried: Any, sliced: Any) -> Any:
        *state, counter = carried
        operands = [*inputs[:consts], *state, *sliced]
        results = resolver.run(closed, operands, key_of(words, counter))
        return [*results[:carry], counter + 1], results[carry:]

    start = [*inputs[consts : consts + carry], jnp.uint32(0)]
    (*state, _), stacked = lax.scan(
        step,
        start,
        inputs[consts + carry :],
        length=p["length"],
        reverse=p["reverse"],
        unroll=p["unroll"],
    )
    return [*state, *stacked]


def _while(resolver: _Resolver, eqn: JaxprEqn, inputs: list[Any], words: Any) -> list[Any]:
    p = eqn.params
    first, second = p["cond_nconsts"], p["body_nconsts"]
    tested, stepped = key_of(words, 0), key_of(words, 1)

    def condition(carried: Any) -> Any:
        *state, counter = carried
        own = key_of(tested, counter)
        return resolver.run(p["cond_jaxpr"], [*inputs[:first], *state], own)[0]

    def step(carried: Any) -> Any:
        *state, counter = carried
        operands = [*inputs[first : first + second], *state]
        return [*resolver.run(p["body_jaxpr"], operands, key_of(stepped, counter)), counter + 1]

    start = [*inputs[first + second :], jnp.uint32(0)]
    return list(lax.while_loop(condition, step, start)[:-1])


def _cond(resolver: _Resolver, eqn: JaxprEqn, inputs: list[Any], words: Any) -> list[Any]:
    def seeded(branch: ClosedJaxpr) -> Callable[..., list[Any]]:
        return lambda own, *operands: resolver.run(branch, operands, own)

    branches = [seeded(branch) for branch in eqn.params["branches"]]
    return list(lax.switch(inputs[0], branches, words, *inputs[1:]))


def _repeat(resolver: _Resolver, eqn: JaxprEqn, inputs: list[Any], words: Any) -> list[Any]:
    p = eqn.params
    trips = p["count"] if p["count"] is not None else inputs[0]
    operands = inputs if p["count"] is not None else inputs[1:]
    consts, carry = operands[: p["num_consts"]], operands[p["num_consts"] :]
    if p["pipeline"] is not None:
        body, counters = _pipeline_body(resolver, p["body"], len(inputs))
    else:
        body, counters = resolver.body(p["body"], len(carry)), 1
    start = [*carry, *([jnp.uint32(0)] * counters)]
    final = repeat(body, [words, *consts], start, trips, p["loop"], p["pipeline"])
    return final[: len(carry)]


def _pipeline_body(
    resolver: _Resolver, body: ClosedJaxpr, operands: int
) -> tuple[ClosedJaxpr, int]:
    """The tasks of a micro-batch; each that draws counts its micro-batches in a buffer."""
    numbers: dict[int, int] = {}
    for eqn in body.jaxpr.eqns:
        if is_task(eqn) and resolver.draws.inside(eqn):
            numbers[id(eqn)] = len(numbers)

    def whole(words: Any, *given: Any) -> list[Any]:
        counters = list(given[operands:])

        def run(eqn: JaxprEqn, inputs: list[Any]) -> list[Any]:
            number = numbers.get(id(eqn))
            if number is None:
                return bind_equation(eqn, inputs)
            task = _counting_task(resolver, eqn, number)
            *outputs, counters[number] = bind_equation(task, [words, *inputs, counters[number]])
            return outputs

        return [*evaluate_with(body, given[:operands], run), *counters]

    avals = [_WORDS, *body.in_avals, *([_COUNTER] * len(numbers))]
    return trace_flat(whole, avals, resolver.axis), len(numbers)


def _counting_task(resolver: _Resolver, eqn: JaxprEqn, number: int) -> JaxprEqn:
    """A task that is given words and, last, the number of its micro-batch, to which it adds."""
    body: ClosedJaxpr = eqn.params["body"]
    spec: TaskSpec = eqn.params["spec"]
    outputs = len(body.out_avals)

    def seeded(words: Any, *operands: Any) -> list[Any]:
        *given, counter = operands
        own = key_of(key_of(words, number), counter)
        return [*resolver.run(body, given, own), counter + 1]

    closed = trace_flat(seeded, [_WORDS, *body.in_avals, _COUNTER], resolver.axis)
    moved = tuple((operand + 1, result) for operand, result in spec.accumulated)
    pairs = (*moved, (len(body.in_avals) + 1, outputs))
    return eqn.replace(params={"body": closed, "spec": dc.replace(spec, accumulated=pairs)})


def _task(resolver: _Resolver, eqn: JaxprEqn, inputs: list[Any], words: Any) -> list[Any]:
    """A task outside of pipelines, as the weight update is."""
    body: ClosedJaxpr = eqn.params["body"]
    spec: TaskSpec = eqn.params["spec"]

    def seeded(own: Any, *operands: Any) -> list[Any]:
        return resolver.run(body, operands, own)

    closed = trace_flat(seeded, [_WORDS, *body.in_avals], resolver.axis)
    moved = tuple((operand + 1, result) for operand, result in spec.accumulated)
    params = {"body": closed, "spec": dc.replace(spec, accumulated=moved)}
    return bind_equation(eqn.replace(params=params), [words, *inputs])


_BRANCHES: dict[str, Callable[[_Resolver, JaxprEqn, list[Any], Any], list[Any]]] = {
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    repeat_p.name: _repeat,
    task_p.name: _task,
}
