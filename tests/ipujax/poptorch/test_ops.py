"""PopTorch's own operations: on virtual IPUs as outside of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import jax  # noqa: E402

from ipujax import poptorch  # noqa: E402
from ipujax.poptorch.ipu_print import Style  # noqa: E402


class Applied(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any], size: int = 4):
        super().__init__()
        self.function, self.layer = function, torch.nn.Linear(size, size)

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


def on_ipu(function: Callable[..., Any], *args: Any) -> tuple[Any, Any]:
    """What a function of a module and tensors gives on an IPU, and outside."""
    module = Applied(function).eval()
    inference = poptorch.inferenceModel(module)
    return inference, (inference(*args), module(*args))


X = torch.arange(12, dtype=torch.float32).reshape(3, 4)


def everything(module: Any, x: Any, start: Any) -> Any:
    x = poptorch.nop(x)
    x, y = poptorch.recomputationCheckpoint(x, x + 1)
    x = poptorch.set_available_memory(x, 0.3)
    x = poptorch.set_overlap_for_input({"x": x}, poptorch.OverlapMode.NoOverlap)["x"]
    product = [
        poptorch.serializedMatMul(x, module.layer.weight, mode, factor)
        for mode, factor in (
            (poptorch.MatMulSerializationMode.InputChannels, 3),
            (poptorch.MatMulSerializationMode.ReducingDim, 2),
            (poptorch.MatMulSerializationMode.OutputChannels, 4),
            (poptorch.MatMulSerializationMode.Disabled, 0),
        )
    ]
    part = poptorch.dynamic_slice(x, -1, start, 2, 2)
    put = poptorch.dynamic_update(x, y[:, :2], 1, start, 2)
    loss = [poptorch.identity_loss(x, reduction) for reduction in ("sum", "mean", "none")]
    return *product, part, put, *loss


def test_operations_compute_what_they_mean() -> None:
    inference, (found, expected) = on_ipu(everything, X, torch.tensor([1]))
    for own, other in zip(found, expected, strict=True):
        torch.testing.assert_close(own, other)
    text = inference.executable.lowered.as_text()
    assert "recomputation checkpoint" in text
    assert "optimization barrier" in text


def test_a_module_knows_that_it_is_traced() -> None:
    seen: list[bool] = []

    def function(_: Any, x: Any) -> Any:
        seen.append(poptorch.isRunningOnIpu())
        return x + 1

    on_ipu(function, X)
    assert seen[0]
    assert not seen[-1]
    assert not poptorch.isRunningOnIpu()


def test_functions_of_the_host_see_values() -> None:
    seen: list[Any] = []

    def on_host(x: Any, y: Any) -> Any:
        seen.append(x.clone())
        return x * y, y.sum().int()

    cpu = poptorch.CPU(on_host, "host")
    _, (found, expected) = on_ipu(lambda _, x, y: cpu(cpu(x, y)[0] + 1, y), X, X + 1)
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])
    assert any(torch.equal(x, X * (X + 1) + 1) for x in seen)


def test_name_scopes_are_in_reports() -> None:
    def function(module: Any, x: Any) -> Any:
        with poptorch.NameScope("projection"):
            return module.layer(x)

    inference, _ = on_ipu(function, X)
    assert "projection" in str(inference.report())


def test_convolutions_of_a_scope_are_marked() -> None:
    weight = torch.ones(1, 1, 2)

    def function(_: Any, x: Any) -> Any:
        with poptorch.MultiConv().planType(poptorch.MultiConvPlanType.Parallel):
            return torch.conv1d(x[:, None], weight) + torch.conv1d(2 * x[:, None], weight)

    _, (found, expected) = on_ipu(function, X)
    assert torch.equal(found, expected)


def empty(_: Any, x: Any) -> Any:
    with poptorch.MultiConv():
        return x + 1


def nested(_: Any, x: Any) -> Any:
    with poptorch.MultiConv(), poptorch.MultiConv():
        return x + 1


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (empty, "Unexpected end_multi_conv"),
        (nested, r"Nested poptorch.MultiConv is not supported"),
        (lambda _, x: poptorch.nop(3) + x, "an argument of nop"),
        (lambda _, x: poptorch.identity_loss(x, "max"), "the reduction of identity_loss"),
        (lambda _, x: poptorch.set_available_memory(x, 2.0), "available_memory_proportion is 2.0"),
        (lambda _, x: poptorch.dynamic_slice(x, "0", x, 1, 1), "Dimension must be an integer"),
        (lambda _, x: poptorch.dynamic_slice(x, 0, x, 0, 1), "start and end .* must be different"),
        (lambda _, x: poptorch.dynamic_slice(x, 0, x, -2, 1), "end less than the start"),
        (lambda _, x: poptorch.dynamic_slice(x, 1, x, 3, 1), r"\(3\) must be a factor .* \(4\)"),
        (lambda _, x: poptorch.dynamic_update(x, x[0], 0, x, 1), "must have same dimensionality"),
        (
            lambda _, x: poptorch.dynamic_update(x, x.long(), 0, x, 3),
            r"same dtype\. \(torch.float32 vs torch.int32\)",
        ),
        (lambda _, x: poptorch.dynamic_update(x, x, 0, x, 0), "start and end .* must be different"),
        (lambda _, x: poptorch.dynamic_update(x, x, 0, x, 2), "size is 2, and src has 3 elements"),
        (lambda _, x: torch.bincount(x[0].long()), "Bincount `minlength` must be specified"),
        (lambda _, x: poptorch.custom_op([x], "Cube", "my.ops", 1, [x]), r"custom_op: my.ops.Cube"),
        (lambda _, x: poptorch.fps(x, [0, 1]), r"poptorch.fps: .* missing"),
        (lambda _, x: poptorch.nearest(x, x), r"poptorch.nearest: .* missing"),
    ],
)
def test_what_cannot_be_is_an_error(function: Any, message: str) -> None:
    with pytest.raises(poptorch.Error, match=message):
        poptorch.inferenceModel(Applied(function)).compile(X)


OVERLAP = poptorch.OverlapMode.OverlapAccumulationLoop


def test_overlap_is_for_inputs_and_outputs() -> None:
    def around(_: Any, x: Any) -> Any:
        x = poptorch.set_overlap_for_input([x], OVERLAP)[0]
        return poptorch.set_overlap_for_output(x + 1, OVERLAP)

    _, (found, expected) = on_ipu(around, X)
    assert torch.equal(found, expected)
    for function, end in (
        (lambda _, x: poptorch.set_overlap_for_input(x + 1, OVERLAP), "input"),
        (lambda _, x: poptorch.set_overlap_for_output(x + 1, OVERLAP) + 1, "output"),
    ):
        message = f"set_overlap_for_{end} applied on a node which is not a tensor {end}"
        with pytest.raises(poptorch.Error, match=message):
            poptorch.inferenceModel(Applied(function)).compile(X)


def test_values_and_gradients_are_printed(capfd: pytest.CaptureFixture[str]) -> None:
    def function(module: Any, x: Any) -> Any:
        x = poptorch.ipu_print_tensor(module.layer(x), "layer", digits=3)
        return poptorch.identity_loss(x, "sum")

    module = Applied(function, 2)
    torch.nn.init.ones_(module.layer.weight)
    torch.nn.init.zeros_(module.layer.bias)
    poptorch.trainingModel(module)(torch.tensor([[1.0, 2.0]]))
    jax.effects_barrier()
    printed = capfd.readouterr().err
    assert "layer: (\n (3.00, 3.00)\n)" in printed
    assert "layer_gradient: (\n (1.00, 1.00)\n)" in printed


@pytest.mark.parametrize(
    ("style", "array", "text"),
    [
        ((0, 3, 0, 4, "auto", ", ", "(", ")"), [[1, 2.5]], "(\n (1.000, 2.500)\n)"),
        ((3, 1, 0, 2, "fixed", ";", "[", "]"), [1.0, 2, 3, 4], "[1.0;...;4.0]"),
        ((0, 3, 12, 3, "scientific", " ", "{", "}"), [1.0, 2], "{1.00e+00 \n  2.00e+00}"),
        ((0, 3, 0, 3, "auto", " ", "(", ")"), [1e-9, 1e3], "(1.00e-09 1.00e+03)"),
        ((0, 3, 0, 3, "none", " ", "(", ")"), [1e-9, 10], "(1e-09 10)"),
        ((0, 3, 0, 0, "auto", " ", "(", ")"), [0.25], "(0.25)"),
        ((0, 3, 0, 3, "auto", " ", "(", ")"), [float("nan"), 0], "(nan 0.00)"),
    ],
)
def test_the_form_of_printed_tensors(style: Any, array: Any, text: str) -> None:
    assert Style(*style).format_array(torch.tensor(array).numpy()) == text


def test_the_decoder_finds_the_most_likely_labels() -> None:
    likely = torch.full((4, 1, 3), -9.0)
    for time, label in enumerate((1, 1, 0, 2)):
        likely[time, 0, label] = -0.01

    class Decoder(torch.nn.Module):
        def forward(self, x: Any, lengths: Any) -> Any:
            return poptorch.ctc_beam_search_decoder(x, lengths, beam_width=4)

    found = poptorch.inferenceModel(Decoder())(likely, torch.tensor([4]))
    assert found[1].tolist() == [[2]]
    assert found[2][0, 0, :2].tolist() == [1, 2]
    with pytest.raises(poptorch.Error, match="outside of a wrapped model"):
        Decoder()(likely, torch.tensor([4]))


class Collective(torch.nn.Module):
    """A collective of PopART's of what a replica is given."""

    def __init__(self, name: str, shape: list[int], attributes: Any) -> None:
        super().__init__()
        self.arguments = name, shape, attributes

    def forward(self, x: Any) -> Any:
        name, shape, attributes = self.arguments
        example = [torch.zeros(shape)]
        return poptorch.custom_op([x], name, "ai.graphcore", 1, example, attributes)[0]


