"""Loops and conditions of PopTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from ipujax import poptorch  # noqa: E402
from ipujax.doors.graphs import Evaluation, Graph, Node, Ref  # noqa: E402
from ipujax.poptorch.poptorch_operators import OPERATORS, qualify_operator_name  # noqa: E402
from tests.ipujax.poptorch.test_ops import Applied, X, on_ipu  # noqa: E402


def loop(module: Any, x: Any) -> Any:
    def body(a: Any, b: Any) -> Any:
        a += 1
        return 0.5 * module.layer(a), b + x.sum()

    return (*poptorch.for_loop(100, body, [x, x[0]]), x)


def nested(module: Any, x: Any) -> Any:
    def outer(a: Any) -> Any:
        def inner(b: Any) -> Any:
            return b * 2 + a

        return poptorch.for_loop(2, inner, [a])[0] + x

    return poptorch.for_loop(3, outer, [x])


@pytest.mark.parametrize("function", [loop, nested])
def test_loops(function: Callable[..., Any]) -> None:
    inference, (found, expected) = on_ipu(function, X)
    for own, other in zip(found, expected, strict=True):
        torch.testing.assert_close(own, other)
    assert len(inference.executable.lowered.as_text()) < 2500  # a body is there once


def test_random_numbers_differ_from_turn_to_turn() -> None:
    def function(_: Any, x: Any) -> Any:
        return poptorch.for_loop(2, lambda a, b: (b, torch.rand_like(a)), [x, x])

    first, second = poptorch.inferenceModel(Applied(function))(X)
    assert not torch.equal(first, second)


def choice(module: Any, x: Any, condition: Any) -> Any:
    return poptorch.cond(
        condition,
        lambda a, b: (a + b, b),
        [x, x + 1],
        lambda: (poptorch.cond(x.sum() > 0, lambda: x * 3, [], lambda: x, [])[0], module.layer(x)),
        [],
    )


def test_conditions() -> None:
    module = Applied(choice)
    inference = poptorch.inferenceModel(module)
    for condition in (torch.tensor([True]), torch.tensor([False])):
        for own, other in zip(inference(X, condition), module(X, condition), strict=True):
            torch.testing.assert_close(own, other)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda _, x: poptorch.for_loop(2, lambda a: a, x), "(Object is not list)"),
        (lambda _, x: poptorch.for_loop(2, lambda a: a, [5]), "in list at index 0 is not torch"),
        (lambda _, x: poptorch.for_loop(2, lambda a: a[0], [x]), "return tensors of the shapes"),
        (lambda _, x: poptorch.for_loop(2, lambda a: 3, [x]), "body of poptorch.for_loop returned"),
        (
            lambda _, x: poptorch.cond(x.sum() > 0, lambda: x, [], lambda: x[0], []),
            "bodies of poptorch.cond return different tensors",
        ),
    ],
)
def test_bad_bodies(function: Any, message: str) -> None:
    with pytest.raises(poptorch.Error, match=message):
        poptorch.inferenceModel(Applied(function)).compile(X)


def test_what_leaves_a_body_aside_is_refused() -> None:
    def function(_: Any, x: Any) -> Any:
        kept: list[Any] = []

        def body(a: Any) -> Any:
            kept.append(a + 1)
            return kept[-1]

        return poptorch.for_loop(2, body, [x])[0] + kept[0]

    with pytest.raises(poptorch.Error, match=r"of a body of poptorch.for_loop .* outside"):
        poptorch.inferenceModel(Applied(function)).compile(X)


@pytest.mark.parametrize("name", ["for_loop", "cond"])
def test_training_is_refused(name: str) -> None:
    def function(module: Any, x: Any) -> Any:
        if name == "cond":
            x = poptorch.cond(x.sum() > 0, lambda: x, [], lambda: x, [])[0]
        else:
            x = poptorch.for_loop(2, lambda a: a, [x])[0]
        return poptorch.identity_loss(module.layer(x), "sum")

    with pytest.raises(
        poptorch.Error, match=rf"poptorch.{name}\(\) is only supported in inference"
    ):
        poptorch.trainingModel(Applied(function)).compile(X)


def test_a_body_draws_other_numbers_than_what_is_around_it() -> None:
    pair = jax.ShapeDtypeStruct((2,), "float32")
    draw = Node("aten.rand.default", ([2],), results=("drawn",), avals=(pair,))
    cond = Node(
        qualify_operator_name("cond"), (Ref("choice"), "body", (), "body", ()), results=("inside",),
        avals=([pair],),
    )  # fmt: skip
    body = Graph((), (draw,), (Ref("drawn"),))
    graph = Graph(("choice",), (draw, cond), (Ref("drawn"), Ref("inside")), {"body": body})
    values = {"choice": jax.numpy.array(True)}
    named = Evaluation(OPERATORS)(graph, values, jax.random.key(0))
    assert not np.array_equal(named["drawn"], named["inside"][0])
