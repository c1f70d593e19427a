"""The compiler on one page: from a traced function to a verified Program."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable
from typing import TypeVar

from lowering.ground import InternalError, Options, ShardError
from lowering.ir import Program, to_text, verify_after_pass
from lowering.jaxprs import (
    ClosedJaxpr,
    JaxprVerifier,
    has_wide_avals,
    has_wide_values,
    keep_wide_values,
)
from lowering.passes import (
    add_missing_batching_rules,
    brings_ipus,
    combine_lookups,
    combine_products,
    combine_updates,
    discharge_refs,
    drop_dead,
    drop_idle_loops,
    drop_recomputed_enqueues,
    drop_shardings,
    emulate_partial_sums,
    find_used_shards,
    inline_calls,
    inline_single_device_shard_maps,
    insert_checks,
    insert_copies,
    keep_loop_variables_stored,
    keep_small_values_on_tiles,
    line_of_shard,
    load_late,
    make_callbacks_on_first_replica,
    make_loop_conditions_scalar,
    merge_copies,
    number_formats,
    partition,
    place,
    plan_pipelines,
    recompute_cheap,
    resolve_collectives,
    resolve_cycle_stamps,
    resolve_draws,
    resolve_norms,
    select_cheap_branches,
    simplify_gathers,
    size_fifos,
)

_Level = TypeVar("_Level", ClosedJaxpr, Program)


def lower(closed: ClosedJaxpr, options: Options) -> Program:
    """Lowers a traced function to the Program of all IPUs of a replica, as it runs on a host.

    Arguments and errors are those of `lower_for_machine`.
    """
    return emulate_machine(lower_for_machine(closed, options), options)


def lower_for_machine(closed: ClosedJaxpr, options: Options) -> Program:
    """Lowers a traced function to the Program of all IPUs of a replica.

    An IPU adds up products of float16 as it was asked to, and `emulate_machine` has hosts do so.

    Args:
      closed: the whole function, whose constants are no Refs (see `passes.discharge_refs` for
        those that are arguments); if `options.fault_kinds_to_report`, the program has one more
        output, the first fault (see `passes.insert_checks`). A function that draws from the
        device's seed gets it as one more argument (see `passes.resolve_draws`).
      options: the options of the compilation.

    Raises:
      LoweringError: one of its kinds, for programs that the user must change.
    """
    with keep_wide_values(wide=has_wide_values(closed)):
        return _run_passes(closed, options)


def emulate_machine(program: Program, options: Options) -> Program:
    """Returns the program that computes on a host what the IPU computes by itself.

    Args:
      program: what `lower_for_machine` returned.
      options: the options that it was lowered with.
    """
    if not options.number_formats:
        return program
    with keep_wide_values(wide=has_wide_avals(program.avals)):
        program = emulate_partial_sums(program, options.partials)
    return _PassReporter(options)("emulate_partial_sums", program, has_copies=True)


def _run_passes(closed: ClosedJaxpr, options: Options) -> Program:
    """Runs all passes, in order, on a traced function."""
    ipus, replicas_per_instance = count_ipus_and_replicas(
        closed, options.num_ipus, options.replicas, on_meshes=options.mesh is not None
    )
    replicas = replicas_per_instance * options.instances
    show = _PassReporter(options)

    # What is in a Ref depends on the order of equations, which the passes are free to change.
    closed = show("discharge_refs", discharge_refs(closed))
    closed = show("drop_idle_loops", drop_idle_loops(closed))
    # Before any pass asks which device an array is on: JAX's own device is no answer.
    closed = show("inline_single_device_shard_maps", inline_single_device_shard_maps(closed))
    closed = show("drop_shardings", drop_shardings(closed, options.mesh))
    # Marks and queues must be at the top level of their bodies before anything looks for them.
    closed = show("inline_calls", inline_calls(closed))
    # Before loops are rebuilt or split: both know conditions of one boolean only.
    closed = show("make_loop_conditions_scalar", make_loop_conditions_scalar(closed))
    # Before anything is placed: a condition would bring what it reads to one IPU.
    closed = show("select_cheap_branches", select_cheap_branches(closed, options))
    # Before collectives are resolved: replicas may share statistics.
    norms = resolve_norms(
        closed, stable=options.stable_statistics, group=options.batch_norm_group, replicas=replicas
    )
    closed = show("resolve_norms", norms)
    # Before faults are watched: with one replica a collective is no operation at all.
    closed = show("resolve_collectives", resolve_collectives(closed, replicas))
    # Before number formats are emulated, which the machine does by itself.
    closed = show("resolve_cycle_stamps", resolve_cycle_stamps(closed, options.count_cycles))
    # Before other passes look for stores and loads.
    closed = show("keep_small_values_on_tiles", keep_small_values_on_tiles(closed, options))
    # Before faults are watched: they are those of the results before rounding to float16.
    formatted = number_formats(closed, options, replicas) if options.number_formats else closed
    emulates = formatted is not closed
    closed, faults = insert_checks(show("number_formats", formatted), options, replicas)
    show.verify_jaxpr("insert_checks", closed)
    # After the passes that insert draws, rounding included.
    closed, draws = resolve_draws(closed, replicas)
    closed = show("resolve_draws", closed)
    # Before replicas take turns at counters, and before equations of indices alone are dropped.
    if options.simplify_gathers:
        closed = show("simplify_gathers", simplify_gathers(closed))
    # After the passes that can remove or double an equation.
    closed = show("drop_recomputed_enqueues", drop_recomputed_enqueues(closed))
    # After the passes that must see the original operations.
    closed = show(
        "make_callbacks_on_first_replica", make_callbacks_on_first_replica(closed, replicas)
    )
    closed = show("add_missing_batching_rules", add_missing_batching_rules(closed, replicas))
    closed = show("drop_dead", drop_dead(closed))
    # After draws are numbered, and when only activations that backward passes read are left.
    recomputed = recompute_cheap(closed, everywhere=options.allow_recompute)
    closed = show("recompute_cheap", recomputed)

    # Last before placement: it decides which tasks there are, and which values pass between them.
    closed = show("plan_pipelines", plan_pipelines(closed, options, ipus))

    program = partition(place(closed), name=options.name, ipus=ipus, replicas=replicas)
    program = dc.replace(program, instances=options.instances, faults=faults)
    program = show("partition", dc.replace(program, draws=draws, emulates=emulates or bool(faults)))
    # These passes change kernels, each of one IPU, one stage and one iteration. Then loop variables
    # that bodies keep in streaming memory are stored there, and loads go where they are needed.
    for change in (*_combining_passes(options), keep_loop_variables_stored, load_late):
        program = show(change.__name__, change(program))
    program = show("insert_copies", insert_copies(program), has_copies=True)
    merged = merge_copies(program, options.merged_copy_bytes, options.merged_host_bytes)
    program = show("merge_copies", merged, has_copies=True)
    return show("size_fifos", size_fifos(program), has_copies=True)


def _combining_passes(options: Options) -> list[Callable[[Program], Program]]:
    """Returns the passes that merge several operations into one, where options ask for it."""
    lookups = [combine_lookups, combine_updates] if options.combine_lookups else []
    return [*lookups, *([combine_products] if options.combine_products else [])]


class _PassReporter:
    """A verifier of what each pass returns, which hands its text to `options.on_pass`."""

    def __init__(self, options: Options):
        self._on_pass, self._verifier = options.on_pass, JaxprVerifier()
        self._verified: tuple[Program, bool] | None = None

    def __call__(self, name: str, result: _Level, *, has_copies: bool = False) -> _Level:
        """Verifies and reports what a pass returned, and returns it.

        Raises:
          InternalError: a broken promise; its notes name the pass and show its result.
        """
        if isinstance(result, Program):
            self.verify_program(name, result, has_copies=has_copies)
        else:
            self.verify_jaxpr(name, result)
        if self._on_pass is not None:
            self._on_pass(name, to_text(result) if isinstance(result, Program) else str(result))
        return result

    def verify_program(self, name: str, program: Program, *, has_copies: bool) -> None:
        """Verifies a Program that a pass returned, unless it is the one of the pass before."""
        if self._verified is not None:
            verified, had_copies = self._verified
            if verified is program and had_copies == has_copies:
                return
        verify_after_pass(name, program, has_copies=has_copies)
        self._verified = program, has_copies

    def verify_jaxpr(self, name: str, closed: ClosedJaxpr) -> None:
        """Verifies a jaxpr that a pass returned; an error's notes name the pass."""
        try:
            self._verifier.verify(closed)
        except InternalError as broken_promise:
            broken_promise.add_note(f"after pass `{name}`:\n{closed}")
            raise


