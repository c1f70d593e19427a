"""Backward passes that users write, beside PyTorch: functions, hooks, checkpoints, contexts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from ipujax.errors import FrontendError
from ipujax.frontends import from_torch
from tests.ipujax.frontends.beside_torch import numbers, same_as_torch


class StraightThrough(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return torch.round(x)

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        return slopes[0]


class Scaled(Function):
    """Two factors, of the value and of the gradient, as unit scaling has."""

    @staticmethod
    def forward(ctx: Any, x: Any, forward: float, backward: float) -> Any:
        ctx.backward_factor = backward
        return x * forward

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        return slopes[0] * ctx.backward_factor, None, None


class Spike(Function):
    """A step whose gradient is that of a fast sigmoid."""

    @staticmethod
    def forward(ctx: Any, x: Any, slope: float = 25) -> Any:
        ctx.save_for_backward(x)
        ctx.slope = slope
        return (x > 0).float()

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        (x,) = ctx.saved_tensors
        return slopes[0].clone() / (ctx.slope * torch.abs(x) + 1.0) ** 2, None


class Product(Function):
    """Written in the newer style, with needs and outputs that are saved."""

    @staticmethod
    def forward(x: Any, y: Any, name: str = "z") -> Any:
        return x @ y, x.sum(), name

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0], inputs[1], output[0])

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        x, y, product = ctx.saved_tensors
        of_x = of_y = None
        if ctx.needs_input_grad[0]:
            of_x = slopes[0] @ y.T * 2 + slopes[1] + product.mean()
        if ctx.needs_input_grad[1]:
            of_y = x.T @ slopes[0] * 3
        return of_x, of_y, None


class Sorted(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        values, index = x.sort()
        ctx.mark_non_differentiable(index)
        ctx.save_for_backward(index)
        return values, index, values.detach() * 2

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        (index,) = ctx.saved_tensors
        back = torch.zeros_like(slopes[0])
        back.scatter_(-1, index, slopes[0] + slopes[2])
        return back * 5


class InPlace(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        x.clamp_(-0.5, 0.5)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        return slopes[0] * 7


class Once(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        (x,) = ctx.saved_tensors
        return slopes[0] * x


class Twice(Function):
    """A backward pass that has a backward pass of its own."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.sin()

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        return StraightThrough.apply(slopes[0] * 3) * 2


