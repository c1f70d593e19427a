"""CTC decoders: the most probable labels, by beam search."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike, DTypeLike

from ipujax.ground import check
from ipujax.operators.nn import beam_search, ctc_arguments

_NAME = "ctc_beam_search"

Decoded = tuple[jax.Array, jax.Array, jax.Array]


@check.guard
def ctc_beam_search_decoder(
    logits: ArrayLike,
    logits_lengths: ArrayLike,
    beam_width: int = 100,
    top_paths: int = 1,
    blank_index: int = -1,
    name: str | None = None,
) -> Decoded:
    """Finds the most probable labels of logits, by beam search over prefixes.

    Seed 001, 18.14.7; facts ctc.beam_best and ctc.beam_shapes. It finds the best labels for
    certain when no more than `beam_width` prefixes are ever possible. All is computed in float32.

    Args:
      logits: `[max_time, batch_size, num_classes]`, float16 or float32.
      logits_lengths: `[batch_size]` integers, the valid time steps.
      beam_width: how many prefixes are followed.
      top_paths: how many labels are returned, at most `beam_width`.
      blank_index: the class of blanks; a negative one counts from the last class.
      name: the operation's named scope, "ctc_beam_search" by default.

    Returns:
      Log probabilities `[batch_size, top_paths]` of the logits' dtype, the best first (positive
      numbers are not returned, whatever the seed calls them); lengths `[batch_size, top_paths]`
      int32; and classes `[batch_size, top_paths, max_time]` int32, -1 after the end of a label.
      Where there are fewer labels than asked for, log probabilities are minus infinity. Lengths
      of data below 0 or beyond `max_time` that are only known at run time make the log
      probabilities NaN.

    Raises:
      ConfigTypeError: (a `TypeError`) arrays or numbers of wrong types.
      OperatorError: (a `ValueError`) shapes that do not fit, a blank index outside the classes,
        a beam width or a number of paths below 1, more paths than beams, or a length below 0 or
        beyond `max_time` that is known while tracing.
    """
    operator = "ctc_beam_search_decoder"
    array = ctc_arguments.check_time_major(logits, f"the logits of {operator}")
    with check.operator_scope(name or _NAME):
        log_probs = ctc_arguments.log_probabilities(array)
        lengths, width = logits_lengths, beam_width
        return _decode_log_probs(
            operator, log_probs, lengths, width, top_paths, blank_index, array.dtype
        )


@check.guard
def ctc_beam_search_decoder_with_log_probs(
    log_probs: ArrayLike,
    input_lengths: ArrayLike,
    beam_width: int = 100,
    top_paths: int = 1,
    blank_index: int = -1,
    name: str | None = None,
) -> Decoded:
    """Finds the most probable labels of log probabilities, as `ctc_beam_search_decoder`.

    Args:
      log_probs: `[max_time, batch_size, num_classes]` natural logarithms of probabilities, float16
        or float32.
      input_lengths: `[batch_size]` integers, the valid time steps.
      beam_width: as there.
      top_paths: as there.
      blank_index: as there.
      name: as there.

    Returns:
      As there.

    Raises:
      ConfigTypeError: (a `TypeError`) as there.
      OperatorError: (a `ValueError`) as there.
    """
    operator = "ctc_beam_search_decoder_with_log_probs"
    array = ctc_arguments.check_time_major(log_probs, f"the log probabilities of {operator}")
    with check.operator_scope(name or _NAME):
        wide = array.astype(jnp.float32)
        lengths, width = input_lengths, beam_width
        return _decode_log_probs(
            operator, wide, lengths, width, top_paths, blank_index, array.dtype
        )


def _decode_log_probs(
    operator: str,
    log_probs: jax.Array,
    lengths: ArrayLike,
    width: object,
    paths: object,
    blank: object,
    dtype: DTypeLike,
) -> Decoded:
    time, _, classes = log_probs.shape
    index = ctc_arguments.check_blank_index(blank, classes, operator)
    steps = ctc_arguments.check_lengths(
        lengths, log_probs.shape, time, f"the data lengths of {operator}"
    )
    beams = check.require_integer(width, f"beam_width of {operator}", 1)
    count = check.require_integer(paths, f"top_paths of {operator}", 1)
    if count > beams:
        raise check.value_error(
            f"top_paths of {operator} is {count}, but beam_width is only {beams}",
            f"give a beam_width of at least {count}",
        )
    scores, label_lengths, labels = beam_search.search_prefixes(log_probs, steps, beams, index)
    makes_sense = (steps >= 0) & (steps <= time)
    scores = jnp.where(makes_sense[:, None], scores, jnp.nan)
    return scores[:, :count].astype(dtype), label_lengths[:, :count], labels[:, :count]
