"""What modules of PyTorch take, give and hold, in all the structures that they may have."""

from __future__ import annotations

import dataclasses as dc
from collections import OrderedDict
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ipujax.errors import FrontendError
from ipujax.frontends import from_torch

torch: Any = pytest.importorskip("torch")

from tests.ipujax.frontends.beside_torch import Functions, same_as_torch  # noqa: E402

X = jnp.arange(6.0).reshape(2, 3)


class Pair(NamedTuple):
    first: Any
    second: Any


@dc.dataclass
class Result:
    value: Any
    rest: Any = None


torch.export.register_dataclass(Result, serialized_type_name="Result")


class Module(torch.nn.Module):
    """A function with all kinds of arguments as a module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def test_inputs_and_outputs_have_their_structures() -> None:
    def function(given: Any, pair: Any, *, mask: Any = None, scale: Any = 1.0) -> Any:
        y = given["a"] * scale + given["b"][0]
        return {"y": y, "pair": Pair(y, [pair.second]), "none": (None, 3), "mask": mask + 1}

    args = ({"a": X, "b": [X + 1]}, Pair(X, X * 2))
    model = from_torch(Module(function), args, {"mask": X, "scale": 2.0})
    outputs, _ = model.apply({}, *args, X, 2.0)
    assert outputs["none"] == (None, 3)
    np.testing.assert_array_equal(outputs["y"], X * 3 + 1)
    assert isinstance(outputs["pair"], Pair)
    np.testing.assert_array_equal(outputs["pair"].second[0], X * 2)
    np.testing.assert_array_equal(outputs["mask"], X + 1)


def test_pytorchs_own_classes_are_plain_ones() -> None:
    def function(x: Any) -> Any:
        return Result(x.sort(-1, descending=True), OrderedDict(y=x.max(0)))

    outputs, _ = from_torch(Module(function), (X,)).apply({}, X)
    assert jax.tree.structure(outputs) == jax.tree.structure(
        {"value": (0, 0), "rest": {"y": (0, 0)}}
    )
    np.testing.assert_array_equal(outputs["value"][1], [[2, 1, 0]] * 2)


def test_inputs_of_another_form_are_refused() -> None:
    model = from_torch(Module(lambda x, n, m=None: x["a"] * n), ({"a": X}, 2), {"m": None})
    cases: list[tuple[Any, str]] = [
        (({"a": X[:1]}, 2, None), r"\['a'\] has shape \(1, 3\) .* shape \(2, 3\)"),
        (({"a": X > 0}, 2, None), r"dtype bool, .* dtype float32"),
        (({"a": X}, 3, None), "is the constant 2 in the traced model, and 3 is given"),
        (({"a": X}, 2, X), "is the constant None"),
        (({"a": None}, 2, None), "is a tensor in the traced model, and None is given"),
        (({"b": X}, 2, None), "was traced for inputs"),
    ]
    for args, message in cases:
        with pytest.raises(FrontendError, match=message):
            model.apply({}, *args)
    with pytest.raises(FrontendError, match=r"is the constant 2 .*\n.*fix: .* static_argnums"):
        jax.jit(model.apply)({}, {"a": X}, 2, None)


class Holding(torch.nn.Module):
    """Parameters and buffers of all kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.tied = torch.nn.Linear(3, 3)
        self.again = torch.nn.Linear(3, 3)
        self.again.weight = self.tied.weight
        self.frozen = torch.nn.Parameter(torch.ones(3), requires_grad=False)
        self.listed = torch.nn.ParameterList([torch.ones(3), torch.full((3,), 2.0)])
        self.named = torch.nn.ParameterDict({"k": torch.full((3,), 0.5)})
        self.unused = torch.nn.Parameter(torch.ones(2))
        self.plain = torch.full((3,), 3.0)
        self.register_buffer("hidden", torch.zeros(3), persistent=False)
        self.register_buffer("nothing", None)

    def forward(self, x: Any) -> Any:
        self.hidden += x.detach().sum(0)
        x = self.again(self.tied(x)) * self.frozen + self.plain + torch.tensor([1.0, 2.0, 3.0])
        for parameter in self.listed:
            x = x * parameter
        return x + self.named["k"] + self.hidden


