"""The choice of gradients that automatic loss scaling counts: those of operands in float16."""

from __future__ import annotations

import jax.numpy as jnp
import torch

from ipujax.doors.graphs import GradientCounting, Placement
from ipujax.doors.torch import ModuleTrace
from ipujax.ground import PopTorchError
from ipujax.training import LossScaling

_VIEWS = frozenset(
    "alias chunk detach expand expand_as flatten lift_fresh_copy movedim narrow permute reshape "
    "select slice split split_with_sizes squeeze swapaxes swapdims t transpose unbind unflatten "
    "unsqueeze view view_as".split()
)
"""Operators whose gradients have the same elements as those of their results."""

_PRODUCTS = frozenset(
    "addbmm addmm addmv addr baddbmm bilinear bmm conv1d conv2d conv3d conv_transpose1d "
    "conv_transpose2d conv_transpose3d convolution dot einsum linear matmul mm mv outer "
    "scaled_dot_product_attention".split()
)


def count_gradients(settings: LossScaling, placement: Placement) -> GradientCounting:
    """Returns how the gradients of a graph with this placement are counted."""
    return GradientCounting(
        settings, placement, lambda node, _: _counts_gradients_of_operator(node.operator, settings)
    )


def _counts_gradients_of_operator(operator: str, settings: LossScaling) -> bool:
    """Returns whether the gradients of an operator's operands count."""
    library, _, rest = operator.partition(".")
    if library != "aten":
        return library not in ("assign", "constant", "getitem") and not settings.of_products
    name = rest.partition(".")[0]
    return name in _PRODUCTS if settings.of_products else name not in _VIEWS


def check_half_gradients(module: ModuleTrace) -> None:
    """Checks that a module has gradients in float16, which loss scaling could count.

    Raises:
      PopTorchError: (a `ValueError`) it computes nothing in float16.
    """
    values = [a for node in module.graph.nodes for a in node.avals if hasattr(a, "dtype")]
    is_half = any(value.dtype == jnp.float16 for value in values)
    if not is_half and all(module.variables[n].dtype != torch.float16 for n in module.trainable):
        raise PopTorchError(
            "setAutomaticLossScaling(True): No tracked gradient tensors of type fp16 were found",
            fix="call model.half(), or leave automatic loss scaling away: float32 needs none",
        )
