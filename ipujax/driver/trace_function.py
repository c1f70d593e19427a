"""Traces a user's function to a `Traced`, and refuses leaked tracers and dropped enqueues."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence

import jax

from ipujax.driver.call_arguments import Refs, Settings, Signature, Tangents, shape_struct
from ipujax.driver.changed_modules import call_watching_modules
from ipujax.driver.compile_stages import Traced
from ipujax.driver.device_mesh import refuse_ambient_mesh
from ipujax.ground import (
    DeviceMeshError,
    EnqueueError,
    LeakedValueError,
    collect_garbage_seldom,
    events,
    parameter_names,
    with_calling_line,
)
from ipujax.host import trace_frames
from ipujax.system import common_mesh
from lowering import (
    count_ipus_and_replicas,
    is_ref,
    jaxpr,
    lift_closed_over_refs,
    ops,
    replace_float0_by_booleans,
)


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
    refuse_ambient_mesh(settings.name, settings.meshes)
    frames: list[trace_frames.Frame] = []
    called = with_calling_line(fn)

    def call_in_frame(*args: object, **kwargs: object) -> object:
        with trace_frames.open_trace_frame(settings.instance.num_replica_groups) as frame:
            frames.append(frame)
            return call_watching_modules(called, settings.name, args, kwargs)

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

    def trace_for_replicas(replicas: int) -> jax.stages.Traced:
        frames.clear()
        with _in_common_mesh(settings, replicas):
            return jitted.trace(*positional, **named)

    try:
        with collect_garbage_seldom(), events.span("trace", settings.name):
            trace = trace_for_replicas(1)
            if (replicas := _count_replicas_on_meshes(settings, trace.jaxpr)) > 1:
                trace = trace_for_replicas(replicas)
    except jax.errors.UnexpectedTracerError as leak:
        raise _build_leak_error(settings.name, "\n" + str(leak).partition("\n")[0]) from leak
    except ValueError as error:
        if settings.meshes and "not found in mesh" in str(error):
            raise _unknown_axis_error(settings, error) from None
        raise
    _refuse_leaked_tracers(settings.name, trace)
    _refuse_lost_enqueues(frames, trace.jaxpr)
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
        holders=settings.find_holding_processes(jax.tree.leaves(dynamic)),
        tangents=tangents,
    )
    return Traced(settings, closed, signature)


def _in_common_mesh(settings: Settings, replicas: int) -> contextlib.AbstractContextManager[object]:
    """Returns the context in which code finds the axes of the IPUs' meshes."""
    mesh = common_mesh(settings.meshes, replicas)
    return contextlib.nullcontext() if mesh is None else jax.sharding.use_abstract_mesh(mesh)


def _count_replicas_on_meshes(settings: Settings, closed: jaxpr.ClosedJaxpr) -> int:
    """Returns how many replicas a program has on its meshes; 1 without meshes."""
    if not settings.meshes:
        return 1
    ipus = len(settings.meshes)
    return count_ipus_and_replicas(closed, ipus, settings.replicas, on_meshes=True)[1]


def _unknown_axis_error(settings: Settings, error: ValueError) -> DeviceMeshError:
    """Builds the error for an axis that no mesh has, from JAX's, which does not say where."""
    return DeviceMeshError(
        f"`{settings.name}`: {error}",
        where=jaxpr.line_where_raised(error),
        fix=f"name axes of the meshes: {dict(settings.meshes[0].shape)}",
    )


def _refuse_leaked_tracers(name: str, trace: jax.stages.Traced) -> None:
    """Raises an error for leaked tracers, which JAX has prepended to the arguments."""
    traced_jaxpr: jaxpr.Jaxpr = trace.jaxpr.jaxpr
    extra = len(traced_jaxpr.invars) - len(jax.tree.leaves(trace.args_info))
    if extra:
        leaks = traced_jaxpr.invars[:extra]
        users = (e for e in traced_jaxpr.eqns if any(v is leak for v in e.invars for leak in leaks))
        line = next(map(jaxpr.user_line, users), "")
        raise _build_leak_error(name, location=f"it is used at {line or 'an unknown line'}")


def _build_leak_error(name: str, detail: str = "", location: str = "") -> LeakedValueError:
    return LeakedValueError(
        f"`{name}` uses a value of another traced function: a traced value leaked out of its "
        f"scope{detail}",
        where=location,
        fix="return values from the function that computes them instead of storing them in a "
        "global, a closure or an attribute",
    )


def _refuse_lost_enqueues(frames: Sequence[trace_frames.Frame], closed: jaxpr.ClosedJaxpr) -> None:
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
