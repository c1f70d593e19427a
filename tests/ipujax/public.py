"""Every public callable of the package, and arguments with which it works."""

from __future__ import annotations

import contextlib
import dataclasses as dc
import enum
import inspect
import itertools
import types
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import optax
import pytest

import ipujax
import ipujax as ipu
from ipujax.errors import MissingExtraError

f32, i32 = np.float32, np.int32

RESULTS = {
    "comparison": ("Comparison", "Row"),
    "events": ("Span",),
    "config": ("AttributeMetadata",),
    "optimizers": ("GradientAccumulationState",),
    "pipelining_ops": ("PipelineCheck", "Difference"),
    "planning": ("Considered", "Plan", "PlannedStage", "Segment", "StageSeconds"),
    "report": ("Report", "Cost"),
    "pva": (
        "BasicBlock",
        "CompilationReport",
        "ExecutionReport",
        "IPU",
        "LoweredVar",
        "Program",
        "Version",
        "View",
    ),
    "schedules": ("ClosedForm", "FoundSchedule", "Simulation", "Schedule", "Task"),
    "frontends": ("Model", "Part"),
    "host_trace": ("HostSpan", "HostTrace"),
    "gradient_accumulation_optimizer": ("GradientAccumulationState",),
    "rnn_ops": ("LSTMStateTuple",),
    "ipu_session_run_hooks": ("Session", "SessionRunContext", "SessionRunValues"),
    "popart": ("DeviceInfo", "Logger", "OpDefinition", "Optimizer"),
    "poplar": (
        "Codelet",
        "ComputeSet",
        "DataStream",
        "Device",
        "Function",
        "RemoteBuffer",
        "StreamCallback",
        "Target",
        "Tensor",
        "Type",
        "Vector",
    ),
    "poptorch": ("PoplarExecutor", "RecoverableError", "UnrecoverableError"),
    "tessellate": ("IpuDevice",),
    "tiles": ("Vertex",),
    "training": ("Run",),
}
"""Classes that the package makes; they are asked, not made by users."""


def _public() -> Iterator[tuple[str, Any]]:
    """What is public; modules of extras only where these are installed."""
    for name in ipujax.__all__:
        with contextlib.suppress(MissingExtraError):
            yield name, getattr(ipu, name)


def callables() -> dict[str, Callable[..., Any]]:
    """All public functions, and classes that users make, by their names below `ipujax`."""
    found: dict[str, Callable[..., Any]] = {}
    unique: set[int] = set()
    public = dict(_public())
    for name in sorted(public, key=lambda n: isinstance(public[n], types.ModuleType)):
        value = public[name]
        if not isinstance(value, types.ModuleType):
            found[name] = value
            unique.add(id(value))
            continue
        for inner in value.__all__:
            each = getattr(value, inner)
            if not callable(each) or inner in RESULTS.get(name, ()):
                continue
            is_class = isinstance(each, type)
            if is_class and issubclass(each, BaseException | enum.Enum):
                continue
            if id(each) not in unique:
                unique.add(id(each))
                found[f"{name}.{inner}"] = each
    return {name: each for name, each in found.items() if callable(each)}


X = np.linspace(0, 1, 12, dtype=f32).reshape(3, 4)
LABELS, LENGTHS = np.ones((2, 2), i32), np.full(2, 2, i32)
CTC = np.zeros((4, 2, 3), f32)
TREE = {"a": f32(1)}


def _pipeline() -> dict[str, Any]:
    return {
        "computational_stages": [lambda x: x + 1, lambda x: x * 2],
        "gradient_accumulation_count": 4,
        "inputs": [f32(1)],
        "outfeed_queue": ipu.ipu_outfeed_queue.IPUOutfeedQueue(),
    }


def _checked_pipeline() -> dict[str, Any]:
    queue = ipu.ipu_infeed_queue.IPUInfeedQueue([f32(1)] * 8)
    given = _pipeline() | {"infeed_queue": queue}
    return {name: value for name, value in given.items() if name != "inputs"}


