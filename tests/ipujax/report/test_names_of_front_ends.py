"""Reports of trainings call values as the library does whose model is trained."""

from __future__ import annotations

import dataclasses as dc
import itertools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax.errors import OutOfMemoryError, TrainingError
from ipujax.report import Report
from ipujax.training import Training, TrainState
from tests.ipujax.estimating import linear_estimator, of, regression
from tests.ipujax.feeding import infeed
from tests.ipujax.reporting import configured, struct, zeros

f32 = np.float32
ROWS = 512
FORBID = {"debug.allowOutOfMemory": "false"}


def variables(report: Report) -> set[str]:
    """What the liveness of a report calls what it keeps."""
    tensors = (tensor for held in report.liveness for tensor in held.tensors)
    return {tensor.path for tensor in tensors if tensor.category == "variables"}


def activations(report: Report) -> set[tuple[str, str]]:
    """The scopes and owners of what the liveness of a report holds beside variables."""
    tensors = (tensor for held in report.liveness for tensor in held.tensors)
    return {(tensor.scope, tensor.owner) for tensor in tensors if tensor.category == "activations"}


def product(variables: Any, x: Any) -> Any:
    return jnp.mean(jnp.tanh(x @ variables["up"]) ** 2)


def training(accumulation: int = 1) -> tuple[Training, TrainState, Any]:
    loop = Training(product, optax.adam(0.1), accumulation=accumulation)
    data = itertools.repeat(np.zeros((4, ROWS), f32))
    return loop, loop.init({"up": jnp.zeros((ROWS, ROWS))}), data


@pytest.mark.parametrize("accumulation", [1, 4])
def test_trainings(accumulation: int) -> None:
    configured()
    loop, state, data = training(accumulation)
    found = variables(loop.trace(state, data, 2).lower().report())
    assert {"variables['up']", "optimizer_state[0].mu['up']"} <= found
    assert ("variables['up']: gradient_sum" in found) == (accumulation > 1)


def test_out_of_memory_names_what_is_biggest() -> None:
    configured(ipu_model__tiles_per_ipu=1, compilation_poplar_options=FORBID)
    loop, state, data = training()
    with pytest.raises(OutOfMemoryError) as caught:
        loop.compile(state, data, 2)
    for name in ("variables['up']", "optimizer_state[0].mu['up']", "optimizer_state[0].nu['up']"):
        assert f"on that tile ({name})" in str(caught.value)


def test_optimizers_that_accumulate_in_loops() -> None:
    configured()
    optimizer = ipu.optimizers.GradientAccumulationOptimizerV2(optax.adam(0.1), 4, False)
    elements = infeed(zeros(8, ROWS))

    def step(params: Any, slots: Any, x: Any, y: Any) -> Any:
        updates, slots = optimizer.update(jax.grad(product)(params, x + y), slots, params)
        return optax.apply_updates(params, updates), slots

    def train(params: Any) -> Any:
        return ipu.loops.repeat(8, step, [params, optimizer.init(params)], elements)

    found = variables(ipu.compile(train).lower({"up": struct(ROWS, ROWS)}).report())
    up = "params['up']"
    assert {up, f"{up}: slots.accumulated", f"{up}: slots.inner_state[0].mu"} <= found


def test_names_that_are_given() -> None:
    configured()
    _, state, data = training()
    names = jax.tree.map(lambda leaf: f"float{np.shape(leaf)}", state)
    names = dc.replace(names, variables={"up": "blocks.0.up"})
    named = Training(product, optax.adam(0.1), accumulation=2, names=names)
    found = variables(named.trace(state, data, 2).lower().report())
    assert {"blocks.0.up", "blocks.0.up: gradient_sum", f"float({ROWS}, {ROWS})"} <= found
    too_few = Training(product, optax.adam(0.1), names=TrainState({"up": "up"}))
    with pytest.raises(TrainingError, match="1 texts, and the state to begin with has 4 arrays"):
        too_few.trace(state, data, 2)


