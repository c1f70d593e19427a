"""PopTorch's options: how they are set, read, copied, fixed, and what they refuse."""

from __future__ import annotations

import copy
import json
import os
import pickle

import pytest

pytest.importorskip("torch")

import torch

from ipujax import poptorch
from ipujax.errors import PopTorchFileError
from ipujax.poptorch import options as options_module
from ipujax.poptorch import poptorch_core


def test_methods_give_the_options_back_and_values_are_attributes() -> None:
    options = poptorch.Options().deviceIterations(4).replicationFactor(2).autoRoundNumIPUs()
    options.Training.gradientAccumulation(8)
    options.outputMode(poptorch.OutputMode.EveryN, 2)
    assert (options.device_iterations, options.replication_factor) == (4, 2)
    assert options.Training.gradient_accumulation == 8
    assert (options.output_mode, options.output_return_period) == (poptorch.OutputMode.EveryN, 2)
    assert options.auto_round_num_ipus
    assert options("device_iterations") == 4
    options.device_iterations = 5
    assert options.device_iterations == 5
    assert repr(options).startswith("Options(replication_factor=2")
    assert "gradient_accumulation=8" in repr(options)


def test_defaults() -> None:
    options = poptorch.Options()
    assert options.defaultOutputMode()
    assert not options.exists("random_seed")
    assert options.connection_type == poptorch.ConnectionType.Always
    assert options.Training.accumulation_and_replication_reduction_type == (
        poptorch.ReductionType.Mean
    )
    assert options.Distributed.numProcesses == 1
    assert isinstance(options._execution_strategy, poptorch.PipelinedExecution)


def test_the_seed_is_also_torchs() -> None:
    poptorch.Options().randomSeed(42)
    drawn = torch.rand(3)
    torch.manual_seed(42)
    assert torch.equal(drawn, torch.rand(3))


def test_an_anchor_says_what_is_kept_and_when() -> None:
    options = poptorch.Options()
    options.anchorTensor("weights", "Gradient___w", poptorch.OutputMode.EveryN, 3)
    options.anchorTensor("loss", "loss")
    assert options.anchored_tensors == {
        "weights": ["Gradient___w", False, poptorch.OutputMode.EveryN, 3],
        "loss": ["loss", True, None, 1],
    }


def test_what_is_used_cannot_be_changed_but_copied() -> None:
    options = poptorch.Options().deviceIterations(2)
    options._freeze()
    changes = (
        lambda: options.randomSeed(1),
        lambda: options.set(device_iterations=3),
        lambda: options.Training.gradientAccumulation(2),
        lambda: options._Popart.set("autoRecomputation", 1),
        lambda: options.TensorLocations.numIOTiles(32),
        lambda: options.Precision.setPartialsType(torch.half),
        lambda: options.Distributed.configureProcessId(0, 2),
        lambda: options.anchorTensor("a", "b"),
        lambda: options.setExecutionStrategy(poptorch.ShardedExecution()),
        lambda: options.showCompilationProgressBar(False),
    )
    for change in changes:
        with pytest.raises(poptorch.Error, match="Can't modify frozen Options") as caught:
            change()
        assert isinstance(caught.value, AttributeError)
    copied = options.clone().deviceIterations(3)
    copied.Training.gradientAccumulation(2)
    assert (options.device_iterations, copied.device_iterations) == (2, 3)


def test_copies_are_equal_and_independent() -> None:
    options = poptorch.Options().deviceIterations(2)
    options._Popart.set("autoRecomputation", 3)
    options.setExecutionStrategy(poptorch.PipelinedExecution("a", poptorch.Stage("b").ipu(3)))
    for copied in (copy.deepcopy(options), pickle.loads(pickle.dumps(options))):
        assert copied == options
        copied.Precision.enableStochasticRounding(True)
        assert copied._Popart.options["enableStochasticRounding"]  # the groups still share it
        assert copied != options
    assert "enableStochasticRounding" not in options._Popart.options
    other = options.clone()
    other._execution_strategy.stage("b").ipu(2)
    assert other != options


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("deviceIterations", [0]),
        ("deviceIterations", [1.5]),
        ("replicationFactor", [True]),
        ("outputMode", ["All"]),
        ("outputMode", [poptorch.OutputMode.EveryN]),
        ("anchorTensor", [1, "name"]),
        ("connectionType", [0]),
        ("syncPattern", ["Full"]),
        ("useOfflineIpuTarget", [3]),
        ("setAvailableMemoryProportion", [{"0": 0.5}]),
        ("setAvailableMemoryProportion", [{"IPU0": 1.5}]),
        ("setExecutionStrategy", ["pipelined"]),
        ("inputReplicaGrouping", [2, poptorch.CommGroupType.Consecutive]),
        ("inputReplicaGrouping", [1, poptorch.CommGroupType.All]),
        ("Training.gradientAccumulation", [0]),
        ("Training.accumulationAndReplicationReductionType", [poptorch.ReductionType.NoReduction]),
        ("Training.setAutomaticLossScaling", ["yes"]),
        ("Precision.setPartialsType", [torch.int32]),
        ("Precision.enableFloatingPointExceptions", ["yes"]),
        ("Jit.traceModel", [True]),
        ("Distributed.configureProcessId", [2, 2]),
        ("TensorLocations.numIOTiles", [33]),
        ("TensorLocations.setWeightLocation", [{"onChip": True}]),
        ("updatableNamedBuffers", ["buffer"]),
    ],
)
def test_what_no_option_can_be_is_refused_at_once(name: str, arguments: list[object]) -> None:
    options = poptorch.Options()
    method = options
    for part in name.split("."):
        method = getattr(method, part)
    with pytest.raises(poptorch.Error) as caught:
        method(*arguments)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, AssertionError)  # as the original raised here and there
    assert options == poptorch.Options()


