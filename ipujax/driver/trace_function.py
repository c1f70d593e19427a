"""From a user's function and its arguments to a `Traced`, which loses and borrows nothing."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import jax

from ipujax import events
from ipujax.checks.parameter_names import parameter_names
from ipujax.driver import tracing
from ipujax.driver.arguments import Refs, Settings, Signature, Tangents, struct
from ipujax.driver.device_mesh import refuse_mesh
from ipujax.driver.stages import Traced
from ipujax.errors import EnqueueError, LeakedValueError
from lowering import booleans_for_float0, closed_over_refs, is_ref, jaxpr, ops


def trace_function(
    fn: Callable[..., object],
    settings: Settings,
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> Traced:
    """Traces a function for these arguments.

    Raises:
      LeakedValueError: for values of a trace that has ended.
      EnqueueError: for enqueues that a transformation has dropped.
      DeviceMeshError: under `jax.set_mesh` of several devices.
    """
    refuse_mesh(settings.name)
    frames: list[tracing.Frame] = []

    def traced(*args: object, **kwargs: object) -> object:
        with tracing.frame(settings.among.shares_of_replicas) as frame:
            frames.append(frame)
            return fn(*args, **kwargs)

    functools.update_wrapper(traced, fn, updated=())
    static = settings.static
    static.key(args, kwargs)  # refuses what has no hash, as an error of ours
    dynamic = static.split(args, kwargs)[1]
    structs = jax.tree.map(struct, dynamic)
    positional, named = static.joined(args, kwargs, structs)
    jitted = jax.jit(
        traced,
        static_argnums=static.numbers,
        static_argnames=static.names,
        donate_argnums=settings.donated.numbers,
        donate_argnames=settings.donated.names or None,
    )
    try:
        with events.span("trace", settings.name):
            trace = jitted.trace(*positional, **named)
    except jax.errors.UnexpectedTracerError as leak:
        raise _leaked(settings.name, "\n" + str(leak).partition("\n")[0]) from leak
    _check_leaks(settings.name, trace)
    _check_enqueues(frames, trace.jaxpr)
    closed, closed_over = closed_over_refs(trace.jaxpr)
    tangents = Tangents.of(closed)
    closed = booleans_for_float0(closed)
    arguments, in_tree = jax.tree.flatten(trace.args_info)
    inputs = [*jax.tree.leaves(structs), *closed_over]
    positions = tuple(i for i, leaf in enumerate(inputs) if is_ref(leaf))
    signature = Signature(
        name=settings.name,
        static=static,
        positions=static.dynamic(len(args)),
        parameters=parameter_names(fn, static.dynamic(len(args))),
        in_tree=in_tree,
        out_tree=jax.tree.structure(trace.out_info),
        donated=tuple(i for i, argument in enumerate(arguments) if argument.donated),
        refs=Refs(positions, tuple(closed_over)),
        names=settings.names,
        holders=settings.holders(jax.tree.leaves(dynamic)),
        tangents=tangents,
    )
    return Traced(settings, closed, signature)


def _check_leaks(name: str, trace: jax.stages.Traced) -> None:
    """Finds tracers from elsewhere, which JAX has turned into arguments in front of the others."""
    whole: jaxpr.Jaxpr = trace.jaxpr.jaxpr
    extra = len(whole.invars) - len(jax.tree.leaves(trace.args_info))
    if extra:
        leaks = whole.invars[:extra]
        users = (e for e in whole.eqns if any(v is leak for v in e.invars for leak in leaks))
        line = next(map(jaxpr.user_line, users), "")
        raise _leaked(name, where=f"it is used at {line or 'an unknown line'}")


def _leaked(name: str, more: str = "", where: str = "") -> LeakedValueError:
    return LeakedValueError(
        f"`{name}` uses a value of another traced function: a traced value leaked out of its "
        f"scope{more}",
        where=where,
        fix="return values from the function that computes them instead of storing them in a "
        "global, a closure or an attribute",
    )


def _check_enqueues(frames: Sequence[tracing.Frame], closed: jaxpr.ClosedJaxpr) -> None:
    """Finds enqueues that Python called and that are not in the program."""
    kept = ops.queues_of(closed.jaxpr, ops.enqueue_p)
    for queue, line in (entry for frame in frames for entry in frame.enqueues):
        if queue not in kept:
            raise EnqueueError(
                f"outfeed `{queue.name}`: a transformation dropped this enqueue (JAX drops effects "
                "inside a differentiated `lax.scan`)",
                where=line,
                fix="use ipu.loops.repeat for the loop, or return the value and enqueue it outside "
                "the differentiated function",
            )
