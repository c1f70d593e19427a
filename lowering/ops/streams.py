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

from lowering.ground import EnqueueError, LoweringError
from lowering.jaxprs import (
    STREAM_EFFECT,
    Aval,
    ClosedJaxpr,
    Effect,
    Jaxpr,
    JaxprEqn,
    Primitive,
    ShapedArray,
    bind_equation,
    body_of_call,
    current_user_line,
    effects_of,
    evaluate_equations_with,
    function_of_jaxpr,
    jaxpr_of_equations_with_constants,
    sub_jaxprs,
    trace_flat,
    typed_jax,
    user_line,
    walk_equations,
)
from lowering.ops.define import define_primitive, define_primitive_with_body, jvp_of_constant
from lowering.ops.types import Array, Arrays, Results


class Stream(Protocol):
    """A queue, as the compiler knows it; queues are compared by identity."""

    @property
    def name(self) -> str:
        """The name of the queue, unique in the process."""
        ...


class Infeed(Stream, Protocol):
    """A queue that gives elements to compiled code."""

    @property
    def prefetch_depth(self) -> int | None:
        """The number of elements that may be fetched ahead; None leaves that open."""
        ...

    def pull(self, count: int | None) -> Sequence[np.ndarray]:
        """Takes the next element (`count` stacked ones), flat, for plain `jax.jit`."""
        ...


class Outfeed(Stream, Protocol):
    """A queue that takes elements from compiled code."""

    @property
    def keeps_last(self) -> bool:
        """A flag: only the last element is kept, so that a loop need not send the others."""
        ...

    def push(self, structure: Any, leaves: Arrays, count: int | None) -> None:
        """Sends one element (`count` stacked ones), flat, for plain `jax.jit`."""
        ...


@dc.dataclass(frozen=True, slots=True, eq=False)
class Variables:
    """The pytree structure of a user's loop variables, as a parameter of an equation.

    JAX compares parameters with one another, and a pytree structure refuses to be compared with
    None, which stands for loops that are not the user's own.
    """

    structure: Any
    names: tuple[str, ...] = ()

    @classmethod
    def wrap_structure(cls, structure: Any, names: Sequence[str] = ()) -> Variables:
        """Wraps a structure, or None, as a parameter; a wrapped one stays as it is.

        Args:
          structure: the structure of a tuple of loop variables.
          names: the user's names for these; () if unknown.
        """
        is_wrapped = isinstance(structure, Variables)
        return structure if is_wrapped else cls(structure, tuple(names))

    def __eq__(self, other_variables: object) -> bool:
        if not isinstance(other_variables, Variables):
            return NotImplemented
        if self.structure is None or other_variables.structure is None:
            return self.structure is other_variables.structure
        return (
            bool(self.structure == other_variables.structure)
            and self.names == other_variables.names
        )

    def __hash__(self) -> int:
        return hash(self.structure)


def dequeue(
    queue: Infeed, avals: Sequence[Aval], count: int | None = None, loop: Any = None
) -> list[Array]:
    """Takes the queue's next element, as flat arrays.

    Args:
      queue: the infeed.
      avals: shape and dtype of each leaf.
      count: if given, so many elements are taken and stacked.
      loop: the pytree structure of the variables of the user's loop around, for messages' sake.
    """
    return dequeue_p.bind(
        queue=queue, avals=tuple(avals), count=count, loop=Variables.wrap_structure(loop)
    )


def enqueue(queue: Outfeed, leaves: Arrays, structure: Any, count: int | None = None) -> None:
    """Sends one element (`count` stacked ones) to the queue."""
    enqueue_p.bind(*leaves, queue=queue, structure=structure, count=count)


