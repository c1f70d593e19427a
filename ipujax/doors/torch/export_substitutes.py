"""Substitutes for PyTorch functions that `torch.export` cannot trace."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.distributions import Distribution
from torch.nn.modules import transformer
from torch.overrides import TorchFunctionMode

from ipujax.doors.models import check

_REDUCTIONS = ("none", "mean", "sum")


@torch.library.custom_op("ipujax::ctc_loss", mutates_args=())
def _ctc_loss(
    logs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: torch.Tensor,
    target_lengths: torch.Tensor,
    blank: int,
    reduction: int,
    zero_infinity: bool,
) -> torch.Tensor:
    """Computes `torch.ctc_loss` as an operator whose shape does not depend on the lengths."""
    return torch.ctc_loss(
        logs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity
    )


@_ctc_loss.register_fake
def _(logs: torch.Tensor, *args: Any) -> torch.Tensor:
    is_batch, reduction = logs.ndim == 3, args[4]
    return logs.new_empty(logs.shape[1] if is_batch and reduction == 0 else ())


def _ctc_loss_traceable(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: object,
    target_lengths: object,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> torch.Tensor:
    lengths = (torch.as_tensor(length) for length in (input_lengths, target_lengths))
    number = _REDUCTIONS.index(reduction)
    return _ctc_loss(log_probs, targets, *lengths, blank, number, zero_infinity)


def _gaussian_nll_loss_traceable(
    input: torch.Tensor,
    target: torch.Tensor,
    var: object,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> torch.Tensor:
    """Computes `F.gaussian_nll_loss` without the check that no variance is negative."""
    variance = torch.as_tensor(var, dtype=input.dtype)
    if variance.shape == input.shape[:-1] and variance.shape != input.shape:
        variance = variance.unsqueeze(-1)
    # The clamp has a derivative of one everywhere.
    variance = variance + (variance.clamp(min=eps) - variance).detach()
    losses = 0.5 * (variance.log() + (input - target) ** 2 / variance)
    if full:
        losses = losses + 0.9189385332046727  # half of the logarithm of 2 pi
    return losses if reduction == "none" else getattr(losses, reduction)()


def _bincount_traceable(
    input: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0
) -> torch.Tensor:
    """Counts values with exactly `minlength` bins, since a static graph has no more."""
    if minlength < 1:
        raise check.value_error(
            "Bincount `minlength` must be specified and must be a constant. On the IPU MK2 "
            "platform the minimum length is also the maximum length"
        )
    if weights is None:
        weights = torch.ones_like(input, dtype=torch.int64)
    elif weights.dtype != torch.float32:
        weights = weights.double()
    return weights.new_zeros(minlength).scatter_add(0, input.long(), weights)


def _combinations_traceable(
    input: torch.Tensor, r: int = 2, with_replacement: bool = False
) -> torch.Tensor:
    """Computes `torch.combinations` by indices, without PyTorch's data-dependent mask."""
    if r == 0:
        return input.new_empty(0)
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    chosen = torch.tensor(list(choose(range(len(input)), r)), dtype=torch.int64)
    return input[chosen.reshape(-1, r)]


def _linear_cross_entropy_at_once(
    *args: Any, options: object = None, **kwargs: Any
) -> torch.Tensor:
    """Computes the loss at once; `options` only say how to split it into chunks."""
    return F.linear_cross_entropy(*args, **kwargs)


def _is_causal_hint(mask: object, is_causal: bool | None = None, size: int | None = None) -> bool:
    """Returns whether the caller says that a mask is causal: a hint, the mask is applied anyway."""
    return bool(is_causal)


_SUBSTITUTES: dict[object, Callable[..., object]] = {
    F.ctc_loss: _ctc_loss_traceable,
    F.gaussian_nll_loss: _gaussian_nll_loss_traceable,
    torch.bincount: _bincount_traceable,
    torch.Tensor.bincount: _bincount_traceable,
    torch.combinations: _combinations_traceable,
}
if hasattr(F, "linear_cross_entropy"):  # missing in older releases
    _SUBSTITUTES[F.linear_cross_entropy] = _linear_cross_entropy_at_once


class _SubstituteFunctions(TorchFunctionMode):
    def __torch_function__(
        self,
        func: object,
        types: object,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        call: Any = _SUBSTITUTES.get(func, func)
        return call(*args, **(kwargs or {}))


@contextlib.contextmanager
def substitute_untraceable() -> Generator[None]:
    """Replaces functions that read tensor values, and disables checks of distributions."""
    validates_distributions = Distribution._validate_args  # pyright: ignore[reportPrivateUsage]
    Distribution.set_default_validate_args(False)
    original_detect = transformer._detect_is_causal_mask  # pyright: ignore[reportPrivateUsage]
    transformer._detect_is_causal_mask = _is_causal_hint  # pyright: ignore[reportPrivateUsage]
    try:
        with _SubstituteFunctions(), silence_export_warnings():
            yield
    finally:
        transformer._detect_is_causal_mask = original_detect  # pyright: ignore[reportPrivateUsage]
        Distribution.set_default_validate_args(validates_distributions)


@contextlib.contextmanager
def silence_export_warnings() -> Generator[None]:
    """Silences warnings that `torch.export` causes itself, such as those of recurrent layers."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning)
        warnings.filterwarnings("ignore", "The tensor attributes? .* assigned during export")
        yield
