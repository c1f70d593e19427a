"""Pipelines for the compiler's tests, made of tasks by hand, and their texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lowering import ops, schedules
from lowering.jaxprs import jaxpr
from lowering.pipelines import (
    PipelineSpec,
    Recomputation,
    TaskRole,
    TaskSpec,
    differentiate_stage,
    mark_recomputation_checkpoint,
    run_as_task,
)
from tests.lowering.samples import Queue, shard

X = jax.ShapeDtypeStruct((2, 3), jnp.float32)
W = jax.ShapeDtypeStruct((3, 3), jnp.float32)

StageFn = Callable[..., Any]


def dense(w: Any, x: Any) -> Any:
    """A stage with a residual that is cheap to make again (sin's argument) and one that is not."""
    return jnp.sin(x @ w)


def gated(w: Any, x: Any) -> Any:
    """A stage whose user keeps a value in the middle."""
    return jnp.sin(mark_recomputation_checkpoint(jnp.tanh(x @ w)) @ w)


def squares(w: Any, x: Any) -> Any:
    """A last stage, whose result is the loss."""
    return jnp.sum((x @ w) ** 2)


def micro_batch(stages: Sequence[StageFn], queue: Queue | None = None) -> jaxpr.ClosedJaxpr:
    """The body of a pipeline: a weight for each stage, x (unless dequeued), an accumulator each.

    Args:
      stages: functions of a weight and of what the one before gave; the last gives the loss.
      queue: gives x inside the first task.
    """
    count = len(stages)
    halves = _halves(stages)

    def body(*flat: Any) -> list[Any]:
        weights, rest = flat[:count], list(flat[count:])
        given = [] if queue is not None else [rest.pop(0)]
        inputs: list[list[Any]] = []
        residuals: list[list[Any]] = []
        for i in range(count):
            own, given, left = _forward(halves[i], i, weights[i], given, queue)
            inputs.append([weights[i], *own])
            residuals.append(left)
        seeds: list[Any] = []
        for i in reversed(range(count)):
            operands = [*(inputs[i][k] for k in halves[i].kept), *residuals[i], *seeds]
            rest[i], *seeds = _backward(halves[i], i, operands, rest[i])
        return rest

    x = [] if queue is not None else [X]
    return jaxpr.constants_to_arguments(jaxpr.trace_flat(body, [W] * count + x + [W] * count))[0]


def _halves(stages: Sequence[StageFn]) -> list[Any]:
    halves: list[Any] = []
    aval: Any = X
    for i, stage in enumerate(stages):

        def placed(w: Any, x: Any, stage: StageFn = stage, i: int = i) -> list[Any]:
            with shard(i):
                return [stage(w, x)]

        closed = jaxpr.trace_flat(placed, [W, aval])
        (aval,) = closed.out_avals
        wanted = [0, 1] if i else [0]
        halves.append(
            differentiate_stage(closed, gradients=wanted, cotangents=[0], constant_operands={0})
        )
    return halves


def _forward(halves: Any, i: int, weight: Any, given: Sequence[Any], queue: Queue | None) -> Any:
    take = i == 0 and queue is not None
    closed = halves.forward

    def function(w: Any, *xs: Any) -> list[Any]:
        taken: list[Any] = []
        if take:
            with shard(0):
                taken = ops.dequeue(queue, [jaxpr.ShapedArray(X.shape, X.dtype)])
        return [*taken, *jaxpr.run_equations(closed.jaxpr, closed.consts, [w, *xs, *taken])]

    results = run_as_task(function, [weight, *given], TaskSpec(kind=TaskRole.FORWARD, stage=i))
    own = [results.pop(0)] if take else list(given)
    return own, results[:1], results[1:]


def _backward(halves: Any, i: int, operands: Sequence[Any], total: Any) -> list[Any]:
    closed = halves.backward
    seeds = [] if halves.backward.in_avals[-1].shape else [1.0]

    def function(*flat: Any) -> list[Any]:
        with shard(i):
            own = [jnp.float32(seed) for seed in seeds]
        own_weight, *others = jaxpr.run_equations(closed.jaxpr, closed.consts, [*flat[:-1], *own])
        with shard(i):
            return [flat[-1] + own_weight, *others]

    pair = (len(operands), 0)
    spec = TaskSpec(kind=TaskRole.BACKWARD, stage=i, accumulated=(pair,))
    return list(run_as_task(function, [*operands, total], spec))


def spec_of(stages: int, schedule: Any = schedules.grouped, **more: Any) -> PipelineSpec:
    """What a pipeline with one IPU for each stage says of itself."""
    given: dict[str, Any] = {
        "name": "sample",
        "stages": stages,
        "training": True,
        "ipus": tuple((i,) for i in range(stages)),
        "schedule": schedule,
        "recomputation": Recomputation.AND_BACKPROPAGATE,
    }
    return PipelineSpec(**{**given, **more})


def pipelined(
    body: jaxpr.ClosedJaxpr, stages: int, count: int = 8, **more: Any
) -> jaxpr.ClosedJaxpr:
    """A program that runs a body as a pipeline; every loop variable is an argument."""
    consts = len(body.in_avals) - len(body.out_avals)

    def program(*flat: Any) -> list[Any]:
        return ops.repeat_with_queues(
            body, flat[:consts], flat[consts:], count, None, spec_of(stages, **more)
        )

    return jaxpr.trace_flat(program, body.in_avals)


def loop_of(closed: jaxpr.ClosedJaxpr) -> Any:
    """The only pipeline at the top level of a program."""
    (eqn,) = (e for e in closed.jaxpr.eqns if e.primitive is ops.repeat_p)
    return eqn


def run(body: jaxpr.ClosedJaxpr, values: Sequence[Any]) -> list[Any]:
    """The numbers of one micro-batch, in plain JAX."""
    return jax.jit(lambda *flat: jaxpr.run_equations(body.jaxpr, body.consts, flat))(*values)


def values_for(body: jaxpr.ClosedJaxpr, seed: int = 0) -> list[Any]:
    """Some arguments of a body."""
    keys = jax.random.split(jax.random.key(seed), len(body.in_avals))
    pairs = zip(keys, body.in_avals, strict=True)
    return [jax.random.normal(key, aval.shape, aval.dtype) / 2 for key, aval in pairs]


# --- texts ----------------------------------------------------------------------------------------


def body_text(body: jaxpr.ClosedJaxpr) -> str:
    """The tasks of a body with what they read, give and add to, and their operations."""
    names = _Names()
    jaxpr_ = body.jaxpr
    lines = [f"takes {names(jaxpr_.invars)}"]
    for eqn in jaxpr_.eqns:
        lines += _task_lines(eqn, names, "")
    return "\n".join([*lines, f"gives {names(jaxpr_.outvars)}"]) + "\n"


def _task_lines(eqn: Any, names: _Names, indent: str) -> Iterator[str]:
    spec = eqn.params["spec"]
    yield f"{indent}{spec.kind} {spec.stage} ({names(eqn.invars)}) -> {names(eqn.outvars) or '-'}"
    for operand, result in spec.accumulated:
        yield f"{indent}  adds to {names([eqn.invars[operand]])}: {names([eqn.outvars[result]])}"
    inner = _Names()
    operations: list[str] = []
    for e in eqn.params["body"].jaxpr.eqns:
        if e.primitive.name == "ipu_task":
            yield from _task_lines(e, inner, indent + "  ")
        else:
            operations.append(e.primitive.name)
    yield f"{indent}  {' '.join(operations) or '(nothing)'}"


class _Names:
    """Short names of variables, in the order in which they are met."""

    def __init__(self) -> None:
        self.known: dict[Any, str] = {}

    def __call__(self, atoms: Sequence[Any]) -> str:
        return ", ".join(map(self.name, atoms))

    def name(self, atom: Any) -> str:
        if isinstance(atom, jaxpr.Literal):
            return str(atom.val)
        return self.known.setdefault(atom, f"v{len(self.known)}")
