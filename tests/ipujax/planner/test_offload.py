"""Plans that keep what waits in host memory."""

from __future__ import annotations

import pytest

from ipujax.errors import PlanError
from ipujax.planner import Costs, search

SEGMENTS = {"forward": [1, 1], "backward": [2, 2], "activation_bytes": [4, 4]}


def test_what_does_not_fit_is_offloaded() -> None:
    costs = Costs(**SEGMENTS, host_bytes_per_second=8)
    plan = search(costs, ipus=2, micro_batches=4, schedules="gpipe", recompute=False, memory=10)
    assert plan.offload
    assert plan.arguments["offload"] is True
    assert plan.seconds == (4 + 1) * (1.5 + 2.5)
    assert plan.peak_bytes == (4, 4)
    assert plan.proven
    why = {(row.offload, row.stages): row.why for row in plan.considered}
    assert why == {(True, 2): "chosen", (False, 2): "does not fit: lacks 6 bytes on an IPU"}
    assert "offloading" in str(plan)


def test_stages_in_which_nothing_waits_keep_it() -> None:
    costs = Costs(**SEGMENTS, cut_bytes=[2], host_bytes_per_second=8)
    plan = search(
        costs, ipus=2, micro_batches=4, schedules="one_f_one_b", recompute=False, offload=True
    )
    # Only stage 0 has two micro-batches at once. It waits for the first and the last to come back.
    assert len(plan.stages) == 2
    assert plan.seconds == 4 * (1.5 + 2.5) + 1.5 + 0.5
    assert plan.peak_bytes == (4, 4)


def test_nothing_is_offloaded_where_it_fits() -> None:
    costs = Costs(**SEGMENTS, host_bytes_per_second=8)
    for memory in (None, 100):
        plan = search(costs, ipus=2, micro_batches=4, schedules="gpipe", memory=memory)
        assert not plan.offload
        assert "offload" not in plan.arguments


def test_without_host_memory_nothing_can_be_offloaded() -> None:
    costs = Costs(**SEGMENTS)
    assert not search(costs, ipus=2, micro_batches=4, offload=(False, True)).offload
    with pytest.raises(PlanError, match="no host memory"):
        search(costs, ipus=2, micro_batches=4, offload=(True,))
