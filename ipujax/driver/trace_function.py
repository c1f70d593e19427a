"""Traces a user's function to a `Traced`, and refuses leaked tracers and dropped enqueues."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import jax

from ipujax.driver.call_arguments import Refs, Settings, Signature, Tangents, shape_struct
from ipujax.driver.compile_stages import Traced
from ipujax.driver.device_mesh import refuse_mesh
from ipujax.ground import EnqueueError, LeakedValueError, events, parameter_names
from ipujax.host import trace_frames
from lowering import is_ref, jaxpr, lift_closed_over_refs, ops, replace_float0_by_booleans


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
    frames: list[trace_frames.Frame] = []

    def call_in_frame(*args: object, **kwargs: object) -> object:
        with trace_frames.open_frame(settings.instance.num_replica_groups) as frame:
            frames.append(frame)
            return fn(*args, **kwargs)

    functools.update_wrapper(call_in_frame, fn, updated=())
    static = settings.static
    static.hash_key(args, kwargs)  # refuses what has no hash, as an error of ours
    dynamic = static.split_arguments(args, kwargs)[1]
    structs = jax.tree.map(shape_struct, dynamic)
    positional, named = static.merge_arguments(args, kwargs, structs)
    jitted = jax.jit(
        call_in_frame,
        static_argnums=static.numbers,
        static_argnames=static.names,
        donate_argnums=settings.donated.numbers,
        donate_argnames=settings.donated.names or None,
    )
    try:
        with events.span("trace", settings.name):
            trace = jitted.trace(*positional, **named)
    except jax.errors.UnexpectedTracerError as leak:
        raise _leak_error(settings.name, "\n" + str(leak).partition("\n")[0]) from leak
    _check_leaks(settings.name, trace)
    _check_enqueues(frames, trace.jaxpr)
    closed, closed_over = lift_closed_over_refs(trace.jaxpr)
    tangents = Tangents.find_float0(closed)
    closed = replace_float0_by_booleans(closed)
    arguments, in_tree = jax.tree.flatten(trace.args_info)
    inputs = [*jax.tree.leaves(structs), *closed_over]
    positions = tuple(i for i, leaf in enumerate(inputs) if is_ref(leaf))
    signature = Signature(
        name=settings.name,
        static=static,
        positions=static.dynamic_positions(len(args)),
        parameters=parameter_names(fn, static.dynamic_positions(len(args))),
        in_tree=in_tree,
        out_tree=jax.tree.structure(trace.out_info),
        donated=tuple(i for i, argument in enumerate(arguments) if argument.donated),
        refs=Refs(positions, tuple(closed_over)),
        names=settings.names,
        holders=settings.find_holders(jax.tree.leaves(dynamic)),
        tangents=tangents,
    )
    return Traced(settings, closed, signature)


def _check_leaks(name: str, trace: jax.stages.Traced) -> None:
    """Raises an error for leaked tracers, which JAX has prepended to the arguments."""
    traced_jaxpr: jaxpr.Jaxpr = trace.jaxpr.jaxpr
    extra = len(traced_jaxpr.invars) - len(jax.tree.leaves(trace.args_info))
    if extra:
        leaks = traced_jaxpr.invars[:extra]
        users = (e for e in traced_jaxpr.eqns if any(v is leak for v in e.invars for leak in leaks))
        line = next(map(jaxpr.user_line, users), "")
        raise _leak_error(name, location=f"it is used at {line or 'an unknown line'}")


def _leak_error(name: str, detail: str = "", location: str = "") -> LeakedValueError:
    return LeakedValueError(
        f"`{name}` uses a value of another traced function: a traced value leaked out of its "
        f"scope{detail}",
        where=location,
        fix="return values from the function that computes them instead of storing them in a "
        "global, a closure or an attribute",
    )


def _check_enqueues(frames: Sequence[trace_frames.Frame], closed: jaxpr.ClosedJaxpr) -> None:
    """Raises an error if an enqueue that the function called is not in the program."""
    queues_in_program = ops.queues_of(closed.jaxpr, ops.enqueue_p)
    for queue, line in (entry for frame in frames for entry in frame.enqueues):
        if queue not in queues_in_program:
            raise EnqueueError(
                f"outfeed `{queue.name}`: a transformation dropped this enqueue (JAX drops effects "
                "inside a differentiated `lax.scan`)",
                where=line,
                fix="use ipu.loops.repeat for the loop, or return the value and enqueue it outside "
                "the differentiated function",
            )
