"""Graphs of sessions as JSON."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")

from ipujax import popart


def session(builder: popart.Builder, result: str, **options: Any) -> popart.TrainingSession:
    chosen = popart.SessionOptions()
    for name, value in options.items():
        setattr(chosen, name, value)
    loss = builder.aiGraphcore.identityloss([result])
    return popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, [loss]),
        loss,
        popart.ConstSGD(0.1),
        popart.DeviceManager().createCpuDevice(),
        userOptions=chosen,
    )


def graphs(made: popart.TrainingSession) -> dict[str, Any]:
    return json.loads(made._serializeIr(popart.IrSerializationFormat.JSON))


def test_nodes_that_run() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT16", [2, 3]), "x")
    w = builder.addInitializedInputTensor(np.ones((3, 4), np.float16), "w")
    y = builder.aiOnnx.matmul([x, w])
    builder.recomputeOutputInBackwardPass(y)
    builder.aiOnnx.sin([x])  # nobody needs it
    shape = builder.aiOnnx.concat([builder.aiOnnx.constant(np.array([8]))], 0)  # known
    flat = builder.aiOnnx.reshape([y, shape])
    (one, two, three) = graphs(session(builder, flat))["maingraph"]
    assert [(n["type"], n["domain"]) for n in (one, two, three)] == [
        ("MatMul", "ai.onnx"),
        ("Reshape", "ai.onnx"),
        ("IdentityLoss", "ai.graphcore"),
    ]
    assert one["inputs"] == [
        {"name": x, "index": "0", "shape": "[2, 3]", "type": "FLOAT16"},
        {"name": w, "index": "1", "shape": "[3, 4]", "type": "FLOAT16"},
    ]
    assert [tensor["name"] for tensor in two["outputs"]] == [flat]
    assert [n["attributes"]["recompute"] for n in (one, two, three)] == ["YES", "NO", "NO"]
    assert three["attributes"]["reduction"] == "Mean"


def test_graphs_inside_nodes_have_their_names() -> None:
    builder = popart.Builder()
    builder.setGraphName("outer")
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2]), "x")
    condition = builder.addInputTensor(popart.TensorInfo("BOOL", []), "condition")
    branches: list[popart.Builder] = []
    for name in ("sine", "cosine"):
        inner = builder.createSubgraphBuilder()
        inner.setGraphName(name)
        inner.addInputTensorFromParentGraph(x)
        operator = inner.aiOnnx.sin if name == "sine" else inner.aiOnnx.cos
        inner.addOutputTensor(operator([x]))
        branches.append(inner)
    y = builder.aiOnnx.logical_if([condition], 1, branches[1], branches[0])[0]
    found = graphs(session(builder, y))
    assert [node["type"] for node in found["outer"]] == ["If", "IdentityLoss"]
    assert found["outer"][0]["attributes"]["then_branch"] == "sine"
    assert [node["type"] for node in (*found["sine"], *found["cosine"])] == ["Sin", "Cos"]
