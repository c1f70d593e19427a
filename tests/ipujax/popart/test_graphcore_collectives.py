"""PopART's collectives over the replicas of a session, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="PopART needs the extra `onnx`")

from ipujax import popart

VALUES = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
GROUPS = {
    (0, 0): [[0, 1, 2, 3]],
    (1, 2): [[0, 1], [2, 3]],
    (2, 2): [[0, 2], [1, 3]],
    (3, 0): [[0], [1], [2], [3]],
}


def session_of(builder: popart.Builder, anchors: list[str], replicas: int, loss: str = "") -> Any:
    options = popart.SessionOptions()
    options.enableReplicatedGraphs, options.replicatedGraphCount = True, replicas
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": replicas})
    flow, model = popart.DataFlow(1, anchors), builder.getModelProto()
    if loss:
        optimizer = popart.ConstSGD(0.1)
        session = popart.TrainingSession(model, flow, loss, optimizer, device, userOptions=options)
    else:
        session = popart.InferenceSession(model, flow, device, userOptions=options)
    session.prepareDevice()
    session.weightsFromHost()
    return session


@pytest.mark.exhaustive
@pytest.mark.parametrize("group", GROUPS)
def test_groups_of_replicas(group: tuple[int, int]) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [5]))
    own, kinds = builder.aiGraphcore, popart.CollectiveOperator
    operators: dict[Any, Callable[[Any], Any]] = {
        None: lambda rows: rows.sum(0),
        kinds.Mean: lambda rows: rows.mean(0),
        kinds.Mul: lambda rows: rows.prod(0),
        kinds.Max: lambda rows: rows.max(0),
        kinds.SquareAdd: lambda rows: (rows**2).sum(0),
    }
    with builder.commGroup(*group):
        reduced = {own.replicatedallreduce([x], kind): f for kind, f in operators.items()}
        part, local = (
            own.replicatedreducescatter([x]),
            own.replicatedreducescatter([x], kinds.Local),
        )
    session = session_of(builder, [*reduced, part, local], 4)
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: VALUES}, anchors))
    for members in GROUPS[group]:
        size = -(-5 // len(members))
        padded = np.pad(VALUES[members], ((0, 0), (0, size * len(members) - 5)))
        for place, replica in enumerate(members):
            for name, function in reduced.items():
                expected = function(VALUES[members])
                np.testing.assert_allclose(anchors[name][replica], expected, rtol=2e-5)
            own_part = slice(place * size, (place + 1) * size)
            found = anchors[part][replica], anchors[local][replica]
            np.testing.assert_allclose(found[0], padded.sum(0)[own_part], rtol=2e-5)
            np.testing.assert_allclose(found[1], padded[place, own_part])


def test_gradients_come_from_all_replicas() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [5]))
    total = builder.aiGraphcore.replicatedallreduce([x])
    loss = builder.aiGraphcore.identityloss(
        [builder.aiOnnx.mul([total, x])], popart.ReductionType.Sum
    )
    gradient = popart.reservedGradientPrefix() + x
    session = session_of(builder, [loss, gradient], 2, loss)
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: VALUES[:2]}, anchors))
    # The sum of both losses is the square of the sum.
    expected = np.tile(2 * VALUES[:2].sum(0), (2, 1))
    np.testing.assert_allclose(anchors[gradient], expected, rtol=2e-5)


def test_one_replica_is_alone() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2, 2]))
    same = builder.aiGraphcore.replicatedallreduce([x])
    flat = builder.aiGraphcore.replicatedreducescatter([x])
    session = session_of(builder, [same, flat], 1)
    anchors = session.initAnchorArrays()
    values = VALUES[0, :4].reshape(2, 2)
    session.run(popart.PyStepIO({x: values}, anchors))
    np.testing.assert_array_equal(anchors[same], values)
    np.testing.assert_array_equal(anchors[flat], values.ravel())


def test_a_builder_may_know_the_replicas() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [10]))
    group = popart.CommGroup(popart.CommGroupType.Orthogonal, 2)
    by_group = builder.aiGraphcore.replicatedreducescatter([x], commGroup=group)
    by_all = builder.aiGraphcore.replicatedreducescatter([x])
    assert builder.getInt64VectorNodeAttribute("__collectiveCommGroup", by_group) == [2, 2]
    assert builder.getTensorShape(by_group) == [5]
    builder.embedReplicationFactor(4)
    assert builder.getTensorShape(by_group) == [5]
    assert builder.getTensorShape(by_all) == [3]


def test_groups_that_do_not_divide_the_replicas_are_refused() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [5]))
    with builder.commGroup(1, 3):
        builder.aiGraphcore.replicatedallreduce([x])
    with pytest.raises(popart.popart_exception, match="groups of 3 replicas, of which there are"):
        session_of(builder, [x], 2)
