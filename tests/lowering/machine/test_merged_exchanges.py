"""Arrays that go together share what is fixed in an exchange; their bytes stay the same."""

from __future__ import annotations

import itertools
import math

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowering.machine import IPU2, ModelOptions, model
from lowering.machine.transfers import HostLink, external_sync_cycles, merge_exchanges
from lowering.ops import dequeue, enqueue
from tests.lowering.samples import Queue, lowered, outside, shard

A = jax.ShapeDtypeStruct((256,), jnp.float32)  # 1 KiB
SIZES = st.lists(st.integers(0, 1000), max_size=20)


@given(SIZES, st.integers(0, 4000))
def test_no_more_bytes_wait_than_may(sizes, most):
    exchanges = merge_exchanges(sizes, most)
    assert sum(exchanges) == sum(sizes)
    assert all(bytes_ <= max(most, max(sizes)) for bytes_ in exchanges)
    assert all(a + b > most for a, b in itertools.pairwise(exchanges))
    assert merge_exchanges(sizes, 0) == [size for size in sizes if size]
    assert len(merge_exchanges(sizes, sum(sizes))) <= 1


def spread(x):
    """The second IPU asks for four arrays of the first at once."""
    with shard(0):
        made = [jnp.exp(x), jnp.sin(x), jnp.cos(x), jnp.sqrt(x)]
    with shard(1):
        return sum(made[1:], made[0])


@pytest.mark.parametrize(
    ("most", "exchanges"), [(0, 4), (1024, 4), (2048, 2), (3072, 2), (1 << 20, 1)]
)
def test_copies_between_two_ipus(most, exchanges):
    found = model(lowered(spread, A), ModelOptions(merged_copy_bytes=most))
    before = model(lowered(spread, A))
    fixed = ModelOptions().cycles_between_ipus([(0, 1, 1)]) - 1 + external_sync_cycles(IPU2, 2)
    assert before.cycles - found.cycles == pytest.approx((4 - exchanges) * fixed, abs=4)
    between = [step for step in found.steps if step.kind == "inter_ipu" and step.ipu == 0]
    assert len(between) == exchanges
    moved = {op.ipu: op.bytes for op in found.operations if op.name == "copy 0 -> 1"}
    assert moved == {0: 4096, 1: 4096}


def fed():
    queue, other = Queue("in"), Queue("out")
    aval = jax.typeof(jnp.zeros(A.shape, A.dtype))
    x, y, z = dequeue(queue, [aval] * 3)
    enqueue(other, [x * y, z], None)
    return x + z


def host_cycles(options, fn, *args):
    found = model(lowered(fn, *args, ipus=1), options)
    return [step.cycles for step in found.steps if step.kind == "host"]


BYTES = 1024 / 32e9 * IPU2.clock_hz


def test_arrays_of_an_infeed():
    apart, sent = host_cycles(ModelOptions(), fed)
    merged, sent_too = host_cycles(ModelOptions(merges_infeeds=True), fed)
    assert apart == 3 * (100 + math.ceil(BYTES))
    assert merged == 100 + math.ceil(3 * BYTES)
    assert sent == sent_too == 2 * (100 + math.ceil(BYTES))


@pytest.mark.parametrize(("most", "exchanges"), [(0, 2), (2048, 1)])
def test_arrays_for_calls_of_the_host(most, exchanges):
    def fn(x):
        one, other = jnp.exp(x), jnp.sin(x)
        with outside():
            y = one + other
        return y + 1

    there, back = host_cycles(ModelOptions(merged_host_bytes=most), fn, A)
    assert there == pytest.approx(100 * exchanges + 2 * BYTES, abs=2)
    assert back == 100 + math.ceil(BYTES)


def test_arrays_for_tables_of_the_host():
    host = HostLink(target=IPU2, merged_bytes=2048)
    assert host.host_transfer_cycles([1024, 1024]) == 100 + math.ceil(2 * BYTES)
    assert host.host_transfer_cycles([1024, 1024], 0) == 200 + 2 * math.ceil(BYTES)
    assert host.host_transfer_cycles([]) == host.host_transfer_cycles([0]) == 0
