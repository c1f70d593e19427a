"""IPUs on meshes of JAX devices: numbers of plain JAX, and state that stays where it is."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

import ipujax as ipu
from tests.conftest import RunWithDevices
from tests.ipujax.staging import (
    mlp_batch,
    mlp_loss,
    mlp_params,
    relative_distance,
    value_and_grad_of_mean,
)

SETUP = """
import logging
import jax, jax.numpy as jnp, numpy as np, optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import ipujax as ipu
from ipujax.scopes import ipu_shard

WIDTH, IPUS = 16, 2
meshes = ipu.meshes(IPUS, {"data": 2, "model": 2})
keys = jax.random.split(jax.random.key(0), 2 * IPUS)
x = jax.random.normal(jax.random.key(1), (8, WIDTH))

def layers():
    return [
        {"in": jax.random.normal(keys[2 * i], (WIDTH, 4 * WIDTH)) / 8,
         "out": jax.random.normal(keys[2 * i + 1], (4 * WIDTH, WIDTH)) / 8}
        for i in range(IPUS)
    ]

def sharded_layers():
    specs = {"in": P(None, "model"), "out": P("model", None)}
    return [
        {name: jax.device_put(leaf, NamedSharding(mesh, specs[name])) for name, leaf in p.items()}
        for p, mesh in zip(layers(), meshes)
    ]

def constrain(y, *spec):
    known = jax.sharding.get_abstract_mesh().axis_names  # none under plain jit
    return jax.lax.with_sharding_constraint(y, P(*spec)) if known else y

def block(p, h):
    a = constrain(jnp.tanh(h @ p["in"]), "data", "model")
    return h + constrain(a @ p["out"], "data", None)

def loss_fn(params, x):
    h = x
    for i, p in enumerate(params):
        with ipu_shard(i):
            h = block(p, h)
    with ipu_shard(IPUS - 1):
        return jnp.mean((h - 1) ** 2)

optimizer = optax.adam(0.01)

def step(params, state, x):
    loss, grads = jax.value_and_grad(loss_fn)(params, x)
    updates, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, updates), state, loss

def distance(a, b):
    norm = lambda t: np.sqrt(sum(float((np.asarray(l) ** 2).sum()) for l in jax.tree.leaves(t)))
    return norm(jax.tree.map(lambda a, b: np.asarray(a) - np.asarray(b), a, b)) / norm(b)

def expected(steps=3):
    params = layers()
    state = optimizer.init(params)
    for _ in range(steps):
        params, state, loss = jax.jit(step)(params, state, x)
    return params, state, loss

def ids(array):
    return sorted(device.id for device in array.devices())
"""

TRAINING = """
run = ipu.compile(step, meshes=meshes, donate_argnums=(0, 1))
params = sharded_layers()
state = optimizer.init(params)
held = params[0]["in"]
for _ in range(3):
    params, state, loss = run(params, state, x)
assert held.is_deleted()
want, want_state, want_loss = expected()
assert distance(params, want) < 5e-6, distance(params, want)
np.testing.assert_allclose(loss, want_loss, rtol=1e-6)
for i in range(IPUS):
    for tree in (params, state[0].mu, state[0].nu):
        assert ids(tree[i]["in"]) == ids(tree[i]["out"]) == [4 * i + n for n in range(4)]
        assert tree[i]["in"].addressable_shards[0].data.shape == (WIDTH, 2 * WIDTH)
        assert tree[i]["out"].addressable_shards[0].data.shape == (2 * WIDTH, WIDTH)
assert params[0]["in"].sharding == NamedSharding(meshes[0], P(None, "model"))
assert ids(loss) == [4, 5, 6, 7]
print("same")
"""

GATHERED = """
run = ipu.compile(step, meshes=meshes, gather=True)
params = sharded_layers()
params, state, loss = run(params, optimizer.init(params), x)
assert distance(params, expected(1)[0]) < 5e-6
for leaf in jax.tree.leaves((params, state, loss)):
    assert ids(leaf) == [0, 1, 2, 3] and leaf.sharding.is_fully_replicated
print("same")
"""

SCATTERED = """
config = ipu.config.IPUConfig()
config.auto_select_ipus = IPUS
config.configure_ipu_system()
run = ipu.compile(step, gather=False, donate_argnums=(0, 1))
params = layers()
state = optimizer.init(params)
for _ in range(3):
    params, state, loss = run(params, state, x)
assert distance(params, expected()[0]) < 5e-6
for i in range(IPUS):
    for tree in (params, state[0].mu, state[0].nu):
        assert ids(tree[i]["in"]) == ids(tree[i]["out"]) == [i]
