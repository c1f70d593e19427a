"""The automatic loss scaling that a session's options ask for: the choice of gradients."""

from __future__ import annotations

import functools

import jax.numpy as jnp

from ipujax.doors.graphs import GradientCounting, Node, Placement
from ipujax.doors.onnx import ConvertedGraph
from ipujax.popart.optimizers import Optimizer
from ipujax.popart.options import GradientTensorTrackingMethod, SessionOptions
from ipujax.popart.popart_checks import check
from ipujax.training import LossScaling

_TRANSFORM = "[AutomaticLossScale transform]"
_VIEWS = frozenset(
    "DepthToSpace Flatten Identity Reshape Slice SpaceToDepth Split Squeeze Transpose Unsqueeze "
    "ai.graphcore.reshape ai.graphcore.detach ai.graphcore.slice".split()
)
"""Operators whose gradients have the same elements as those of their results."""

_PRODUCTS = frozenset("Conv ConvTranspose Einsum Gemm MatMul ai.graphcore.multiconv".split())


def _counts_gradient_of_operand(
    method: GradientTensorTrackingMethod, tensors: frozenset[str], node: Node, operand: str
) -> bool:
    """Returns whether the gradient of a node's operand counts."""
    name = node.operator.rpartition("-")[0]
    match method:
        case GradientTensorTrackingMethod.GradientsOfUserSpecifiedTensors:
            return operand in tensors
        case GradientTensorTrackingMethod.ConvAndMatmulGradients:
            return name in _PRODUCTS
        case _:
            return name not in _VIEWS


def count_gradients(
    options: SessionOptions,
    optimizer: Optimizer | None,
    model: ConvertedGraph,
    placement: Placement,
) -> GradientCounting | None:
    """Returns how gradients are counted; None without automatic loss scaling.

    Raises:
      PopARTError: (a `ValueError`) an option that cannot be, an optimizer whose loss scaling is
        constant, or a model whose gradients are not in float16.
    """
    scaling_options = options.automaticLossScalingSettings
    if not scaling_options.enabled:
        return None
    _check_loss_scaling_session(options, optimizer)
    settings = LossScaling(
        scaling_options.binEdgeLocation,
        scaling_options.thresholdUpperCountProportion,
        scaling_options.updatePeriod,
    )
    settings.check_ranges(check)
    by_user = GradientTensorTrackingMethod.GradientsOfUserSpecifiedTensors
    method = check.require_instance(
        scaling_options.gradientTensorTrackingMethod,
        GradientTensorTrackingMethod,
        "the tracking method",
    )
    if (scaling_options.toTrackTensors is None) == (method is by_user):
        raise check.value_error(
            f"{_TRANSFORM} toTrackTensors is {scaling_options.toTrackTensors}, and the "
            f"gradientTensorTrackingMethod is {method.name}",
            f"set toTrackTensors and {by_user}, or neither",
        )
    counts = functools.partial(
        _counts_gradient_of_operand, method, frozenset(scaling_options.toTrackTensors or ())
    )
    nodes = model.graph.nodes
    if not any(_is_float16(model, n) and counts(node, n) for node in nodes for n in node.reads):
        raise check.value_error(
            f"{_TRANSFORM} No tracked gradient tensors of type fp16 were found.",
            "compute in FLOAT16, or leave automatic loss scaling away: FLOAT needs none",
        )
    return GradientCounting(settings, placement, counts)


def _check_loss_scaling_session(options: SessionOptions, optimizer: Optimizer | None) -> None:
    if optimizer is None:
        raise check.value_error(
            f"{_TRANSFORM} Only compatible when doing training",
            "leave automaticLossScalingSettings.enabled at False",
        )
    if optimizer.values["lossScaling"].getDefault().constant:
        raise check.value_error(
            f"{_TRANSFORM} The optimizer must have non-const loss scaling",
            'say {"lossScaling": (1.0, False)}',
        )
    if options.enablePipelining and not options.enableGradientAccumulation:
        raise check.value_error(
            f"{_TRANSFORM} Automatic loss scaling is not currently supported when the "
            "'enablePipelining' SessionOption is set to 'true', but the "
            "'enableGradientAccumulation' SessionOption is set to 'false'",
            "set both",
        )
    if optimizer.keeps_scaled:
        raise check.value_error(
            "scaledOptimizerState and automaticLossScaling are not compatible.", "leave one away"
        )


def _is_float16(model: ConvertedGraph, name: str) -> bool:
    aval = model.avals.get(name, model.variables.get(name))
    return aval is not None and aval.dtype == jnp.float16
