"""A state between calls is on the devices of the IPUs that use it, with the numbers of one device.

Each program trains stages whose arrays have "stage0", "stage1" and so on in their names, and leaves
`numbers`, what was learnt, and `state`, a tree of arrays.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.conftest import RunWithDevices

SETUP = """
import json, os
os.environ["KERAS_BACKEND"] = "jax"
import jax, jax.numpy as jnp, numpy as np, optax
import ipujax as ipu

WIDTH, ROWS = 8, 4
random = np.random.default_rng(0)

def attach_ipus(count):
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = count
    config.configure_ipu_system()

def draw(*shape):
    return random.normal(size=shape).astype(np.float32) / 2
"""

REPORT = """
def describe(leaf):
    ids = [shard.device.id for shard in leaf.addressable_shards]
    assert all(shard.data.shape == leaf.shape for shard in leaf.addressable_shards)
    return ids

print(json.dumps({
    "numbers": [np.asarray(x, np.float64).ravel().tolist() for x in numbers],
    "devices": {
        jax.tree_util.keystr(path): describe(leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(state)
        if isinstance(leaf, jax.Array)
    },
}))
"""

STAGES = """
from ipujax.training import Inference, Pipeline, StageOutput, Training

attach_ipus(2)
params = {
    f"stage{n}": {"w": draw(WIDTH, WIDTH), "frozen": np.arange(WIDTH, dtype=np.int32)}
    for n in range(2)
}

def layer(p, x):
    return jnp.tanh(x @ p["w"] + 0.01 * p["frozen"])

data = [(draw(ROWS, WIDTH),) for _ in range(48)]
"""

PIPELINE = (
    STAGES
    + """
def first(params, state, x):
    return StageOutput([layer(params["stage0"], x)], state)

def last(params, state, x):
    y = layer(params["stage1"], x)
    mean = 0.9 * state["stage1 mean"] + y.mean()
    return StageOutput([jnp.mean((y - 1) ** 2)], {"stage1 mean": mean})

training = Training(Pipeline([first, last]), optax.sgd(0.1, momentum=0.9), accumulation=8)
train_state = training.init(params, {"stage1 mean": np.float32(0)})
train_state = training.fit(train_state, data, 2)
train_state = training.fit(train_state, data, 1)
held = train_state.variables["stage1"]["w"]
inference = Inference(Pipeline([first, last]), accumulation=8)
loss = inference.evaluate(train_state, data, 1)
again = inference.run_single_loop(train_state, data, 1).state
assert again.variables["stage1"]["w"] is held  # nothing moved
numbers = [*jax.tree.leaves((train_state.variables, train_state.state)), *jax.tree.leaves(loss)]
state = [train_state.variables, train_state.optimizer_state[0].trace, train_state.state]
for tree in state[1].values():
    del tree["frozen"]
"""
)

SHARDS = (
    STAGES
    + """
from ipujax.scopes import ipu_shard

def compute_loss(params, x):
    for n in range(2):
        with ipu_shard(n):
            x = layer(params[f"stage{n}"], x)
    with ipu_shard(1):
        return jnp.mean((x - 1) ** 2)

training = Training(compute_loss, optax.sgd(0.1, momentum=0.9), accumulation=4, replicas=REPLICAS)
train_state = training.init(params)
for _ in range(3):
    train_state = training.fit(train_state, data, 1)
numbers = jax.tree.leaves(train_state.variables)
state = [train_state.variables, train_state.optimizer_state[0].trace]
for tree in state[1].values():
    del tree["frozen"]
whole = Training(lambda params, x: compute_loss(params, x), optax.sgd(0.1), engine="fused")
fused_state = whole.fit(whole.init(train_state.variables), data, 1)
numbers += jax.tree.leaves(fused_state.variables)
"""
)

KERAS = """
import keras

attach_ipus(2)
keras.utils.set_random_seed(0)
x, y = draw(8 * ROWS, WIDTH), draw(8 * ROWS, 1)
with ipu.ipu_strategy.IPUStrategy().scope():
    inputs = keras.Input((WIDTH,))
    with ipu.keras.PipelineStage(0):
        h = keras.layers.Dense(WIDTH, "tanh", name="stage0_dense")(inputs)
    with ipu.keras.PipelineStage(1):
        h = keras.layers.BatchNormalization(name="stage1_norm")(h)
        outputs = keras.layers.Dense(1, name="stage1_dense")(h)
    model = keras.Model(inputs, outputs)
    model.compile("adam", "mse", metrics=["mae"], steps_per_execution=8)
    model.set_pipelining_options(gradient_accumulation_steps_per_replica=8)
    history = model.fit(x, y, batch_size=ROWS, epochs=3, verbose=0, shuffle=False)
    scores = model.evaluate(x, y, batch_size=ROWS, verbose=0)
    predicted = model.predict(x, batch_size=ROWS, verbose=0)
np.testing.assert_allclose(model(x), predicted, rtol=1e-4, atol=1e-5)  # outside of programs
model.save("model.keras")
np.testing.assert_allclose(
    keras.saving.load_model("model.keras")(x), predicted, rtol=1e-4, atol=1e-5
)
numbers = [*model.get_weights(), history.history["loss"], scores, predicted]
variables = [*model.weights, *model.optimizer.variables]
state = {variable.path: variable.value for variable in variables}
"""

POPTORCH = """
import torch
from ipujax import poptorch

class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stage0 = torch.nn.Linear(WIDTH, WIDTH)
        self.stage1 = torch.nn.Sequential(torch.nn.BatchNorm1d(WIDTH), torch.nn.Linear(WIDTH, 1))
        self.stage1_frozen = torch.nn.Linear(WIDTH, WIDTH)
        self.stage1_frozen.requires_grad_(False)

    def forward(self, x):
        with poptorch.Block("first", ipu_id=0):
            h = torch.tanh(self.stage0(x))
        with poptorch.Block("second", ipu_id=1):
            y = self.stage1(self.stage1_frozen(h))
            return y, poptorch.identity_loss((y ** 2).mean(), "mean")

torch.manual_seed(0)
module, options = Layers(), poptorch.Options()
if PIPELINED:
    options.setExecutionStrategy(poptorch.PipelinedExecution())
    options.Training.gradientAccumulation(4)
else:
    options.setExecutionStrategy(poptorch.ShardedExecution())
optimizer = poptorch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
model = poptorch.trainingModel(module, options, optimizer)
x = torch.tensor(draw((4 if PIPELINED else 1) * ROWS, WIDTH))
losses = [model(x)[1].detach().numpy() for _ in range(2)]
assert optimizer.state_dict()["state"]
optimizer.param_groups[0]["lr"] = 0.05
model.setOptimizer(optimizer)
losses.append(model(x)[1].detach().numpy())
numbers = [*losses, *(tensor.detach().numpy() for tensor in module.state_dict().values())]
program = model._program
slots = {key: value for key, value in program.state.optimizer_state.items() if key != "hyper"}
state = [program.state.variables, program.state.state, slots]
"""

POPART = """
from ipujax import popart

builder = popart.Builder()
x = builder.addInputTensor(popart.TensorInfo("FLOAT", [ROWS, WIDTH]), "x")
weights = [builder.addInitializedInputTensor(draw(WIDTH, WIDTH), f"stage{n}") for n in range(2)]
h = x
for n, weight in enumerate(weights):
    for operator, others in ((builder.aiOnnx.matmul, [weight]), (builder.aiOnnx.tanh, [])):
        h = operator([h, *others])
        builder.virtualGraph(h, n)
        builder.pipelineStage(h, n)
loss = builder.aiGraphcore.l1loss([h], 0.1)
builder.virtualGraph(loss, 1)
builder.pipelineStage(loss, 1)
options = popart.SessionOptions()
options.virtualGraphMode = popart.VirtualGraphMode.Manual
options.enablePipelining = options.enableGradientAccumulation = True
options.accumulationFactor = 4
session = popart.TrainingSession(
    builder.getModelProto(),
    popart.DataFlow(1, {loss: popart.AnchorReturnType("All")}),
    loss,
    popart.SGD({"defaultLearningRate": (0.1, False), "defaultMomentum": (0.9, False)}),
    popart.DeviceManager().createIpuModelDevice({"numIPUs": 2}),
    userOptions=options,
)
session.prepareDevice()
session.weightsFromHost()
anchors = session.initAnchorArrays()
for _ in range(3):
    session.run(popart.PyStepIO({"x": draw(4, ROWS, WIDTH)}, anchors))
    session.weightsToHost()
session.modelToHost("model.onnx")
arrays = {weight: np.empty((WIDTH, WIDTH), np.float32) for weight in weights}
session.readWeights(popart.PyWeightsIO(arrays))
numbers = [anchors[loss], *arrays.values()]
state = [session._state.variables, session._state.optimizer_state["slots"]]
"""

ESTIMATOR = """
from ipujax.ipu_estimator import ModeKeys
from ipujax.ipu_pipeline_estimator import IPUPipelineEstimator, IPUPipelineEstimatorSpec
from ipujax.ipu_run_config import IPURunConfig, RunConfig
from ipujax.ipu_session_run_hooks import SessionRunHook
from ipujax.pipelining_ops import OptimizerFunctionOutput

options = ipu.config.IPUConfig()
options.auto_select_ipus = 2
run = IPURunConfig(iterations_per_loop=8, num_shards=2, ipu_options=options)

def first(v, x):
    return jnp.tanh(x @ v["stage0"])

def last(v, x):
    y = x @ v["stage1"]
    return jnp.mean((y - 1) ** 2)

def model_fn(mode):
    return IPUPipelineEstimatorSpec(
        mode, [first, last], 8,
        optimizer_function=lambda loss: OptimizerFunctionOutput(optax.sgd(0.1, momentum=0.9), loss),
        eval_metrics_fn=lambda loss: {"loss": loss},
    )

initial = {"stage0": draw(WIDTH, WIDTH), "stage1": draw(WIDTH, WIDTH)}
estimator = IPUPipelineEstimator(
    model_fn, config=RunConfig(run, model_dir=f"model{jax.device_count()}"),
    init_fn=lambda key, features: jax.tree.map(jnp.asarray, initial),
)
states = []

class Keep(SessionRunHook):
    def after_run(self, run_context, run_values):
        states.append(run_context.session.state)

data = [draw(ROWS, WIDTH) for _ in range(24)]
estimator.train(lambda: data, hooks=[Keep()], steps=16)
estimator.train(lambda: data, hooks=[Keep()], steps=8)
numbers = [estimator.get_variable_value(name) for name in ("stage0", "stage1")]
numbers += [estimator.evaluate(lambda: data, steps=8)["loss"]]
state = [states[-1].variables, states[-1].optimizer_state]
"""

PROGRAMS = {
    "pipeline": PIPELINE,
    "shards": "REPLICAS = 1\n" + SHARDS,
    "replicas": "REPLICAS = 2\n" + SHARDS.replace("attach_ipus(2)", "attach_ipus(4)"),
    "keras": KERAS,
    "poptorch_pipeline": "PIPELINED = True\n" + POPTORCH,
    "poptorch_shards": "PIPELINED = False\n" + POPTORCH,
    "popart": POPART,
    "estimator": ESTIMATOR,
}
QUICK = "pipeline"


def run_program(run: RunWithDevices, name: str, devices: int) -> dict[str, Any]:
    return json.loads(run(devices, SETUP + PROGRAMS[name] + REPORT).splitlines()[-1])


@pytest.mark.parametrize(
    "name",
    [
        name if name == QUICK else pytest.param(name, marks=pytest.mark.exhaustive)
        for name in PROGRAMS
    ],
)
def test_a_state_stays_on_the_devices_of_its_ipus(
    name: str, run_with_devices: RunWithDevices
) -> None:
    for library, prefix in (("keras", "keras"), ("torch", "poptorch"), ("onnx", "popart")):
        if name.startswith(prefix):
            pytest.importorskip(library)
    alone, several = (run_program(run_with_devices, name, count) for count in (1, 4))
    for number, (one, other) in enumerate(zip(several["numbers"], alone["numbers"], strict=True)):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6, err_msg=f"array {number}")
    for stage in range(2):
        devices = {k: ids for k, ids in several["devices"].items() if f"stage{stage}" in k}
        assert len(devices) >= 2
        assert devices == {key: [stage] for key in devices}
    assert set(map(tuple, alone["devices"].values())) == {(0,)}


MESHES = """
from ipujax.training import Pipeline, Training
from jax.sharding import NamedSharding, PartitionSpec

meshes, spec = ipu.meshes(2, {"model": 2}), PartitionSpec(None, "model")
params = [draw(WIDTH, WIDTH) for _ in range(2)]
data = [(draw(ROWS, WIDTH),) for _ in range(24)]

def first(params, x):
    return jnp.tanh(x @ params[0])

def last(params, x):
    return jnp.mean((x @ params[1] - 1) ** 2)

def train(params, meshes):
    pipeline = Pipeline([first, last])
    training = Training(pipeline, optax.sgd(0.1, momentum=0.9), accumulation=8, meshes=meshes)
    return training.fit(training.init(params), data, 3)

sharded = [jax.device_put(w, NamedSharding(mesh, spec)) for w, mesh in zip(params, meshes)]
state = train(sharded, meshes)
for tree in state.variables, state.optimizer_state[0].trace:
    for leaf, mesh in zip(tree, meshes):
        assert leaf.sharding == NamedSharding(mesh, spec), leaf.sharding
attach_ipus(2)
for leaf, plain in zip(state.variables, train(params, None).variables):
    np.testing.assert_allclose(leaf, plain, rtol=1e-5, atol=1e-6)
print("same")
"""


@pytest.mark.exhaustive
def test_a_training_on_meshes_keeps_its_shards(run_with_devices: RunWithDevices) -> None:
    assert run_with_devices(4, SETUP + MESHES).split() == ["same"]
