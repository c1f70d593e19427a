"""Where nodes run: on IPUs that the session chooses, and in stages that cannot be."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")

from ipujax import popart
from ipujax.doors.graphs import Graph, Node, Ref
from ipujax.errors import PopARTError
from ipujax.popart.node_placement import IPU, distribute_nodes

Mode = popart.VirtualGraphMode


def inference(
    places: list[tuple[int, int | None]], mode: popart.VirtualGraphMode, batches: int = 2
) -> tuple[Any, str]:
    """Sines one after the other, each at an IPU and a stage, as a pipeline."""
    builder = popart.Builder()
    result = builder.addInputTensor(popart.TensorInfo("FLOAT", [2]), "x")
    for ipu, stage in places:
        result = builder.aiOnnx.sin([result])
        builder.virtualGraph(result, ipu)
        if stage is not None:
            builder.pipelineStage(result, stage)
    options = popart.SessionOptions()
    options.virtualGraphMode, options.enablePipelining = mode, True
    session = popart.InferenceSession(
        builder.getModelProto(),
        popart.DataFlow(batches, [result]),
        popart.DeviceManager().createIpuModelDevice({"numIPUs": 2}),
        userOptions=options,
    )
    return session, result


def test_a_session_spreads_nodes_over_ipus() -> None:
    session, result = inference([(0, None)] * 4, Mode.Auto)
    session.prepareDevice()
    assert session.getReport().num_ipus == 2
    x = np.arange(4, dtype=np.float32).reshape(2, 2)
    arrays = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": x}, arrays))
    np.testing.assert_allclose(arrays[result], np.sin(np.sin(np.sin(np.sin(x)))), rtol=1e-5)


@pytest.mark.parametrize(
    ("sizes", "count", "ipus"),
    [
        ([1, 1, 1, 1], 2, [0, 0, 1, 1]),
        ([6, 1, 1, 1], 2, [1, 1, 1, 1]),
        ([3, 1, 1, 1], 2, [0, 1, 1, 1]),
        ([1, 1, 1], 1, [0, 0, 0]),
        ([0, 0], 4, [0, 0]),
    ],
)
def test_shares_of_elements(sizes: list[int], count: int, ipus: list[int]) -> None:
    names = [f"t{number}" for number in range(len(sizes))]
    nodes = [Node("Sin-7", (Ref("x"),), {}, (name,), (None,), marks={IPU: 7}) for name in names]
    avals = {n: jax.ShapeDtypeStruct((s,), np.float32) for n, s in zip(names, sizes, strict=True)}
    found = distribute_nodes(Graph(("x",), tuple(nodes), ()), avals, count)
    assert [node.marks[IPU] for node in found.nodes] == ipus


@pytest.mark.parametrize(
    ("places", "batches", "message"),
    [
        ([(0, 0), (0, 1)], 2, "Pipelining requires more than 1 IPU"),
        ([(0, 0), (1, 0)], 2, r"Ops Sin \(.*\), Sin \(.*\) have the same pipeline stage 0,"),
        ([(0, 0), (1, None)], 2, "Only some ops have had their pipeline stage set"),
        (
            [(0, None), (1, None), (0, None)],
            2,
            "Tensor .* is consumed in an earlier",
        ),
        ([(0, 0), (1, 2)], 2, "without gaps"),
        ([(0, 0), (1, 1)], 1, r"For pipelining, depth \(batchesPerStep\) must equal .* \(2\)"),
    ],
)
def test_pipelines_that_cannot_be(places: Any, batches: int, message: str) -> None:
    with pytest.raises(PopARTError, match=message):
        inference(places, Mode.Manual, batches)


def test_a_pipeline_needs_a_mode() -> None:
    with pytest.raises(PopARTError, match="virtualGraphMode"):
        inference([(0, 0), (1, 1)], Mode.Off)
