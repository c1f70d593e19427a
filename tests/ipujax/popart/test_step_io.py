"""What a step takes and returns: data, callbacks, anchors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")

from ipujax import popart
from ipujax.errors import PopARTError

Array = np.ndarray[Any, Any]


def doubling(kind: str = "FLOAT", flow: popart.DataFlow | None = None) -> Any:
    """A session that adds x to itself; another input is not needed."""
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo(kind, [2, 3]), "x")
    builder.aiOnnx.identity([builder.addInputTensor(popart.TensorInfo("FLOAT", [9]), "unused")])
    y = builder.aiOnnx.add([x, x])
    builder.addOutputTensor(y)
    session = popart.InferenceSession(
        builder.getModelProto(),
        flow or popart.DataFlow(2, [y]),
        popart.DeviceManager().createCpuDevice(),
    )
    session.prepareDevice()
    return session


def anchor(session: Any) -> tuple[str, dict[str, Array]]:
    arrays = session.initAnchorArrays()
    return next(iter(arrays)), arrays


def data(dtype: Any = np.float32) -> Array:
    return np.arange(12, dtype=dtype).reshape(2, 2, 3)


@pytest.mark.parametrize(("kind", "dtype"), [("INT32", np.int64), ("UINT32", np.uint64)])
def test_integers_of_64_bits_may_be_given(kind: str, dtype: Any) -> None:
    session = doubling(kind=kind)
    name, arrays = anchor(session)
    session.run(popart.PyStepIO({"x": data(dtype)}, arrays))
    np.testing.assert_array_equal(arrays[name], 2 * data())
    assert arrays[name].dtype == np.dtype(kind.lower())


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "No tensor x provided in PyStepIO's inputs"),
        ({"x": data(np.float64)}, "User provided : float64 and expected : float32"),
        ({"x": data(np.int32)}, "Type discrepancy for tensor x"),
        ({"x": data()[:1]}, "Expected 12, but received 6"),
        ({"x": data(), "z": data()}, "The tensor 'z' has been provided as one of the inputs"),
    ],
)
def test_data_that_do_not_fit(inputs: dict[str, Array], message: str) -> None:
    session = doubling()
    _, arrays = anchor(session)
    with pytest.raises(PopARTError, match=message):
        session.run(popart.PyStepIO(inputs, arrays))


def test_arrays_that_are_not_in_order() -> None:
    with pytest.raises(PopARTError, match="input array for tensor 'x' as it is not c-contiguous"):
        popart.PyStepIO({"x": data().T}, {})
    with pytest.raises(PopARTError, match="output array for tensor 'y'"):
        popart.PyStepIO({}, {"y": data()[..., ::2]})


def test_arrays_for_what_is_no_anchor() -> None:
    with pytest.raises(PopARTError, match="tensor 'x', which is no anchor"):
        doubling().run(popart.PyStepIO({"x": data()}, {"x": data()}))


def test_callbacks_see_one_batch_after_the_other() -> None:
    session = doubling()
    name, _ = anchor(session)
    told: list[Any] = []
    outputs = [np.empty((2, 3), np.float32) for _ in range(2)]
    batches, places = iter(data()), iter(outputs)
    session.run(
        popart.PyStepIOCallback(
            lambda tensor, prefetch: next(batches),
            lambda tensor: told.append(tensor),
            lambda tensor: next(places),
            lambda tensor: told.append(tensor),
        )
    )
    assert told == ["x", "x", name, name]
    np.testing.assert_array_equal(np.stack(outputs), 2 * data())


def test_callbacks_that_do_not_fit() -> None:
    def run(given: Array, place: Array) -> None:
        callbacks = (lambda *_: given, lambda *_: None, lambda *_: place, lambda *_: None)
        doubling().run(popart.PyStepIOCallback(*callbacks))

    place = np.empty((2, 3), np.float32)
    with pytest.raises(PopARTError, match="Type discrepancy"):
        run(np.zeros((2, 3)), place)
    with pytest.raises(PopARTError, match="input callback"):
        run(np.zeros((3, 3), np.float32), place)
    with pytest.raises(PopARTError, match="output callback"):
        run(np.zeros((2, 3), np.float32), np.empty((5, 5), np.float32))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: popart.AnchorReturnType("Some"), "Invalid anchor return type ID supplied: Some"),
        (
            lambda: popart.AnchorReturnType("EveryN"),
            "Must specify return period with option 'EVERYN'",
        ),
        (
            lambda: popart.AnchorReturnType("EveryN", 0),
            "Anchor return period must be greater than zero",
        ),
        (
            lambda: popart.AnchorReturnType("Sum", 2),
            "A return period should not be supplied for this anchor return type",
        ),
        (
            lambda: popart.AnchorReturnType("All").rp(),
            "A return period should not be supplied for this anchor return type",
        ),
        (
            lambda: popart.DataFlow(2, {"a": popart.AnchorReturnType("EveryN", 3)}),
            "Return period must be <= to the number of batches per step",
        ),
        (
            lambda: popart.DataFlow(4, {"a": popart.AnchorReturnType("EveryN", 3)}),
            "Return period must be a factor of the number of batches per step",
        ),
        (lambda: popart.DataFlow(0, []), "'Batches per step' must be greater than zero"),
    ],
)
def test_data_flows_that_cannot_be(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(PopARTError) as caught:
        make()
    assert caught.value.args == (message,)


def test_return_types_keep_what_they_are_given() -> None:
    strategy = popart.ExchangeStrategy.OverlapLoops
    for kind in (
        popart.AnchorReturnType("EveryN", 2, popart.TileSet.IO, strategy),
        popart.AnchorReturnType("All", popart.TileSet.IO, strategy),
        popart.AnchorReturnType("Sum", tileSet=popart.TileSet.IO, exchangeStrategy=strategy),
    ):
        assert (kind.tileSet(), kind.exchangeStrategy()) == (popart.TileSet.IO, strategy)


def test_a_session_keeps_its_number_of_batches() -> None:
    flow = popart.DataFlow(2, ["x"], popart.AnchorReturnType("EveryN", 2))
    session = doubling(flow=flow)
    flow.setBatchesPerStep(4)
    assert (flow.batchesPerStep(), session.dataFlow.batchesPerStep()) == (4, 2)
    with pytest.raises(PopARTError, match="factor"):
        flow.setBatchesPerStep(5)
    assert flow.batchesPerStep() == 4


def test_every_second_micro_batch() -> None:
    kind = popart.AnchorReturnType("EveryN", 2)
    values = np.arange(4 * 3 * 2 * 5).reshape(4, 3, 2, 5)  # batches, accumulation, replicas
    assert kind.leading_dimensions_of_result(4, 3, 2) == (2, 3, 2)
    np.testing.assert_array_equal(
        kind.select_returned_values(values), values.reshape(12, 2, 5)[1::2].reshape(2, 3, 2, 5)
    )


def test_data_without_checks_begin_anew() -> None:
    session = doubling()
    name, arrays = anchor(session)
    io = popart.PyStepIO({"x": data()[:1], "other": data()}, arrays | {"more": data()})
    io.enableRuntimeAsserts(False)
    session.run(io)
    np.testing.assert_array_equal(arrays[name], 2 * np.stack([data()[0]] * 2))
    io = popart.PyStepIO({"x": data()[0, :1]}, arrays)
    io.enableRuntimeAsserts(False)
    with pytest.raises(PopARTError, match="Expected 12, but received 3"):
        session.run(io)


def test_replicas_get_the_same_data() -> None:
    builder = popart.Builder()
    settings = popart.InputSettings(popart.ReplicatedStreamMode.Broadcast)
    info = popart.TensorInfo("FLOAT", [3])
    x = builder.addInputTensor(info, settings=settings, debugContext="x")
    y = builder.addInputTensor("FLOAT", [3], popart.InputSettings(popart.TileSet.IO), "y")
    z = builder.aiOnnx.add([x, y])
    options = popart.SessionOptions()
    options.enableReplicatedGraphs, options.replicatedGraphCount = True, 2
    session = popart.InferenceSession(
        builder.getModelProto(),
        popart.DataFlow(2, [z]),
        popart.DeviceManager().createCpuDevice(),
        userOptions=options,
    )
    session.prepareDevice()
    arrays = session.initAnchorArrays()
    shared = np.arange(6, dtype=np.float32).reshape(2, 3)
    own = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    session.run(popart.PyStepIO({"x": shared, "y": own}, arrays))
    np.testing.assert_array_equal(arrays[z], shared[:, None] + own)


def test_results_without_elements() -> None:
    values = np.zeros((4, 1, 2, 0), np.float32)
    kind = popart.AnchorReturnType("EveryN", 2)
    assert kind.select_returned_values(values).shape == (2, 1, 2, 0)