def repeat_with_queues(
    body: ClosedJaxpr,
    consts: Arrays,
    carry: Arrays,
    count: int | Array,
    loop: Any,
    pipeline: Any = None,
    names: Sequence[str] = (),
) -> list[Array]:
    """Runs `body(*consts, *carry) -> carry` `count` times.

    Args:
      body: a jaxpr without constants, whose body may use queues.
      consts: what the body reads but does not change.
      carry: the loop variables.
      count: an int, or an int32 scalar known at run time only.
      loop: the pytree structure of the loop variables, for error messages' sake.
      pipeline: a `PipelineSpec` if the body consists of tasks; its iterations may then overlap.
      names: what the user calls the loop variables, for reports.
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
        loop=Variables.wrap_structure(loop, names),
        pipeline=pipeline,
    )


def uses_streams(jaxpr: Jaxpr | ClosedJaxpr | JaxprEqn) -> bool:
    """Returns whether a jaxpr or an equation uses a queue, at any depth."""
    return STREAM_EFFECT in jaxpr.effects


def queues_of(jaxpr: Jaxpr | ClosedJaxpr, *primitives: Primitive) -> dict[Any, None]:
    """Returns every queue that these primitives use in a jaxpr, at any depth, in order."""
    eqns = walk_equations(jaxpr, uses_streams)
    return dict.fromkeys(eqn.params["queue"] for eqn in eqns if eqn.primitive in primitives)


# --- what the primitives do -------------------------------------------------------------------


def _element_avals(*, avals: Sequence[Aval], count: int | None, **_: object) -> list[Aval]:
    if count is None:
        return list(avals)
    return [ShapedArray((count, *aval.shape), aval.dtype) for aval in avals]


def _pull_element(*, queue: Infeed, count: int | None, **_: object) -> Sequence[np.ndarray]:
    return queue.pull(count)


def _push_element(*leaves: Array, queue: Outfeed, structure: Any, count: int | None) -> Arrays:
    queue.push(structure, leaves, count)
    return []


def _enqueue_vmap(*_: object, queue: Outfeed, **params: object) -> Results:
    raise EnqueueError(
        f"{queue.name}: enqueue under `jax.vmap`: one element, or one per example?",
        where=current_user_line(),
        fix="enqueue outside the vmapped function, where the whole batch is one array",
    )


def _repeat_effects(
    *_: Aval, body: ClosedJaxpr, count: int | None, **unused_params: object
) -> set[Effect]:
    return effects_of(body, 0 if count is not None else 1)


def split_repeat_operands(
    operands: Arrays, num_consts: int, count: int | None
) -> tuple[int | Array, Arrays, list[Array]]:
    """Returns the trip count, the constants and the loop variables of a repeat."""
    trips, constants_and_variables = (
        (operands[0], operands[1:]) if count is None else (count, operands)
    )
    return trips, constants_and_variables[:num_consts], list(constants_and_variables[num_consts:])


def _run_repeat_eagerly(*operands: Array, body: ClosedJaxpr, **params: Any) -> Arrays:
    trips, consts, carry = split_repeat_operands(operands, params["num_consts"], params["count"])
    for _ in range(int(trips)):
        carry = function_of_jaxpr(body)(*consts, *carry)
    return carry


def _lower_repeat_to_fori_loop(*operands: Array, body: ClosedJaxpr, **params: Any) -> Arrays:
    trips, consts, carry = split_repeat_operands(operands, params["num_consts"], params["count"])
    step = function_of_jaxpr(body)
    return typed_jax.fori_loop(0, trips, lambda _, carry: step(*consts, *carry), carry)


def _repeat_as_scan(
    body: ClosedJaxpr, num_consts: int, count: int | None, **_: object
) -> Callable[..., Arrays]:
    """Returns the loop as a `lax.scan` that dequeues before it, and enqueues after it."""
    length = _require_static_count(count)
    flat_body = trace_flat(
        lambda *operands: evaluate_equations_with(body, operands, _evaluate_with_queues_on_top),
        body.in_avals,
    )
    dequeues = [eqn for eqn in flat_body.jaxpr.eqns if eqn.primitive is dequeue_p]
    enqueues = [eqn for eqn in flat_body.jaxpr.eqns if eqn.primitive is enqueue_p]
    # Elements become further arguments, and the values to send become further results.
    other_eqns = [
        eqn for eqn in flat_body.jaxpr.eqns if eqn.primitive not in (dequeue_p, enqueue_p)
    ]
    invars = [*flat_body.jaxpr.invars, *(var for eqn in dequeues for var in eqn.outvars)]
    outvars = [*flat_body.jaxpr.outvars, *(atom for eqn in enqueues for atom in eqn.invars)]
    pure = function_of_jaxpr(
        jaxpr_of_equations_with_constants(flat_body, invars, outvars, other_eqns)
    )
    num_carry = len(body.out_avals)

    def run_scan_with_queues(*operands: Array) -> Arrays:
        consts, carry = operands[:num_consts], list(operands[num_consts:])

        def run_pure_body(carry: Arrays, elements: Arrays) -> tuple[Arrays, Arrays]:
            results = pure(*consts, *carry, *elements)
            return results[:num_carry], results[num_carry:]

        elements = [leaf for eqn in dequeues for leaf in _dequeue_all(eqn, length)]
        carry, sent = jax.lax.scan(run_pure_body, carry, elements, length=length)
        for eqn in enqueues:
            _enqueue_all(eqn, sent[: len(eqn.invars)], length)
            sent = sent[len(eqn.invars) :]
        return carry

    return run_scan_with_queues


def _require_static_count(count: int | None) -> int:
    if count is None:
        raise LoweringError(
            "the derivative or a vmap of a `loops.repeat` with queues whose trip count is known at "
            "run time only",
            where=current_user_line(),
            fix="give `repeat` a Python int as `n`",
        )
    return count


def _evaluate_with_queues_on_top(eqn: JaxprEqn, inputs: Arrays) -> Arrays:
    """Evaluates an equation so that its queue operations come out at the top level."""
    if eqn.primitive in (dequeue_p, enqueue_p) or not uses_streams(eqn):
        return bind_equation(eqn, inputs)
    if eqn.primitive is repeat_p:
        return _repeat_as_scan(**eqn.params)(*inputs)
    body = body_of_call(eqn)
    if body is not None:
        return evaluate_equations_with(body, inputs, _evaluate_with_queues_on_top)
    raise EnqueueError(
        f"a queue is used inside `{eqn.primitive.name}` in a loop that is differentiated or "
        "vmapped; JAX would drop it",
        where=next(filter(None, (user_line(e) for j in sub_jaxprs(eqn) for e in j.eqns)), ""),
        fix="use the queue in the body of `ipu.loops.repeat` itself, or outside the derivative",
    )


def _dequeue_all(eqn: JaxprEqn, length: int) -> list[Array]:
    """Takes all elements that an equation takes over `length` iterations, stacked."""
    params = eqn.params
    count_per_iteration = params["count"]
    total = length if count_per_iteration is None else length * count_per_iteration
    leaves = dequeue(params["queue"], params["avals"], total)
    if count_per_iteration is None:
        return leaves
    return [leaf.reshape(length, count_per_iteration, *leaf.shape[1:]) for leaf in leaves]


def _enqueue_all(eqn: JaxprEqn, stacked: Arrays, length: int) -> None:
    """Sends all elements that an equation sends over `length` iterations."""
    params = eqn.params
    count_per_iteration = params["count"]
    total = length if count_per_iteration is None else length * count_per_iteration
    leaves = [s if count_per_iteration is None else s.reshape(total, *s.shape[2:]) for s in stacked]
    enqueue(params["queue"], leaves, params["structure"], total)


dequeue_p = define_primitive(
    "ipu_dequeue", _element_avals, _pull_element, has_several_results=True, on_host=STREAM_EFFECT
)
enqueue_p = define_primitive(
    "ipu_enqueue",
    lambda *leaves, **params: [],
    _push_element,
    has_several_results=True,
    on_host=STREAM_EFFECT,
    jvp=jvp_of_constant,
    vmap=_enqueue_vmap,
)
repeat_p = define_primitive_with_body(
    "ipu_repeat", _repeat_effects, _repeat_as_scan, _run_repeat_eagerly, _lower_repeat_to_fori_loop
)
