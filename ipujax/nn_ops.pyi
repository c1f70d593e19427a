from .operators import ctc_beam_search_decoder as ctc_beam_search_decoder
from .operators import (
    ctc_beam_search_decoder_with_log_probs as ctc_beam_search_decoder_with_log_probs,
)
from .operators import ctc_loss as ctc_loss
from .operators import ctc_loss_v2 as ctc_loss_v2
from .operators import ctc_loss_with_log_probs as ctc_loss_with_log_probs
from .operators import ctc_loss_with_logits as ctc_loss_with_logits
from .operators import gelu as gelu
from .operators import hard_sigmoid as hard_sigmoid
from .operators import log_uniform_candidate_sampler as log_uniform_candidate_sampler
from .operators import multi_conv as multi_conv
from .operators import nce_loss as nce_loss
from .operators import sampled_softmax_loss as sampled_softmax_loss
from .operators import swish as swish
