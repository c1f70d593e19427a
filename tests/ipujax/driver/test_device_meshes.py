"""Shardings, meshes and maps over JAX devices inside compiled functions, on four devices."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import ipujax as ipu
from tests.conftest import RunWithDevices
from tests.ipujax.feeding import configure

SETUP = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P
import ipujax as ipu
from ipujax.scopes import ipu_shard

config = ipu.config.IPUConfig()
config.auto_select_ipus = 2
config.configure_ipu_system()
mesh = jax.make_mesh((4,), ("x",), axis_types=(AxisType.Auto,))
explicit = jax.make_mesh((4,), ("x",), axis_types=(AxisType.Explicit,))
spread = NamedSharding(mesh, P("x"))
x = jnp.arange(8.0)

def between(y):
    return y

def marked(x):
    with ipu_shard(0):
        y = jnp.sin(x)
    y = between(y)
    with ipu_shard(1):
        return y * y

def looped(x):
    return jax.lax.scan(lambda c, _: (marked(c), None), x, None, length=3)[0]

def slope(x):
    return jax.grad(lambda x: looped(x).sum())(x)

def unmarked(x):
    return between(jnp.sin(x)) + 1
"""

HINTS = """
hints = {
    "constraint": lambda y: jax.lax.with_sharding_constraint(y, spread),
    "one device": lambda y: jax.lax.with_sharding_constraint(
        y, NamedSharding(Mesh(np.array(jax.devices()[3:]), ("x",)), P("x"))
    ),
    "device_put": lambda y: jax.device_put(y, spread),
    "device": lambda y: jax.device_put(y, jax.devices()[1]),
    "jit": jax.jit(lambda y: y * 2, in_shardings=spread, out_shardings=spread),
}
for name, between in hints.items():
    for fn in (marked, looped, slope, unmarked):
        want = jax.jit(lambda x: fn(x))(x)  # jit knows `fn` with what was between before
        for engine in ("fused", "replay"):
            got = ipu.compile(fn, engine=engine)(x)
            np.testing.assert_allclose(got, want, rtol=1e-6, err_msg=f"{name} {engine}")
print("same")
"""

ARGUMENTS = """
config.auto_select_ipus = 1
config.configure_ipu_system()
alone = Mesh(np.array(jax.devices()[:1]), ("x",))
summed = jax.shard_map(lambda y: jax.lax.psum(y, "x"), mesh=alone, in_specs=P("x"), out_specs=P())
for engine in ("fused", "replay"):
    np.testing.assert_array_equal(ipu.compile(summed, engine=engine)(jax.device_put(x, spread)), x)
config.auto_select_ipus = 2
config.configure_ipu_system()
for mesh_of in (mesh, explicit):
    given = jax.device_put(x, NamedSharding(mesh_of, P("x")))
    for fn in (marked, looped, slope, unmarked):
        for engine in ("fused", "replay"):
            got = ipu.compile(fn, engine=engine)(given)
            np.testing.assert_allclose(got, fn(x), rtol=1e-6)
            again = jax.jit(lambda a, b: a + b)(jax.device_put(got, given.sharding), given)
            assert len(again.sharding.device_set) == 4
            np.testing.assert_allclose(again, fn(x) + x, rtol=1e-6)
print("same")
"""

PIPELINES = """
from ipujax import pipelining_ops

def pipelined(x):
    def first(x):
        return jax.lax.with_sharding_constraint(jnp.sin(x), spread)
    out = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    queues.append(out)
    pipelining_ops.pipeline([first, lambda y: y * y], 4, inputs=[x], outfeed_queue=out)

for engine in ("fused", "replay"):
    queues = []
    ipu.compile(pipelined, engine=engine)(x)
    np.testing.assert_allclose(queues[0].dequeue()[0], [np.sin(x) ** 2] * 4, rtol=1e-6)
print("same")
"""

REFUSED = """
spread_map = jax.shard_map(lambda y: y * 2, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
refused = {
    "shard_map": spread_map,
    "pmap": lambda y: jax.pmap(lambda y: y * 2)(y.reshape(4, 2)).reshape(8),
    "reshard": lambda y: jax.sharding.reshard(y, NamedSharding(explicit, P("x"))),
}
for name, between in refused.items():
    for fn in (marked, looped, unmarked):
        for engine in ("fused", "replay"):
            try:
                ipu.compile(fn, engine=engine).lower(x)
            except ipu.errors.DeviceMeshError as error:
                assert "cross_replica_sum" in str(error) and "where: " in str(error), error
                assert name == "reshard" or "write jax.vmap for jax.pmap" in str(error), error
                print(name, str(error).splitlines()[0][:40])
            else:
                raise AssertionError(name)
between = lambda y: y
before = ipu.compile(marked, engine="replay")
np.testing.assert_allclose(before(x), marked(x), rtol=1e-6)
with jax.set_mesh(mesh):
    for call in (before, ipu.compile(marked), ipu.compile(unmarked).lower):
        try:
            call(x)
        except ipu.errors.DeviceMeshError as error:
            print("set_mesh", "outside of `with jax.set_mesh" in str(error))
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("program", [HINTS, ARGUMENTS, PIPELINES])
def test_where_jax_keeps_arrays_changes_no_number(
    program: str, run_with_devices: RunWithDevices
) -> None:
    assert run_with_devices(4, SETUP + program).split() == ["same"]


@pytest.mark.exhaustive
def test_maps_over_several_devices_are_refused(run_with_devices: RunWithDevices) -> None:
    lines = run_with_devices(4, SETUP + REFUSED).splitlines()
    assert lines == [
        *["shard_map `shard_map` (or `pmap`) over a mesh of 4"] * 6,
        *["pmap `shard_map` (or `pmap`) over a mesh of 4"] * 6,
        *["reshard `reshard` makes a value that is spread o"] * 6,
        *["set_mesh True"] * 3,
    ]


def over_one_device(fn: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    mesh = Mesh(np.array(jax.devices()[:1]), ("x",))
    return jax.shard_map(fn, mesh=mesh, in_specs=P("x"), out_specs=P("x"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("engine", ["fused", "replay"])
def test_a_map_over_one_device_works(engine: str) -> None:
    configure(2)

    def step(x: jax.Array) -> jax.Array:
        with ipu.scopes.ipu_shard(0):
            y = x * 2
        y = over_one_device(lambda y: jnp.sin(y) + jax.lax.psum(y, "x"))(y)
        with ipu.scopes.ipu_shard(1):
            return y * y

    def slope(x: jax.Array) -> jax.Array:
        def total(x: jax.Array) -> jax.Array:
            return jax.lax.scan(lambda c, _: (step(c), None), x, None, length=2)[0].sum()

        return jax.grad(total)(x)

    x = jnp.arange(4.0) / 8
    for fn in (step, slope):
        np.testing.assert_allclose(ipu.compile(fn, engine=engine)(x), jax.jit(fn)(x), rtol=1e-5)


@pytest.mark.parametrize("engine", ["auto", "replay"])
def test_a_map_over_one_device_works_on_several_replicas(engine: str) -> None:
    configure(2)
    double = over_one_device(lambda y: y * 2)
    for fn in (double, lambda x: double(x) + ipu.replication_ops.replication_index()):
        run = ipu.compile(fn, engine=engine)
        np.testing.assert_array_equal(run(jnp.arange(4.0)), 2 * np.arange(4.0))
