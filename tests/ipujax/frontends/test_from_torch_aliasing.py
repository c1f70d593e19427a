"""Views of tensors and operators in place, against PyTorch's eager mode."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from ipujax.doors.graphs import Evaluation, substitute_refs

torch: Any = pytest.importorskip("torch")

from ipujax.doors.torch import (  # noqa: E402
    collect_updated_variables,
    compute_named_values,
    to_jax,
    trace_torch_module,
)
from ipujax.doors.torch.aliasing import mutates_views  # noqa: E402
from ipujax.doors.torch.operators import ATEN  # noqa: E402
from tests.ipujax.frontends.beside_torch import Functions, same_as_torch  # noqa: E402

VIEWS: list[Callable[[Any], Any]] = [
    lambda x: x[0],
    lambda x: x[..., -1],
    lambda x: x[1:],
    lambda x: x[..., ::2],
    lambda x: x.view(-1),
    lambda x: x.reshape(-1),
    lambda x: x.flatten(),
    lambda x: x.transpose(0, -1),
    lambda x: x.unsqueeze(0),
    lambda x: x.squeeze(),
    lambda x: x.chunk(2)[-1],
    lambda x: x.unbind(-1)[0],
    lambda x: x.detach(),
    lambda x: x.contiguous(),
    lambda x: x.expand(2, *x.shape),
    lambda x: x.diagonal(),
    lambda x: x.to(torch.float32),
    lambda x: torch.nn.functional.dropout(x, 0.5, training=False),
    lambda x: x.view_as(x),
]
FUNCTIONS: list[Callable[[Any], Any]] = [
    lambda x: x + 1,
    lambda x: x * x,
    lambda x: x.clone(),
    lambda x: torch.cat([x, x]),
    lambda x: torch.relu(x),
]
WRITES: list[Callable[[Any, Any], Any]] = [
    lambda x, y: x.add_(2),
    lambda x, y: x.mul_(y.reshape(-1)[0]),
    lambda x, y: x.copy_(y.reshape(-1)[-1]),
    lambda x, y: x.fill_(3),
    lambda x, y: x.zero_(),
    lambda x, y: x.relu_(),
    lambda x, y: x.masked_fill_(x.detach().view_as(x).bool(), 0.5),
    lambda x, y: x.__setitem__(0, 7.0),
    lambda x, y: x.__setitem__(torch.tensor([0]), y.reshape(-1)[0]),
    lambda x, y: x.__iadd__(x),
    lambda x, y: torch.add(x, 1, out=x),
]


class Program(torch.nn.Module):
    """A random program: each step makes a tensor of another, or writes to one."""

    def __init__(self, seed: int, steps: int) -> None:
        super().__init__()
        self.register_buffer("state", torch.arange(6.0).reshape(2, 3))
        self.register_buffer("other", torch.ones(3), persistent=False)
        self.steps: list[Any] = []
        self.steps = self._steps(random.Random(seed), steps)

    def _steps(self, draw: random.Random, count: int) -> list[Any]:
        """Steps that PyTorch can take for tensors of these shapes."""
        steps: list[Any] = []
        values = [t.clone() for t in (*inputs(), self.state, self.other)]
        while len(steps) < count:
            kind = draw.choice((VIEWS, VIEWS, FUNCTIONS, WRITES))
            step = draw.choice(kind), draw.randrange(len(values)), draw.randrange(len(values))
            try:
                self.take(step, values)
            except (IndexError, RuntimeError, TypeError):
                continue
            steps.append(step)
        return steps

    def take(self, step: Any, values: list[Any]) -> None:
        function, one, other = step
        if function in WRITES:
            if 0 in values[one].stride():
                raise IndexError("what a write to an expanded tensor does is not defined")
            function(values[one], values[other])
        else:
            values.append(function(values[one]))

    def forward(self, x: Any, y: Any) -> Any:
        values = [x, y, self.state, self.other]
        for step in self.steps:
            self.take(step, values)
        return tuple(values)


def inputs() -> tuple[Any, Any]:
    return torch.linspace(-1, 2, 6).reshape(3, 2), torch.linspace(0, 1, 4).reshape(2, 2)


def assert_as_eager(module: Any, args: tuple[Any, ...]) -> None:
    """Outputs, and what is left in inputs and buffers, are PyTorch's."""
    found = trace_torch_module(module, args, None, ATEN)
    variables = {name: jnp.array(to_jax(t)) for name, t in found.variables.items()}
    given = [jnp.array(a.numpy()) for a in args]
    named = compute_named_values(found, Evaluation(ATEN), variables, given)
    outputs = substitute_refs(found.graph.outputs, named)
    after = collect_updated_variables(found, variables, named)
    expected = module(*args)
    for got, wanted in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(got, wanted.detach(), rtol=1e-5)
    for name, wanted in zip(found.inputs, args, strict=True):
        np.testing.assert_allclose(named[name], wanted, rtol=1e-5)
    for name, wanted in module.named_buffers():
        np.testing.assert_allclose(after[name], wanted, rtol=1e-5)


@pytest.mark.sampled(0, 6)
@pytest.mark.parametrize("seed", range(24))
def test_random_programs_of_views_and_writes(seed: int) -> None:
    assert_as_eager(Program(seed, steps=8), inputs())


class Context(torch.nn.Module):
    """Writes to a buffer and to a part of a tensor, partly without gradients."""

    def __init__(self, idle: Any) -> None:
        super().__init__()
        self.idle = idle
        self.register_buffer("total", torch.zeros(2))

    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            self.total.add_(x[0])
            scale = x * 2
        y = x * 3
        self.idle(y)[0] = 1
        return (y * scale + self.total,)


@pytest.mark.exhaustive
def test_no_grad_holds_where_views_are_written_to() -> None:
    x = torch.linspace(-1, 2, 6).reshape(3, 2).requires_grad_()
    same_as_torch(Context(torch.nn.Dropout(0.5).eval()), x)


@pytest.mark.exhaustive
def test_writes_to_what_dropout_passes_on_reach_its_operand() -> None:
    assert_as_eager(Context(torch.nn.Dropout(0.5).eval()), inputs()[:1])


def test_only_programs_that_write_to_views_are_made_functional() -> None:
    def is_changed(function: Callable[[Any], Any]) -> bool:
        exported = torch.export.export(Functions(function), inputs()[:1], strict=False)
        return mutates_views(exported.graph_module)

    assert not is_changed(lambda x: (x + 1).relu_().add_(1).view(-1)[0])
    assert not is_changed(lambda x: (x + 1).chunk(3)[0].add_(1))
    assert is_changed(lambda x: x.chunk(3)[0].add_(1))
    y: list[Any] = []
    assert is_changed(lambda x: (y.append(x + 1), y[-1][0].add_(1), y[-1] * 2)[-1])


def test_overloads_that_only_operators_in_place_have() -> None:
    functions = Functions(lambda x: x.clone().pow_(x), lambda x: (4 * x).floor_divide_(x + 1))
    same_as_torch(functions, torch.linspace(1, 2, 6))
    same_as_torch(Functions(lambda x: x.clone().double().float_power_(x)), torch.linspace(1, 2, 6))


def test_operators_of_python_in_place() -> None:
    names = "__iand__", "__ior__", "__ixor__", "__ilshift__", "__irshift__"

    def apply(name: str, operand: Any) -> Any:
        return lambda x, y: getattr(x.clone(), name)(y if operand is None else operand)

    module = Functions(*(apply(name, operand) for name in names for operand in (None, 2)))
    same_as_torch(module, torch.tensor([5, 6, 7]), torch.tensor([1, 2, 3]))
