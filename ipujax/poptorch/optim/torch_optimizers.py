"""The optimizers of `poptorch.optim`: torch's, with the arguments that PopTorch adds to them.

Their formulas are torch's; on the IPU they are computed in float32. Arguments of all optimizers:

* `loss_scaling`: the loss is multiplied by it, and its gradients are divided again before the
  formula sees them. It keeps small gradients of float16 models; in float32 it changes nothing.
* `accum_type`: the dtype in which the gradients of micro-batches are added up.
* `first_order_momentum_accum_type`, `second_order_momentum_accum_type`: the dtypes in which the
  moments are kept.
* `max_grad_norm`: all gradients together are made shorter where their norm is larger, as
  `torch.nn.utils.clip_grad_norm_` does.
* `foreach`, `capturable`, `differentiable` and `fused` say how torch itself is to compute, and
  change nothing on the IPU.

Arguments that are given are variable, see `VariableAttributes`; `None` stands for the default. On
the host `step()` is torch's, and uses only `bias_correction` of PopTorch's arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import torch

from ipujax.poptorch.optim.attributes import (
    Optimizer,
    drop_none_arguments,
)
from ipujax.poptorch.optim.host_optimizer import compute_adam_direction, step_on_host
from ipujax.poptorch.poptorch_checks import check
from ipujax.poptorch.poptorch_log import logger

MOMENTS = {
    "loss_scaling": 1.0,
    "accum_type": torch.float32,
    "first_order_momentum_accum_type": torch.float32,
    "second_order_momentum_accum_type": torch.float32,
}
"""The attributes that PopTorch adds to optimizers with two moments, with their defaults."""


@check.guard
class SGD(Optimizer, torch.optim.SGD):
    """The optimizer SGD with momentum, as `torch.optim.SGD`.

    Args:
      params: parameters, or groups of them.
      lr: learning rate.
      momentum: 0 by default.
      dampening: 0 by default.
      weight_decay: an L2 penalty, 0 by default.
      nesterov: False by default.
      maximize: False by default.
      foreach: changes nothing.
      differentiable: changes nothing.
      loss_scaling: 1 by default.
      velocity_scaling: 1 by default; may be set per group. Changes nothing: velocities are kept
        as they are, in a dtype of their own, which needs no scale.
      use_combined_accum: False by default. Changes nothing but where `velocity_scaling` is
        looked for: gradients of micro-batches and velocities are always in two tensors, which
        gives the same numbers.
      accum_type: the dtype of accumulated gradients, torch.float32 (default) or torch.float16.
      velocity_accum_type: the dtype of velocities, likewise.
      max_grad_norm: infinite by default.
    """

    own_defaults: ClassVar[Mapping[str, Any]] = {
        "loss_scaling": 1.0,
        "use_combined_accum": False,
        "accum_type": torch.float32,
        "velocity_accum_type": torch.float32,
        "max_grad_norm": math.inf,
    }

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        momentum: float | None = None,
        dampening: float | None = None,
        weight_decay: float | None = None,
        nesterov: bool | None = None,
        maximize: bool | None = None,
        foreach: bool | None = None,
        differentiable: bool | None = None,
        loss_scaling: float | None = None,
        velocity_scaling: float | None = None,
        use_combined_accum: bool | None = None,
        accum_type: torch.dtype | None = None,
        velocity_accum_type: torch.dtype | None = None,
        max_grad_norm: float | None = None,
    ) -> None:
        torch_arguments = drop_none_arguments(
            lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay,
            nesterov=nesterov, maximize=maximize, foreach=foreach, differentiable=differentiable,
        )  # fmt: skip
        torch.optim.SGD.__init__(self, params, **torch_arguments)
        if velocity_scaling is not None and not use_combined_accum:
            logger.warning("velocity_scaling is ignored, because use_combined_accum is False")
        if use_combined_accum:
            scaling = 1.0 if velocity_scaling is None else velocity_scaling
            self.defaults["velocity_scaling"] = scaling
            for group in self.param_groups:
                group.setdefault("velocity_scaling", scaling)
        self._set_poptorch_attributes(
            torch_arguments, loss_scaling=loss_scaling, velocity_scaling=velocity_scaling,
            use_combined_accum=use_combined_accum, accum_type=accum_type,
            velocity_accum_type=velocity_accum_type, max_grad_norm=max_grad_norm,
        )  # fmt: skip


@check.guard
class Adam(Optimizer, torch.optim.Adam):
    """The optimizer Adam, as `torch.optim.Adam`.

    Args:
      params: parameters, or groups of them.
      lr: learning rate, 1e-3 by default.
      betas: of the moving averages, (0.9, 0.999) by default.
      eps: 1e-8 by default.
      weight_decay: an L2 penalty, 0 by default.
      amsgrad: False by default.
      foreach: changes nothing.
      maximize: False by default.
      capturable: changes nothing.
      differentiable: changes nothing.
      fused: changes nothing.
      loss_scaling: 1 by default.
      accum_type: torch.float32 by default, or torch.float16.
      first_order_momentum_accum_type: the same.
      second_order_momentum_accum_type: the same.
      max_grad_norm: infinite by default.
    """

    own_defaults: ClassVar[Mapping[str, Any]] = {**MOMENTS, "max_grad_norm": math.inf}

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | None = None,
        betas: tuple[float, float] | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
        amsgrad: bool | None = None,
        foreach: bool | None = None,
        maximize: bool | None = None,
        capturable: bool | None = None,
        differentiable: bool | None = None,
        fused: bool | None = None,
        loss_scaling: float | None = None,
        accum_type: torch.dtype | None = None,
        first_order_momentum_accum_type: torch.dtype | None = None,
        second_order_momentum_accum_type: torch.dtype | None = None,
        max_grad_norm: float | None = None,
    ) -> None:
        torch_arguments = drop_none_arguments(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad,
            foreach=foreach, maximize=maximize, capturable=capturable,
            differentiable=differentiable, fused=fused,
        )  # fmt: skip
        torch.optim.Adam.__init__(self, params, **torch_arguments)
        self._set_poptorch_attributes(
            torch_arguments, loss_scaling=loss_scaling, accum_type=accum_type,
            first_order_momentum_accum_type=first_order_momentum_accum_type,
            second_order_momentum_accum_type=second_order_momentum_accum_type,
            max_grad_norm=max_grad_norm,
        )  # fmt: skip


@check.guard
class AdamW(Optimizer, torch.optim.AdamW):
    """The optimizer AdamW, as `torch.optim.AdamW`: Adam with decoupled weight decay.

    Args:
      params: parameters, or groups of them.
      lr: learning rate, 1e-3 by default.
      betas: of the moving averages, (0.9, 0.999) by default.
      eps: 1e-8 by default.
      weight_decay: 1e-2 by default.
      amsgrad: False by default.
      maximize: False by default.
      foreach: changes nothing.
      capturable: changes nothing.
      differentiable: changes nothing.
      fused: changes nothing.
      loss_scaling: 1 by default.
      bias_correction: True by default; without it the moving averages are taken as they are.
      accum_type: torch.float32 by default, or torch.float16.
      first_order_momentum_accum_type: the same.
      second_order_momentum_accum_type: the same.
      max_grad_norm: infinite by default.
    """

    own_defaults: ClassVar[Mapping[str, Any]] = {
        **MOMENTS,
        "bias_correction": True,
        "max_grad_norm": math.inf,
    }

    bias_correction: bool

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | None = None,
        betas: tuple[float, float] | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
        amsgrad: bool | None = None,
        maximize: bool | None = None,
        foreach: bool | None = None,
        capturable: bool | None = None,
        differentiable: bool | None = None,
        fused: bool | None = None,
        loss_scaling: float | None = None,
        bias_correction: bool | None = None,
        accum_type: torch.dtype | None = None,
        first_order_momentum_accum_type: torch.dtype | None = None,
        second_order_momentum_accum_type: torch.dtype | None = None,
        max_grad_norm: float | None = None,
    ) -> None:
        torch_arguments = drop_none_arguments(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad,
            maximize=maximize, foreach=foreach, capturable=capturable,
            differentiable=differentiable, fused=fused,
        )  # fmt: skip
        torch.optim.AdamW.__init__(self, params, **torch_arguments)
        self._set_poptorch_attributes(
            torch_arguments, loss_scaling=loss_scaling, bias_correction=bias_correction,
            accum_type=accum_type, first_order_momentum_accum_type=first_order_momentum_accum_type,
            second_order_momentum_accum_type=second_order_momentum_accum_type,
            max_grad_norm=max_grad_norm,
        )  # fmt: skip

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Steps parameters on the host as torch does, also with `bias_correction=False`."""
        if self.bias_correction:
            return super().step(closure)
        return step_on_host(self, self._apply_adamw_step, closure)

    def _apply_adamw_step(
        self, parameter: torch.Tensor, gradient: torch.Tensor, group: Mapping[str, Any]
    ) -> None:
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        change = compute_adam_direction(self.state[parameter], gradient, group, corrects_bias=False)
        parameter.sub_(group["lr"] * change)