def count_unconfigured_ipus(closed: ClosedJaxpr) -> int:
    """Returns the IPUs of a device that nobody has configured, for one program.

    It is one, unless a pipeline that is cut out of a function brings what it needs.
    """
    return _round_up_shards(max(find_used_shards(closed), default=0)) if brings_ipus(closed) else 1


def _round_up_shards(last_shard: int) -> int:
    """Returns the number of shards up to the last, rounded up to a power of two."""
    return 1 << last_shard.bit_length()


def count_ipus_and_replicas(
    closed: ClosedJaxpr, num_ipus: int, replicas: int | None = None, *, on_meshes: bool = False
) -> tuple[int, int]:
    """Returns the IPUs per replica, and the number of replicas, of a program on a device.

    Shards are rounded up to a power of two, S; a device of N IPUs then runs N / S replicas
    (facts devices.shards_power2 and devices.shards_divide), or as many as were asked for.
    On meshes, where users say how many there are, shards are not rounded up if S divides no N.
    """
    last = max(find_used_shards(closed), default=0)
    used, ipus = last + 1, _round_up_shards(last)
    if on_meshes and num_ipus % ipus:
        ipus = used
    if used > num_ipus:
        more = f"give {used} meshes" if on_meshes else f"set IPUConfig.auto_select_ipus = {ipus}"
        raise ShardError(
            f"the program uses shard {used - 1}, but its device has {num_ipus} "
            f"IPU{'' if num_ipus == 1 else 's'} (shards 0 to {num_ipus - 1})",
            where=line_of_shard(closed.jaxpr, used - 1),
            fix=f"{more}, or use smaller shard indices (in a pipeline, a device_mapping with "
            "smaller numbers)",
        )
    if replicas is not None:
        if replicas * ipus > num_ipus:
            raise ShardError(
                f"{replicas} replicas of {ipus} IPU{'' if ipus == 1 else 's'} each need "
                f"{replicas * ipus} IPUs, and the device has {num_ipus}",
                fix=f"set IPUConfig.auto_select_ipus = {replicas * ipus}, or have fewer replicas",
            )
        return ipus, replicas
    if num_ipus % ipus:
        rounded = "" if on_meshes else ", rounded up to a power of two"
        more = "give" if on_meshes else "set IPUConfig.auto_select_ipus to"
        raise ShardError(
            f"the program needs {ipus} IPUs per replica (shards 0 to {used - 1}{rounded}), and the "
            f"number of shards must divide the number of IPUs of its device, {num_ipus}",
            where=line_of_shard(closed.jaxpr, used - 1),
            fix=f"{more} a multiple of {ipus}{' meshes' if on_meshes else ''}",
        )
    return ipus, num_ipus // ipus
