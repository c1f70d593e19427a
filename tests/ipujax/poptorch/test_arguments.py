"""What wrapped modules are called with: defaults, names, structures, and what does not fit."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ipujax import poptorch  # noqa: E402


class Many(torch.nn.Module):
    def forward(self, a: Any, b: Any, *more: Any, scale: Any = None, power: int = 1, **named: Any):
        total = a + 2 * b["x"] + 3 * b["y"]
        for number, value in enumerate(more):
            total = total + (number + 4) * value
        if scale is not None:
            total = total * scale
        return total**power + sum(named.values())


def one(value: float) -> Any:
    return torch.tensor([float(value)])


def test_arguments_may_be_given_in_any_way_that_python_knows() -> None:
    module = Many()
    model = poptorch.inferenceModel(module)
    b = {"x": one(2), "y": one(3)}
    expected = module(one(1), b, one(5), scale=one(2), extra=one(7))
    assert torch.equal(model(one(1), b, one(5), scale=one(2), extra=one(7)), expected)
    reordered = {"y": one(3), "x": one(2)}
    given = model(one(1), reordered, one(5), extra=one(7), power=1, scale=one(2))
    assert torch.equal(given, expected)


ONE = torch.tensor([1.0])


class WithDefault(torch.nn.Module):
    def forward(self, x: Any, factor: Any = ONE, name: str = "a") -> Any:
        return x * factor


def test_a_default_that_is_a_tensor_can_be_replaced_later() -> None:
    model = poptorch.inferenceModel(WithDefault())
    assert model(one(3)) == 3
    assert model(one(3), factor=one(2)) == 6
    assert model(factor=one(4), x=one(3)) == 12


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "Mandatory parameter x missing"),
        ((one(1), one(1), "a", 4), {}, "do not fit the model's forward: too many positional"),
        ((one(1),), {"other": 3}, "got an unexpected keyword argument 'other'"),
        ((torch.ones(2),), {}, r"Shape mismatch for x: expected .*\[1\].* but got .*\[2\]"),
        ((one(1).int(),), {}, "Data type mismatch for x: expected torch.float32 but got"),
        (([one(1)],), {}, "Type mismatch for x: expected .*Tensor.* but got .*list"),
        ((one(1),), {"name": "b"}, "Value mismatch for name: expected a but got b"),
    ],
)
def test_what_does_not_fit_is_named(args: Any, kwargs: Any, message: str) -> None:
    model = poptorch.inferenceModel(WithDefault())
    model(one(1))
    with pytest.raises(poptorch.Error, match=message):
        model(*args, **kwargs)
    assert model(one(5)) == 5


def test_structures_that_differ_are_named() -> None:
    class Structured(torch.nn.Module):
        def forward(self, tree: Any) -> Any:
            return sum(tree["list"]) * tree["factor"]

    model = poptorch.inferenceModel(Structured())
    assert model({"list": [one(1), one(2)], "factor": one(2)}) == 6
    with pytest.raises(poptorch.Error, match=r"Length mismatch for tree\[list\]: expected 2"):
        model({"list": [one(1)], "factor": one(2)})
    with pytest.raises(poptorch.Error, match="Missing arguments: factor"):
        model({"list": [one(1), one(2)]})
    with pytest.raises(poptorch.Error, match="Unexpected arguments: more"):
        model({"list": [one(1), one(2)], "factor": one(2), "more": one(3)})


@pytest.mark.exhaustive
def test_inputs_that_are_written_to_come_back() -> None:
    class InPlace(torch.nn.Module):
        def forward(self, x: Any, tree: Any) -> None:
            x += 1
            tree[0][:1] *= 3

    ours, eager = [torch.ones(2), (torch.ones(4),)], [torch.ones(2), (torch.ones(4),)]
    model = poptorch.inferenceModel(InPlace())
    for _ in range(2):
        assert model(*ours) is None
        InPlace()(*eager)
        assert torch.equal(ours[0], eager[0])
        assert torch.equal(ours[1][0], eager[1][0])


def test_inputs_of_several_micro_batches_come_back_whole() -> None:
    class InPlace(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            x.mul_(2)
            return x.sum()

    options = poptorch.Options().deviceIterations(3).outputMode(poptorch.OutputMode.Final)
    x = torch.arange(6.0)
    assert poptorch.inferenceModel(InPlace(), options)(x) == 18
    assert torch.equal(x, 2 * torch.arange(6.0))


@pytest.mark.exhaustive
def test_compiling_keeps_no_data_alive() -> None:
    import gc
    import weakref

    x = torch.ones(3)
    model = poptorch.inferenceModel(torch.nn.Identity())
    model(x)
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None


def test_a_module_may_take_no_tensors() -> None:
    one, other = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])

    class Constants(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(2))

        def forward(self, factor: int = 2) -> Any:
            return factor * self.weight + one + other, [other]

    model = poptorch.inferenceModel(Constants())
    result, (same,) = model()
    torch.testing.assert_close(result, torch.tensor([6.0, 8.0]))
    torch.testing.assert_close(same, other)
