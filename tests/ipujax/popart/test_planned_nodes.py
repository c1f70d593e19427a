"""`VirtualGraphMode.Auto` in pipelines: a plan places the nodes, and the numbers stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import ipujax.popart as popart
from ipujax.errors import PlanError

IPU, STAGE = "__ipu_number", "__pipeline_stage"  # attributes of nodes
WIDTH, LAYERS, ROWS, ACCUMULATION, BATCHES = 16, 5, 4, 6, 2


def chain(layers: int = LAYERS, rows: int = ROWS, **attributes: int) -> bytes:
    """Layers with a tanh each, and a loss; by attributes, the places of nodes."""
    random = np.random.default_rng(0)
    nodes, weights, last = [], [], "x"
    for number in range(layers):
        w = random.normal(size=(WIDTH, WIDTH)).astype(np.float32) / 4
        weights.append(numpy_helper.from_array(w, f"w{number}"))
        nodes.append(helper.make_node("MatMul", [last, f"w{number}"], [f"h{number}"], **attributes))
        last = f"t{number}"
        nodes.append(helper.make_node("Tanh", [f"h{number}"], [last], **attributes))
    nodes.append(helper.make_node("ReduceMean", [last], ["loss"], keepdims=0, **attributes))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (rows, WIDTH))
    loss = helper.make_tensor_value_info("loss", TensorProto.FLOAT, ())
    graph = helper.make_graph(nodes, "chain", [x], [loss], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 10)])
    model.ir_version = 7
    return model.SerializeToString()


def options(*, is_planned: bool = True, **others: Any) -> popart.SessionOptions:
    chosen = popart.SessionOptions()
    chosen.enableGradientAccumulation, chosen.accumulationFactor = True, ACCUMULATION
    chosen.accumulationAndReplicationReductionType = popart.ReductionType.Mean
    if is_planned:
        chosen.virtualGraphMode = popart.VirtualGraphMode.Auto
        chosen.enablePipelining = True
    for name, value in others.items():
        setattr(chosen, name, value)
    return chosen


def trained(
    proto: bytes, chosen: popart.SessionOptions, ipus: int
) -> tuple[Any, np.ndarray, dict[str, np.ndarray]]:
    """The session, the losses, and the weights after some updates."""
    session = popart.TrainingSession(
        proto,
        popart.DataFlow(BATCHES, {"loss": popart.AnchorReturnType("All")}),
        "loss",
        popart.SGD({"defaultLearningRate": (0.5, False)}),
        popart.DeviceManager().createIpuModelDevice({"numIPUs": ipus}),
        userOptions=chosen,
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    x = np.random.default_rng(1).normal(size=(BATCHES, ACCUMULATION, ROWS, WIDTH))
    session.run(popart.PyStepIO({"x": x.astype(np.float32)}, anchors))
    names = [f"w{number}" for number in range(LAYERS)]
    session.weightsToHost()
    weights = {name: np.empty((WIDTH, WIDTH), np.float32) for name in names}
    session.readWeights(popart.PyWeightsIO(weights))
    return session, anchors["loss"].copy(), weights


@pytest.mark.parametrize("recomputed", [False, True])
def test_a_planned_pipeline_trains_as_one_ipu_does(recomputed: bool) -> None:
    kind = popart.RecomputationType.Pipeline if recomputed else popart.RecomputationType.NoRecompute
    session, losses, weights = trained(chain(), options(autoRecomputation=kind), 4)
    _, expected_losses, expected = trained(chain(), options(is_planned=False), 1)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
    for name, value in expected.items():
        np.testing.assert_allclose(weights[name], value, rtol=1e-4, atol=1e-6)
    placement = session._forward.placement
    plan = placement.plan
    assert plan.fits
    assert plan.recompute is recomputed
    assert plan.micro_batches == ACCUMULATION
    assert placement.ipus == plan.device_mapping
    assert len(set(plan.device_mapping)) > 1
    nodes = session._model.graph.nodes
    starts = [next(n for n, node in enumerate(nodes) if node.marks[STAGE] == s)
              for s in range(len(plan.stages))]  # fmt: skip
    assert [plan.stages[node.marks[STAGE]].ipu for node in nodes] == [
        node.marks[IPU] for node in nodes
    ]
    assert starts == sorted(starts)
    assert plan.stages[0].first == "MatMul (h0)"


def test_a_plan_follows_no_places_that_nodes_have() -> None:
    session, losses, _ = trained(chain(__ipu_number=0, __pipeline_stage=0), options(), 2)
    assert {node.marks[STAGE] for node in session._model.graph.nodes} == {0, 1}
    assert np.isfinite(losses).all()


def test_one_layer_is_one_stage() -> None:
    session = popart.TrainingSession(
        chain(1),
        popart.DataFlow(1, {"loss": popart.AnchorReturnType("All")}),
        "loss",
        popart.SGD({"defaultLearningRate": (0.5, False)}),
        popart.DeviceManager().createIpuModelDevice({"numIPUs": 4}),
        userOptions=options(),
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    x = np.ones((1, ACCUMULATION, ROWS, WIDTH), np.float32)
    session.run(popart.PyStepIO({"x": x}, anchors))
    assert session._forward.placement.ipus == (0,)
    assert np.ptp(anchors["loss"]) == 0


def test_a_planned_pipeline_infers_as_one_ipu_does() -> None:
    results = []
    for ipus, is_planned in ((4, True), (1, False)):
        chosen = options(is_planned=is_planned)
        chosen.enableGradientAccumulation, chosen.accumulationFactor = False, 1
        session = popart.InferenceSession(
            chain(),
            popart.DataFlow(8, {"t4": popart.AnchorReturnType("All")}),
            popart.DeviceManager().createIpuModelDevice({"numIPUs": ipus}),
            userOptions=chosen,
        )
        session.prepareDevice()
        session.weightsFromHost()
        anchors = session.initAnchorArrays()
        x = np.random.default_rng(2).normal(size=(8, ROWS, WIDTH)).astype(np.float32)
        session.run(popart.PyStepIO({"x": x}, anchors))
        results.append(anchors["t4"].copy())
    np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-6)
    assert len(results[0]) == 8


def test_a_model_that_fits_nowhere_is_refused() -> None:
    rows = 8_000_000  # whose activations no IPU has room for
    with pytest.raises(PlanError, match="no plan fits in memory") as caught:
        popart.TrainingSession(
            chain(rows=rows),
            popart.DataFlow(1, {"loss": popart.AnchorReturnType("All")}),
            "loss",
            popart.SGD({"defaultLearningRate": (0.5, False)}),
            popart.DeviceManager().createIpuModelDevice({"numIPUs": 2}),
            userOptions=options(),
        )
    assert caught.value.lacks > 0
    assert not caught.value.nearest.fits
