"""What there is beside builders and sessions: logs, debug information, operators, settings."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")

from ipujax import popart
from ipujax.errors import PopARTError


def test_a_name_that_is_not_there_says_what_is() -> None:
    assert not hasattr(popart, "popxl")
    with pytest.raises(AttributeError, match="no 'getLoger' here; did you mean 'getLogger'"):
        _ = popart.getLoger


def test_versions() -> None:
    assert popart.__version__ == ".".join(map(str, popart.versionNumber()))
    assert popart.packageHash() in popart.versionString()


def test_lines_are_logged_from_a_level_on(capsys: pytest.CaptureFixture[str]) -> None:
    def added(level: str) -> str:
        popart.getLogger().setLevel(level)
        builder = popart.Builder()
        builder.aiOnnx.abs([builder.addInputTensor("FLOAT", [2])])
        return capsys.readouterr().err

    try:
        assert "Adding ai.onnx.Abs" in added("TRACE")
        assert added("OFF") == ""
        popart.getLogger().setLevel("WARN")
        popart.getLogger("session").warn("careful")
        assert capsys.readouterr().err.endswith("[popart.session] [WARNING] careful\n")
    finally:
        popart.getLogger().setLevel("WARN")
    with pytest.raises(PopARTError, match="one of 'TRACE'"):
        popart.getLogger().setLevel("LOUD")


def test_debug_information_is_written_as_it_ends(tmp_path: Path) -> None:
    def inner(context: popart.DebugContext) -> None:
        popart.DebugInfo(context, "mine").setValue("number", "3")

    def outer(context: popart.DebugContext) -> None:
        info = popart.DebugInfo(context, "mine")
        inner(popart.DebugContext(info, "inner"))

    popart.initializePoplarDebugInfo(tmp_path / "debug.json")
    outer(popart.DebugContext("outer"))
    popart.closePoplarDebugInfo()
    found = json.loads((tmp_path / "debug.json").read_text())
    first, second = found["contexts"]
    texts = found["stringTable"]
    assert (texts[first["name"]], texts[second["name"]]) == ("inner", "outer")
    assert first["number"] == "3"
    assert first["parentId"] == second["id"]
    assert texts[first["location"]["functionName"]] == "outer"
    assert texts[second["location"]["fileName"]] == __file__


def test_contexts_name_tensors() -> None:
    builder = popart.Builder()
    whole = popart.DebugInfo("model", "mine")
    x = builder.addInputTensor("FLOAT", [2], debugContext=popart.DebugContext("x"))
    y = builder.aiOnnx.abs([x], debugContext=popart.DebugContext(whole, "layer"))
    assert (x, y) == ("x", "model/layer:0")
    with pytest.raises(TypeError, match="incompatible"):
        builder.aiOnnx.abs([x], debugContext=3)


def test_operators_that_there_are() -> None:
    known = popart.getSupportedOperations(False)
    assert popart.OperatorIdentifier("ai.onnx", "Constant", 9) in known
    assert popart.OperatorIdentifier("ai.graphcore", "Gelu", 1) in known
    assert set(known) < set(popart.getSupportedOperations(True))
    unknown = {operator.type for operator in popart.getUnsupportedOperations(10)}
    assert "StringNormalizer" in unknown
    assert not unknown & {operator.type for operator in known}
    add = popart.getSupportedOperationsDefinition(False)[
        popart.OperatorIdentifier("ai.onnx", "Softmax", 1)
    ]
    assert [tensor.name for tensor in add.inputs] == ["input"]
    assert popart.DataType.FLOAT16 in add.inputs[0].supportedTensors
    assert list(add.attributes) == ["axis"]


def test_an_input_that_all_replicas_get() -> None:
    builder = popart.Builder()
    shared = popart.InputSettings(popart.ReplicatedStreamMode.Broadcast)
    x = builder.addInputTensor("FLOAT", [3], shared, "x")
    y = builder.addInputTensor("FLOAT", [3], debugContext="y")
    total = builder.aiOnnx.add([x, y])
    options = popart.SessionOptions()
    options.enableReplicatedGraphs, options.replicatedGraphCount = True, 2
    session = popart.InferenceSession(
        popart.Builder(builder.getModelProto()).getModelProto(),
        popart.DataFlow(2, {total: popart.AnchorReturnType("All")}),
        popart.DeviceManager().createIpuModelDevice({"numIPUs": 2}),
        userOptions=options,
    )
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    own = 10 * np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    session.run(popart.PyStepIO({x: data, y: own}, anchors))
    np.testing.assert_array_equal(anchors[total], data[:, None] + own)


def test_settings_of_weights() -> None:
    builder = popart.Builder()
    value = np.ones(2, np.float32)
    assert builder.addInitializedInputTensor(value, popart.VariableSettings(), "w") == "w"
    groups = popart.CommGroup(popart.CommGroupType.Consecutive, 2)
    with pytest.raises(PopARTError, match=r"groups of replicas \(Consecutive\)"):
        builder.addInitializedInputTensor(value, popart.VariableSettings(groups))
    every = popart.VariableSettings(popart.VariableRetrievalMode.AllReplicas)
    with pytest.raises(PopARTError, match="AllReplicas"):
        builder.addInitializedInputTensor(value, variableSettings=every)


def test_groups_of_replicas_return_as_many_values_as_their_mode_says() -> None:
    pairs = popart.CommGroup(popart.CommGroupType.Consecutive, 2)
    modes = popart.VariableRetrievalMode
    counts = [popart.VariableSettings(pairs, m).numReplicasReturningVariable(8) for m in modes]
    assert counts == [4, 1, 8]
    assert popart.VariableSettings().getGroupCount(8) == 1
    with pytest.raises(PopARTError, match="3 replicas are no groups of 2"):
        popart.VariableSettings(pairs).getGroupCount(3)
