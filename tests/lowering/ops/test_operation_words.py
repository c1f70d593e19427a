"""The words for operations: one each, in programs, reports and errors alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ipujax as ipu
from lowering.ground import word_of_primitive
from lowering.ops import function_of_call, word_of_equation
from tests.ipujax.reporting import configured, struct


@jax.custom_vjp
def my_layer(x: Any) -> Any:
    return jnp.sin(x)


my_layer.defvjp(lambda x: (my_layer(x), x), lambda x, g: (g * x,))


@jax.checkpoint
def block(x: Any) -> Any:
    return jnp.sin(x) * 2


@pytest.mark.parametrize(
    ("function", "word"),
    [
        (jax.nn.relu, "relu"),  # custom_jvp_call
        (jax.nn.silu, "silu"),  # jit
        (jax.nn.log_softmax, "log softmax"),
        (jax.nn.leaky_relu, "leaky relu"),
        (jax.nn.relu6, "relu6"),
        (my_layer, "my_layer"),  # custom_vjp_call
        (block, "block"),  # checkpoint
        (jax.jit(lambda x: x + 1), "<lambda>"),
        (lambda x: jnp.where(x > 0, x, x * x), "where"),
        (jnp.tanh, "tanh"),
        (lambda x: x @ x, "matmul"),
        (lambda x: x**2, "square"),
        (lambda x: x**3, "power"),
        (lambda x: jax.lax.scan(lambda c, _: (c * 2, None), x, None, 3)[0], "scan"),
    ],
)
def test_equations_have_words(function: Callable[[Any], Any], word: str) -> None:
    eqns = jax.make_jaxpr(function)(np.ones((4, 4), np.float32)).jaxpr.eqns
    assert word_of_equation(eqns[-1]) == word


def test_only_calls_have_functions() -> None:
    eqns = jax.make_jaxpr(lambda x: jax.nn.relu(x) + 1)(np.ones(4, np.float32)).jaxpr.eqns
    assert [function_of_call(eqn) for eqn in eqns] == ["relu", ""]


def test_asynchronous_parts_have_the_word_of_the_whole() -> None:
    assert word_of_primitive("psum_start") == word_of_primitive("psum") == "sum over replicas"


def test_programs_and_reports_say_the_same() -> None:
    """The words of a program's text begin the labels of its report's operations."""

    @ipu.compile
    def model(x: Any, w: Any) -> Any:
        return jax.nn.relu(x @ w) @ w

    configured()
    lowered = model.lower(struct(64, 64), struct(64, 64))
    (line,) = (line for line in lowered.as_text().splitlines() if "execute" in line)
    words = line.partition("[m")[2].partition("]")[0]
    assert f"m{words}" == "matmul, relu, matmul"
    labels = [operation.label for operation in lowered.report().operations]
    assert sorted(labels) == ["matmul 64 x 64 x 64", "matmul 64 x 64 x 64", "relu"]


def test_tensors_have_the_label_and_scope_of_what_makes_them() -> None:
    @ipu.compile
    def model(x: Any, w: Any) -> Any:
        def loss(w: Any) -> Any:
            with jax.named_scope("encoder"):
                h = jax.nn.gelu(x @ w)
            with jax.named_scope("head"):
                return jnp.mean(jax.nn.softmax(h @ w)[:, 0])

        return w - jax.grad(loss)(w)

    configured()
    report = model.lower(struct(32, 64), struct(64, 64)).report()
    (held,) = report.liveness
    operations = {operation.number: operation for operation in report.operations}
    checked = 0
    for tensor in held.tensors:
        number = None if tensor.first is None else held.operations[tensor.first]
        if number is None or tensor.operation == "copy":
            continue
        operation = operations[number]
        assert (tensor.label, tensor.scope) == (operation.label, operation.scope)
        checked += 1
    assert checked > 10
    scopes = {tensor.scope for tensor in held.tensors}
    assert {"encoder", "head"} <= scopes
    assert "args" not in {tensor.owner for tensor in held.tensors}
    assert {"x", "w"} <= {tensor.owner for tensor in held.tensors}  # arguments, by their names
