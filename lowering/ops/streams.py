"""The primitives of queues: `dequeue`, `enqueue`, and the loop that keeps both intact.

JAX drops an effect inside a differentiated `lax.scan` without a word. So a loop whose body uses
queues is a primitive of ours, `ipu_repeat`: the compiler streams it, and differentiation (or
vmap) rewrites it first as a scan over stacked elements whose enqueued values are loop outputs.
Under plain `jax.jit` all three become ordered host callbacks: correct, not fast.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import numpy as np

from lowering.errors import EnqueueError, LoweringError
from lowering.jaxpr import (
    STREAM,
    Aval,
    ClosedJaxpr,
    JaxprEqn,
    Literal,
    Primitive,
    ShapedArray,
    bind_equation,
    call_body,
    current_user_line,
    run_equations,
    sub_jaxprs,
    trace_flat,
    user_line,
    with_eqns,
)
from lowering.ops.define import constant, define, define_body, runs
from lowering.refs import effects_of


class Stream(Protocol):
    """A queue, as the compiler knows it; it is compared by identity."""

    @property
    def name(self) -> str:
        """Unique among the queues of the process."""
        ...


class Infeed(Stream, Protocol):
    """A queue that gives elements to compiled code."""

    @property
    def prefetch_depth(self) -> int | None:
        """At most so many elements may be fetched ahead; None if that is left open."""
        ...

    def pull(self, count: int | None) -> Sequence[np.ndarray]:
        """Takes the next element (`count` stacked ones), flat, for plain `jax.jit`."""
        ...


class Outfeed(Stream, Protocol):
    """A queue that takes elements from compiled code."""

    @property
    def keeps_last(self) -> bool:
        """Whether only the last element is kept, so that a loop need not send the others."""
        ...

    def push(self, structure: Any, leaves: Sequence[Any], count: int | None) -> None:
        """Sends one element (`count` stacked ones), flat, for plain `jax.jit`."""
        ...


@dc.dataclass(frozen=True, slots=True, eq=False)
class Variables:
    """The pytree structure of a user's loop variables, as a parameter of an equation.

    JAX compares parameters with one another, and a pytree structure refuses to be compared with
    None, which stands for loops that are not the user's own.
    """

    structure: Any

    @classmethod
    def of(cls, structure: Any) -> Variables:
        """A structure, or None, as a parameter; one that is a parameter already stays as it is."""
        return structure if isinstance(structure, Variables) else cls(structure)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Variables):
            return NotImplemented
        if self.structure is None or other.structure is None:
            return self.structure is other.structure
        return bool(self.structure == other.structure)

    def __hash__(self) -> int:
        return hash(self.structure)


def dequeue(
    queue: Infeed, avals: Sequence[Aval], count: int | None = None, loop: Any = None
) -> list[Any]:
    """Takes the queue's next element, as flat arrays.

    Args:
      queue: the infeed.
      avals: shape and dtype of each leaf.
      count: if given, so many elements are taken and stacked.
      loop: the pytree structure of the variables of the user's loop around, for messages' sake.
    """
    return dequeue_p.bind(queue=queue, avals=tuple(avals), count=count, loop=Variables.of(loop))


def enqueue(
    queue: Outfeed, leaves: Sequence[Any], structure: Any, count: int | None = None
) -> None:
    """Sends one element (`count` stacked ones) to the queue."""
    enqueue_p.bind(*leaves, queue=queue, structure=structure, count=count)


def repeat(
    body: ClosedJaxpr,
    consts: Sequence[Any],
    carry: Sequence[Any],
    count: Any,
    loop: Any,
    pipeline: Any = None,
) -> list[Any]:
    """Runs `body(*consts, *carry) -> carry` `count` times.

    Args:
      body: a jaxpr without constants, whose body may use queues.
      consts: what the body reads but does not change.
      carry: the loop variables.
      count: an int, or an int32 scalar known at run time only.
      loop: the pytree structure of the loop variables, for error messages' sake.
      pipeline: a `PipelineSpec` if the body consists of tasks; its iterations may then overlap.
    """
    static = int(count) if isinstance(count, int) else None
    trips = [] if static is not None else [count]
    return repeat_p.bind(
        *trips,
        *consts,
        *carry,
        body=body,
        num_consts=len(consts),
        count=static,
        loop=Variables.of(loop),
        pipeline=pipeline,
    )


def uses_streams(jaxpr: Any) -> bool:
    """Whether a jaxpr (open or closed) feeds a queue anywhere inside."""
    return STREAM in jaxpr.effects


def queues_of(jaxpr: Any, *primitives: Primitive) -> dict[Any, None]:
    """Every queue that a jaxpr uses by one of these primitives, anywhere inside, in order."""
    found: dict[Any, None] = {}
    for eqn in jaxpr.eqns:
        if eqn.primitive in primitives:
            found[eqn.params["queue"]] = None
        for inner in sub_jaxprs(eqn):
            if uses_streams(inner):
                found |= queues_of(inner, *primitives)
    return found


def _stacked(aval: Aval, count: int | None) -> Aval:
    return aval if count is None else ShapedArray((count, *aval.shape), aval.dtype)


# --- what the primitives do -------------------------------------------------------------------


def _elements(*, avals: Sequence[Aval], count: int | None, **rest: Any) -> list[Aval]:
    del rest
    return [_stacked(aval, count) for aval in avals]


def _pull(*, queue: Infeed, count: int | None, **rest: Any) -> Sequence[Any]:
    del rest
    return queue.pull(count)


def _push(*leaves: Any, queue: Outfeed, structure: Any, count: int | None) -> list[Any]:
    queue.push(structure, leaves, count)
    return []


def _enqueue_vmap(primitive: Primitive, values: Any, dims: Any, **params: Any) -> Any:
    del primitive, values, dims
    raise EnqueueError(
        f"{params['queue'].name}: enqueue under `jax.vmap`: one element, or one per example?",
        where=current_user_line(),
        fix="enqueue outside the vmapped function, where the whole batch is one array",
    )


def _no_avals(*leaves: Any, **params: Any) -> list[Aval]:
    del leaves, params
    return []


def _repeat_effects(*operands: Any, body: ClosedJaxpr, count: Any, **rest: Any) -> set[Any]:
    del operands, rest
    return effects_of(body, 0 if count is not None else 1)


def _split(operands: Sequence[Any], num_consts: int, count: int | None) -> tuple[Any, Any, Any]:
    """The trip count, the constants and the loop variables among a repeat's operands."""
    trips = count if count is not None else operands[0]
    rest = operands if count is not None else operands[1:]
    return trips, list(rest[:num_consts]), list(rest[num_consts:])


