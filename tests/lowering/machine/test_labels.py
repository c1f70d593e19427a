"""What operations are called: in plain words, with the extents that say most."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import ipujax as ipu
from lowering.machine import Operation, Shape, label_of_move, label_operations
from lowering.machine.primitives import ELEMENTWISE, RULES
from tests.ipujax.reporting import configured, struct

PRODUCTS = {"dot_general", "conv_general_dilated", "multi_conv"}
DIMS = ("NHWC", "HWIO", "NHWC")


def labels(function: Callable[..., Any], *shapes: Any) -> list[str]:
    """Of all operations of a function, each once."""
    configured()
    report = ipu.compile(function).lower(*shapes).report()
    return list(dict.fromkeys(operation.label for operation in report.operations))


def conv(x: Any, kernel: Any, groups: int = 1) -> Any:
    return jax.lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=DIMS, feature_group_count=groups
    )


def operation(name: str, **params: Any) -> Operation:
    one = Shape((8,), "float32")
    return Operation(name, (one, one), (one,), tuple(params.items()))


@pytest.mark.parametrize(
    ("left", "right", "text"),
    [
        ((64, 1024), (1024, 4096), "matmul 64 x 1024 x 4096"),
        ((2, 32, 1024), (1024, 4096), "matmul 64 x 1024 x 4096"),
        ((1024,), (1024, 4096), "matmul 1024 x 4096"),
        ((64, 1024), (1024,), "matmul 64 x 1024"),
        ((1024,), (1024,), "dot product 1024"),
        ((6, 8, 16), (6, 16, 32), "matmul 8 x 16 x 32, batch of 6"),
    ],
)
def test_products_are_called_by_their_extents(left: Any, right: Any, text: str) -> None:
    assert text in labels(jnp.matmul, struct(*left), struct(*right))


def test_complex_products_have_the_extents_that_the_user_wrote() -> None:
    square = jax.ShapeDtypeStruct((64, 64), jnp.complex64)
    assert "matmul 64 x 64 x 64" in labels(jnp.matmul, square, square)


def test_convolutions_are_called_by_kernel_and_channels() -> None:
    image = struct(4, 16, 16, 8)
    assert "conv 3x3 8 -> 16" in labels(conv, image, struct(3, 3, 8, 16))
    grouped = labels(lambda x, k: conv(x, k, 4), image, struct(3, 3, 2, 16))
    assert "conv 3x3 8 -> 16, 4 groups" in grouped


def test_the_backward_pass_of_a_convolution_names_the_same_kernel() -> None:
    def loss(kernel: Any, x: Any) -> Any:
        return jnp.sum(conv(jax.nn.relu(conv(x, kernel)), kernel) ** 2)

    found = labels(jax.grad(loss), struct(3, 3, 8, 8), struct(4, 16, 16, 8))
    assert {"conv 3x3 8 -> 8", "conv 3x3 8 -> 8, gradient of weights"} <= set(found)


def test_what_well_known_functions_compute_is_called_as_they_are() -> None:
    def model(x: Any) -> Any:
        x = jax.nn.relu(ipu.normalization_ops.group_norm(x, groups=4))
        return jnp.sum(jax.nn.softmax(jax.nn.gelu(x)))

    known = {"norm", "gelu", "softmax"}
    assert {"relu", *known} <= set(labels(model, struct(32, 64)))
    assert known <= set(labels(jax.grad(model), struct(32, 64)))


def test_scopes_say_what_a_users_own_lines_compute() -> None:
    def model(x: Any) -> Any:
        with jax.named_scope("block0"), jax.named_scope("LayerNorm_0"):
            return (x - jnp.mean(x)) * 2.0

    assert "norm" in labels(model, struct(32, 64))
    assert "norm" not in labels(lambda x: (x - jnp.mean(x)) * 2.0, struct(32, 64))


def test_chains_say_their_words_once_and_not_too_many() -> None:
    names = ("mul", "convert_element_type", "add", "mul", "tanh", "exp", "log")
    assert label_operations([operation(name) for name in names]) == "multiply, add, tanh and 2 more"
    assert label_operations([operation("convert_element_type")]) == "cast"
    assert label_operations([operation("integer_pow", y=2)]) == "square"
    assert label_operations([operation("integer_pow", y=3)]) == "power"


@pytest.mark.parametrize("name", sorted((RULES.keys() | ELEMENTWISE) - PRODUCTS))
def test_every_primitive_has_a_name_in_words(name: str) -> None:
    text = label_operations([operation(name)])
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9, -]*", text), text
    assert "ipu" not in text


@pytest.mark.parametrize(
    ("title", "text"),
    [
        ("copy 0 -> 1", "copy IPU 0 -> IPU 1"),
        ("copy 0 -> 1/sync", "sync of IPU 0 and IPU 1"),
        ("copy OnTileCopy", "copy"),
        ("scan slices", "slices of a loop"),
        ("stream-in images", "read queue images"),
        ("pipeline transfers", "copies between stages"),
        ("rearrange loop variable", "rearrange loop variable"),
    ],
)
def test_moves_say_from_where_to_where(title: str, text: str) -> None:
    assert label_of_move(title) == text
