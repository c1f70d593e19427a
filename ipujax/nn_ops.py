"""Primitive neural network operators of Popnn (seed 001, 18.14.7)."""

from __future__ import annotations

from ipujax.operators.nn.activations import gelu as gelu
from ipujax.operators.nn.activations import hard_sigmoid as hard_sigmoid
from ipujax.operators.nn.activations import swish as swish
from ipujax.operators.nn.candidates import (
    log_uniform_candidate_sampler as log_uniform_candidate_sampler,
)
from ipujax.operators.nn.ctc_decoder import ctc_beam_search_decoder as ctc_beam_search_decoder
from ipujax.operators.nn.ctc_decoder import (
    ctc_beam_search_decoder_with_log_probs as ctc_beam_search_decoder_with_log_probs,
)
from ipujax.operators.nn.ctc_loss import ctc_loss as ctc_loss
from ipujax.operators.nn.ctc_loss import ctc_loss_v2 as ctc_loss_v2
from ipujax.operators.nn.ctc_loss import ctc_loss_with_log_probs as ctc_loss_with_log_probs
from ipujax.operators.nn.ctc_loss import ctc_loss_with_logits as ctc_loss_with_logits
from ipujax.operators.nn.multi_conv import multi_conv as multi_conv
from ipujax.operators.nn.sampled_losses import nce_loss as nce_loss
from ipujax.operators.nn.sampled_losses import sampled_softmax_loss as sampled_softmax_loss

__all__ = [
    "ctc_beam_search_decoder",
    "ctc_beam_search_decoder_with_log_probs",
    "ctc_loss",
    "ctc_loss_v2",
    "ctc_loss_with_log_probs",
    "ctc_loss_with_logits",
    "gelu",
    "hard_sigmoid",
    "log_uniform_candidate_sampler",
    "multi_conv",
    "nce_loss",
    "sampled_softmax_loss",
    "swish",
]


def __dir__() -> list[str]:
    return __all__
