"""A model that PopART trains over two IPUs, read by ONNX's own code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")

import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from ipujax import popart

BATCHES, ACCUMULATION, RATE = 20, 4, 0.05
MARKS = ("__ipu_number", "__pipeline_stage")
Array = np.ndarray[Any, Any]


def node(operator: str, inputs: list[str], result: str, ipu: int, **attributes: Any) -> Any:
    return helper.make_node(operator, inputs, [result], **dict.fromkeys(MARKS, ipu), **attributes)


def network(w: Array, v: Array) -> bytes:
    nodes = [
        node("MatMul", ["x", "w"], "product", 0),
        node("Tanh", ["product"], "hidden", 0),
        node("MatMul", ["hidden", "v"], "y", 1),
        node("Sub", ["y", "target"], "error", 1),
        node("Mul", ["error", "error"], "square", 1),
        node("ReduceMean", ["square"], "loss", 1, keepdims=0),
    ]
    shapes = {"x": [4, 8], "target": [4, 1]}
    graph = helper.make_graph(
        nodes,
        "regression",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()],
        [helper.make_tensor_value_info("loss", TensorProto.FLOAT, [])],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(v, "v")],
    )
    opsets = [helper.make_opsetid("", 13)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def descended(w: Array, v: Array, x: Array, target: Array) -> tuple[Array, Array]:
    """A step of gradient descent on the mean over micro-batches, by hand."""
    hidden = np.tanh(x @ w)
    error = 2 * (hidden @ v - target) / len(x)
    back = error @ v.T * (1 - hidden**2)
    return w - RATE * x.T @ back, v - RATE * hidden.T @ error


def evaluated(path: Path, **inputs: Array) -> Array:
    """The loss by ONNX's reference, which takes no attributes of PopART's."""
    proto = onnx.load(path)
    for each in proto.graph.node:
        kept = [a for a in each.attribute if a.name not in MARKS]
        del each.attribute[:]
        each.attribute.extend(kept)
    (loss,) = ReferenceEvaluator(proto).run(None, inputs)
    return np.asarray(loss)


def test_a_model_trained_as_a_pipeline_is_read_by_onnx(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    w, v = (random.normal(size=s).astype(np.float32) for s in ((8, 16), (16, 1)))
    options = popart.SessionOptions()
    options.virtualGraphMode = popart.VirtualGraphMode.Manual
    options.enablePipelining = options.enableGradientAccumulation = True
    options.accumulationFactor = ACCUMULATION
    options.accumulationAndReplicationReductionType = popart.ReductionType.Mean
    session = popart.TrainingSession(
        network(w, v),
        popart.DataFlow(BATCHES, {"loss": popart.AnchorReturnType("All")}),
        "loss",
        popart.SGD({"defaultLearningRate": (RATE, False)}),
        popart.DeviceManager().createIpuModelDevice({"numIPUs": 2}),
        userOptions=options,
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    x = random.normal(size=(BATCHES, ACCUMULATION, 4, 8)).astype(np.float32)
    target = np.sin(x.sum(-1, keepdims=True))
    session.run(popart.PyStepIO({"x": x, "target": target}, anchors))
    session.modelToHost(str(tmp_path / "trained.onnx"))

    assert anchors["loss"].shape == (BATCHES, ACCUMULATION)
    w, v = w.astype(np.float64), v.astype(np.float64)
    for rows, aims in zip(x, target, strict=True):
        w, v = descended(w, v, rows.reshape(-1, 8), aims.reshape(-1, 1))
    expected = ((np.tanh(x[0, 0] @ w) @ v - target[0, 0]) ** 2).mean()
    found = evaluated(tmp_path / "trained.onnx", x=x[0, 0], target=target[0, 0])
    np.testing.assert_allclose(found, expected, rtol=1e-4)
