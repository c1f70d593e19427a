"""Primitive neural network operators of Popnn (seed 001, 18.14.7)."""

from __future__ import annotations

from ipujax.operators import ctc_beam_search_decoder as ctc_beam_search_decoder
from ipujax.operators import (
    ctc_beam_search_decoder_with_log_probs as ctc_beam_search_decoder_with_log_probs,
)
from ipujax.operators import ctc_loss as ctc_loss
from ipujax.operators import ctc_loss_v2 as ctc_loss_v2
from ipujax.operators import ctc_loss_with_log_probs as ctc_loss_with_log_probs
from ipujax.operators import ctc_loss_with_logits as ctc_loss_with_logits
from ipujax.operators import gelu as gelu
from ipujax.operators import hard_sigmoid as hard_sigmoid
from ipujax.operators import log_uniform_candidate_sampler as log_uniform_candidate_sampler
from ipujax.operators import multi_conv as multi_conv
from ipujax.operators import nce_loss as nce_loss
from ipujax.operators import sampled_softmax_loss as sampled_softmax_loss
from ipujax.operators import swish as swish

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
