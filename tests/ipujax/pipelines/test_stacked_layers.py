"""A parameter that is stacked over layers: each device has the rows of its own stages only."""

from __future__ import annotations

import pytest

from tests.conftest import RunWithDevices

SETUP = """
import jax, jax.numpy as jnp, numpy as np, optax
import ipujax as ipu
from jax.sharding import NamedSharding, PartitionSpec as P
from ipujax.pipelining_ops import value_and_grad

LAYERS, WIDTH = 8, 16

def params():
    keys = jax.random.split(jax.random.key(0), 2)
    layers = {"w": jax.random.normal(keys[0], (LAYERS, WIDTH, WIDTH)) / 4,
              "b": jnp.zeros((LAYERS, WIDTH))}
    return {"embed": jax.random.normal(keys[1], (WIDTH, WIDTH)) / 4, "layers": layers}

def loss_fn(params, x, cast=None):
    def layer(h, w):
        return jnp.tanh(h @ w["w"] + w["b"]).astype(h.dtype) + h, None
    layers = params["layers"]
    if cast is not None:
        layers = jax.tree.map(lambda leaf: leaf.astype(cast), layers)
    h, _ = jax.lax.scan(layer, x @ params["embed"], layers)
    return jnp.mean((h @ params["embed"].T) ** 2)

x = jax.random.normal(jax.random.key(9), (32, WIDTH))

def make_step(grad_fn, optimizer):
    def step(params, state, x):
        loss, gradients = grad_fn(params, x)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, loss
    return step

def compare(run, optimizer, plain=None, loss_fn=loss_fn, tolerance=1e-6):
    mine, theirs = params(), params()
    states = optimizer.init(mine), optimizer.init(theirs)
    plain = plain or jax.jit(make_step(jax.value_and_grad(loss_fn), optimizer))
    for _ in range(3):
        before = mine
        mine, state, loss = run(mine, states[0], x)
        theirs, other, expected = plain(theirs, states[1], x)
        states = state, other
    for a, b in zip(jax.tree.leaves((mine, loss)), jax.tree.leaves((theirs, expected))):
        distance = np.linalg.norm(np.asarray(a) - b) / (np.linalg.norm(b) + 1e-9)
        assert distance < tolerance, distance
    return mine, states[0], before

def check_rows(tree, per_device, devices):
    for leaf in jax.tree.leaves(tree):
        if leaf.ndim and leaf.shape[0] == LAYERS:
            held = {s.device: s.data.shape[0] for s in leaf.addressable_shards}
            assert held == dict.fromkeys(jax.devices()[:devices], per_device), held
"""

ADAM = """
optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-2))
grad_fn = value_and_grad(loss_fn, micro_batches=4, stages=4)
"""