ROWS = torch.arange(16.0).reshape(4, 4)
GROUPING = "__collectiveReplicaGrouping"


@pytest.mark.parametrize(
    ("name", "shape", "attributes", "wanted"),
    [
        ("ReplicatedAllReduce", [1, 4], None, ROWS.sum(0, keepdim=True).expand(4, 4)),
        ("ReplicatedAllReduce", [1, 4], {"__collectiveOperator": 4}, ROWS[3:].expand(4, 4)),
        ("ReplicatedAllReduce", [1, 4], {GROUPING: [4, 2, 2]}, (ROWS + ROWS.roll(2, 0))),
        ("ReplicatedAllGather", [4, 1, 4], None, ROWS[None, :, None].expand(4, 4, 1, 4)),
        ("ReplicatedAllGather", [2, 4], {GROUPING: [4, 1, 2]}, ROWS[[0, 1, 0, 1, 2, 3, 2, 3]]),
        ("ReplicatedReduceScatter", [1], None, ROWS.sum(0)),
        ("ReplicatedReduceScatter", [2], {"__collectiveCommGroup": [2, 2]},
         torch.cat([ROWS[0, :2] + ROWS[2, :2], ROWS[1, :2] + ROWS[3, :2],
                    ROWS[0, 2:] + ROWS[2, 2:], ROWS[1, 2:] + ROWS[3, 2:]])),
    ],
)  # fmt: skip
def test_collectives_of_popart_run(name: str, shape: Any, attributes: Any, wanted: Any) -> None:
    options = poptorch.Options().replicationFactor(4)
    got = poptorch.inferenceModel(Collective(name, shape, attributes), options)(ROWS)
    torch.testing.assert_close(got, wanted.reshape(got.shape))