def test_names_that_are_no_options_are_refused() -> None:
    options = poptorch.Options()
    for wrong in (lambda: options.deviceIteration, lambda: options.set(deviceIterations=2)):
        with pytest.raises(poptorch.Error, match="device_iterations") as caught:
            wrong()
        assert isinstance(caught.value, AttributeError)
    with pytest.raises(poptorch.Error, match="of type int"):
        options.device_iterations = "2"


def test_groups_of_replicas_divide_the_replicas() -> None:
    options = poptorch.Options().replicationFactor(4)
    options.inputReplicaGrouping(2, poptorch.CommGroupType.Orthogonal)
    assert (options.input_group_size, options.input_cgt) == (2, poptorch.CommGroupType.Orthogonal)
    options.inputReplicaGrouping(4, poptorch.CommGroupType.NoGrouping)
    assert (options.input_group_size, options.input_cgt) == (1, poptorch.CommGroupType.Consecutive)


def test_places_of_tensors() -> None:
    options = poptorch.Options()
    settings = poptorch.TensorLocationSettings().useOnChipStorage(False).minElementsForOffChip(4)
    options.TensorLocations.setWeightLocation(settings.useReplicatedTensorSharding())
    assert options.TensorLocations.location_weight == {
        "onChip": 0,
        "minElementsForOffChip": 4,
        "useReplicatedTensorSharding": 1,
    }
    settings.useOnChipStorage(None)
    assert not settings.exists("onChip")


def test_the_environment_sets_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "POPTORCH_DEFAULT_OPTIONS",
        json.dumps(
            {
                "deviceIterations": 2,
                "connectionType": "ConnectionType.OnDemand",
                "Precision.enableFloatingPointExceptions": True,
                "_Popart.set": ["autoRecomputation", 3],
                "logDir": "some.folder",
            }
        ),
    )
    monkeypatch.setenv("POPTORCH_CACHE_DIR", "cache")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "3")
    options = poptorch.Options()
    assert options.device_iterations == 2
    assert options.connection_type is poptorch.ConnectionType.OnDemand
    assert options.log_dir == "some.folder"
    assert options._Popart.options["autoRecomputation"] == 3
    assert options._Popart.options["enableFloatingPointChecks"]
    assert options._Popart.options["cachePath"] == "cache"
    assert (options.Distributed.processId, options.Distributed.numProcesses) == (3, 4)
    options.Distributed.disable()
    assert (options.Distributed.processId, options.Distributed.numProcesses) == (0, 1)
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "many")
    with pytest.raises(poptorch.Error, match="OMPI_COMM_WORLD_SIZE"):
        poptorch.Options()


def test_a_file_sets_options(tmp_path) -> None:
    file = tmp_path / "options.conf"
    file.write_text(
        "# those of the first run\n"
        "\n"
        "  deviceIterations(3)  # iterations\n"
        "Training.gradientAccumulation(2)\n"
        "outputMode(poptorch.OutputMode.All)\n"
    )
    options = poptorch.Options().loadFromFile(str(file))
    assert options.device_iterations == 3
    assert options.Training.gradient_accumulation == 2
    assert options.output_mode is poptorch.OutputMode.All
    file.write_text("deviceIterations(4)\n\nreplicationFactor(2\n")
    with pytest.raises(options_module.ConfigFileError, match=r"line 3 of options\.conf") as caught:
        options.loadFromFile(str(file))
    assert "> replicationFactor(2" in str(caught.value)
    assert options.device_iterations == 3  # nothing was set of a file with a wrong line


