"""Sessions of PopART that instances run together, each with the data of its replicas."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

import ipujax as ipu
import ipujax.popart as popart
from ipujax.popdist.popart import configureSessionOptions, getDevice

STEPS, ACCUMULATION, ROWS, WIDTH = 3, 2, 2, 4
index, count = ipu.popdist.getInstanceIndex(), ipu.popdist.getNumInstances()
total, local = ipu.popdist.getNumTotalReplicas(), ipu.popdist.getNumLocalReplicas()
random = np.random.default_rng(0)
WEIGHTS = random.normal(size=(WIDTH, 1)).astype(np.float32)
DATA = random.normal(size=(STEPS, ACCUMULATION, total, ROWS, WIDTH)).astype(np.float32)


def trained(reduction: popart.ReductionType) -> dict[str, Any]:
    """Weights, momenta and losses; instance 1 begins with other weights, and gets those of 0."""
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [ROWS, WIDTH]))
    w = builder.addInitializedInputTensor(WEIGHTS + index)
    kept, _ = builder.aiOnnx.dropout([x], 2, 0.25)
    loss = builder.aiGraphcore.l1loss([builder.aiOnnx.matmul([kept, w])], 0.1)
    builder.addOutputTensor(loss)
    options = popart.SessionOptions()
    configureSessionOptions(options)
    options.enableGradientAccumulation, options.accumulationFactor = True, ACCUMULATION
    options.accumulationAndReplicationReductionType = reduction
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(STEPS, {loss: popart.AnchorReturnType("All")}),
        loss,
        popart.SGD({"defaultLearningRate": (0.1, False), "defaultMomentum": (0.5, False)}),
        userOptions=options,
        deviceInfo=getDevice(),
    )
    session.prepareDevice()
    session.weightsFromHost()
    session.broadcastWeights()
    anchors = session.initAnchorArrays()
    mine = np.ascontiguousarray(DATA[:, :, index * local : (index + 1) * local])
    session.run(popart.PyStepIO({x: mine}, anchors))
    session.weightsToHost()
    after = {w: np.empty_like(WEIGHTS)}
    session.readWeights(popart.PyWeightsIO(after))
    losses = anchors[loss].reshape(STEPS * ACCUMULATION, local)
    return {"weights": after[w].tolist(), "losses": losses.tolist()}


def summed() -> list[float]:
    """What a collective of a session's replicas gives."""
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2]))
    total = builder.aiGraphcore.replicatedallreduce([x])
    options = popart.SessionOptions()
    configureSessionOptions(options)
    session = popart.InferenceSession(
        builder.getModelProto(),
        popart.DataFlow(1, {total: popart.AnchorReturnType("All")}),
        userOptions=options,
        deviceInfo=getDevice(),
    )
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    data = np.arange(2 * local, dtype=np.float32).reshape(local, 2) + 2 * local * index
    session.run(popart.PyStepIO({x: data}, anchors))
    return anchors[total].ravel().tolist()


def refused() -> str:
    options = popart.SessionOptions()
    configureSessionOptions(options)
    options.globalReplicaOffset += 1
    try:
        options.check_supported()
    except ipu.errors.PopARTError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    kinds = popart.ReductionType.Sum, popart.ReductionType.Mean
    told = {
        "index": index,
        "trained": [trained(kind) for kind in kinds],
        "summed": summed(),
        "refused": refused(),
    }
    print(json.dumps(told), flush=True)