def test_replicas_exchange_parts() -> None:
    options = poptorch.Options().replicationFactor(4)
    exchange = Collective("ReplicatedAllToAll", [4], None)
    got = poptorch.inferenceModel(exchange, options)(ROWS.reshape(16))
    torch.testing.assert_close(got, ROWS.T.reshape(16))
    in_pairs = Collective("ReplicatedAllToAll", [4], {GROUPING: [4, 1, 2]})
    got = poptorch.inferenceModel(in_pairs, options)(ROWS.reshape(16)).reshape(4, 2, 2)
    parts = ROWS.reshape(2, 2, 2, 2)  # of each pair, replica and receiver
    torch.testing.assert_close(got, parts.swapaxes(1, 2).reshape(4, 2, 2))


@pytest.mark.parametrize(
    ("name", "shape", "attributes", "message"),
    [
        ("ReplicatedAllGather", [3, 4], None, "its example output has 12"),
        ("ReplicatedAllReduce", [1, 4], {GROUPING: [4, 3, 2]}, "stride x size divides"),
        ("ReplicatedAllReduce", [1, 4], {"axis": 1}, "has no attribute 'axis'"),
        ("ReplicatedAllReduce", [1, 4], {"__collectiveOperator": 11}, "__collectiveOperator is 11"),
    ],
)
def test_wrong_collectives_are_refused(
    name: str, shape: Any, attributes: Any, message: str
) -> None:
    options = poptorch.Options().replicationFactor(4)
    with pytest.raises(poptorch.Error, match=message):
        poptorch.inferenceModel(Collective(name, shape, attributes), options)(ROWS)