def test_what_is_no_file_of_options_is_refused_at_once(tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zeros").symlink_to("/dev/zero")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    (tmp_path / "long").write_bytes(b"#" * (2**20 + 1))
    for name, what in (
        ("pipe", "is a pipe, no regular file"),
        ("zeros", "is a device, no regular file"),
        ("bytes", "can't decode"),
        ("long", "has more than"),
    ):
        with pytest.raises(options_module.ConfigFileError, match=what):
            poptorch.Options().loadFromFile(str(tmp_path / name))


def test_what_is_no_file_of_a_model_is_refused_at_once(tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zeros").symlink_to("/dev/zero")
    for name, what in (("pipe", "a pipe"), ("zeros", "a device")):
        with pytest.raises(PopTorchFileError, match=f"Invalid file .*: it is {what}, no regular"):
            poptorch.load(str(tmp_path / name))


def test_options_as_one_dictionary() -> None:
    options = poptorch.Options()
    with pytest.raises(poptorch.Error, match="output mode"):
        options.toDict()
    options.outputMode(poptorch.OutputMode.All).setExecutionStrategy(poptorch.ShardedExecution())
    assert options.enableSyntheticData(3).toDict()["syntheticDataMode"] == 2
    assert options.enableSyntheticData(0).toDict()["syntheticDataMode"] == 0
    values = options.enableSyntheticData(True).toDict()
    assert values["execution_mode"] == 1
    assert values["syntheticDataMode"] == 2
    assert values["gradient_accumulation"] == 1
    assert values["num_distributed_processes"] == 1


def test_profiling_and_caching_are_kept_for_the_compiler() -> None:
    options = poptorch.Options().enableProfiling("reports").enableExecutableCaching("cache")
    engine = options._Popart.options["engineOptions"]
    assert engine["autoReport.directory"] == "reports"
    assert options._Popart.options["enableEngineCaching"]
    options.enableExecutableCaching(None)
    assert not options._Popart.options["enableEngineCaching"]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("notASwitch", True, "Unknown PopART option 'notASwitch'"),
        ("dotChecks", torch.zeros(1), "Unknown value type Tensor for option dotChecks"),
        ("enableOutlining", 1, "of type bool"),
        ("autoRecomputation", True, "of type int"),
        ("customCodelets", ["a.cpp"], "codelets"),
        ("executionPhaseSettings.phases", 2, "phased execution"),
        ("automaticLossScalingSettings.gradientTensorTrackingMethod", 2, "the user names"),
    ],
)
def test_switches_that_cannot_act_are_refused_when_used(
    name: str, value: object, message: str
) -> None:
    options = poptorch.Options().outputMode(poptorch.OutputMode.All)
    options._Popart.set(name, value)
    with pytest.raises(poptorch.Error, match=message):
        poptorch_core._validateOptions(options.toDict())
    with pytest.raises(poptorch.Error, match=message):
        options._freeze()
    options.randomSeed(1)  # they are not fixed


@pytest.mark.parametrize("training", [False, True])
def test_groups_of_every_nth_channel(training: bool) -> None:
    """With as many groups as pairs of channels, those of PyTorch once channels are sorted."""
    torch.manual_seed(1)

    class Normalized(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.GroupNorm(2, 6)
            torch.nn.init.normal_(self.norm.weight)
            torch.nn.init.normal_(self.norm.bias)

        def forward(self, x: torch.Tensor) -> object:
            out = self.norm(x)
            return (out, poptorch.identity_loss((out**3).sum(), "none")) if training else out

    model, x = Normalized(), torch.randn(3, 6, 4)
    order = torch.tensor([0, 2, 4, 1, 3, 5])
    weight = model.norm.weight.detach().clone().requires_grad_()
    sorted_weight, sorted_bias = weight[order], model.norm.bias.detach()[order]
    expected = torch.nn.functional.group_norm(x[:, order], 2, sorted_weight, sorted_bias)
    expected = expected[:, torch.argsort(order)]
    options = poptorch.Options()
    options._Popart.set("groupNormStridedChannelGrouping", True)
    if not training:
        torch.testing.assert_close(poptorch.inferenceModel(model, options)(x), expected.detach())
        return
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.01)
    out, _ = poptorch.trainingModel(model, options, optimizer)(x)
    torch.testing.assert_close(out, expected.detach())
    (expected**3).sum().backward()
    assert weight.grad is not None
    torch.testing.assert_close(model.norm.weight.detach(), weight.detach() - 0.01 * weight.grad)


def test_switches_of_the_chip_are_taken(caplog: pytest.LogCaptureFixture) -> None:
    options = poptorch.Options().outputMode(poptorch.OutputMode.All)
    options._Popart.set("outlineThreshold", 10.0)
    options._Popart.set("dotChecks", ["FINAL"])
    options._Popart.set("customCodelets", [])
    options._Popart.setPatterns({"PadSum": True}, 0)
    options.randomSeed(3).modelName("model").useIpuId(1)
    options.TensorLocations.numIOTiles(64)
    poptorch.setLogLevel("DEBUG")
    try:
        poptorch_core._validateOptions(options.toDict())
    finally:
        poptorch.setLogLevel("WARN")
    assert "The PopART option dotChecks changes nothing" in caplog.text
    assert "poptorch.Options added FINAL to dotChecks" in caplog.text
    assert "poptorch.Options set outlineThreshold to value 10.0" in caplog.text
    assert "poptorch.Options set patterns[PadSum] to True" in caplog.text


def test_levels_of_the_log() -> None:
    for level in (0, "TRACE", "OFF", 3):
        poptorch.setLogLevel(level)
    for wrong in (5, "LOUD"):
        with pytest.raises(poptorch.Error, match=r"(Unknown|Invalid) log level"):
            poptorch.setLogLevel(wrong)