def _repeat_now(*operands: Any, body: Any, num_consts: int, count: Any, **rest: Any) -> list[Any]:
    del rest
    trips, consts, carry = _split(operands, num_consts, count)
    for _ in range(int(trips)):
        carry = runs(body)(*consts, *carry)
    return carry


def _repeat_inside_xla(
    *operands: Any, body: Any, num_consts: int, count: Any, **rest: Any
) -> list[Any]:
    del rest
    trips, consts, carry = _split(operands, num_consts, count)
    return jax.lax.fori_loop(0, trips, lambda _, carry: runs(body)(*consts, *carry), carry)


def _as_scan(
    body: ClosedJaxpr, num_consts: int, count: int | None, **rest: Any
) -> Callable[..., list[Any]]:
    """The same loop as a `lax.scan`: all elements dequeued before, all results enqueued after."""
    del rest
    length = _need_static(count)
    flat = trace_flat(lambda *operands: _flattened(body, operands), body.in_avals)
    dequeues = [eqn for eqn in flat.jaxpr.eqns if eqn.primitive is dequeue_p]
    enqueues = [eqn for eqn in flat.jaxpr.eqns if eqn.primitive is enqueue_p]
    pure = _without_streams(flat, dequeues, enqueues)
    num_carry = len(body.out_avals)

    def run(*operands: Any) -> list[Any]:
        consts, carry = list(operands[:num_consts]), list(operands[num_consts:])

        def step(carry: Any, elements: Any) -> Any:
            results = run_equations(pure.jaxpr, pure.consts, [*consts, *carry, *elements])
            return results[:num_carry], results[num_carry:]

        elements = [leaf for eqn in dequeues for leaf in _dequeue_all(eqn, length)]
        carry, sent = jax.lax.scan(step, carry, elements, length=length)
        for eqn in enqueues:
            own, sent = sent[: len(eqn.invars)], sent[len(eqn.invars) :]
            _enqueue_all(eqn, own, length)
        return carry

    return run