assert run.lower(params, state, x).compile().engine == "replay"
print("same")
"""

MAPPED = """
def mean_over_data(y):
    return jax.shard_map(
        lambda y: y + jax.lax.pmean(y, "data"), in_specs=P("data"), out_specs=P("data")
    )(y)

def mapped(x):
    with ipu_shard(0):
        y = mean_over_data(jnp.sin(x))
    with ipu_shard(1):
        z = jax.shard_map(
            lambda y: jax.lax.psum(y @ y.T, "model"), mesh=meshes[1],
            in_specs=P(None, "model"), out_specs=P(),
        )(y)
        return (z ** 2).sum()

def plain(x):
    y = jnp.sin(x)
    y = y + jnp.tile((y[:4] + y[4:]) / 2, (2, 1))
    return ((y @ y.T) ** 2).sum()

value, slope = ipu.compile(jax.value_and_grad(mapped), meshes=meshes)(x)
want, want_slope = jax.value_and_grad(plain)(x)
np.testing.assert_allclose(value, want, rtol=1e-5)
assert distance(slope, want_slope) < 1e-5
print("same")
"""

LOOPS = """
elements = [{"x": np.asarray(x) + i} for i in range(16)]

def trained(meshes, replicas):
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = IPUS * replicas
    config.configure_ipu_system()
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(elements)
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    def body(params, x):
        loss, grads = jax.value_and_grad(loss_fn)(params, x)
        outfeed.enqueue(loss)
        mean = lambda g: ipu.cross_replica_ops.cross_replica_sum(g) / replicas
        return jax.tree.map(lambda p, g: p - 0.1 * mean(g), params, grads)
    run = ipu.compile(lambda params: ipu.loops.repeat(3, body, [params], infeed), meshes=meshes)
    params = run(layers())
    return run(params), outfeed.dequeue()

for replicas, wide in ((1, meshes), (2, ipu.meshes(4, {"data": 1, "model": 2}))):
    params, losses = trained(wide, replicas)
    want, want_losses = trained(None, replicas)
    assert distance(params, want) < 5e-6
    np.testing.assert_allclose(losses, want_losses, rtol=1e-5)
    for i in range(IPUS):
        size = wide[0].size
        assert ids(params[i]["in"]) == [size * i + n for n in range(size)], ids(params[i]["in"])
print("same")
"""

PIPELINED = """
from ipujax.pipelining_ops import OptimizerFunctionOutput, PipelineSchedule, pipeline

elements = [{"x": np.asarray(x) + i} for i in range(24)]

def trained(meshes, schedule):
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = IPUS
    config.configure_ipu_system()
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(elements)
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    optimizer = optax.sgd(0.1, momentum=0.9)
    stages = [lambda p, x: block(p[0], x), lambda p, h: jnp.mean((block(p[1], h) - 1) ** 2)]
    def train(params, state):
        return pipeline(
            stages, 8, infeed_queue=infeed, outfeed_queue=outfeed, variables=params,
            optimizer_state=state, pipeline_schedule=schedule,
            optimizer_function=lambda loss: OptimizerFunctionOutput(optimizer, loss),
        )
    run = ipu.compile(train, meshes=meshes, donate_argnums=(0, 1))
    params = sharded_layers() if meshes else layers()
    state = optimizer.init(params)
    for _ in range(3):
        params, state = run(params, state)
    return params, outfeed.dequeue()

for schedule in (PipelineSchedule.Interleaved, ipu.schedules.one_f_one_b):
    params, losses = trained(meshes, schedule)
    want, want_losses = trained(None, schedule)
    assert distance(params, want) < 5e-6
    np.testing.assert_allclose(losses, want_losses, rtol=1e-5)
    assert [ids(p["in"]) for p in params] == [[0, 1, 2, 3], [4, 5, 6, 7]]
print("same")
"""

STAGED = """
from jax._src.array import ArrayImpl  # the transfer guard does nothing on CPUs
from ipujax.pipelining_ops import value_and_grad

STAGES, MICRO_BATCHES = 4, 8
meshes = ipu.meshes(STAGES, {"data": 1, "model": 2})
weights = [jax.random.normal(key, (WIDTH, WIDTH)) / 4 for key in jax.random.split(keys[0], STAGES)]
batch = jax.random.normal(keys[1], (4 * MICRO_BATCHES, WIDTH))

