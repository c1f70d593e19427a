"""Wrapped modules: owned by the user, usable after errors, unwrapped again; half precision."""

from __future__ import annotations

import concurrent.futures
import copy
import gc
import io
import weakref
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from ipujax import host_trace, poptorch  # noqa: E402
from ipujax.config import IPUConfig  # noqa: E402
from ipujax.poptorch import poptorch_core, profiling, testing  # noqa: E402
from tests.ipujax.poptorch.modules import Regression, batch  # noqa: E402


def trained(module: Any) -> Any:
    return poptorch.trainingModel(module, None, torch.optim.SGD(module.parameters(), lr=0.1))


def eager_step(module: Any, x: Any, y: Any) -> Any:
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    optimizer.zero_grad()
    loss = module(x, y)[1]
    loss.backward()
    optimizer.step()
    return loss.detach()


def test_a_wrapper_lives_as_long_as_what_it_trains(little_garbage: None) -> None:
    module, (x, y) = Regression(), batch()
    eager = copy.deepcopy(module)
    eager_step(eager, x, y)
    wrapper = weakref.ref(trained(module))
    trainer = wrapper()
    assert trainer is not None
    trainer(x, y)
    del trainer
    gc.collect()
    assert wrapper() is not None
    torch.testing.assert_close(module.state_dict(), eager.state_dict())
    del module
    gc.collect()
    assert wrapper() is None


def test_a_module_can_be_unwrapped_by_itself() -> None:
    module, (x, y) = Regression(), batch()
    eager = copy.deepcopy(module)
    trained(module)(x, y)
    assert type(module).__name__ == "Regression"
    with pytest.raises(RuntimeError, match=r"Call model.destroy\(\) on the model to unwrap"):
        trained(module)
    assert type(copy.deepcopy(module)) is Regression
    module.destroy()
    assert type(module) is Regression
    again = trained(module)
    for _ in range(2):
        eager_step(eager, x, y)
    again(x, y)
    torch.testing.assert_close(module.state_dict(), eager.state_dict())


def test_inputs_outputs_and_weights_share_no_memory() -> None:
    class Passing(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.arange(4.0))

        def forward(self, x: Any) -> Any:
            return x, self.weight, x * self.weight, (x > 0), x.to(torch.bfloat16)

    module, x = Passing(), torch.arange(1.0, 5.0)
    model = poptorch.inferenceModel(module)
    first = model(x)
    kept = copy.deepcopy(first)
    wanted = [output.detach() for output in module(x + 1)]
    x += 1
    second = model(x)
    torch.testing.assert_close(list(second), wanted)
    torch.testing.assert_close(first, kept)
    for output in (*first, *second):
        output.zero_()
    torch.testing.assert_close(list(model(x)), wanted)
    torch.testing.assert_close(x, torch.arange(2.0, 6.0))


def test_a_trained_module_is_saved_as_a_plain_one() -> None:
    module = Regression()
    trained(module)(*batch())
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    read = torch.load(file, weights_only=False)
    assert type(read) is Regression
    torch.testing.assert_close(read.state_dict(), module.state_dict())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (x[:, :2], y), "Shape mismatch for x"),
        (lambda x, y: (x.double(), y), "Data type mismatch for x"),
        (lambda x, y: (x,), "Mandatory parameter target missing"),
    ],
)
def test_after_an_error_a_model_goes_on_with_the_weights_of_before(
    change: Any, message: str
) -> None:
    module, (x, y) = Regression(), batch()
    eager = copy.deepcopy(module)
    model = trained(module)
    model(x, y)
    with pytest.raises(poptorch.Error, match=message):
        model(*change(x, y))
    model(x, y)
    for _ in range(2):
        eager_step(eager, x, y)
    torch.testing.assert_close(module.state_dict(), eager.state_dict())


