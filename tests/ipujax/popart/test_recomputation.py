"""What the backward pass has computed again, and what is kept for it."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax.ad_checkpoint import print_saved_residuals

pytest.importorskip("onnx", reason="the extra onnx is not installed")

from ipujax import popart
from ipujax.doors.graphs import Node, Ref
from ipujax.errors import PopARTError
from ipujax.popart.popart_recomputation import choose_recomputed_results

Array = np.ndarray[Any, Any]
Recompute = popart.RecomputeType
Kind = popart.RecomputationType
SIZE = 6
SIZES = dict(zip("abcdefghi", [9, 1, 9, 9, 1, 9, 1, 9, 9], strict=True))


class Chain:
    """Products and sines by turns, on one IPU or in the stages of a pipeline, and a loss."""

    def __init__(self, count: int = 4, stages: int = 1) -> None:
        self.builder = builder = popart.Builder()
        x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2, SIZE]), "x")
        self.products: list[str] = []
        self.sines: list[str] = []
        self.loss, self.stages = "", stages
        for number in range(count):
            stage = number * stages // count
            values = np.random.default_rng(number).normal(size=(SIZE, SIZE)).astype(np.float32)
            with builder.virtualGraph(stage), builder.pipelineStage(stage):
                w = builder.addInitializedInputTensor(values / 3, "w")
                self.products.append(builder.aiOnnx.matmul([x, w]))
                x = builder.aiOnnx.sin([self.products[-1]])
                self.sines.append(x)
                if number == count - 1:
                    self.loss = builder.aiGraphcore.l1loss([x], 0.5)

    def session(self, kind: Any = Kind.NoRecompute) -> popart.TrainingSession:
        options = popart.SessionOptions()
        options.autoRecomputation = kind
        if self.stages > 1:
            options.enablePipelining = options.enableGradientAccumulation = True
            options.accumulationFactor = 4
            options.virtualGraphMode = popart.VirtualGraphMode.Manual
        session = popart.TrainingSession(
            self.builder.getModelProto(),
            popart.DataFlow(1, [self.loss]),
            self.loss,
            popart.ConstSGD(0.1),
            popart.DeviceManager().createCpuDevice(),
            userOptions=options,
        )
        session.prepareDevice()
        session.weightsFromHost()
        return session


def trained(session: popart.TrainingSession) -> dict[str, Array]:
    """The loss of a step, and the weights after it."""
    lead = session.accumulationFactor
    x = np.random.default_rng(9).normal(size=(lead, 2, SIZE)).astype(np.float32)
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": x}, anchors))
    session.weightsToHost()
    names = [name for name in session.getAllTensorIds() if name.startswith("w")]
    weights = {name: np.empty((SIZE, SIZE), np.float32) for name in names}
    session.readWeights(popart.PyWeightsIO(weights))
    return anchors | weights


def products(session: popart.TrainingSession) -> int:
    """How many products of the forward pass's form a micro-batch needs."""
    found = [
        o for o in session.getReport().operations if f"dot_general float32[2,{SIZE}]" in o.name
    ]
    return round(sum(o.runs for o in found)) // session.accumulationFactor


@pytest.mark.parametrize("stages", [1, 2])
def test_nodes_that_are_marked_are_computed_again(stages: int) -> None:
    plain, chain = Chain(stages=stages), Chain(stages=stages)
    for name in (chain.products[1], chain.sines[1]):
        chain.builder.recomputeOutputInBackwardPass(name)
    one, other = plain.session(), chain.session()
    # The first sine is kept; of it one product is computed again.
    assert products(other) == products(one) + 1
    expected = trained(one)
    for name, value in trained(other).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-6)


def test_what_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    chain = Chain()
    chain.builder.recomputeOutput([chain.products[1]], Recompute.Recompute)
    forward = chain.session()._forward
    values = {name: forward.model.variables[name] for name in forward.trained}
    element = np.float32(1), np.ones((2, SIZE), np.float32), np.zeros(2, np.uint32)
    print_saved_residuals(lambda values: forward(values, {}, *element).loss, values)
    kept = {line.split("'")[1] for line in capsys.readouterr().out.splitlines() if "named" in line}
    assert kept == {*chain.products, *chain.sines} - {chain.products[1]}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("kind", list(Kind))
def test_no_kind_changes_a_number(kind: popart.RecomputationType, stages: int) -> None:
    chain = Chain(stages=stages)
    if kind is not Kind.NoRecompute:
        chain.builder.recomputeOutput(chain.sines[0], Recompute.Checkpoint)
    expected = trained(Chain(stages=stages).session())
    for name, value in trained(chain.session(kind)).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-6)


def again(chain: Chain, kind: popart.RecomputationType) -> list[str]:
    return sorted(chain.session(kind)._forward.recomputed)


def test_what_the_kinds_compute_again() -> None:
    assert again(Chain(), Kind.RecomputeAll) == []  # nothing is kept in front of the loss
    chain = Chain()
    chain.builder.recomputeOutput(chain.sines[1], Recompute.Checkpoint)
    early = sorted([*chain.products[:2], chain.sines[0]])
    assert again(chain, Kind.RecomputeAll) == again(chain, Kind.Pipeline) == early
    chain = Chain(stages=2)
    assert again(chain, Kind.Pipeline) == sorted([*chain.products[:2], *chain.sines[:2]])
    assert again(chain, Kind.NormOnly) == []


def test_checkpoints_of_standard_are_where_little_is_alive() -> None:
    avals = {name: jax.ShapeDtypeStruct((size,), np.float32) for name, size in SIZES.items()}
    names = [*avals]
    nodes = [
        Node("Sin-7", (Ref(before),), {}, (name,), (None,))
        for before, name in zip(["x", *names], names, strict=False)
    ]
    found = choose_recomputed_results(nodes, "i", Kind.Standard, avals, lambda node: None)
    assert found == {"a", "c", "d", "f"}  # b, e and g are small; what follows g is last


def test_norms_and_the_nonlinearities_after_them() -> None:
    nodes = [
        Node("Conv-11", (Ref("x"),), {}, ("y",), (None,)),
        Node("ai.graphcore.GroupNormalization-1", (Ref("y"),), {}, ("z", "m", "v"), (None,) * 3),
        Node("Relu-6", (Ref("z"),), {}, ("r",), (None,)),
        Node("Relu-6", (Ref("r"),), {}, ("s",), (None,)),
    ]
    found = choose_recomputed_results(nodes, "s", Kind.NormOnly, {}, lambda node: None)
    assert found == {"z", "m", "v", "r"}


def test_marks_and_a_kind_at_once() -> None:
    chain = Chain()
    with chain.builder.recomputeOutput(Recompute.Recompute):
        chain.builder.aiOnnx.sin([chain.sines[0]])
    chain.session(Kind.Standard)  # the loss does not need it
    chain.builder.recomputeOutputInBackwardPass(chain.sines[0])
    with pytest.raises(PopARTError) as caught:
        chain.session(Kind.Standard)
    message = "A mixture of auto and manual recomputation is not supported"
    assert caught.value.args == (message,)