def staged_loss(weights, batch):
    h = batch
    for i, w in enumerate(weights):
        with ipu.scopes.pipeline_stage(i):
            h = constrain(jnp.tanh(h @ w), "data", "model")
    with ipu.scopes.pipeline_stage(STAGES - 1):
        return jnp.mean((h - 1) ** 2)

grad_fn = value_and_grad(staged_loss, micro_batches=MICRO_BATCHES)
optimizer = optax.sgd(0.1, momentum=0.9)

def update(weights, state, batch, grad_fn=grad_fn):
    loss, grads = grad_fn(weights, batch)
    updates, state = optimizer.update(grads, state, weights)
    return optax.apply_updates(weights, updates), state, loss

plain = jax.jit(lambda w, s, b: update(w, s, b, jax.value_and_grad(staged_loss)))
want, want_state = weights, optimizer.init(weights)
for _ in range(3):
    want, want_state, want_loss = plain(want, want_state, batch)

run = ipu.compile(update, meshes=meshes, donate_argnums=(0, 1))
params = [
    jax.device_put(w, NamedSharding(mesh, P(None, "model"))) for w, mesh in zip(weights, meshes)
]
state = optimizer.init(params)
reads = []
for number in range(3):
    if number == 2:  # all is compiled
        whole = ArrayImpl._value
        ArrayImpl._value = property(lambda array: reads.append(array) or whole.fget(array))
        wait = ArrayImpl.block_until_ready
        ArrayImpl.block_until_ready = lambda array: reads.append(array) or wait(array)
    params, state, loss = run(params, state, batch)
ArrayImpl._value, ArrayImpl.block_until_ready = whole, wait
assert not reads, "the host waited"
assert distance(params, want) < 5e-6
np.testing.assert_allclose(loss, want_loss, rtol=1e-6)

del want, want_state, weights, batch, keys, x
held = {}
for leaf in jax.tree.leaves((params, state)):
    for shard in leaf.addressable_shards:
        held[shard.device.id] = held.get(shard.device.id, 0) + shard.data.nbytes
share = WIDTH * WIDTH * 4 // 2  # of its stage's weight, which "model" halves
assert held == {device: 2 * share for device in range(8)}, held
print("same")
"""

CONSTANTS = """
table = np.arange(8.0, dtype=np.float32)
halves = jax.device_put(jnp.zeros(8), NamedSharding(meshes[0], P("data")))
other, doubled = ipu.compile(lambda halves, x: (table, x * 2), meshes=meshes)(halves, x)
np.testing.assert_array_equal(other, table)
eight = Mesh(np.array(jax.devices()), ("data",))
wide = jax.device_put(jnp.arange(8.0), NamedSharding(eight, P("data")))
moved = ipu.compile(lambda wide: wide + 1, meshes=meshes)(wide)
assert ids(moved) == [0, 1, 2, 3] and moved.sharding.is_fully_replicated
np.testing.assert_array_equal(moved, jnp.arange(1.0, 9.0))
kept = jnp.arange(8.0)
run = ipu.compile(lambda a, b: (a + 1, b * 2, a), meshes=meshes, donate_argnums=1)
for _ in range(2):
    plus, twice, same = run(kept, jnp.ones(8))
    np.testing.assert_array_equal(plus, np.arange(1.0, 9.0))
    np.testing.assert_array_equal(same, kept)
try:
    run.lower(kept, kept).compile().save("program.ipujax")
except ipu.errors.ExecutableError as error:
    assert "meshes" in str(error)
    print("same")
"""

REFUSED = """
def refusal(function, **options):
    try:
        ipu.compile(function, **options)(x)
    except Exception as error:
        return str(error)
    raise AssertionError(options)

def over(mesh):
    return lambda x: jax.shard_map(lambda y: y * 2, mesh=mesh, in_specs=P("data"),
                                   out_specs=P("data"))(x)

