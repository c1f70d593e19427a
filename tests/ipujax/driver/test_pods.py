"""Programs on more than sixteen IPUs: their numbers, as `jax.jit` has them, and their reports."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from ipujax.report import Report
from tests.conftest import RunWithDevices
from tests.numbers import use_ipus

X = np.linspace(-1, 1, 8 * 16, dtype=np.float32).reshape(8, 16)


def replicas_sum(x: jax.Array) -> jax.Array:
    index = ipu.replication_ops.replication_index().astype(jnp.float32)
    return ipu.cross_replica_ops.cross_replica_sum(x * (index + 1))


def report_of(function, *, ipus: int) -> Report:
    use_ipus(ipus)
    return ipu.compile(function).lower(X).report()


@pytest.mark.parametrize("ipus", [17, 64, 128])
def test_replicas_of_a_pod_sum(ipus: int) -> None:
    use_ipus(ipus)
    total = ipus * (ipus + 1) // 2
    np.testing.assert_allclose(ipu.compile(replicas_sum)(X), total * X, rtol=1e-5)


def test_shards_over_a_pod() -> None:
    def layers(x: jax.Array) -> jax.Array:
        for number in range(20):
            with ipu.scopes.ipu_shard(number):
                x = jnp.tanh(x + 0.1)
        return x

    report = report_of(layers, ipus=32)
    assert (report.num_ipus, report.replication_factor) == (32, 1)
    np.testing.assert_allclose(ipu.compile(layers)(X), jax.jit(layers)(X), rtol=1e-6)


def test_racks_cost_more_than_one() -> None:
    reports = [report_of(replicas_sum, ipus=ipus) for ipus in (16, 64, 128, 256)]
    assert [report.replication_factor for report in reports] == [16, 64, 128, 256]
    cycles = [report.cycles for report in reports]
    assert cycles == sorted(cycles)
    told = [bool(report.assumptions) for report in reports]
    assert told == [False, False, True, True]
    assert "2 racks of 64 IPUs, whose gateways" in str(reports[2].assumptions)


ON_FOUR_DEVICES = """
import numpy as np
import ipujax as ipu
from tests.ipujax.driver.test_pods import X, replicas_sum
from tests.numbers import use_ipus

use_ipus(64)
np.testing.assert_allclose(ipu.compile(replicas_sum)(X), 64 * 65 // 2 * X, rtol=1e-5)
print("equal")
"""


def test_a_pod_on_four_devices(run_with_devices: RunWithDevices) -> None:
    assert run_with_devices(4, ON_FOUR_DEVICES).splitlines()[-1] == "equal"
