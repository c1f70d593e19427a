"""The optimizer LAMB, which torch does not have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import torch

from ipujax.poptorch.optim.attributes import Optimizer, drop_none_arguments
from ipujax.poptorch.optim.host_optimizer import compute_adam_direction, step_on_host
from ipujax.poptorch.optim.torch_optimizers import MOMENTS
from ipujax.poptorch.poptorch_checks import check

_DEFAULTS: dict[str, object] = {
    "lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 1e-2,
    "max_weight_norm": 65500.0,
}  # fmt: skip


@check.guard
class LAMB(Optimizer):
    """The optimizer LAMB: Adam with steps as long as each parameter (You et al., 1904.00962).

    Args:
      params: parameters, or groups of them.
      lr: learning rate, 1e-3 by default.
      betas: the rates of the moving averages, (0.9, 0.999) by default.
      eps: 1e-8 by default.
      weight_decay: 1e-2 by default.
      bias_correction: True by default; without it the moving averages are taken as they are.
      loss_scaling: 1 by default.
      max_weight_norm: the longest step before it is multiplied by the learning rate, 65 500 by
        default.
      accum_type: the dtype of accumulated gradients, torch.float32 (default) or torch.float16.
      first_order_momentum_accum_type: the dtype of first moments, likewise.
      second_order_momentum_accum_type: the dtype of second moments, likewise.
    """

    own_defaults: ClassVar[Mapping[str, Any]] = {**MOMENTS, "bias_correction": True}

    bias_correction: bool

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | None = None,
        betas: tuple[float, float] | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
        bias_correction: bool | None = None,
        loss_scaling: float | None = None,
        max_weight_norm: float | None = None,
        accum_type: torch.dtype | None = None,
        first_order_momentum_accum_type: torch.dtype | None = None,
        second_order_momentum_accum_type: torch.dtype | None = None,
    ) -> None:
        torch_arguments = drop_none_arguments(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, max_weight_norm=max_weight_norm
        )
        torch.optim.Optimizer.__init__(self, params, {**_DEFAULTS, **torch_arguments})
        self._set_poptorch_attributes(
            torch_arguments, bias_correction=bias_correction, loss_scaling=loss_scaling,
            accum_type=accum_type, first_order_momentum_accum_type=first_order_momentum_accum_type,
            second_order_momentum_accum_type=second_order_momentum_accum_type,
        )  # fmt: skip

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Steps parameters that have gradients on the host."""
        return step_on_host(self, self._apply_lamb_step, closure)

    def _apply_lamb_step(
        self, parameter: torch.Tensor, gradient: torch.Tensor, group: Mapping[str, Any]
    ) -> None:
        change = compute_adam_direction(
            self.state[parameter], gradient, group, self.bias_correction
        )
        change += group["weight_decay"] * parameter
        length, norm = change.norm(), parameter.norm().clamp(max=group["max_weight_norm"])
        trust = norm / length if norm > 0 and length > 0 else 1.0
        parameter.sub_(group["lr"] * trust * change)
