"""Activations that wait in streaming memory."""

from __future__ import annotations

import numpy as np
import pytest

from lowering import Options, ir, lower, schedules
from lowering.passes import offload_activations, split_backward
from lowering.pipelines import TaskRole, tasks_of_stage
from tests.lowering.pipelines.samples import (
    body_text,
    dense,
    gated,
    micro_batch,
    pipelined,
    run,
    squares,
    values_for,
)
from tests.lowering.samples import Queue

IPUS = ((0,), (1,), (2,))


def test_three_stages(golden):
    body = micro_batch([dense, gated, squares], Queue("in"))
    golden(body_text(offload_activations(body, {0, 1}, IPUS)))


def test_only_where_something_waits():
    body = micro_batch([dense, gated, squares])
    assert offload_activations(body, (), IPUS) is body
    changed = offload_activations(body, {1}, IPUS)
    for stage in (0, 2):
        assert "ipu_load" not in str(tasks_of_stage(changed, stage)[TaskRole.BACKWARD])
    assert "ipu_load" in str(tasks_of_stage(changed, 1)[TaskRole.BACKWARD])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("split", [False, True])
def test_the_numbers_stay(split):
    body = micro_batch([dense, gated, squares])
    values = values_for(body)
    changed = offload_activations(split_backward(body) if split else body, {0, 1}, IPUS)
    for mine, theirs in zip(run(changed, values), run(body, values), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)


def program(schedule, count=12):
    body = micro_batch([dense, gated, squares], Queue("in"))
    closed = pipelined(body, 3, count, schedule=schedule, offload_activations=True)
    return lower(closed, Options(num_ipus=4))


@pytest.mark.parametrize("schedule", [schedules.grouped, schedules.zero_bubble])
def test_values_wait_beside_the_ipu_that_reads_them(schedule):
    """An input of a stage, too, although the stage before has made it."""
    for node in ir.walk_nodes(program(schedule).body):
        if isinstance(node, ir.Task):
            own = [n for n in node.body.steps if isinstance(n, ir.Load | ir.Store)]
            assert {n.ipu for n in own} <= {node.spec.stage}
            assert not any(isinstance(n, ir.Copy) for n in node.body.steps if own)


def test_the_program(golden):
    golden(ir.to_text(program(schedules.grouped)))


def test_nothing_waits_in_the_sequential_schedule():
    nodes = ir.walk_nodes(program(schedules.sequential).body)
    assert not any(isinstance(node, ir.Load | ir.Store) for node in nodes)