@check.guard
class RMSprop(Optimizer, torch.optim.RMSprop):
    """The optimizer RMSprop, as `torch.optim.RMSprop`; or as TensorFlow computes it.

    TensorFlow's mean square begins with ones, its `eps` is under the root, and its velocities have
    the learning rate in them.

    Args:
      params: parameters, or groups of them.
      lr: learning rate, 1e-2 by default.
      alpha: the rate of the moving averages, 0.99 by default.
      eps: 1e-8 by default.
      weight_decay: an L2 penalty, 0 by default.
      momentum: 0 by default.
      centered: False by default; else gradients are divided by their deviation.
      foreach: changes nothing.
      maximize: False by default.
      differentiable: changes nothing.
      loss_scaling: 1 by default.
      accum_type: torch.float32 by default, or torch.float16.
      first_order_momentum_accum_type: the same.
      second_order_momentum_accum_type: the same.
      use_tf_variant: False by default.
    """

    own_defaults: ClassVar[Mapping[str, Any]] = {**MOMENTS, "use_tf_variant": False}

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | None = None,
        alpha: float | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
        momentum: float | None = None,
        centered: bool | None = None,
        foreach: bool | None = None,
        maximize: bool | None = None,
        differentiable: bool | None = None,
        loss_scaling: float | None = None,
        accum_type: torch.dtype | None = None,
        first_order_momentum_accum_type: torch.dtype | None = None,
        second_order_momentum_accum_type: torch.dtype | None = None,
        use_tf_variant: bool | None = None,
    ) -> None:
        torch_arguments = drop_none_arguments(
            lr=lr, alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum,
            centered=centered, foreach=foreach, maximize=maximize, differentiable=differentiable,
        )  # fmt: skip
        torch.optim.RMSprop.__init__(self, params, **torch_arguments)
        self._set_poptorch_attributes(
            torch_arguments, loss_scaling=loss_scaling, accum_type=accum_type,
            first_order_momentum_accum_type=first_order_momentum_accum_type,
            second_order_momentum_accum_type=second_order_momentum_accum_type,
            use_tf_variant=use_tf_variant,
        )  # fmt: skip