def test_modules_hold_parameters_and_buffers_of_all_kinds() -> None:
    module = Holding()
    model = from_torch(module, (X,))
    trained = {n for n, p in module.named_parameters() if p.requires_grad}
    assert {*model.variables} == {*trained, "frozen", "hidden"}
    assert "again.weight" not in model.variables
    assert {*model.trainable} == trained - {"unused"}
    module.unused.requires_grad_(requires_grad=False)
    same_as_torch(module, torch.linspace(-1, 1, 6).reshape(2, 3).requires_grad_())


def test_a_parameter_of_two_layers_is_trained_once() -> None:
    model = from_torch(Holding(), (X,))

    def loss(weight: Any) -> Any:
        outputs, _ = model.apply({**model.variables, "tied.weight": weight}, X)
        return jnp.sum(outputs**2)

    weight = model.variables["tied.weight"]
    slope = jax.jvp(loss, (weight,), (jnp.ones_like(weight),))[1]
    np.testing.assert_allclose(slope, jnp.sum(jax.grad(loss)(weight)), rtol=1e-4)


def test_parametrized_weights_are_computed() -> None:
    class Symmetric(torch.nn.Module):
        def forward(self, w: Any) -> Any:
            return w.triu() + w.triu(1).transpose(-1, -2)

    layer = torch.nn.Linear(3, 3)
    torch.nn.utils.parametrize.register_parametrization(layer, "weight", Symmetric())
    same_as_torch(layer, torch.linspace(-1, 1, 6).reshape(2, 3))


@pytest.mark.exhaustive
def test_loops_and_branches_are_those_of_pytorch() -> None:
    from torch._higher_order_ops.scan import scan
    from torch._higher_order_ops.while_loop import while_loop

    functions = Functions(
        lambda x: torch.cond(x[0, 0] > 0, lambda y: y.sin(), lambda y: y * 2, (x,)),
        lambda x: while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), (torch.tensor(0), x)),
        lambda x: scan(lambda c, y: (c + y, c * y), x[0], x),
        lambda x: torch.utils.checkpoint.checkpoint(torch.tanh, x, use_reentrant=False),
    )
    x = torch.linspace(-1, 2, 6).reshape(2, 3)
    (outputs, _) = from_torch(functions, (x,)).apply({}, jnp.asarray(x.numpy()))
    for mine, theirs in zip(
        jax.tree.leaves(outputs), torch.utils._pytree.tree_leaves(functions(x)), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x if x.sum() > 0 else -x, "control flow or a shape"),
        (lambda x: x * x[0, 0].item(), "a number in Python"),
        (lambda x: x.nonzero(), r"the shape of what aten\.nonzero\.default"),
        (lambda x: x[x > 0], r"the shape of what aten\.index\.Tensor"),
        (lambda x: x.masked_select(x > 0), r"the shape of what aten\.masked_select\.default"),
        (lambda x: x.unique(), "the shape of what"),
        (lambda x: x.T.as_strided((2,), (1,)), "not in the order of its axes"),
    ],
)
def test_what_no_static_graph_can_tell_is_refused_with_its_line(
    function: Any, message: str
) -> None:
    with pytest.raises(FrontendError, match=message) as raised:
        from_torch(Module(function), (X,))
    assert "test_from_torch_structures.py:" in str(raised.value)


def test_a_module_without_tensors_is_a_function_of_nothing() -> None:
    model = from_torch(Module(lambda: torch.ones(2) * 2), ())
    outputs, after = model.apply({})
    np.testing.assert_array_equal(outputs, [2.0, 2.0])
    assert after == {}