class Complex(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return torch.view_as_complex(x) * (1 + 2j)

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        return torch.view_as_real(slopes[0] * (3 - 1j))


class Unmaterialized(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.set_materialize_grads(False)
        return x * 1, x * 2

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        return sum((n + 3) * slope for n, slope in enumerate(slopes) if slope is not None)


class Noisy(Function):
    """One argument has a gradient of a larger shape and another dtype, and one has none."""

    @staticmethod
    def forward(ctx: Any, x: Any, bias: Any, unused: Any) -> Any:
        return x + bias + unused

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        return slopes[0], slopes[0].double() * 2, None


spike = Spike.apply
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "straight through": lambda x, w: StraightThrough.apply(x * w) ** 2,
    "scaled": lambda x, w: Scaled.apply(Scaled.apply(x, 2.0, 0.5) @ w.T, 0.1, 3),
    "spike": lambda x, w: spike(x * w - 0.1) * x,
    "product": lambda x, w: Product.apply(x, w.T)[:2],
    "sorted": lambda x, w: Sorted.apply(x * w),
    "in place": lambda x, w: (lambda y: (InPlace.apply(y), y * 2))(x * w),
    "once": lambda x, w: Once.apply(x) * w,
    "twice": lambda x, w: Twice.apply(x * w),
    "complex": lambda x, w: torch.view_as_real(Complex.apply(x * w)),
    "unmaterialized": lambda x, w: Unmaterialized.apply(x * w)[1],
    "noisy": lambda x, w: Noisy.apply(x, w[:1], w),
    "nested": lambda x, w: Twice.apply(StraightThrough.apply(x * 3) * spike(w)),
    "of what is detached": lambda x, w: StraightThrough.apply((x * w).detach()) + x,
    "without gradients": lambda x, w: _without(x, w),
    "checkpoint": lambda x, w: checkpoint(lambda y: spike(y).tanh() * y @ w.T, x * w,
                                          use_reentrant=False),
    "tensor hook": lambda x, w: _hooked(x * w, lambda g: g * 2 + 1),
    "hook in place": lambda x, w: _hooked(x * w, lambda g: g.clamp_(-0.1, 0.1)),
    "two hooks": lambda x, w: _hooked(x * w, lambda g: g * 2 + 1, lambda g: g.sin()),
    "hook of a parameter": lambda x, w: _hooked(w, lambda g: g.sign()) * x,
    "hook with a value": lambda x, w: _hooked(x * w, lambda g: g * x),
    "enabled again": lambda x, w: _enabled(x, w),
}  # fmt: skip


def _without(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        y = StraightThrough.apply(x * w)
    return y * w


def _enabled(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        y = x * w
        with torch.enable_grad():
            z = y * w
        u = z * 2
    return z * x + u


def _hooked(y: torch.Tensor, *hooks: Callable[..., Any]) -> torch.Tensor:
    before = y.cos()
    late = y * 0.3
    for hook in hooks:
        y.register_hook(hook)
    return before + y * late + y.exp()


class Holder(nn.Module):
    """A function of an input and a parameter."""

    def __init__(self, function: Callable[..., Any], *shape: int) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(numbers(*shape, seed=3).detach())

    def forward(self, x: torch.Tensor) -> Any:
        outputs = self.function(x, self.weight)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        return [x for x in outputs if isinstance(x, torch.Tensor)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_those_of_the_users_backward(name: str) -> None:
    same_as_torch(Holder(FUNCTIONS[name], 4, 2), numbers(4, 2, seed=1))


class Hooked(nn.Module):
    """Layers whose hooks change gradients."""

    def __init__(self, *, has_pre_hook: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        self.layers[1].register_full_backward_hook(lambda m, i, o: (i[0] * 2 + o[0],))
        self.layers[2].register_full_backward_hook(lambda m, i, o: None)
        if has_pre_hook:
            self.layers[1].register_full_backward_pre_hook(lambda m, o: (o[0].clamp(-0.2, 0.2),))
            self.layers.register_full_backward_pre_hook(lambda m, o: (o[0] * 3,))
        mask = torch.tensor([[1.0], [0.0], [1.0], [0.5]])
        self.layers[0].weight.register_hook(lambda g: g * mask)
        bias: Any = self.layers[2].bias
        bias.register_hook(lambda g: g + bias * 0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x) + self.layers[2].bias


@pytest.mark.parametrize("has_pre_hook", [True, False])
def test_hooks_of_modules_and_parameters_act(has_pre_hook: bool) -> None:
    module = Hooked(has_pre_hook=has_pre_hook)
    model = from_torch(module, (numbers(5, 3).detach(),))
    x = numbers(5, 3)
    (module(x) ** 2).sum().backward()

    def loss(variables: Any, x: Any) -> Any:
        return (model.apply(variables, x)[0] ** 2).sum()

    mine, of_x = jax.grad(loss, (0, 1))(dict(model.variables), x.detach().numpy())
    np.testing.assert_allclose(of_x, x.grad, 1e-5, 1e-5)
    for name, parameter in module.named_parameters():
        np.testing.assert_allclose(mine[name], parameter.grad, 1e-5, 1e-5, err_msg=name)


def test_a_reentrant_checkpoint_has_gradients_where_its_arguments_have() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = checkpoint(lambda y: spike(y) @ w.T + y @ w.T, x * w, use_reentrant=True)
        return y

    module = Holder(function, 4, 2)
    x = numbers(4, 2, seed=1).detach()
    module(x)[0].sum().backward()
    model = from_torch(module, (x,))
    mine = jax.grad(lambda v: model.apply(v, x.numpy())[0][0].sum())(dict(model.variables))
    np.testing.assert_allclose(mine["weight"], module.weight.grad, 1e-5, 1e-5)


class Unknown(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        return slopes[0] if ctx.saved_tensors[0].sum() > 0 else -slopes[0]


class Differentiating(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        with torch.enable_grad():
            y = ctx.saved_tensors[0].detach().requires_grad_().sin()
        return torch.autograd.grad(y.sum(), y)[0]


class Without(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2


def _post_accumulating(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    w.register_post_accumulate_grad_hook(lambda p: None)
    return x * w


def _saving(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.half(), lambda t: t.float()):
        return x * w * 2


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (Unknown.apply, "Unknown.*depends on the values of tensors"),
        (Differentiating.apply, "torch.autograd.grad"),
        (Without.apply, "Function Without"),
        (None, "register_backward_hook"),
        (_post_accumulating, "register_post_accumulate_grad_hook"),
        (_saving, "saved_tensors_hooks"),
    ],
)
def test_what_cannot_be_converted_runs_and_is_not_differentiated(
    function: Callable[..., Any] | None, message: str
) -> None:
    def called(x: torch.Tensor, w: torch.Tensor) -> Any:
        if function is None:
            return x * w
        return function(x, w) if function in (_post_accumulating, _saving) else function(x * w)

    module = Holder(called, 3)
    if function is None:
        module.register_backward_hook(lambda m, i, o: None)
    x = numbers(3).detach()
    model = from_torch(module, (x,))
    result = model.apply(model.variables, x.numpy())[0][0]
    np.testing.assert_allclose(result, called(x, module.weight.detach().requires_grad_()).detach())
    with pytest.raises(FrontendError, match=message) as caught:
        jax.grad(lambda v: model.apply(v, x.numpy())[0][0].sum())(dict(model.variables))
    assert "test_torch_backward.py" in str(caught.value)


def test_a_backward_pass_marked_once_has_no_second_derivative() -> None:
    x = numbers(3).detach()
    model = from_torch(Holder(lambda x, w: Once.apply(x * w), 3), (x,))
    grad = jax.grad(lambda v: model.apply(v, x.numpy())[0][0].sum())
    with pytest.raises(FrontendError, match="once_differentiable"):
        jax.grad(lambda v: grad(v)["weight"].sum())(dict(model.variables))
