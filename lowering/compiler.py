"""The compiler on one page: from a traced function to a verified Program."""

from __future__ import annotations

import dataclasses as dc
import math
from collections.abc import Callable
from typing import TypeVar

from lowering.ground import InternalError, Options, ShardError
from lowering.ir import Program, to_text, verify_after_pass
from lowering.jaxprs import ClosedJaxpr, JaxprVerifier, has_wide_values, keep_wide_values
from lowering.passes import (
    call_once,
    check_queues,
    combine_lookups,
    combine_products,
    combine_updates,
    discharge_refs,
    drop_dead,
    drop_idle_loops,
    drop_shardings,
    find_used_shards,
    inline_calls,
    insert_checks,
    insert_copies,
    keep_small,
    keep_stored,
    line_of_shard,
    load_late,
    merge_copies,
    number_formats,
    open_single_meshes,
    partition,
    place,
    plan_pipelines,
    recompute_cheap,
    resolve_draws,
    resolve_norms,
    resolve_replicas,
    scalar_predicates,
    simplify_gathers,
    size_fifos,
    take_turns,
)

_Level = TypeVar("_Level", ClosedJaxpr, Program)


def lower(closed: ClosedJaxpr, options: Options) -> Program:
    """Lowers a traced function to the Program of all IPUs of a replica.

    Args:
      closed: the whole function, whose constants are no Refs (see `passes.discharge_refs` for
        those that are arguments); if `options.catches`, the program has one more output, the
        first fault (see `passes.insert_checks`). A function that draws from the device's seed gets
        it as one more argument (see `passes.resolve_draws`).
      options: the options of the compilation.

    Raises:
      LoweringError: one of its kinds, for programs that the user must change.
    """
    with keep_wide_values(wide=has_wide_values(closed)):
        return _run_passes(closed, options)


def _run_passes(closed: ClosedJaxpr, options: Options) -> Program:
    """Runs all passes, in order, on a traced function."""
    ipus, replicas_per_instance = count_ipus_and_replicas(
        closed, options.num_ipus, options.replicas
    )
    replicas = replicas_per_instance * options.instances
    show = _PassReporter(options)

    # What is in a Ref depends on the order of equations, which the passes are free to change.
    closed = show("discharge_refs", discharge_refs(closed))
    closed = show("drop_idle_loops", drop_idle_loops(closed))
    # Before any pass asks which device an array is on: JAX's own device is no answer.
    closed = show("open_single_meshes", open_single_meshes(closed))
    closed = show("drop_shardings", drop_shardings(closed))
    # Marks and queues must be at the top level of their bodies before anything looks for them.
    closed = show("inline_calls", inline_calls(closed))
    # Before loops are rebuilt or split: both know conditions of one boolean only.
    closed = show("scalar_predicates", scalar_predicates(closed))
    # Before collectives are resolved: replicas may share statistics.
    norms = resolve_norms(
        closed, stable=options.stable_statistics, group=options.batch_norm_group, replicas=replicas
    )
    closed = show("resolve_norms", norms)
    # Before faults are watched: with one replica a collective is no operation at all.
    closed = show("resolve_replicas", resolve_replicas(closed, replicas))
    # Before other passes look for stores and loads.
    closed = show("keep_small", keep_small(closed, options))
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
    closed = show("check_queues", check_queues(closed))
    # After the passes that must see the original operations.
    closed = show("call_once", call_once(closed, replicas))
    closed = show("take_turns", take_turns(closed, replicas))
    closed = show("drop_dead", drop_dead(closed))
    # After draws are numbered, and when only activations that backward passes read are left.
    if options.allow_recompute:
        closed = show("recompute_cheap", recompute_cheap(closed))

    # Last before placement: it decides which tasks there are, and which values pass between them.
    closed = show("plan_pipelines", plan_pipelines(closed, options, ipus))

    placed = place(closed)
    program = partition(placed, name=options.name, ipus=ipus, replicas=replicas)
    emulates = emulates or bool(faults)
    program = dc.replace(program, instances=options.instances, faults=faults)
    program = show("partition", dc.replace(program, draws=draws, emulates=emulates))
    # These passes change kernels, each of one IPU, one stage and one iteration. Then loop variables
    # that bodies keep in streaming memory are stored there, and loads go where they are needed.
    for change in (*_combining_passes(options), keep_stored, load_late):
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

    def __call__(self, name: str, result: _Level, *, has_copies: bool = False) -> _Level:
        """Verifies and reports what a pass returned, and returns it.

        Raises:
          InternalError: a broken promise; its notes name the pass and show its result.
        """
        if isinstance(result, Program):
            verify_after_pass(name, result, has_copies=has_copies)
        else:
            self.verify_jaxpr(name, result)
        if self._on_pass is not None:
            self._on_pass(name, to_text(result) if isinstance(result, Program) else str(result))
        return result

    def verify_jaxpr(self, name: str, closed: ClosedJaxpr) -> None:
        """Verifies a jaxpr that a pass returned; an error's notes name the pass."""
        try:
            self._verifier.verify(closed)
        except InternalError as broken_promise:
            broken_promise.add_note(f"after pass `{name}`:\n{closed}")
            raise


def count_ipus_and_replicas(
    closed: ClosedJaxpr, num_ipus: int, replicas: int | None = None
) -> tuple[int, int]:
    """Returns the IPUs per replica, and the number of replicas, of a program on a device.

    Shards are rounded up to a power of two, S; a device of N IPUs then runs N / S replicas
    (facts devices.shards_power2 and devices.shards_divide), or as many as were asked for.
    """
    used = max(find_used_shards(closed), default=0) + 1
    ipus = 1 << math.ceil(math.log2(used))
    if used > num_ipus:
        raise ShardError(
            f"the program uses shard {used - 1}, but its device has {num_ipus} "
            f"IPU{'' if num_ipus == 1 else 's'} (shards 0 to {num_ipus - 1})",
            where=line_of_shard(closed.jaxpr, used - 1),
            fix=f"set IPUConfig.auto_select_ipus = {ipus}, or use smaller shard indices "
            "(in a pipeline, a device_mapping with smaller numbers)",
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
        raise ShardError(
            f"the program needs {ipus} IPUs per replica (shards 0 to {used - 1}, rounded up to a "
            "power of two), and the number of shards must divide the number of IPUs of its "
            f"device, {num_ipus}",
            where=line_of_shard(closed.jaxpr, used - 1),
            fix=f"set IPUConfig.auto_select_ipus to a multiple of {ipus}",
        )
    return ipus, num_ipus // ipus
