"""Reports of programs whose steps run on the tiles of several IPUs at once."""

from __future__ import annotations

import dataclasses as dc

import numpy as np

from ipujax.report.report import Report
from ipujax.system import targets
from lowering import machine, trace


def spread_over_ipus(report: Report, chip: targets.Target, ipus: int) -> Report:
    """Returns a report on several IPUs, made from that on one chip with the tiles of all.

    All IPUs take part in every step, as they wait for each other; each has its own tiles. An
    operation's work is shared equally among them.

    Args:
      report: the report on one chip.
      chip: one of the IPUs.
      ipus: how many there are.
    """
    profile, steps = report.profile, report.steps.trace
    all_steps = trace.group_traces([(0, trace.assign_to_ipu(steps, i)) for i in range(ipus)])
    operations = [_share(each, ipu, ipus) for each in profile.operations for ipu in range(ipus)]
    breakdown = profile.breakdown
    return dc.replace(
        report,
        profile=dc.replace(
            profile,
            target=chip,
            num_ipus=ipus,
            steps=trace.Steps(all_steps),
            memory=_split_memory(profile.memory, chip.tiles_per_ipu, ipus),
            operations=operations,
            breakdown=breakdown and {cause: np.tile(n, ipus) for cause, n in breakdown.items()},
        ),
    )


def _share(operation: machine.OperationTotal, ipu: int, ipus: int) -> machine.OperationTotal:
    return dc.replace(
        operation,
        ipu=ipu,
        flops=operation.flops / ipus,
        bytes=operation.bytes / ipus,
        remote_bytes=operation.remote_bytes / ipus,
        tiles=-(-operation.tiles // ipus),
    )


def _split_memory(memory: machine.Memory, tiles: int, ipus: int) -> machine.Memory:
    """Returns the memory of all tiles by IPU; what is in streaming memory is the first one's."""
    shape = (ipus, tiles)
    categories = {name: n.reshape(shape) for name, n in memory.tile_categories.items()}
    held = np.sum([*categories.values()], axis=(0, 2))
    return dc.replace(
        memory,
        tile_peak_bytes=memory.tile_peak_bytes.reshape(shape),
        tile_categories=categories,
        always_live_bytes=held,
        peak_bytes=held,
        remote_bytes=np.append(memory.remote_bytes, np.zeros(ipus - 1, np.int64)),
    )