def test_what_cannot_be_compiled_leaves_the_module_as_it_was() -> None:
    class Wrong(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            if x.sum() > 0:
                return self.layer(x)
            return x

    class NoLoss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            return self.layer(x)

    for module, message in [(Wrong(), r"test_executor.py:\d+"), (NoLoss(), "find a loss in graph")]:
        before = copy.deepcopy(module.state_dict())
        with pytest.raises(poptorch.Error, match=message):
            trained(module)(torch.ones(2, 3))
        torch.testing.assert_close(module.state_dict(), before)


def test_an_error_of_the_modules_own_is_raised_as_it_is() -> None:
    class Raising(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            raise LookupError(f"no way with {len(x)} rows")

    with pytest.raises(LookupError, match="no way with 2 rows"):
        poptorch.inferenceModel(Raising())(torch.ones(2))


def test_an_error_of_the_modules_own_tells_of_tensors_as_outside() -> None:
    class Scattering(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.scatter(0, x.long(), x, "add")

    with pytest.raises(TypeError) as outside:
        Scattering()(torch.ones(2))
    with pytest.raises(TypeError) as inside:
        poptorch.inferenceModel(Scattering())(torch.ones(2))
    assert str(inside.value) == str(outside.value)


def test_inputs_that_require_gradients_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    model = poptorch.inferenceModel(torch.nn.Linear(1, 1))
    model(torch.ones(1))
    assert "requires_grad" not in caplog.text
    model(torch.ones(1, requires_grad=True))
    assert "Input tensor has requires_grad=True set" in caplog.text


def test_outputs_have_no_backward_pass() -> None:
    _, loss = trained(Regression())(*batch())
    with pytest.raises(poptorch.Error, match=r"backward\(\) cannot be called explicitly"):
        loss.backward()


def test_training_in_half_precision_is_near_that_in_float32() -> None:
    module, (x, y) = Regression(), batch()
    eager = copy.deepcopy(module)
    expected = [eager_step(eager, x, y) for _ in range(3)]
    half = module.half()
    optimizer = poptorch.optim.SGD(half.parameters(), lr=0.1, loss_scaling=64.0)
    model = poptorch.trainingModel(half, None, optimizer)
    for loss in expected:
        ours = model(x.half(), y.half())[1]
        assert ours.dtype is torch.float16
        torch.testing.assert_close(ours.float(), loss, rtol=1e-2, atol=1e-2)
    assert {tensor.dtype for tensor in half.parameters()} == {torch.float16}
    weights = {name: tensor.float() for name, tensor in half.state_dict().items()}
    torch.testing.assert_close(weights, dict(eager.state_dict()), rtol=1e-2, atol=1e-2)


def test_it_says_what_runs_here() -> None:
    class Asking(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x + (10 if poptorch.isRunningOnIpu() else 1)

    assert Asking()(torch.zeros(1)) == 1
    assert poptorch.inferenceModel(Asking())(torch.zeros(1)) == 10


def test_virtual_ipus_stand_for_hardware_unless_the_model_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert poptorch.ipuHardwareIsAvailable()
    assert poptorch.ipuHardwareIsAvailable(16)
    assert not poptorch.ipuHardwareIsAvailable(10_000)
    assert poptorch.ipuHardwareVersion() == 2
    config = IPUConfig()
    config.ipu_model.version = "ipu21"
    config.configure_ipu_system()
    assert poptorch.ipuHardwareVersion() == 21
    options = poptorch.Options()
    options.useIpuModel(True)
    assert not poptorch.ipuHardwareIsAvailable()
    with pytest.raises(poptorch.Error, match="No IPU hardware"):
        poptorch.ipuHardwareVersion()
    options.useIpuModel(False)
    assert poptorch.ipuHardwareIsAvailable()
    monkeypatch.setenv("POPTORCH_IPU_MODEL", "1")
    assert not poptorch.ipuHardwareIsAvailable()


class BranchesOnDevice(torch.nn.Module):
    """Adds on an IPU what eager PyTorch does not add, by every way to name the device."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("ones", torch.ones(4))

    def forward(self, x: Any) -> Any:
        on_ipu = [t.device.type == "ipu" for t in (x, self.linear.weight, self.ones, x + 1)]
        y = self.linear(x) + torch.arange(4, device=x.device) + self.ones.to(x.device)
        y = y + torch.full_like(y, 2.0, device=y.device) + x.new_ones(4, device=x.device)
        if all(on_ipu) and y.is_ipu and not (y.is_cuda or y.is_cpu):
            y = y + (y.device == torch.device("ipu:0")) - 1
            y = y + torch.ones(4, device="ipu").to("ipu:0") + y.get_device()
            with torch.autocast(device_type=y.device.type, enabled=False):
                y = y * 2
        return y


def test_tensors_are_on_an_ipu_in_forward() -> None:
    module, x = BranchesOnDevice(), torch.randn(2, 4)
    result = poptorch.inferenceModel(module)(x)
    torch.testing.assert_close(result, (module(x) + 1) * 2)
    assert result.device == x.device == module.linear.weight.device == torch.device("cpu")
    with pytest.raises(RuntimeError):
        torch.ones(1, device="ipu")


class AsksPyTorch(torch.nn.Module):
    """Calls code of PyTorch that looks at the devices of tensors by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        steps = torch.from_numpy(np.arange(4, dtype=np.float32)).to(x.device)
        y = torch.utils.checkpoint.checkpoint(self.linear, x, use_reentrant=False)
        return y + steps + (x.device.type == "ipu")


def test_code_of_pytorch_is_told_the_device_on_which_it_traces() -> None:
    module, x = AsksPyTorch(), torch.randn(2, 4)
    torch.testing.assert_close(poptorch.inferenceModel(module)(x), module(x) + 1)


def test_models_are_traced_in_several_threads() -> None:
    modules, x = [AsksPyTorch() for _ in range(4)], torch.randn(2, 4)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda module: poptorch.inferenceModel(module)(x), modules))
    for module, result in zip(modules, results, strict=True):
        torch.testing.assert_close(result, module(x) + 1)


@pytest.mark.parametrize("kind", poptorch_core.TestErrorType)
def test_handlers_of_errors_can_be_tried(kind: Any) -> None:
    with pytest.raises(poptorch.Error) as raised:
        poptorch_core._throwTestError(kind)
    assert raised.value.type == kind.value
    assert raised.value.location in str(raised.value)
    assert raised.value.location not in raised.value.message
    if kind is poptorch_core.TestErrorType.PoplarRecoverableFullReset:
        assert isinstance(raised.value, poptorch.RecoverableError)
        assert raised.value.recovery_action == "FULL_RESET"


def test_methods_can_be_trace_points() -> None:
    channel, values = profiling.Channel("app"), [3, 1]

    class Sorter:
        def sorted(self, reverse: bool) -> list[int]:
            return sorted(values, reverse=reverse)

    sorter = channel.instrument(Sorter(), "sorted")
    with host_trace.record() as trace, channel.tracepoint("all"):
        assert sorter.sorted(reverse=False) == [1, 3]
    assert [span.name for span in trace.spans] == ["app.all", "app.sorted"]


def test_structures_of_tensors_are_compared() -> None:
    one, other = torch.ones(2), torch.ones(2) + 1e-9
    assert testing.allclose((one, [one]), (other, [other]))
    assert not testing.allclose((one, [one]), (other, [other + 1]))
    assert not testing.allclose([one], (one,))
    assert not testing.allclose([one], [one, one])


def test_the_log_of_what_is_below_takes_the_levels_that_there_are() -> None:
    poptorch._logging.setPopartLogLevel("DEBUG")
    with pytest.raises(poptorch.Error, match="LOUD"):
        poptorch._logging.setPopartLogLevel("LOUD")
    with pytest.raises(ValueError, match="Invalid log level integer: 5"):
        poptorch.setLogLevel(5)


def test_files_hold_nothing_that_would_have_to_be_restored() -> None:
    module = Regression()
    assert poptorch._impl._restoreWrapperIfNecessary(module) is module
    assert not poptorch._impl.isDispatchTracing()


def test_the_log_names_the_variables_of_a_graph(caplog: pytest.LogCaptureFixture) -> None:
    module = torch.nn.BatchNorm1d(3).half().eval()
    with caplog.at_level("DEBUG", logger="poptorch::python"):
        poptorch.inferenceModel(module)(torch.ones(2, 3).half())
    lines = [line.partition(" : ")[2] for line in caplog.messages if "-> running_var" in line]
    assert lines == ["Half(3, strides=[1], requires_grad=0, device=ipu:0) -> running_var"]


def test_single_micro_batches_draw_as_those_of_a_loop():
    module, x = torch.nn.Dropout(0.5), torch.ones(3, 64)
    seeded = poptorch.Options().randomSeed(2**40 + 3)
    together = poptorch.inferenceModel(module, seeded.clone().deviceIterations(3))(x)
    single = poptorch.inferenceModel(module, seeded)
    each = torch.cat([single(row[None]) for row in x])
    assert torch.equal(each, together)
    assert not torch.equal(each[0], each[1])