def _need_static(count: int | None) -> int:
    if count is None:
        raise LoweringError(
            "the derivative or a vmap of a `loops.repeat` with queues whose trip count is known at "
            "run time only",
            where=current_user_line(),
            fix="give `repeat` a Python int as `n`",
        )
    return count


def _flattened(body: ClosedJaxpr, operands: Sequence[Any]) -> list[Any]:
    """Evaluates a body so that its queue operations all come out at its top level."""
    jaxpr = body.jaxpr
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, body.consts, strict=True))
    values.update(zip(jaxpr.invars, operands, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else values[atom]

    for eqn in jaxpr.eqns:
        inputs = [read(atom) for atom in eqn.invars]
        values.update(zip(eqn.outvars, _flattened_equation(eqn, inputs), strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _flattened_equation(eqn: JaxprEqn, inputs: list[Any]) -> list[Any]:
    if eqn.primitive in (dequeue_p, enqueue_p) or not uses_streams(eqn):
        return bind_equation(eqn, inputs)
    if eqn.primitive is repeat_p:
        return _as_scan(**eqn.params)(*inputs)
    inner = call_body(eqn)
    if inner is not None:
        return _flattened(inner, inputs)
    raise EnqueueError(
        f"a queue is used inside `{eqn.primitive.name}` in a loop that is differentiated or "
        "vmapped; JAX would drop it",
        where=next(filter(None, (user_line(e) for j in sub_jaxprs(eqn) for e in j.eqns)), ""),
        fix="use the queue in the body of `ipu.loops.repeat` itself, or outside the derivative",
    )


def _without_streams(
    flat: ClosedJaxpr, dequeues: Sequence[JaxprEqn], enqueues: Sequence[JaxprEqn]
) -> ClosedJaxpr:
    jaxpr = flat.jaxpr
    eqns = [eqn for eqn in jaxpr.eqns if eqn.primitive not in (dequeue_p, enqueue_p)]
    sent = [atom for eqn in enqueues for atom in eqn.invars]
    taken = [var for eqn in dequeues for var in eqn.outvars]
    pure = with_eqns(jaxpr, eqns, [*jaxpr.outvars, *sent])
    debug = pure.debug_info._replace(arg_names=None, result_paths=None)
    return ClosedJaxpr(pure.replace(invars=[*jaxpr.invars, *taken], debug_info=debug), flat.consts)


def _dequeue_all(eqn: JaxprEqn, length: int) -> list[Any]:
    """All the elements that an equation takes over `length` iterations, stacked."""
    params = eqn.params
    inner = params["count"]
    total = length if inner is None else length * inner
    leaves = dequeue(params["queue"], params["avals"], total)
    if inner is None:
        return leaves
    return [leaf.reshape(length, inner, *leaf.shape[1:]) for leaf in leaves]


def _enqueue_all(eqn: JaxprEqn, stacked: Sequence[Any], length: int) -> None:
    """Sends all that an equation sent over `length` iterations."""
    params = eqn.params
    inner = params["count"]
    total = length if inner is None else length * inner
    leaves = [s if inner is None else s.reshape(total, *s.shape[2:]) for s in stacked]
    enqueue(params["queue"], leaves, params["structure"], total)


dequeue_p = define("ipu_dequeue", _elements, _pull, several=True, on_host=STREAM)
enqueue_p = define(
    "ipu_enqueue",
    _no_avals,
    _push,
    several=True,
    on_host=STREAM,
    jvp=constant,
    vmap=_enqueue_vmap,
)
repeat_p = define_body("ipu_repeat", _repeat_now, _repeat_effects, _as_scan, _repeat_inside_xla)
