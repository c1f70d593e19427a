"""From a user's function and its arguments to a `Lowered`: trace, check, lower."""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax

from ipujax import events
from ipujax.driver import tracing
from ipujax.driver.arguments import Refs, Settings, struct
from ipujax.driver.device_mesh import refuse_mesh
from ipujax.driver.stages import Lowered
from ipujax.engine.callbacks import Watch
from ipujax.errors import DeviceError, EnqueueError, LeakedValueError
from ipujax.system.devices import SYSTEM, LogicalDevice, is_ipu_device_name
from ipujax.system.options import floating_point_effective, floating_point_was_assigned
from lowering import Options, ir, jaxpr, lower, refs, streams


class _Default(str):
    """A default that can be told from the same text passed by a caller."""

    __slots__ = ()


DEFAULT_DEVICE = _Default("/device:IPU:0")


def lower_function(
    fn: Callable[..., Any], settings: Settings, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Lowered:
    """Traces and lowers a function for these arguments.

    Raises:
      LoweringError: and its kinds, for programs that do not fit their device.
      LeakedValueError: for values of a trace that has ended.
      DeviceMeshError: under `jax.set_mesh` of several devices.
    """
    refuse_mesh(settings.name)
    frames: list[tracing.Frame] = []

    def traced(*args: Any, **kwargs: Any) -> Any:
        with tracing.frame() as frame:
            frames.append(frame)
            return fn(*args, **kwargs)

    functools.update_wrapper(traced, fn, updated=())
    static = settings.static
    structs = jax.tree.map(struct, static.split(args, kwargs)[1])
    given, named = static.joined(args, kwargs, structs)
    jitted = jax.jit(traced, static_argnums=static.numbers, donate_argnums=settings.donate_argnums)
    try:
        with events.span("trace", settings.name):
            trace = jitted.trace(*given, **named)
    except jax.errors.UnexpectedTracerError as leak:
        raise _leaked(settings.name, _first_line(leak)) from leak
    with events.span("lower", settings.name):
        _check_leaks(settings.name, trace)
        _check_enqueues(frames, trace.jaxpr)
        device = _device(settings.device, trace.jaxpr)
        options = _options(settings, device)
        closed, closed_over = refs.closed_over(trace.jaxpr)
        watch = Watch()
        program = lower(watch.over(closed), options)
        _check_queue_devices(program, device)
    donated = [info.donated for info in jax.tree.leaves(trace.args_info)]
    inputs = [*jax.tree.leaves(structs), *closed_over]
    positions = tuple(i for i, leaf in enumerate(inputs) if refs.is_ref(leaf))
    return Lowered(
        program=program,
        as_on_machine=functools.partial(_without_emulation, closed, options, program),
        watch=watch,
        device=device,
        engine=settings.engine,
        static=static,
        in_tree=jax.tree.structure(trace.args_info),
        out_tree=jax.tree.structure(trace.out_info),
        donated=tuple(i for i, is_donated in enumerate(donated) if is_donated),
        refs=Refs(positions, tuple(closed_over)),
    )


def _without_emulation(
    closed: jaxpr.ClosedJaxpr, options: Options, program: ir.Program
) -> ir.Program:
    """The program without what only CPUs and GPUs need to compute as the machine does."""
    if not program.emulates:
        return program
    plain = dc.replace(
        options,
        number_formats=False,
        catch_invalid=False,
        catch_division=False,
        catch_overflow=False,
    )
    return lower(closed, plain)


def _options(settings: Settings, device: LogicalDevice) -> Options:
    inv, div0, oflo, esr, nanoo = floating_point_effective(device.config)
    io_tiles, norms = device.config.io_tiles, device.config.norms
    return Options(
        num_ipus=device.num_ipus,
        name=settings.name,
        catch_invalid=inv,
        catch_division=div0,
        catch_overflow=oflo,
        number_formats=True,
        float16_limits=floating_point_was_assigned(device.config),
        nan_on_overflow=nanoo,
        stochastic_rounding=esr,
        step_slow_loops=jax.default_backend() == "cpu",
        allow_recompute=device.config.allow_recompute,
        stable_statistics=norms.use_stable_statistics,
        batch_norm_group=norms.experimental.distributed_batch_norm_replica_group_size,
        io_tiles=io_tiles.num_io_tiles > 0 and io_tiles.place_ops_on_io_tiles,
        minimum_remote_bytes=device.config.optimizations.minimum_remote_tensor_size,
    )


def _device(name: str, closed: Any) -> LogicalDevice:
    if is_ipu_device_name(name):
        return SYSTEM.device(name)
    if not closed.jaxpr.eqns and not closed.jaxpr.outvars:
        return SYSTEM.device(DEFAULT_DEVICE)  # nothing to run: nothing runs in the wrong place
    raise DeviceError(
        f"the program is placed on {name!r}, which is not an IPU; compile it inside "
        "ipu_scope('/device:IPU:0'), or pass device='/device:IPU:0'"
    )


def _check_leaks(name: str, trace: Any) -> None:
    """Finds tracers from elsewhere, which JAX has turned into arguments in front of the others."""
    whole: jaxpr.Jaxpr = trace.jaxpr.jaxpr
    extra = len(whole.invars) - len(jax.tree.leaves(trace.args_info))
    if extra:
        leaks = whole.invars[:extra]
        users = (e for e in whole.eqns if any(v is leak for v in e.invars for leak in leaks))
        line = next(map(jaxpr.user_line, users), "")
        raise _leaked(name, f"  where: it is used at {line or 'an unknown line'}")


def _leaked(name: str, more: str) -> LeakedValueError:
    return LeakedValueError(
        f"`{name}` uses a value of another traced function: a traced value leaked out of its "
        f"scope\n{more}\n"
        "  fix:   return values from the function that computes them instead of storing them in a "
        "global, a closure or an attribute"
    )


def _check_enqueues(frames: Sequence[tracing.Frame], closed: Any) -> None:
    """Finds enqueues that Python called and that are not in the program."""
    kept = streams.queues_of(closed.jaxpr, streams.enqueue_p)
    for queue, line in (entry for frame in frames for entry in frame.enqueues):
        if queue not in kept:
            raise EnqueueError(
                f"outfeed `{queue.name}`: a transformation dropped this enqueue (JAX drops effects "
                "inside a differentiated `lax.scan`)",
                where=line,
                fix="use ipu.loops.repeat for the loop, or return the value and enqueue it outside "
                "the differentiated function",
            )


def _check_queue_devices(program: ir.Program, device: LogicalDevice) -> None:
    for queue in (*ir.queues(program, ir.StreamIn), *ir.queues(program, ir.StreamOut)):
        queue.check_device(device.ordinal)
    for queue in ir.queues(program, ir.StreamOut):
        queue.expect(program.replicas)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