PROGRAMS = {
    "one device for each IPU": ADAM
    + """
step = make_step(grad_fn, optimizer)
run = ipu.compile(step, gather=False, donate_argnums=(0, 1))
new, state, before = compare(run, optimizer)
check_rows((new, state), 2, 4)
assert all(leaf.is_deleted() for leaf in jax.tree.leaves(before))  # donated
wrong = {**new["layers"], "w": jnp.ones((LAYERS + 1, WIDTH, WIDTH))}
try:
    run.lower(new, state, x).compile()({**new, "layers": wrong}, state, x)
except TypeError as error:
    assert "args[0]['layers']['w'][0:2] is float32[9,16,16]" in str(error), error
else:
    raise AssertionError("not refused")
""",
    "meshes": ADAM
    + """
meshes = ipu.meshes(4, {"model": 2})
run = ipu.compile(make_step(grad_fn, optimizer), meshes=meshes)
new, state, _ = compare(run, optimizer)
check_rows((new, state), 2, 8)
spec = P(None, None, "model")  # over the mesh of the first IPU
given = params()
given["layers"]["w"] = jax.device_put(given["layers"]["w"], NamedSharding(meshes[0], spec))
state = optimizer.init(params())
for _ in range(2):
    given, state, loss = run(given, state, x)
shards = given["layers"]["w"].addressable_shards
assert {s.data.shape for s in shards} == {(2, WIDTH, WIDTH // 2)}, shards
assert len({s.device for s in shards}) == 8
""",
    "a loop of updates under a condition": """
optimizer = optax.MultiSteps(optax.adamw(1e-2), 2)
grad_fn = value_and_grad(loss_fn, micro_batches=4, stages=4)

def three(step):
    def run(params, state, x):
        def body(params, state, loss):
            return step(params, state, x)
        return tuple(ipu.loops.repeat(3, body, [params, state, jnp.float32(0)]))
    return run

run = ipu.compile(three(make_step(grad_fn, optimizer)), gather=False)
plain = make_step(jax.value_and_grad(loss_fn), optimizer)

@jax.jit
def three_plain(params, state, x):
    for _ in range(3):
        params, state, loss = plain(params, state, x)
    return params, state, loss

new, state, _ = compare(run, optimizer, three_plain)
check_rows((new, state), 2, 4)
""",
    "parameters that are cast": """
import functools
optimizer = optax.sgd(0.1, momentum=0.9)
cast = functools.partial(loss_fn, cast=jnp.bfloat16)
run = ipu.compile(
    make_step(value_and_grad(cast, micro_batches=4, stages=4), optimizer), gather=False)
new, state, _ = compare(run, optimizer, loss_fn=cast, tolerance=5e-3)
check_rows((new, state), 2, 4)
""",
    "two stages, and rows that cannot be even": """
optimizer = optax.sgd(0.1)
run = ipu.compile(
    make_step(value_and_grad(loss_fn, micro_batches=4, stages=2), optimizer), gather=False)
new, _, _ = compare(run, optimizer)
check_rows(new, 4, 2)
run = ipu.compile(
    make_step(value_and_grad(loss_fn, micro_batches=4, stages=3), optimizer), gather=False)
new, _, _ = compare(run, optimizer)
""",
    "checkpoints": ADAM
    + """
run = ipu.compile(make_step(grad_fn, optimizer), gather=False)
new, state, _ = compare(run, optimizer)
ipu.checkpoint.save("folder", 1, (new, state))
again, other = ipu.checkpoint.restore("folder", like=(new, state))
check_rows((again, other), 2, 4)
for a, b in zip(jax.tree.leaves(run(new, state, x)), jax.tree.leaves(run(again, other, x))):
    np.testing.assert_array_equal(a, b)
""",
    "meshes that are too few, or have the axis": ADAM
    + """
from jax.sharding import Mesh
step = make_step(grad_fn, optimizer)
try:
    run = ipu.compile(step, meshes=ipu.meshes(2, {"data": 2}))
    run.lower(params(), optimizer.init(params()), x)
except ipu.errors.ShardError as error:
    assert "give 4 meshes" in str(error), error
else:
    raise AssertionError("not refused")
meshes = ipu.meshes(4, {"ipu": 2})
new, state, _ = compare(ipu.compile(step, meshes=meshes), optimizer)
assert new["layers"]["w"].sharding.mesh.axis_names == ("ipu",)
""",
    "parts that XLA shards in different ways": """
from ipujax.driver.stacked_arrays import join_rows, split_rows
from lowering import RowSplit
meshes = ipu.meshes(4, {"data": 2})
specs = [P(), P("data"), P(None, "data"), P()]
for first in range(4):
    rows = np.arange(64.0).reshape(8, 8)
    parts = [
        jax.device_put(rows[2 * i : 2 * i + 2], NamedSharding(mesh, specs[(first + i) % 4]))
        for i, mesh in enumerate(meshes)
    ]
    joined = join_rows(parts)
    np.testing.assert_array_equal(joined, rows)
    check_rows([joined], 1 if specs[first] == P("data") else 2, 8)
    split = RowSplit((0, 2, 4, 6, 8), (0, 1, 2, 3))
    again = jax.device_put(rows, joined.sharding)  # not one that join_rows made
    for made in (split_rows(joined, split), split_rows(again, split)):
        for part, mesh, start in zip(made, meshes, range(0, 8, 2)):
            np.testing.assert_array_equal(part, rows[start : start + 2])
            assert part.sharding.is_equivalent_to(NamedSharding(mesh, specs[first]), 2)
""",
    "saved executables": ADAM
    + """
run = ipu.compile(make_step(grad_fn, optimizer), gather=False)
p, state = params(), optimizer.init(params())
executable = run.lower(p, state, x).compile()
executable.save("program")
loaded = ipu.load_executable("program")
for a, b in zip(jax.tree.leaves(executable(p, state, x)), jax.tree.leaves(loaded(p, state, x))):
    np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)
""",
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_stay_on_the_devices_of_their_stage(
    name: str, run_with_devices: RunWithDevices
) -> None:
    run_with_devices(8, SETUP + PROGRAMS[name])