def _schedule() -> Any:
    return ipu.schedules.gpipe(2, 4)


def _jaxpr() -> Any:
    return jax.make_jaxpr(lambda x: x + 1)(f32(1))


def _poplar_graph() -> Any:
    return ipu.poplar.Graph(ipu.poplar.IPUModel().createDevice().getTarget())


def _poplar_sequence() -> dict[str, Any]:
    return {"graph": _poplar_graph(), "prog": ipu.poplar.program.Sequence(), "tile": 0}


_NUMBERS = itertools.count()


def _rows() -> dict[str, Any]:
    return {"array": X, "tiles": (0, 1, 2)}


def _fields(of: Any) -> dict[str, Any]:
    return {field.name: getattr(of, field.name) for field in dc.fields(of)}


def _sampled() -> dict[str, Any]:
    return {"labels": np.ones((3, 1), i32), "num_classes": 5, "seed": 1}


def _infeed() -> Any:
    return ipu.ipu_infeed_queue.IPUInfeedQueue([f32(1)] * 8)


def _keras_model() -> Any:
    keras = pytest.importorskip("keras")
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])


def _onnx_model():
    helper = pytest.importorskip("onnx.helper")
    x, y = (helper.make_tensor_value_info(name, 1, [2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", [x], [y])
    return helper.make_model(graph).SerializeToString()


def _inference_session() -> dict[str, Any]:
    return {
        "fnModel": _onnx_model(),
        "dataFlow": ipu.popart.DataFlow(1, ["y"]),
        "deviceInfo": ipu.popart.DeviceManager().createCpuDevice(),
    }


def _module() -> Any:
    torch = pytest.importorskip("torch")
    return torch.nn.Linear(4, 1)


def _inert_model() -> Any:
    return ipu.frontends.Model({}, (), lambda variables, inputs, key: (inputs, {}), tuple)


def _tensor() -> Any:
    torch = pytest.importorskip("torch")
    return torch.ones(2, 4)


def _estimator() -> dict[str, Any]:
    run = ipu.ipu_run_config.RunConfig(model_dir="model")
    return {"model_fn": lambda variables, features, mode: None, "config": run}


BY_NAME: dict[str, Any] = {
    "opsetVersion": 10,
    "includeInternal": False,
    "functionName": "main",
    "fileName": "script.py",
    "lineNumber": 3,
    "x": X,
    "name": "a name",
    "opt": optax.sgd(0.1),
    "optimizer": optax.sgd(0.1),
    "wrapped_optimizer": optax.sgd(0.1),
    "num_mini_batches": 2,
    "replication_factor": 1,
    "inputs": X,
    "library_path": __file__,
    "learning_rate": 0.1,
    "accumulation_factor": 2,
    "stages": 2,
    "micro_batches": 4,
    "training": True,
    "num_units": 2,
    "weights": np.ones((5, 4), f32),
    "biases": np.ones(5, f32),
    "logits": CTC,
    "log_probs": CTC,
    "data": CTC,
    "blank_index": 0,
    "label_length": LENGTHS,
    "data_length": LENGTHS,
    "logit_length": LENGTHS,
    "logits_lengths": LENGTHS,
    "input_lengths": LENGTHS,
    "num_sampled": 2,
    "number_of_epochs": 1,
    "elements_per_epochs": 2,
    "num_elems": i32([1, 1]),
    "src": X,
    "dst": X,
    "src_offsets": i32([0, 1]),
    "dst_offsets": i32([0, 1]),
    "zero_unused": True,
    "levels": f32([0.5]),
    "tensors": X,
    "labels": LABELS,
    "predictions": LABELS,
    "path": "no.file",
    "opts": ipu.utils.create_ipu_config(),
    "num_ipus": 2,
    "indices": [0],
    "process_count": 2,
    "process_index": 1,
    "num_io_tiles": 32,
    "verification_options": ipu.utils.VerificationOptions(),
    "events": [],
    "channel": ipu.libpvti.createTraceChannel("a channel"),
    "label": "a label",
    "methods": ["fit"],
    "obj": types.SimpleNamespace(fit=abs),
}
"""What parameters of these names take, unless `GOOD` says otherwise."""

GOOD: dict[str, Callable[[], dict[str, Any]]] = {
    "all_to_all_op.all_to_all": lambda: {"split_dimension": 0, "concat_dimension": 0},
    "popart.GraphTransformer": lambda: {"modelProtoOrFilename": _onnx_model()},
    "popart.OpDefinition": lambda: {"inputs": [], "outputs": [], "attributes": {}},
    "checkpoint.restore": lambda: {"directory": "none"},
    "checkpoint.save": lambda: {"directory": "saved", "step": 1, "tree": TREE},
    "checkpoint.latest_step": lambda: {"directory": "none"},
    "compare": lambda: {"fn": lambda x: x + 1, "args": [f32(1)], "targets": ["ipu2"]},
    "compile": lambda: {"fn": lambda x: x + 1},
    "config.configure_ipu_system": lambda: {"config": ipu.config.IPUConfig()},
    "custom_ops.codelet_expression_op": lambda: {"vertex_expression": lambda: 1},
    "custom_ops.cpu_user_operation": lambda: {"inputs": [X]},
    "custom_ops.precompiled_user_op": lambda: {"inputs": [X]},
    "dataset_benchmark.dataset_benchmark": lambda: {"dataset": [f32(1)] * 8, "print_stats": False},
    "dataset_benchmark.infeed_benchmark": lambda: {"infeed_queue": _infeed(), "print_stats": False},
    "embedding_ops.HostEmbedding": lambda: {"embedding_tensor": X},
    "embedding_ops.create_host_embedding": lambda: {"shape": [3, 4], "dtype": f32},
    "embedding_ops.embedding_lookup": lambda: {"params": X, "ids": i32([0, 1])},
    "events.IpuTraceEvent": lambda: {
        "type": ipu.events.IpuTraceEventType.EXECUTE,
        "timestamp": 0.0,
        "module": "m",
    },
    "frontends.from_keras": lambda: {"model": _keras_model()},
    "frontends.from_onnx": lambda: {"model": _onnx_model(), "shapes": {}, "constants": {}},
    "frontends.from_torch": lambda: {"module": _module(), "example_args": (_tensor(),)},
    "outlined_function": lambda: {"func": lambda x: x},
    "image_ops.normalise_image": lambda: {
        "image": np.ones((2, 3), f32),
        "channel_offsets": np.ones(3, f32),
        "channel_scales": np.ones(3, f32),
    },
    "internal_ops.print_tensor": lambda: {"input": X},
    "ipu_compiler.compile": lambda: {"computation": lambda x: x, "inputs": [f32(1)]},
    "ipu_estimator.IPUEstimator": _estimator,
    "ipu_estimator.IPUEstimatorSpec": lambda: {"mode": "infer", "predictions": X},
    "ipu_infeed_queue.IPUInfeedQueue": lambda: {"dataset": [f32(1)]},
    "ipu_pipeline_estimator.IPUPipelineEstimator": lambda: (
        _estimator() | {"model_fn": lambda mode: None}
    ),
    "ipu_pipeline_estimator.IPUPipelineEstimatorSpec": lambda: {
        "mode": "infer",
        "computational_stages": [lambda x: x, lambda x: x],
        "gradient_accumulation_count": 1,
    },
    "ipu_session_run_hooks.EarlyStoppingHook": lambda: {"max_steps_without_decrease": 1},
    "ipu_session_run_hooks.IPULoggingTensorHook": lambda: {"at_end": True},
    "ipu_session_run_hooks.ProfilerHook": lambda: {"save_steps": 1},
    "ipu_session_run_hooks.StopAtStepHook": lambda: {"num_steps": 1},
    "keras.PipelineStage": lambda: {"stage": 0},
    "training.SelfDifferentiating": lambda: {"gradients": lambda *arrays: arrays},
    "loops.repeat": lambda: {"n": 2, "body": lambda x: x + 1, "inputs": [f32(1)]},
    "loops.while_loop": lambda: {
        "condition": lambda x: x < 2,
        "body": lambda x: x + 1,
        "inputs": [f32(1)],
    },
    "map_gradient_optimizer.MapGradientOptimizer": lambda: {
        "gradient_mapping_function": lambda g, v: g
    },
    "math_ops.serialized_matmul": lambda: {
        "a": X,
        "b": X.T,
        "serialization_factor": 1,
        "serialization_dimension": "a_columns",
    },
    "metrics.Metric": lambda: {"totals": TREE, "result": len},
    "metrics.mean": lambda: {"values": X},
    "metrics.recall_at_k": lambda: {"predictions": np.zeros((2, 3), f32), "k": 1},
    "nn_ops.log_uniform_candidate_sampler": lambda: {
        "true_classes": np.ones((2, 1), np.int64),
        "num_true": 1,
        "unique": True,
        "range_max": 5,
        "seed": 1,
    },
    "nn_ops.nce_loss": _sampled,
    "nn_ops.sampled_softmax_loss": _sampled,
    "normalization_ops.batch_norm": lambda: {"gamma": np.ones(4, f32), "beta": np.ones(4, f32)},
    "optimizers.apply_gradients": lambda: {
        "gradients": TREE,
        "state": optax.sgd(0.1).init(TREE),
    },
    "optimizers.compute_gradients": lambda: {"gradients": TREE, "variables": TREE},
    "pipelining_ops.OptimizerFunctionOutput": lambda: {"loss": f32(1)},
    "check_pipeline": _checked_pipeline,
    "meshes": lambda: {"count": 1, "axes": {"data": 1}},
    "pipelining_ops.forward": lambda: {"fun": lambda x: x * 2, "micro_batches": 2},
    "pipelining_ops.value_and_grad": lambda: {"fun": lambda x: x**2, "micro_batches": 2},
    "pipelining_ops.pipeline": _pipeline,
    "popart.Adam": lambda: {"values": {"defaultLearningRate": (0.1, False)}},
    "popart.Adaptive": lambda: {"values": {"defaultLearningRate": (0.1, False)}},
    "popart.AnchorReturnType": lambda: {"anchorReturnTypeString": "All"},
    "popart.ClipNormSettings": lambda: {"weightIds": ["w"], "maxNorm": 1.0},
    "popart.DebugInfo": lambda: {"debugContext": "a context", "layer": "a layer"},
    "popart.InferenceSession": _inference_session,
    "popart.OperatorIdentifier": lambda: {"domain": "ai.onnx", "type": "Relu", "version": 6},
    "popart.OptimizerValueMap": lambda: {"default": ipu.popart.OptimizerValue(0.1, False)},
    "popart.PyStepIO": lambda: {"inputs": {"x": X}, "outputs": {"y": X}},
    "popart.PyStepIOCallback": lambda: {
        "input_callback": lambda name, prefetch: X,
        "input_complete_callback": lambda name: None,
        "output_callback": lambda name: X,
        "output_complete_callback": lambda name: None,
    },
    "popart.PyWeightsIO": lambda: {"weights": {"w": X}},
    "popart.TensorInfo": lambda: {"dtype": "FLOAT", "shape": [2]},
    "popart.getTensorInfo": lambda: {"array": X},
    "popart.initializePoplarDebugInfo": lambda: {"filename": "debug.json"},
    "poplar.Engine": lambda: {"graph": _poplar_graph(), "programs": []},
    "poplar.Graph": lambda: {"target": _poplar_graph().getTarget()},
    "poplar.Interval": lambda: {"begin": 0, "end": 2},
    "poplar.call": lambda: {"build": lambda graph, sequence: []},
    "poplar.cycleCount": _poplar_sequence,
    "poplar.cycleStamp": _poplar_sequence,
    "poplar.codelet": lambda: {"kind": "Vertex"},
    "tessellate.TileShardedArray": _rows,
    "tessellate.create_ipu_tile_primitive": lambda: {
        "pname": f"made{next(_NUMBERS)}",
        "vname": "Made",
        "inputs": ["x"],
        "outputs": {"x": 0},
    },
    "tessellate.declare_ipu_tile_primitive": lambda: {"vname": "Declared"},
    "tessellate.is_ipu_model": lambda: {"device": ipu.tessellate.IpuDevice(0, 1472, 6)},
    "tessellate.tile_constant_replicated": lambda: {"data": X, "tiles": (0, 1)},
    "tessellate.tile_constant_sharded": lambda: {"data": X, "tiles": (0, 1, 2)},
    "tessellate.tile_gather": lambda: {"arr": X, "indices": (0, 1), "tiles": (0, 1)},
    "tessellate.tile_map": lambda: {"primitive": None},
    "tessellate.tile_put_replicated": _rows,
    "tessellate.tile_put_sharded": _rows,
    "tiles.TileArray": _rows,
    "tiles.constant_sharded": _rows,
    "tiles.gather": lambda: {"indices": (0, 1), "tiles": (0, 1)},
    "tiles.map": lambda: {"vertex": lambda: f32(1), "tiles": (0, 1)},
    "tiles.put_replicated": _rows,
    "tiles.put_sharded": _rows,
    "poplar.concat": lambda: {"first": [_poplar_graph().addVariable(ipu.poplar.FLOAT, [2])]},
    "popart.TrainingSession": lambda: {
        **_inference_session(),
        "loss": "y",
        "optimizer": ipu.popart.ConstSGD(0.1),
    },
    "horovod.ReduceOperation": lambda: {"value": 0},
    "distributed.allgather": lambda: {"tensor": X},
    "distributed.allreduce": lambda: {"tensor": X},
    "distributed.broadcast": lambda: {"tensor": X, "root_rank": 0},
    "popdist.checkNumIpusPerReplica": lambda: {"ipus_per_replica": 1},
    "popdist.gather": lambda: {"tree": [X]},
    "popdist.execute_on_instances": lambda: {"instances": [0], "fn": lambda: None},
    "poptorch.AsynchronousDataAccessor": lambda: {"dataset": [1, 2], "miss_sleep_time_in_ms": 0.0},
    "poptorch.BeginBlock": lambda: {"layer_to_call": _module()},
    "poptorch.CPU": lambda: {"layer_to_call": lambda x: x, "ID": "a"},
    "poptorch.DataLoader": lambda: {"options": ipu.poptorch.Options(), "dataset": [1, 2]},
    "poptorch.cond": lambda: {
        "condition": _tensor()[0, 0] > 0,
        "then_body": lambda *x: x,
        "then_inps": [_tensor()],
        "else_body": lambda *x: x,
        "else_inps": [_tensor()],
    },
    "poptorch.ctc_beam_search_decoder": lambda: {
        "probs": _tensor()[:, None],
        "lengths": _tensor().int()[0, :1],
    },
    "poptorch.custom_op": lambda: {
        "inputs": [_tensor()],
        "domain": "a",
        "domain_version": 1,
        "example_outputs": [_tensor()],
    },
    "poptorch.dynamic_slice": lambda: {
        "tensor": _tensor(),
        "dim": 1,
        "start": _tensor().int()[0, 0],
        "size": 2,
        "step": 1,
    },
    "poptorch.dynamic_update": lambda: {
        "input": _tensor(),
        "src": _tensor()[:, :2],
        "dim": 1,
        "start": _tensor().int()[0, 0],
        "size": 2,
    },
    "poptorch.for_loop": lambda: {"count": 2, "body": lambda *x: x, "inputs": [_tensor()]},
    "poptorch.identity_loss": lambda: {"x": _tensor(), "reduction": "mean"},
    "poptorch.inferenceModel": lambda: {"model": _module()},
    "poptorch.ipu_print_tensor": lambda: {"tensor": _tensor()},
    "poptorch.load": lambda: {"filename": "none.poptorch"},
    "poptorch.module_repr": lambda: {"module": _module()},
    "poptorch.nop": lambda: {"tensor": _tensor()},
    "poptorch.registerCustomArgParser": lambda: {"arg_data_type": int, "arg_parser": None},
    "poptorch.registerPostCompileHook": lambda: {"hook": len},
    "poptorch.registerPreCompileHook": lambda: {"hook": len},
    "poptorch.removeBlocks": lambda: {"module": _module()},
    "poptorch.serializedMatMul": lambda: {
        "lhs": _tensor(),
        "rhs": _tensor().T,
        "mode": ipu.poptorch.MatMulSerializationMode.Disabled,
    },
    "poptorch.setLogLevel": lambda: {"level": "WARN"},
    "poptorch.set_available_memory": lambda: {
        "tensor": _tensor(),
        "available_memory_proportion": 0.5,
    },
    "plan": lambda: {"fun": lambda x: x**2, "ipus": 2},
    "planning.Costs": lambda: {"forward": [1, 2], "backward": [1, 2]},
    "planning.loss_of_model": lambda: {"model": _inert_model(), "loss": lambda y, labels: y},
    "planning.search": lambda: {"costs": ipu.planning.Costs([1, 2], [1, 2]), "ipus": 2},
    "planning.segments": lambda: {"fun": lambda x: x**2},
    "poptorch.set_overlap_for_input": lambda: {
        "input_tensors": _tensor(),
        "mode": ipu.poptorch.OverlapMode.NoOverlap,
    },
    "poptorch.set_overlap_for_output": lambda: {
        "output_tensors": _tensor(),
        "mode": ipu.poptorch.OverlapMode.NoOverlap,
    },
    "poptorch.splitOverIpus": lambda: {"model": _module(), "ipus": 1},
    "poptorch.trainingModel": lambda: {"model": _module()},
    "pva.Report": lambda: {"source": ipu.compile(lambda x: x + 1).lower(f32(1)).report()},
    "rand_ops.dropout": lambda: {"seed": 1},
    "reduce_scatter_op.reduce_scatter": lambda: {"x": X[0]},
    "schedules.build": lambda: {"spec": ipu.schedules.gpipe},
    "schedules.distinct_rotations": lambda: {"word": [(0,), (1,)]},
    "schedules.from_orders": lambda: (
        {"orders": [["0F0"], ["1F0"]], "micro_batches": 1} | {"training": False}
    ),
    "schedules.from_text": lambda: {"text": ipu.schedules.to_text(_schedule())},
    "schedules.grid": lambda: {"schedule": _schedule()},
    "schedules.overlap": lambda: {"name": "grouped"},
    "schedules.register": lambda: {"name": "mine", "function": ipu.schedules.gpipe},
    "schedules.save": lambda: {"schedule": _schedule(), "path": "a.schedule"},
    "schedules.simulate": lambda: {"schedule": _schedule()},
    "schedules.to_text": lambda: {"schedule": _schedule()},
    "scopes.frontend_attribute": lambda: {"attribute_name": "a", "attribute_value": "b"},
    "scopes.ipu_jit_scope": lambda: {"ipu_scope": "a"},
    "scopes.ipu_scope": lambda: {"device": "/device:IPU:0"},
    "scopes.ipu_shard": lambda: {"index": 0},
    "scopes.pipeline_stage": lambda: {"index": 0},
    "scopes.partials_type": lambda: {"override_type": f32},
    "scopes.stochastic_rounding": lambda: {"override": True},
    "sharding.dependencies": lambda: {"roots": _jaxpr()},
    "sharding.get_shard_from_colocation": lambda: {"op": _jaxpr().eqns[0]},
    "sharding.has_attr": lambda: {"o": _jaxpr().eqns[0], "attr_name": "ipu_shard"},
    "sharding.propagate_sharding": lambda: {"g": _jaxpr()},
    "slicing_ops.sequence_slice_unpack": lambda: {"total_elements": 2},
    "statistics_ops.fixed_width_bins": lambda: {"inputs": X[0], "n_bins": 2},
    "statistics_ops.histogram": lambda: {"inputs": X[0]},
    "statistics_ops.histogram_update": lambda: {"hist": np.ones(2, f32), "inputs": X[0]},
    "summary_ops.ipu_compile_summary": lambda: {"op_list": len},
    "summary_ops.tensor_summary": lambda: {"tensor": X},
    "targets.Links": lambda: _fields(ipu.targets.IPU2.links),
    "targets.Target": lambda: _fields(ipu.targets.IPU2),
    "targets.named": lambda: {"name": "ipu2"},
    "targets.target_of": lambda: {"given": "ipu2"},
    "tile_mapping": lambda: {"compiled": ipu.compile(lambda x: x + 1).lower(f32(1)), "value": 0},
    "training.Inference": lambda: {"model": lambda x: x},
    "training.Pipeline": lambda: {"stages": [lambda x: x, lambda x: x]},
    "training.StepOutput": lambda: {"loss": f32(1)},
    "training.TrainState": lambda: {"variables": TREE},
    "training.Training": lambda: {"model": lambda x: x},
    "utils.export_dataset_to_file": lambda: {
        "dataset_or_infeed": [f32(1)] * 2,
        "output_filename": "a.bin",
        "num_elements": 1,
    },
    "utils.export_inputs_to_file": lambda: {
        "inputs": ["a"],
        "output_filename": "a.bin",
        "feed_dict": {"a": f32(1)},
    },
    "utils.extract_all_events": lambda: {"events": []},
    "utils.extract_all_strings_from_event_trace": lambda: {"events": []},
    "utils.extract_all_types_from_event_trace": lambda: {"events": []},
    "utils.get_num_of_ipus_in_device": lambda: {"ipu_device": "/device:IPU:0"},
    "utils.reset_ipu_seed": lambda: {"seed": 1},
    "utils.use_synthetic_data_for": lambda: {
        "synthetic_data_category": ipu.utils.SyntheticDataCategory.Infeed
    },
}
"""Arguments that a callable takes, by its name below `ipujax`."""

HOST = (
    "checkpoint",
    "compare",
    "compile",
    "config",
    "dataset_benchmark",
    "distributed",
    "embedding_ops.HostEmbedding",
    "embedding_ops.create_host_embedding",
    "frontends",
    "horovod",
    "ipu_compiler",
    "ipu_estimator",
    "ipu_multi_worker_strategy",
    "ipu_pipeline_estimator",
    "ipu_run_config",
    "ipu_session_run_hooks",
    "ipu_strategy",
    "load_executable",
    "optimizers",
    "check_pipeline",
    "popart",
    "popdist",
    "poplar",
    "poptorch",
    "pva",
    "report",
    "schedules",
    "sharding",
    "summary_ops",
    "tessellate",
    "tile_mapping",
    "tiles",
    "training",
    "utils",
)
"""What is called outside of traced code; everything else is traced, which compiles nothing."""


def arguments(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    """Good arguments, by name; what has a default is left out where nothing is known of it."""
    own = GOOD.get(name, dict)()
    needed = {
        parameter.name: BY_NAME[parameter.name]
        for parameter in parameters(function)
        if parameter.default is parameter.empty and parameter.name not in own
    }
    return needed | own


def parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """What can be passed by name; of private parameters nobody but the package knows."""
    called = function.__init__ if isinstance(function, type) else function
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        p
        for p in inspect.signature(called).parameters.values()
        if p.name != "self" and not p.name.startswith("_") and p.kind not in variadic
    ]


def call(name: str, function: Callable[..., Any], given: dict[str, Any]) -> None:
    """Calls a function, and enters what is to be entered."""

    def run() -> None:
        result = function(**given)
        if isinstance(result, contextlib.AbstractContextManager):
            with result:
                pass

    run() if name.startswith(HOST) else jax.eval_shape(run)
