"""Pipelined and sharded models of PopTorch against PyTorch alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ipujax import poptorch  # noqa: E402
from ipujax.doors.torch import trace_torch_module  # noqa: E402
from ipujax.poptorch.poptorch_operators import OPERATORS  # noqa: E402
from ipujax.poptorch.poptorch_stages import StagedGraph, assign_stages  # noqa: E402

Pipelined, Sharded, Stage = (
    poptorch.PipelinedExecution,
    poptorch.ShardedExecution,
    poptorch.Stage,
)
ROWS = 2  # of a micro-batch


class Tied(torch.nn.Module):
    """An embedding, a layer, and the embedding again as the last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.layer = torch.nn.Embedding(6, 4), torch.nn.Linear(4, 4)

    def forward(self, words: Any, labels: Any = None) -> Any:
        with poptorch.Block("in", ipu_id=0):
            x = self.embedding(words)
        with poptorch.Block("middle", ipu_id=1):
            x = self.layer(x)
        with poptorch.Block("out", ipu_id=2):
            x = torch.matmul(x, self.embedding.weight.t())
            if labels is None:
                return x
            return x, torch.nn.functional.cross_entropy(x, labels)


class Normed(torch.nn.Module):
    """Two layers, the second with moving statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 6)
        self.norm = torch.nn.BatchNorm1d(6)
        poptorch.BeginBlock(self.second, ipu_id=1)

    def forward(self, x: Any, labels: Any) -> Any:
        x = self.norm(self.second(self.first(x)))
        return x, torch.nn.functional.cross_entropy(x, labels)


def words(rows: int) -> tuple[Any, Any]:
    return torch.randint(0, 6, (rows,)), torch.randint(0, 6, (rows,))


def wrapped(module: Any, strategy: Any, accumulation: int, iterations: int, replicas: int) -> Any:
    options = poptorch.Options().setExecutionStrategy(strategy)
    options.deviceIterations(iterations).replicationFactor(replicas)
    options.Training.gradientAccumulation(accumulation)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    return poptorch.trainingModel(module, options, optimizer)


def close(module: Any, reference: Any) -> None:
    state = module.state_dict()
    for name, value in reference.state_dict().items():
        torch.testing.assert_close(state[name], value, msg=lambda text, n=name: f"{n}: {text}")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("strategy", "accumulation", "iterations", "replicas", "schedule"),
    [
        (Pipelined(), 5, 1, 1, "1f1b, 3 stages"),
        (Pipelined("in", "middle", "out"), 6, 2, 2, "1f1b, 3 stages"),
        (Pipelined(Stage("in"), Stage("middle", "out").ipu(1)), 3, 1, 1, "1f1b, 2 stages"),
        (Pipelined(Stage("in"), "middle", Stage("out").ipu(0)), 5, 1, 1, "gpipe, 3 stages"),
        (Sharded(), 2, 1, 1, ""),
    ],
)
def test_training_is_that_of_one_large_batch(
    strategy: Any, accumulation: int, iterations: int, replicas: int, schedule: str
) -> None:
    torch.manual_seed(0)
    module = Tied()
    reference = copy.deepcopy(module)
    large = accumulation * replicas * ROWS
    batch = words(large * iterations)
    training = wrapped(module, strategy, accumulation, iterations, replicas)
    _, loss = training(*batch)
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.5)
    for part in zip(*(x.split(large) for x in batch), strict=True):
        optimizer.zero_grad()
        reference(*part)[1].backward()
        optimizer.step()
    close(module, reference)
    assert torch.isfinite(loss).all()
    text = training.executable.lowered.as_text()
    assert schedule in text if schedule else "pipeline" not in text
    assert "ipu 1" in text


def test_moving_statistics_go_through_a_pipeline() -> None:
    torch.manual_seed(0)
    module = Normed()
    reference = copy.deepcopy(module)
    x, labels = torch.randn(3 * ROWS, 4), torch.randint(0, 6, (3 * ROWS,))
    outputs, loss = wrapped(module, Pipelined(), 3, 1, 1)(x, labels)
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.5)
    expected = [reference(*part) for part in zip(x.split(ROWS), labels.split(ROWS), strict=True)]
    (sum(loss for _, loss in expected) / 3).backward()
    optimizer.step()
    close(module, reference)
    torch.testing.assert_close((outputs, loss), expected[-1])


@pytest.mark.parametrize("iterations", [1, 3])
def test_inference_keeps_the_order_of_rows(iterations: int) -> None:
    module = Tied()
    options = poptorch.Options().deviceIterations(iterations)
    inference = poptorch.inferenceModel(module, options)
    x = torch.randint(0, 6, (iterations * ROWS,))
    torch.testing.assert_close(inference(x), module(x))
    text = inference.executable.lowered.as_text()
    assert ("pipeline" in text) == (iterations > 1)
    assert "ipu 2" in text


def test_too_few_micro_batches_name_both_numbers() -> None:
    training = wrapped(Tied(), Pipelined(), 4, 1, 1)
    with pytest.raises(poptorch.Error, match=r"number of pipeline stages \(5\).* It is 4"):
        training.compile(*words(4 * ROWS))


def test_inference_accumulates_nothing() -> None:
    options = poptorch.Options()
    options.Training.gradientAccumulation(2)
    with pytest.raises(poptorch.Error, match=r"gradientAccumulation to 1 .* It is 2"):
        poptorch.inferenceModel(Tied(), options)


def places(module: Any, strategy: Any, *args: Any) -> StagedGraph:
    found = trace_torch_module(module, args, None, OPERATORS)
    return assign_stages(found.graph, strategy, found.names)


def test_the_strategy_must_know_blocks() -> None:
    with pytest.raises(poptorch.Error, match="Unknown Block 'out'"):
        places(Tied(), Pipelined("in", "middle"), *words(2))


def test_a_stage_of_a_pipeline_runs_on_one_ipu() -> None:
    strategy = Pipelined(["in"], ["middle", "out"])
    with pytest.raises(poptorch.Error, match="stage 1 has blocks on IPU 1 and on IPU 2"):
        places(Tied(), strategy, *words(2))
    assert places(Tied(), Sharded(["in"], ["middle", "out"]), *words(2)).is_sharded


def test_stages_out_of_order_name_the_users_line() -> None:
    message = r"block 'middle' .* is in stage 0, and needs what block 'in' .* computes in stage 1"
    with pytest.raises(poptorch.Error, match=message) as error:
        places(Tied(), Pipelined("middle", "in", "out"), *words(2))
    assert "test_pipelines.py" in error.value.where


def test_what_follows_the_end_of_a_block_is_refused() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            with poptorch.Block("in", ipu_id=0):
                x = x + x
            return x + x

    with pytest.raises(poptorch.Error, match="No active Block, all the ops must belong") as error:
        places(Model(), Pipelined(), torch.ones(2))
    assert "test_pipelines.py" in error.value.where


class Line(torch.nn.Module):
    """Additions on these IPUs, the first of them in no block."""

    def __init__(self, *ipus: int):
        super().__init__()
        self.ipus = ipus

    def forward(self, x: Any) -> Any:
        x = x + x
        for number, ipu in enumerate(self.ipus):
            poptorch.Block.start(f"b{number}", ipu)
            x = x + x
        return x


@pytest.mark.parametrize(
    ("ipus", "strategy", "expected", "stages"),
    [
        ((1, 2), Pipelined(), (0, 1, 2), [0, 1, 2]),
        ((0, 1), Pipelined(), (0, 1), [0, 0, 1]),
        ((0, 1, 1), Pipelined(poptorch.AutoStage.AutoIncrement), (0, 1), [0, 0, 1, 1]),
        ((0, 1, 0), Pipelined(poptorch.AutoStage.AutoIncrement), (0, 1, 0), [0, 0, 1, 2]),
        ((1, 2, 1), Pipelined(poptorch.AutoStage.AutoIncrement), (0, 1, 2, 1), [0, 1, 2, 3]),
        ((0, 1, 0), Pipelined(["b0"], ["b1"], Stage("b2").ipu(3)), (0, 1, 3), [0, 0, 1, 2]),
        ((0, 5), Pipelined("b0", "unused", "b1"), (0, 5), [0, 0, 1]),
        ((0, 0), Pipelined(poptorch.AutoStage.AutoIncrement), (0,), [0, 0, 0]),
    ],
)
def test_blocks_become_stages(
    ipus: tuple[int, ...], strategy: Any, expected: tuple[int, ...], stages: list[int]
) -> None:
    found = places(Line(*ipus), strategy, torch.ones(2))
    assert found.ipus == expected
    assert [node.marks["place"].stage for node in found.graph.nodes] == stages


def test_reports_speak_of_modules() -> None:
    inference = poptorch.inferenceModel(torch.nn.Sequential(torch.nn.Sequential(Tied())))
    inference(torch.zeros(ROWS, dtype=torch.int32))
    assert any(one.scope == "0/0/layer" for one in inference.report().operations)
