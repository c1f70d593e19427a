"""Sessions: training, state on the host, options, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")

import onnx
from onnx import TensorProto, helper, numpy_helper

import ipujax as ipu
from ipujax import popart
from ipujax.errors import ExecutableError, PopARTError

Array = np.ndarray[Any, Any]
WEIGHTS = np.arange(6, dtype=np.float32).reshape(3, 2) / 4


def model(
    nodes: list[onnx.NodeProto] | None = None, opset: int = 11, size: Any = 4, **more: Array
) -> bytes:
    """The mean of x @ w, unless the nodes say something else."""
    own = nodes or [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("ReduceMean", ["y"], ["loss"], keepdims=0),
    ]
    graph = helper.make_graph(
        own,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [size, 3])],
        [helper.make_tensor_value_info("loss", TensorProto.FLOAT, [])],
        [numpy_helper.from_array(v, n) for n, v in {"w": WEIGHTS, **more}.items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=6).SerializeToString()


def device() -> popart.DeviceInfo:
    return popart.DeviceManager().createCpuDevice()


def training(
    anchors: Any = ("loss",),
    optimizer: Any = None,
    batches: int = 1,
    proto: bytes | None = None,
    **given: Any,
) -> popart.TrainingSession:
    options = popart.SessionOptions()
    for name in [name for name in given if hasattr(options, name)]:
        setattr(options, name, given.pop(name))
    session = popart.TrainingSession(
        proto or model(),
        popart.DataFlow(batches, dict.fromkeys(anchors, popart.AnchorReturnType("All"))),
        "loss",
        optimizer or popart.SGD({"defaultLearningRate": (0.1, False)}),
        device(),
        userOptions=options,
        **given,
    )
    session.prepareDevice()
    session.weightsFromHost()
    return session


def data(*lead: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=(*lead, 4, 3)).astype(np.float32)


def run(session: Any, x: Array) -> dict[str, Array]:
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": x}, anchors))
    return anchors


def weight(session: Any, name: str = "w") -> Array:
    session.weightsToHost()
    array = np.empty(session.getInfo(name).shape() if "___" not in name else (3, 2), np.float32)
    session.readWeights(popart.PyWeightsIO({name: array}))
    return array


def gradient(x: Array) -> Array:
    return np.repeat(x.sum(0)[:, None], 2, 1) / 8


def test_new_hyperparameters_compile_nothing() -> None:
    session, x = training(), data()
    run(session, x)
    program = session.executable
    session.updateOptimizerFromHost(popart.SGD({"defaultLearningRate": (0.7, False)}))
    run(session, x)
    assert session.executable is program
    np.testing.assert_allclose(weight(session), WEIGHTS - 0.8 * gradient(x), rtol=1e-5)
    with pytest.raises(PopARTError, match="constant"):
        session.updateOptimizerFromHost(popart.SGD({"defaultLearningRate": (0.7, True)}))
    with pytest.raises(PopARTError, match="Adam"):
        session.updateOptimizerFromHost(popart.Adam({}))
    run(session, x)


def test_the_loss_is_scaled_for_gradients_alone() -> None:
    optimizer = popart.SGD({"defaultLearningRate": (0.1, True), "lossScaling": (64, False)})
    session, x = training(("loss", "Gradient___y"), optimizer), data()
    anchors = run(session, x)
    np.testing.assert_allclose(anchors["loss"], (x @ WEIGHTS).mean(), rtol=1e-5)
    np.testing.assert_allclose(anchors["Gradient___y"], np.full((4, 2), 8.0), rtol=1e-6)
    np.testing.assert_allclose(weight(session), WEIGHTS - 0.1 * gradient(x), rtol=1e-5)


@pytest.mark.parametrize("kind", [popart.ReductionType.Sum, popart.ReductionType.Mean])
def test_accumulation_and_replicas_reduce_gradients(kind: popart.ReductionType) -> None:
    session = training(
        enableGradientAccumulation=True,
        accumulationFactor=3,
        enableReplicatedGraphs=True,
        replicatedGraphCount=2,
        accumulationAndReplicationReductionType=kind,
        batches=2,
        optimizer=popart.SGD({"defaultLearningRate": (0.1, True), "defaultMomentum": (0.5, True)}),
    )
    x = data(2, 3, 2)
    assert run(session, x)["loss"].shape == (2, 3, 2)
    value, velocity = WEIGHTS.astype(np.float64), 0.0
    for batch in x:
        total = sum(gradient(one) for one in batch.reshape(6, 4, 3))
        velocity = 0.5 * velocity + (total if kind is popart.ReductionType.Sum else total / 6)
        value = value - 0.1 * velocity
    np.testing.assert_allclose(weight(session), value, rtol=1e-5, atol=1e-6)


@pytest.mark.exhaustive
def test_a_pipeline_keeps_slots_of_its_stages() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], __ipu_number=0, __pipeline_stage=0),
        helper.make_node("MatMul", ["h", "v"], ["y"], __ipu_number=1, __pipeline_stage=1),
        helper.make_node(
            "ReduceMean", ["y"], ["loss"], keepdims=0, __ipu_number=1, __pipeline_stage=1
        ),
    ]
    v = np.array([[1, 2], [3, 4]], np.float32)
    results: list[Array] = []
    for is_pipelined in (False, True):
        session = training(
            proto=model(nodes, v=v),
            optimizer=popart.Adam({"defaultLearningRate": (0.1, False)}),
            enableGradientAccumulation=True,
            accumulationFactor=4,
            enablePipelining=is_pipelined,
            virtualGraphMode=popart.VirtualGraphMode.Manual,
            batches=2,
        )
        x = data(2, 4)
        run(session, x)
        session.updateOptimizerFromHost(popart.Adam({"defaultLearningRate": (0.2, False)}))
        run(session, x)
        results.append(np.concatenate([weight(session), weight(session, "v")]))
    np.testing.assert_allclose(results[1], results[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", list(popart.RecomputationType))
def test_recomputation_changes_no_number(kind: popart.RecomputationType) -> None:
    session, x = training(autoRecomputation=kind), data()
    run(session, x)
    np.testing.assert_allclose(weight(session), WEIGHTS - 0.1 * gradient(x), rtol=1e-5)


def test_the_state_of_the_optimizer_goes_with_the_model(tmp_path: Path) -> None:
    values = {"defaultLearningRate": (0.1, True), "defaultMomentum": (0.9, True)}
    optimizer = popart.SGD(values, accumulatorAndMomentum=popart.SGDAccumulatorAndMomentum.Separate)
    session, x = training(optimizer=optimizer), data()
    run(session, x)
    np.testing.assert_allclose(weight(session, "Accl1___w"), gradient(x), rtol=1e-5)
    session.modelToHost(str(tmp_path / "model.onnx"))
    run(session, x)
    other = training(optimizer=optimizer, proto=(tmp_path / "model.onnx").read_bytes())
    run(other, x)
    np.testing.assert_allclose(weight(other), weight(session), rtol=1e-6)
    names = [t.name for t in onnx.load(tmp_path / "model.onnx").graph.initializer]
    assert names == ["w", "Accl1___w"]


def test_weights_are_written_and_reset() -> None:
    session, x = training(("y", "loss")), data()
    session.writeWeights(popart.PyWeightsIO({"w": WEIGHTS * 2}))
    session.weightsFromHost()
    np.testing.assert_allclose(run(session, x)["y"], x @ WEIGHTS * 2, rtol=1e-5)
    session.resetHostWeights(model())
    session.weightsFromHost()
    np.testing.assert_allclose(run(session, x)["y"], x @ WEIGHTS, rtol=1e-5)
    with pytest.raises(PopARTError, match="no tensor 'u'"):
        session.resetHostWeights(model(u=WEIGHTS))
    session.resetHostWeights(model(u=WEIGHTS), True)
    for given in ({"u": WEIGHTS}, {"w": WEIGHTS[:1]}):
        with pytest.raises(PopARTError, match=r"weight '[uw]'"):
            session.writeWeights(popart.PyWeightsIO(given))


def test_batch_normalization_moves_its_statistics() -> None:
    nodes = [
        helper.make_node(
            "BatchNormalization",
            ["x", "scale", "bias", "mean", "variance"],
            ["y", "mean_out", "variance_out", "saved_mean", "saved_variance"],
            momentum=0.75,
        ),
        helper.make_node("ReduceMean", ["y"], ["loss"], keepdims=0),
    ]
    one, zero = np.ones(3, np.float32), np.zeros(3, np.float32)
    proto = model(nodes, scale=one, bias=zero, mean=zero, variance=one)
    session, x = training(proto=proto), data()
    run(session, x)
    np.testing.assert_allclose(weight(session, "mean"), 0.25 * x.mean(0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        weight(session, "variance"), 0.75 + 0.25 * x.var(0), rtol=1e-4, atol=1e-6
    )


def test_dropout_acts_in_training_alone() -> None:
    nodes = [
        helper.make_node("Dropout", ["x"], ["y"], ratio=0.5),
        helper.make_node("MatMul", ["y", "w"], ["z"]),
        helper.make_node("ReduceMean", ["z"], ["loss"], keepdims=0),
    ]
    proto, x = model(nodes, 10), np.ones((4, 3), np.float32)
    session = training(("y", "loss"), proto=proto)
    session.setRandomSeed(3)
    first, second = run(session, x)["y"], run(session, x)["y"]
    assert set(np.unique(first)) == {0, 2}
    assert (first != second).any()
    assert session.getRandomSeed() == 5
    session.setRandomSeed(3)
    np.testing.assert_array_equal(run(session, x)["y"], first)
    inference = popart.InferenceSession(proto, popart.DataFlow(1, ["y"]), device())
    inference.prepareDevice()
    np.testing.assert_array_equal(run(inference, x)["y"], x)


def test_shapes_that_a_model_leaves_open() -> None:
    infos = popart.InputShapeInfo()
    with pytest.raises(PopARTError, match="inputShapeInfo"):
        training(proto=model(size="N"), inputShapeInfo=infos)
    infos.add("x", popart.TensorInfo("FLOAT", [4, 3]))
    infos.add("not there", popart.TensorInfo("FLOAT", [4, 3]))
    assert infos.has("x")
    assert infos.get("x").shape() == [4, 3]
    assert run(training(proto=model(size="N"), inputShapeInfo=infos), data())["loss"].shape == ()


def test_synthetic_data() -> None:
    mode = popart.SyntheticDataMode
    session = training(syntheticDataMode=mode.Zeros)
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({}, anchors))
    np.testing.assert_array_equal(weight(session), WEIGHTS)
    for random in (mode.RandomNormal, mode.RandomUniform):
        session = training(syntheticDataMode=random)
        session.run(popart.PyStepIO({}, anchors))
        assert (weight(session) != WEIGHTS).all()


def test_reports() -> None:
    session = training(instrumentWithHardwareCycleCounter=True)
    assert session.getReport().cycles == session.getCycleCount() > 0
    assert "cycles" in session.getSummaryReport()
    assert {"x", "w", "y", "loss"} <= session.getAllTensorIds()
    with pytest.raises(PopARTError, match="instrumentWithHardwareCycleCounter"):
        training().getCycleCount()
    for call in (session.getSerializedGraph, lambda: session.loadExecutable("a")):
        with pytest.raises(PopARTError):
            call()


def test_a_session_is_prepared_first() -> None:
    session = popart.InferenceSession(model(), popart.DataFlow(1, ["y"]), device())
    for call in (
        lambda: run(session, data()),
        session.weightsFromHost,
        session.weightsToHost,
        session.getSummaryReport,
        session.loadEngineAndConnectStreams,
    ):
        with pytest.raises(PopARTError, match="prepareDevice"):
            call()
    session.prepareDevice(False)
    run(session, data())
    session.loadEngineAndConnectStreams()
    run(session, data())


def test_a_session_goes_on_after_an_error() -> None:
    session, x = training(), data()
    for given in ({}, {"x": x[:2]}):
        with pytest.raises(PopARTError, match="input 'x'"):
            session.run(popart.PyStepIO(given, {}))
    run(session, x)
    np.testing.assert_allclose(weight(session), WEIGHTS - 0.1 * gradient(x), rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: training(("nothing",)), "no tensor 'nothing'"),
        (lambda: training(optimizer="SGD"), "optimizer"),
        (lambda: training(accumulationFactor=2), "enableGradientAccumulation"),
        (
            lambda: training(virtualGraphMode=popart.VirtualGraphMode.ExecutionPhases),
            "phases = 0 and virtualGraphMode",
        ),
        (lambda: training(globalReplicationFactor=2), "its session runs alone"),
        (
            lambda: training(enableDistributedReplicatedGraphs=True, globalReplicationFactor=2),
            "this is instance 0 of 1 with 1 replica",
        ),
        (
            lambda: training(executionPhaseSettings=popart.ExecutionPhaseSettings(phases=2)),
            "executionPhaseSettings",
        ),
        (
            lambda: popart.TrainingSession(
                model(), popart.DataFlow(1, ["y"]), "y", popart.ConstSGD(0.1), device()
            ),
            "must be a scalar",
        ),
        (
            lambda: popart.TrainingSession(
                model(), popart.DataFlow(1, ["y"]), "z", popart.ConstSGD(0.1), device()
            ),
            "the loss 'z'",
        ),
    ],
)
def test_what_cannot_be(make: Callable[[], Any], match: str) -> None:
    with pytest.raises(PopARTError, match=match):
        make()


def phased(of_nodes: tuple[int | None, int | None, int], **settings: int) -> Any:
    """A trained model whose three nodes have phases: the new weights, and the session."""
    builder = popart.Builder()
    rng = np.random.default_rng(3)
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [4, 4]))
    w = builder.addInitializedInputTensor(rng.normal(size=(4, 4)).astype(np.float32), "w")
    hidden = builder.aiOnnx.matmul([x, w])
    out = builder.aiOnnx.tanh([hidden])
    loss = builder.aiGraphcore.l1loss([out], 0.1)
    options = popart.SessionOptions()
    for name, phase in zip((hidden, out, loss), of_nodes, strict=True):
        if phase is not None:
            builder.executionPhase(name, phase)
    if settings:
        options.virtualGraphMode = popart.VirtualGraphMode.ExecutionPhases
        options.executionPhaseSettings = popart.ExecutionPhaseSettings(**settings)
    session = popart.TrainingSession(
        builder.getModelProto(), popart.DataFlow(1, [loss]), loss, popart.ConstSGD(0.1),
        popart.DeviceManager().createIpuModelDevice({"numIPUs": 4}), userOptions=options,
    )  # fmt: skip
    session.prepareDevice()
    session.weightsFromHost()
    session.run(popart.PyStepIO({x: np.eye(4, dtype=np.float32)}, session.initAnchorArrays()))
    session.weightsToHost()
    weights = {"w": np.zeros((4, 4), np.float32)}
    session.readWeights(popart.PyWeightsIO(weights))
    return weights["w"], session


def test_execution_phases_run_on_ipus_in_turn() -> None:
    """The numbers are those of one IPU; the node without a phase is where its operand is."""
    expected, alone = phased((0, 1, 2))
    assert alone.getReport().num_ipus == 1
    for phases, settings, ipus in (
        ((0, 1, 2), {"phases": 3}, 2),
        ((0, None, 2), {"phases": 3, "stages": 3}, 4),
        ((0, 1, 2), {"phases": 3, "stages": 1}, 1),
    ):
        weights, session = phased(phases, **settings)
        np.testing.assert_allclose(weights, expected, rtol=1e-6)
        report = session.getReport()
        assert report.num_ipus == ipus
        used = {step.ipu for step in report.steps if step.kind == "compute"}
        assert used == {phase % settings.get("stages", 2) for phase in phases if phase is not None}


def test_execution_phases_follow_one_another() -> None:
    for phases in ((1, 0, 2), (0, 1, 3)):
        with pytest.raises(PopARTError, match="number the phases from 0 to 2, in the order"):
            phased(phases, phases=3)


def test_options_have_the_original_names() -> None:
    options = popart.SessionOptions()
    options.executionPhaseSettings.phases = 4
    with pytest.raises(PopARTError, match="executionPhaseSettings"):
        options.check_supported()
    options.virtualGraphMode = popart.VirtualGraphMode.ExecutionPhases
    options.check_supported()
    options.enablePipelining = True
    with pytest.raises(PopARTError, match=r"enablePipelining.*execution phases"):
        options.check_supported()
    assert popart.SessionOptions().executionPhaseSettings.phases == 0
    with pytest.raises(AttributeError, match="did you mean 'enablePipelining'"):
        options.enablePipelinin = True
    options.enableExplicitIR(True)
    assert options.useHostCopyOps
    location = popart.TensorLocation(
        popart.TensorStorage.OffChip, popart.ReplicatedTensorSharding.On
    )
    options.weightTensorLocationSettings = popart.TensorLocationSettings(location, 0)
    assert options.weightTensorLocationSettings.location.replicatedTensorSharding.name == "On"


def test_patterns_are_accepted() -> None:
    patterns = popart.Patterns(["PostNRepl"]).enablePattern("Other", True)
    patterns.OpToIdentity = False
    patterns.enableRuntimeAsserts(False)
    assert patterns.isPatternEnabled("Other")
    assert not patterns.OpToIdentity
    assert popart.Patterns(popart.PatternsLevel.All).isPatternEnabled("any")


def test_programs_replace_how_a_device_is_acquired(monkeypatch: pytest.MonkeyPatch) -> None:
    def acquire_once(*arguments: Any) -> Any:
        return popart.DeviceManager.tryAcquireAvailableDevice(*arguments)

    monkeypatch.setattr(popart.DeviceManager, "acquireAvailableDevice", acquire_once)
    assert popart.DeviceManager().acquireAvailableDevice(2).numIpus == 2


def test_devices() -> None:
    manager = popart.DeviceManager()
    manager.setOnDemandAttachTimeout(1)
    with manager.acquireAvailableDevice(2) as held:
        assert (held.numIpus, held.type, held.isAttached) == (2, popart.DeviceType.Ipu, True)
    assert not held.isAttached
    assert manager.tryAcquireAvailableDevice(5000) is None
    with pytest.raises(PopARTError, match="5000"):
        manager.acquireAvailableDevice(5000)
    assert manager.acquireDeviceById(7).id == 7
    assert len(manager.enumerateDevices()) == 1
    offline = manager.createOfflineIPUDevice({"numIPUs": "4", "tilesPerIPU": 8})
    assert (offline.numIpus, offline.tilesPerIpu, offline.attach()) == (4, 8, False)
    assert manager.createSimDevice({}).type is popart.DeviceType.Sim


def inference(is_constant: bool) -> popart.InferenceSession:
    options = popart.SessionOptions()
    options.constantWeights = is_constant
    flow = popart.DataFlow(1, ["y"])
    session = popart.InferenceSession(model(), flow, device(), userOptions=options)
    session.prepareDevice()
    return session


def write(session: Any) -> None:
    session.writeWeights(popart.PyWeightsIO({"w": WEIGHTS * 3}))


def test_weights_of_inference_are_constant_unless_said() -> None:
    session = inference(is_constant=True)
    for change in (lambda: session.resetHostWeights(model()), lambda: write(session)):
        with pytest.raises(PopARTError, match="when constantWeights is set"):
            change()
    other, x = inference(is_constant=False), data()
    write(other)
    other.weightsFromHost()
    np.testing.assert_allclose(run(other, x)["y"], x @ WEIGHTS * 3, rtol=1e-5)


def test_variables_are_saved_for_another_session(tmp_path: Path) -> None:
    session, other = training(), training()
    write(session)
    session.saveVariables(tmp_path)
    other.resetHostWeights(str(tmp_path / "variables.onnx"))
    other.weightsFromHost()
    np.testing.assert_allclose(weight(other), WEIGHTS * 3)


def test_rounding_follows_the_seed() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT16", [64]))
    y = builder.aiOnnx.add([x, builder.aiOnnx.constant(np.full(64, 2**-12, np.float16))])
    options = popart.SessionOptions()
    options.enableStochasticRounding = True
    session = popart.InferenceSession(
        builder.getModelProto(), popart.DataFlow(1, [y]), device(), userOptions=options
    )
    session.prepareDevice()
    results: list[Array] = []
    for seed in (1, 2, 1):
        session.setRandomSeed(seed)
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO({x: np.ones(64, np.float16)}, anchors))
        results.append(anchors[y])
    np.testing.assert_array_equal(results[0], results[2])
    assert (results[0] != results[1]).any()
    with pytest.raises(PopARTError, match="rngState of size 2"):
        session.setRNGState([*session.getRNGState(), 0])


def test_what_sessions_refuse_by_name() -> None:
    session = training()
    with pytest.raises(PopARTError, match="updateExternallySavedTensorLocations"):
        session.updateExternallySavedTensorLocations("a", "b")
    with pytest.raises(PopARTError, match="connectStreamToCallback"):
        session.connectStreamToCallback("a", print)
    with pytest.raises(PopARTError, match="User must specify an anchor tensor"):
        popart.InferenceSession(model(), popart.DataFlow(1, {}), device())
    assert session.getTensorIds() == session.getAllTensorIds()


def test_programs_are_saved(tmp_path: Path) -> None:
    session = inference(is_constant=True)
    session.compileAndExport(tmp_path / "new" / "program.ipujax")
    session.saveExecutable(str(tmp_path))
    session.saveExecutable(tmp_path / "other.ipujax", saveVariables=False)
    names = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert names == {"new/program.ipujax", "executable.ipujax", "variables.onnx", "other.ipujax"}
    with pytest.raises(ExecutableError, match=r"the queues of `inference`"):
        ipu.load_executable(tmp_path / "executable.ipujax")


def test_gradients_in_a_pipeline() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [4, 3]), "x")
    y = builder.addInitializedInputTensor(WEIGHTS, "w")
    with builder.virtualGraph(0), builder.pipelineStage(0):
        y = builder.aiOnnx.matmul([x, y])
    with builder.virtualGraph(1), builder.pipelineStage(1):
        loss = builder.aiGraphcore.l1loss([y], 1.0, popart.ReductionType.Sum)
    options = popart.SessionOptions()
    options.enablePipelining = options.enableGradientAccumulation = True
    options.accumulationFactor = 3
    options.virtualGraphMode = popart.VirtualGraphMode.Manual
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, ["Gradient___w"]),
        loss,
        popart.ConstSGD(0.1),
        device(),
        userOptions=options,
    )
    session.prepareDevice()
    assert session.getReport().num_ipus == 2
    session.weightsFromHost()
    batches = data(3)
    expected = np.stack([one.T @ np.sign(one @ WEIGHTS) for one in batches])
    np.testing.assert_allclose(run(session, batches)["Gradient___w"], expected, rtol=1e-5)
    np.testing.assert_allclose(weight(session), WEIGHTS - 0.1 * expected.sum(0), rtol=1e-4)
