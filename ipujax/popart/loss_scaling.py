"""Automatic loss scaling, as a session's options ask for it: which gradients count."""

from __future__ import annotations

import dataclasses as dc

import jax
import jax.numpy as jnp

from ipujax.doors.graphs import CountedOperators, Node, Operators
from ipujax.frontends.onnx.model import Converted
from ipujax.frontends.onnx.operators import ONNX
from ipujax.popart.checks import check
from ipujax.popart.optimizers import Optimizer
from ipujax.popart.options import GradientTensorTrackingMethod, SessionOptions
from ipujax.popart.placed import Placed
from ipujax.training.loss_scaling import Factors, LossScaling

FINAL_SCALE = "finalLossScale"
"""By what the loss is multiplied in the end; it can be anchored."""

_TRANSFORM = "[AutomaticLossScale transform]"
_VIEWS = frozenset(
    "DepthToSpace Flatten Identity Reshape Slice SpaceToDepth Split Squeeze Transpose Unsqueeze "
    "ai.graphcore.reshape ai.graphcore.detach ai.graphcore.slice".split()
)
"""Operators whose gradients have the same elements as those of their results."""

_PRODUCTS = frozenset("Conv ConvTranspose Einsum Gemm MatMul ai.graphcore.multiconv".split())

Named = dict[str, jax.Array]


@dc.dataclass(frozen=True)
class Tracking:
    """The gradients that are counted, in float16 alone, and the factors that follow from them.

    Attributes:
      settings: what is counted, and when.
      placed: where the nodes of the model run.
      method: which operators' operands count.
      tensors: those that do, if the user names them.
    """

    settings: LossScaling
    placed: Placed
    method: GradientTensorTrackingMethod
    tensors: frozenset[str] = frozenset()

    @property
    def factors(self) -> Factors:
        """Those of the model."""
        return Factors(self.settings, len(self.placed.ipus) if self.placed.is_pipelined else 1)

    def counts(self, node: Node, operand: str) -> bool:
        """Whether the gradient of a node's operand counts."""
        name = node.operator.rpartition("-")[0]
        match self.method:
            case GradientTensorTrackingMethod.GradientsOfUserSpecifiedTensors:
                return operand in self.tensors
            case GradientTensorTrackingMethod.ConvAndMatmulGradients:
                return name in _PRODUCTS
            case _:
                return name not in _VIEWS

    def operators(self, variables: Named) -> Operators:
        """ONNX's operators, which count."""

        def factor_of(node: Node) -> jax.Array | None:
            return self.factors.of(self.placed.stage(node), variables)

        return CountedOperators(ONNX, self.counts, factor_of, self.settings)


def tracking_of(
    options: SessionOptions, optimizer: Optimizer | None, model: Converted, placed: Placed
) -> Tracking | None:
    """What the options say; None without automatic loss scaling.

    Raises:
      PopARTError: (a `ValueError`) an option that cannot be, an optimizer whose loss scaling is
        constant, or a model whose gradients are not in float16.
    """
    told = options.automaticLossScalingSettings
    if not told.enabled:
        return None
    _check_session(options, optimizer)
    settings = LossScaling(
        told.binEdgeLocation, told.thresholdUpperCountProportion, told.updatePeriod
    )
    settings.check_ranges(check)
    by_user = GradientTensorTrackingMethod.GradientsOfUserSpecifiedTensors
    method = check.instance(
        told.gradientTensorTrackingMethod, GradientTensorTrackingMethod, "the tracking method"
    )
    if (told.toTrackTensors is None) == (method is by_user):
        raise check.refuse(
            f"{_TRANSFORM} toTrackTensors is {told.toTrackTensors}, and the "
            f"gradientTensorTrackingMethod is {method.name}",
            f"set toTrackTensors and {by_user}, or neither",
        )
    tracking = Tracking(settings, placed, method, frozenset(told.toTrackTensors or ()))
    nodes = model.graph.nodes
    if not any(
        _is_half(model, n) and tracking.counts(node, n) for node in nodes for n in node.reads
    ):
        raise check.refuse(
            f"{_TRANSFORM} No tracked gradient tensors of type fp16 were found.",
            "compute in FLOAT16, or leave automatic loss scaling away: FLOAT needs none",
        )
    return tracking


def _check_session(options: SessionOptions, optimizer: Optimizer | None) -> None:
    if optimizer is None:
        raise check.refuse(
            f"{_TRANSFORM} Only compatible when doing training",
            "leave automaticLossScalingSettings.enabled at False",
        )
    if optimizer.values["lossScaling"].getDefault().constant:
        raise check.refuse(
            f"{_TRANSFORM} The optimizer must have non-const loss scaling",
            'say {"lossScaling": (1.0, False)}',
        )
    if options.enablePipelining and not options.enableGradientAccumulation:
        raise check.refuse(
            f"{_TRANSFORM} Automatic loss scaling is not currently supported when the "
            "'enablePipelining' SessionOption is set to 'true', but the "
            "'enableGradientAccumulation' SessionOption is set to 'false'",
            "set both",
        )
    if optimizer.keeps_scaled:
        raise check.refuse(
            "scaledOptimizerState and automaticLossScaling are not compatible.", "leave one away"
        )


def _is_half(model: Converted, name: str) -> bool:
    aval = model.avals.get(name, model.variables.get(name))
    return aval is not None and aval.dtype == jnp.float16