other = Mesh(np.array(jax.devices()), ("data",))
print("other mesh" if "data" in refusal(over(other), meshes=meshes) else "")
unknown = lambda x: jax.lax.with_sharding_constraint(x, P("rows"))
print("unknown axis" if "rows" in refusal(unknown, meshes=meshes) else "")
constrained = lambda x: jax.lax.with_sharding_constraint(x, NamedSharding(other, P("data")))
print(refusal(constrained, meshes=meshes).splitlines()[0])
config = ipu.config.IPUConfig()
config.auto_select_ipus = 4
config.configure_ipu_system()
print(refusal(lambda x: x + 1, meshes=meshes).splitlines()[0])
"""


@pytest.mark.parametrize(
    "program",
    [
        TRAINING,
        pytest.param(GATHERED, marks=pytest.mark.exhaustive),
        SCATTERED,
        pytest.param(MAPPED, marks=pytest.mark.exhaustive),
        pytest.param(LOOPS, marks=pytest.mark.exhaustive),
        pytest.param(PIPELINED, marks=pytest.mark.exhaustive),
        STAGED,
        pytest.param(CONSTANTS, marks=pytest.mark.exhaustive),
    ],
    ids=[
        "training",
        "gathered",
        "scattered",
        "mapped",
        "loops",
        "pipelined",
        "staged",
        "constants",
    ],
)
def test_meshes_compute_what_one_device_does(
    program: str, run_with_devices: RunWithDevices
) -> None:
    assert run_with_devices(8, SETUP + program).split() == ["same"]


@pytest.mark.exhaustive
def test_what_does_not_fit_meshes_is_refused(run_with_devices: RunWithDevices) -> None:
    assert run_with_devices(8, SETUP + REFUSED).splitlines() == [
        "other mesh",
        "unknown axis",
        "a sharding constraint over a mesh with the axes {'data': 8}, and the meshes of the IPUs "
        "have {'data': 2, 'model': 2}",
        "2 meshes were given, and /device:IPU:0 has 4 IPUs",
    ]


def mesh_of_first_device(name: str, kind: AxisType = AxisType.Auto) -> Mesh:
    return Mesh(np.array(jax.devices()[:1]), (name,), (kind,))


@pytest.mark.parametrize(
    ("meshes", "message"),
    [
        (3, "is no sequence of meshes"),
        ([], "is no sequence of meshes"),
        (["data"], "meshes[0] is a str"),
        ([mesh_of_first_device("a"), mesh_of_first_device("b")], "meshes[1] has the axes {'b': 1}"),
        ([mesh_of_first_device("a", AxisType.Explicit)], "those of IPUs are Auto"),
        ([Mesh(np.array(jax.devices()[:1] * 2), ("a",))], "twice"),
    ],
)
def test_meshes_that_no_device_can_have_are_refused(meshes: object, message: str) -> None:
    with pytest.raises(ipu.errors.DeviceMeshError) as caught:
        ipu.compile(lambda x: x, meshes=meshes)
    assert message in str(caught.value)
    assert __file__ in caught.value.where


def test_three_stages_run_on_three_meshes() -> None:
    grad_fn = ipu.pipelining_ops.value_and_grad(mlp_loss, micro_batches=2)
    run = ipu.compile(grad_fn, meshes=[mesh_of_first_device("data")] * 3)
    params, batch = mlp_params(3), mlp_batch()
    expected = value_and_grad_of_mean(mlp_loss, 2)(params, batch)
    assert relative_distance(run(params, batch), expected) < 1e-6


def test_more_stages_than_meshes_are_refused() -> None:
    grad_fn = ipu.pipelining_ops.value_and_grad(mlp_loss, micro_batches=2)
    run = ipu.compile(grad_fn, meshes=[mesh_of_first_device("data")] * 2)
    with pytest.raises(ipu.errors.ShardError, match="give 3 meshes"):
        run(mlp_params(3), mlp_batch())


@pytest.mark.parametrize("donated", [(0, 1), 0])
def test_an_array_may_be_given_twice_and_donated(donated: int | tuple[int, ...]) -> None:
    meshes = [mesh_of_first_device("data")]
    run = ipu.compile(lambda x, y: (x + 1, y * 2), meshes=meshes, donate_argnums=donated)
    array = jax.device_put(np.arange(4.0), NamedSharding(meshes[0], PartitionSpec()))
    plus, twice = run(array, array)
    np.testing.assert_array_equal(plus, np.arange(1.0, 5.0))
    np.testing.assert_array_equal(twice, np.arange(0.0, 8.0, 2.0))


def test_the_fused_engine_has_no_meshes() -> None:
    with pytest.raises(ipu.errors.ConfigError, match="fused"):
        ipu.compile(lambda x: x, meshes=[mesh_of_first_device("a")], engine="fused")


@pytest.mark.parametrize(
    ("count", "axes", "message"),
    [
        (0, {"a": 1}, "the number of meshes"),
        (1, {"a": 0}, "the size of axis `a`"),
        (1, [2], "the axes of ipu.meshes are a list"),
        (1000, {"a": 2}, "1000 meshes of 2 devices are 2000 devices"),
    ],
)
def test_impossible_sizes_are_refused(count: int, axes: object, message: str) -> None:
    with pytest.raises(ipu.errors.DeviceMeshError) as caught:
        ipu.meshes(count, axes)
    assert message in str(caught.value)
    assert __file__ in caught.value.where
