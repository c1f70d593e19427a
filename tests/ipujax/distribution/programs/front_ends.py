"""Pipelines of PopTorch, Keras and PopART, whose stages may be in several processes."""

from __future__ import annotations

import json
import os
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import numpy as np

import ipujax as ipu
import ipujax.popdist.popart
from ipujax import popart, poptorch

index = ipu.popdist.getInstanceIndex()
random = np.random.default_rng(0)
X = random.normal(size=(32, 4)).astype(np.float32)
Y = X.sum(1, keepdims=True)


def processes_of(executable: Any) -> int:
    """How many processes have a part of a program."""
    return len(executable.lowered.placement.process_of_ipu)


def of_poptorch() -> list[float]:
    import torch

    torch.manual_seed(index)
    first, last = (torch.nn.Linear(n, m) for n, m in ((4, 8), (8, 1)))

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = poptorch.BeginBlock(first, ipu_id=0)
            self.last = poptorch.BeginBlock(last, ipu_id=1)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            return torch.nn.functional.mse_loss(self.last(torch.tanh(self.first(x))), y)

    model, options = Model(), poptorch.Options().randomSeed(0)
    options.Training.gradientAccumulation(8)
    data = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(Y))
    loader = poptorch.DataLoader(options, data, batch_size=2, shuffle=True)
    training = poptorch.trainingModel(model, options, torch.optim.SGD(model.parameters(), lr=0.1))
    for x, y in loader:
        training(x, y)
    weights = torch.cat([w.detach().flatten() for w in training.state_dict().values()]).tolist()
    return [processes_of(training.executable), *weights]


def of_keras() -> list[float]:
    import keras

    keras.utils.set_random_seed(index)
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(1)])
        model.set_pipeline_stage_assignment([0, 1])
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=8)
        model.compile(keras.optimizers.SGD(0.05), "mse", steps_per_execution=8)
        losses = model.fit(X, Y, batch_size=2, epochs=2, shuffle=False, verbose=0).history["loss"]
    weights = np.concatenate([np.ravel(w) for w in model.get_weights()]).tolist()
    return [processes_of(model.train_function.executable), *losses, *weights]


def of_popart() -> list[float]:
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2, 4]))
    weights = np.random.default_rng(1)
    values = [weights.normal(size=s).astype(np.float32) for s in ((4, 8), (8, 1))]
    names = [builder.addInitializedInputTensor(value) for value in values]
    with builder.virtualGraph(0), builder.pipelineStage(0):
        hidden = builder.aiOnnx.tanh([builder.aiOnnx.matmul([x, names[0]])])
    with builder.virtualGraph(1), builder.pipelineStage(1):
        loss = builder.aiGraphcore.l1loss([builder.aiOnnx.matmul([hidden, names[1]])], 0.1)
    options = popart.SessionOptions()
    ipujax.popdist.popart.configureSessionOptions(options)
    options.virtualGraphMode, options.enablePipelining = popart.VirtualGraphMode.Manual, True
    options.enableGradientAccumulation, options.accumulationFactor = True, 8
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(2, {loss: popart.AnchorReturnType("All")}),
        loss,
        popart.ConstSGD(0.01),
        userOptions=options,
        deviceInfo=ipujax.popdist.popart.getDevice(2),
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: X.reshape(2, 8, 2, 4)}, anchors))
    session.weightsToHost()
    after = {name: np.empty_like(value) for name, value in zip(names, values, strict=True)}
    session.readWeights(popart.PyWeightsIO(after))
    arrays = [anchors[loss], *after.values()]
    values = np.concatenate([np.ravel(array) for array in arrays]).tolist()
    return [processes_of(session.executable), *values]


if __name__ == "__main__":
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    told = {"poptorch": of_poptorch(), "keras": of_keras(), "popart": of_popart()}
    print(json.dumps({"index": index, **told}), flush=True)
