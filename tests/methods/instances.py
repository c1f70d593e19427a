"""Objects of every public class, one line for each, and good arguments for their methods."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import optax
import pytest

import ipujax as ipu
from ipujax import popart, poptorch
from tests.ipujax import public

f32 = np.float32
X = np.ones((2, 4), f32)


@functools.cache
def _lowered() -> Any:
    return ipu.compile(lambda x: x * 2 + 1).lower(X)


@functools.cache
def _executable() -> Any:
    return _lowered().compile()


def _pva() -> Any:
    return ipu.pva.Report(_lowered().report())


@functools.cache
def _mapping() -> Any:
    return ipu.tile_mapping(_lowered(), 0)


@functools.cache
def _model() -> Any:
    return public._onnx_model()


def _torch() -> Any:
    return pytest.importorskip("torch")


def _inference() -> Any:
    return poptorch.inferenceModel(_torch().nn.Linear(4, 1))


def _training() -> Any:
    torch = _torch()

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, x: Any) -> Any:
            y = self.layer(x)
            return y, poptorch.identity_loss(y.mean(), "none")

    net = Net()
    return poptorch.trainingModel(net, None, poptorch.optim.SGD(net.parameters(), lr=0.1))


def _parameters() -> Any:
    return [_torch().nn.Parameter(_torch().ones(2))]


def _session() -> Any:
    device = popart.DeviceManager().createCpuDevice()
    return popart.InferenceSession(_model(), popart.DataFlow(1, ["y"]), device)


def _training_session() -> Any:
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2]), "x")
    w = builder.addInitializedInputTensor(np.ones(2, f32), "w")
    loss = builder.aiGraphcore.l1loss([builder.aiOnnx.mul([x, w])], 0.1)
    return popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, {loss: popart.AnchorReturnType("All")}),
        loss,
        popart.ConstSGD(0.1),
        deviceInfo=popart.DeviceManager().createCpuDevice(),
    )


def _builder() -> Any:
    builder = popart.Builder()
    builder.addInputTensor(popart.TensorInfo("FLOAT", [2, 2]), "x")
    return builder


def _estimator() -> Any:
    return ipu.ipu_estimator.IPUEstimator(**public._estimator())


def _pipeline_estimator() -> Any:
    run = ipu.ipu_run_config.RunConfig(model_dir="model")
    return ipu.ipu_pipeline_estimator.IPUPipelineEstimator(lambda mode: None, config=run)


def _trained() -> Any:
    return ipu.training.Training(lambda v, x: x.sum() * v, optax.sgd(0.1))


def _keras() -> Any:
    model = public._keras_model()
    with ipu.ipu_strategy.IPUStrategy().scope():
        return type(model)(model.layers)


def _from_torch() -> Any:
    return ipu.frontends.from_torch(_torch().nn.Linear(4, 1), (_torch().ones(2, 4),))


def _popnn(name: str) -> Callable[[], Any]:
    return lambda: getattr(ipu.rnn_ops, name)(2)


def _layer(name: str, *args: Any) -> Callable[[], Any]:
    return lambda: getattr(ipu.keras.layers, name)(*args)


def _options(part: str = "") -> Callable[[], Any]:
    return lambda: getattr(poptorch.Options(), part) if part else poptorch.Options()


def _config(part: str) -> Callable[[], Any]:
    return lambda: getattr(ipu.config.IPUConfig(), part)


def _optimizer(name: str) -> Callable[[], Any]:
    return lambda: getattr(poptorch.optim, name)(_parameters(), lr=0.1)


def _of_popart(name: str, *args: Any) -> Callable[[], Any]:
    return lambda: getattr(popart, name)(*args)


def _schedule() -> Any:
    return ipu.schedules.gpipe(2, 4)


RATE = {"defaultLearningRate": (0.1, False)}

INSTANCES: dict[str, Callable[[], Any]] = {
    # Programs
    "Traced": lambda: ipu.compile(lambda x: x + 1).trace(X),
    "Lowered": _lowered,
    "Executable": _executable,
    "CompiledFunction": lambda: ipu.compile(lambda x: x + 1),
    "Report": lambda: _lowered().report(),
    "TileMapping": _mapping,
    "Comparison": lambda: ipu.compare(lambda x: x + 1, [f32(1)], targets=["ipu2"]),
    "pva.Report": _pva,
    "pva.CompilationReport": lambda: _pva().compilation,
    "pva.ExecutionReport": lambda: _pva().execution,
    "pva.IPU": lambda: _pva().compilation.ipus[0],
    "pva.Tile": lambda: _pva().compilation.tiles[0],
    "pva.Program": lambda: _pva().compilation.programs[0],
    "pva.ProgramVisitor": lambda: ipu.pva.ProgramVisitor(),
    "pva.LiveMemory": lambda: _pva().compilation.livenessProgramSteps[0],
    "pva.steps": lambda: _pva().execution.steps,
    # Queues and data
    "IPUInfeedQueue": lambda: ipu.ipu_infeed_queue.IPUInfeedQueue([f32(1)] * 8),
    "IPUOutfeedQueue": lambda: ipu.ipu_outfeed_queue.IPUOutfeedQueue(),
    "BufferDataset": lambda: ipu.data.ops.dataset_ops.BufferDataset([f32(1)] * 4, 2),
    "HostEmbedding": lambda: ipu.embedding_ops.create_host_embedding("e", [3, 4], f32),
    "HostEmbeddingOptimizerSpec": lambda: ipu.embedding_ops.HostEmbeddingOptimizerSpec(0.1),
    # Configuration
    "IPUConfig": lambda: ipu.config.IPUConfig(),
    **{
        f"IPUConfig.{part}": functools.partial(
            lambda part: getattr(ipu.config.IPUConfig(), part), part
        )
        for part in (
            *("convolutions", "device_connection", "floating_point_behaviour", "io_tiles"),
            *("ipu_model", "matmuls", "norms", "optimizations", "pooling", "scheduling"),
        )
    },
    "VerificationOptions": lambda: ipu.config.VerificationOptions(),
    "RunConfig": lambda: ipu.ipu_run_config.RunConfig(),
    "IPURunConfig": lambda: ipu.ipu_run_config.IPURunConfig(),
    "HostTrace": lambda: ipu.host_trace.HostTrace(),
    # Chips and schedules
    "Target": lambda: ipu.targets.IPU2,
    "Links": lambda: ipu.targets.IPU2.links,
    "Schedule": _schedule,
    "Simulation": lambda: ipu.schedules.simulate(_schedule()),
    "PipelineStageOptions": lambda: ipu.pipelining_ops.PipelineStageOptions(),
    # Layers and optimizers
    "PopnnLSTM": _popnn("PopnnLSTM"),
    "PopnnGRU": _popnn("PopnnGRU"),
    "PopnnDynamicGRU": _popnn("PopnnDynamicGRU"),
    "PopnnAUGRU": _popnn("PopnnAUGRU"),
    "CrossReplicaOptimizer": lambda: ipu.optimizers.CrossReplicaOptimizer(optax.sgd(0.1)),
    "ShardedOptimizer": lambda: ipu.optimizers.ShardedOptimizer(optax.sgd(0.1)),
    "GradientAccumulationOptimizerV2": lambda: (
        ipu.gradient_accumulation_optimizer.GradientAccumulationOptimizerV2(optax.sgd(0.1), 2)
    ),
    "MapGradientOptimizer": lambda: ipu.optimizers.MapGradientOptimizer(
        optax.sgd(0.1), lambda g, v: g
    ),
    "Metric": lambda: ipu.metrics.mean(X),
    # Training and estimators
    "Training": _trained,
    "Inference": lambda: ipu.training.Inference(lambda v, x: x * v),
    "History": lambda: ipu.training.History(),
    "Progress": lambda: ipu.training.Progress(),
    "Pipeline": lambda: ipu.training.Pipeline([lambda x: x, lambda x: x]),
    "IPUEstimator": _estimator,
    "IPUPipelineEstimator": _pipeline_estimator,
    "IPULoggingTensorHook": lambda: ipu.ipu_session_run_hooks.IPULoggingTensorHook(at_end=True),
    "StopAtStepHook": lambda: ipu.ipu_session_run_hooks.StopAtStepHook(num_steps=1),
    "EarlyStoppingHook": lambda: ipu.ipu_session_run_hooks.EarlyStoppingHook(1),
    "ProfilerHook": lambda: ipu.ipu_session_run_hooks.ProfilerHook(save_steps=1),
    "IPUStrategy": lambda: ipu.ipu_strategy.IPUStrategy(),
    "IPUHorovodStrategy": lambda: ipu.horovod.ipu_horovod_strategy.IPUHorovodStrategy(),
    "PopDistStrategy": lambda: ipu.horovod.popdist_strategy.PopDistStrategy(),
    "IPUMultiReplicaStrategy": (
        lambda: ipu.horovod.ipu_multi_replica_strategy.IPUMultiReplicaStrategy()
    ),
    "frontends.Model": _from_torch,
    # Keras
    "keras.Model": _keras,
    "keras.PopnnLSTM": _layer("LSTM", 2),
    "keras.PopnnGRU": _layer("GRU", 2),
    "keras.Embedding": _layer("Embedding", 3, 4),
    "keras.Dropout": _layer("Dropout", 0.5),
    "keras.GroupNormalization": _layer("GroupNormalization"),
    "keras.InstanceNormalization": _layer("InstanceNormalization"),
    "keras.LayerNormalization": _layer("LayerNormalization"),
    "keras.RecomputationCheckpoint": _layer("RecomputationCheckpoint"),
    # PopTorch
    "Options": _options(),
    "Options.Training": _options("Training"),
    "Options.Precision": _options("Precision"),
    "Options.Distributed": _options("Distributed"),
    "Options.TensorLocations": _options("TensorLocations"),
    "Options.Jit": _options("Jit"),
    "Options._Popart": _options("_Popart"),
    "poptorch.TensorLocationSettings": lambda: poptorch.TensorLocationSettings(),
    "PoplarExecutor": _inference,
    "PoplarExecutor.training": _training,
    "DataLoader": lambda: poptorch.DataLoader(poptorch.Options(), [f32(1)] * 4),
    "AsynchronousDataAccessor": lambda: poptorch.AsynchronousDataAccessor([f32(1)] * 4),
    "poptorch.SGD": _optimizer("SGD"),
    "poptorch.Adam": _optimizer("Adam"),
    "poptorch.AdamW": _optimizer("AdamW"),
    "poptorch.RMSprop": _optimizer("RMSprop"),
    "poptorch.LAMB": _optimizer("LAMB"),
    "MultiConv": lambda: poptorch.MultiConv(),
    "NameScope": lambda: poptorch.NameScope("a"),
    "Stage": lambda: poptorch.Stage("a"),
    "PipelinedExecution": lambda: poptorch.PipelinedExecution("a", "b"),
    "ShardedExecution": lambda: poptorch.ShardedExecution("a", "b"),
    "profiling.Channel": lambda: poptorch.profiling.Channel("a"),
    # PopART
    "Builder": _builder,
    "Builder.aiOnnx": lambda: _builder().aiOnnx,
    "Builder.aiGraphcore": lambda: _builder().aiGraphcore,
    "InferenceSession": _session,
    "TrainingSession": _training_session,
    "SessionOptions": lambda: popart.SessionOptions(),
    "Patterns": lambda: popart.Patterns(),
    "DeviceManager": lambda: popart.DeviceManager(),
    "DeviceInfo": lambda: popart.DeviceManager().createCpuDevice(),
    "DataFlow": lambda: popart.DataFlow(1, ["y"]),
    "AnchorReturnType": lambda: popart.AnchorReturnType("All"),
    "TensorInfo": lambda: popart.TensorInfo("FLOAT", [2]),
    "popart.SGD": _of_popart("SGD", RATE),
    "ConstSGD": _of_popart("ConstSGD", 0.1),
    "popart.Adam": _of_popart("Adam", RATE),
    "Adaptive": _of_popart("Adaptive", RATE),
    "OptimizerValue": _of_popart("OptimizerValue", 0.1, False),
    "OptimizerValueMap": lambda: popart.OptimizerValueMap(popart.OptimizerValue(0.1, False)),
    "PyStepIO": lambda: popart.PyStepIO({"x": X[0]}, {"y": X[0].copy()}),
    "PyWeightsIO": lambda: popart.PyWeightsIO({"w": X}),
    "GraphTransformer": lambda: popart.GraphTransformer(_model()),
    "InputShapeInfo": lambda: popart.InputShapeInfo(),
    "InputSettings": lambda: popart.InputSettings(),
    "VariableSettings": lambda: popart.VariableSettings(),
    "CommGroup": lambda: popart.CommGroup(),
    "DebugContext": lambda: popart.DebugContext("a"),
    "DebugInfo": lambda: popart.DebugInfo(popart.DebugContext("a"), "b"),
    "Logger": lambda: popart.getLogger("a") if hasattr(popart, "getLogger") else None,
    "ClipNormSettings": lambda: popart.ClipNormSettings(["w"], 1.0),
    **{
        name: _of_popart(name)
        for name in (
            *("AccumulateOuterFragmentSettings", "AutodiffSettings", "BatchSerializationSettings"),
            *("AutomaticLossScalingSettings", "ExecutionPhaseSettings", "ExperimentalSettings"),
            *("ReplicatedCollectivesSettings", "TensorLocation", "TensorLocationSettings"),
        )
    },
}
"""How an object is made, by the name of its class or of where a user finds it."""

GOOD: dict[str, Any] = {
    "path": "a.file",
    "filename": "a.file",
    "seconds": 1.0,
    "cycles": 1,
    "indices": np.int32([0]),
    "tensors": X,
    "inputs": X,
    "args": ["x"],
    "x": X,
    "proto": "x",
    "name": "a",
    "key": "matMulOptions",
    "dataset": [f32(1)] * 4,
    "iterations": 1,
    "steps": 1,
    "input_fn": lambda: [X],
}
"""What parameters of these names take; others are given what their annotation says."""