@pytest.mark.parametrize("accumulation", [1, 2])
def test_models_of_keras(accumulation: int) -> None:
    keras = pytest.importorskip("keras", reason="the extra keras is not installed")
    configured()
    with ipu.ipu_strategy.IPUStrategy().scope():
        layers = [
            keras.layers.Dense(8, name="hidden"),
            keras.layers.BatchNormalization(name="norm"),
        ]
        model = keras.Sequential([keras.Input((4,)), *layers], name="small")
        model.compile(
            optimizer=keras.optimizers.Adam(name="adam"), loss="mse", steps_per_execution=2
        )
        model.set_gradient_accumulation_options(
            gradient_accumulation_steps_per_replica=accumulation,
            offload_weight_update_variables=False,  # those that are offloaded are no variables
        )
        model.fit(np.zeros((8, 4), f32), np.zeros((8, 8), f32), batch_size=4, verbose=0)
        found = variables(model.report())
    assert {
        "small/hidden/kernel",
        "small/norm/moving_mean",
        "adam/small_hidden_kernel_momentum",
    } <= found
    assert ("small/hidden/kernel: gradient_sum" in found) == (accumulation > 1)
    assert {("hidden", "matmul 4 x 4 x 8"), ("norm", "norm")} <= activations(model.report())


@pytest.mark.exhaustive
def test_models_of_pytorch() -> None:
    torch = pytest.importorskip("torch", reason="the extra torch is not installed")
    from ipujax import poptorch

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = torch.nn.Linear(4, 8)
            self.norm = torch.nn.BatchNorm1d(8)

        def forward(self, x: Any) -> Any:
            return poptorch.identity_loss(self.norm(self.hidden(x)) ** 2, "mean")

    model, options = Model(), poptorch.Options()
    options.Training.gradientAccumulation(2)
    optimizer = poptorch.optim.Adam(model.parameters(), lr=0.1)
    trained = poptorch.trainingModel(model, options, optimizer)
    trained(torch.zeros(8, 4))
    found = variables(trained.report())
    weight = "variables['hidden.weight']"
    assert {weight, f"{weight}: gradient_sum", "state['norm.running_mean']"} <= found
    assert "optimizer_state['state']['hidden.weight']['exp_avg']" in found
    assert {("hidden", "matmul 4 x 4 x 8"), ("norm", "norm")} <= activations(trained.report())
    lines = {tensor.origin for held in trained.report().liveness for tensor in held.tensors}
    assert any(line.endswith("(forward)") and line.startswith(__file__) for line in lines)


def test_nodes_of_onnx() -> None:
    """A node has the path in its name as its scope; one without a path its name."""
    pytest.importorskip("onnx", reason="the extra onnx is not installed")
    from onnx import TensorProto, helper

    shape = [16, 16]
    nodes = [
        helper.make_node("MatMul", ["x", "x"], ["product"], name="/encoder/first/MatMul"),
        helper.make_node("Relu", ["product"], ["y"], name="Relu_7"),
        helper.make_node("MatMul", ["y", "x"], ["z"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xz"]
    graph = helper.make_graph(nodes, "graph", ends[:1], ends[1:])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model = ipu.frontends.from_onnx(proto)
    assert [part.name for part in model.parts] == ["encoder/first"]
    configured()
    report = ipu.compile(lambda x: model.apply({}, x)[0]).lower(struct(16, 16)).report()
    matmul = "matmul 16 x 16 x 16"
    assert activations(report) == {
        ("encoder/first", matmul),
        ("Relu_7", "relu"),
        ("", f"results[0], {matmul}"),
    }


def test_sessions_of_popart() -> None:
    pytest.importorskip("onnx", reason="the extra onnx is not installed")
    from ipujax import popart

    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [4, 16]), "x")
    w = builder.addInitializedInputTensor(np.zeros((16, 8), f32), "w")
    loss = builder.aiGraphcore.l1loss([builder.aiOnnx.matmul([x, w])], 0.1)
    options = popart.SessionOptions()
    options.enableGradientAccumulation, options.accumulationFactor = True, 2
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(2, [loss]),
        loss,
        popart.Adam({"defaultLearningRate": (0.1, True)}),
        popart.DeviceManager().createCpuDevice(),
        userOptions=options,
    )
    session.prepareDevice()
    found = variables(session.getReport())
    assert {f"variables['{w}']", f"variables['{w}']: gradient_sum"} <= found
    assert f"optimizer_state['slots']['Accl1___{w}']" in found


def test_estimators(tmp_path: Path) -> None:
    report = linear_estimator(tmp_path).report(input_fn=of(regression()))
    assert {"variables['w']", "variables['b']"} <= variables(report)
