"""PopART's CTC operators (connectionist temporal classification): loss and decoder."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ipujax.doors.graphs import Call
from ipujax.doors.kernels import LOG_ZERO, ctc_losses
from ipujax.doors.models import check
from ipujax.doors.onnx.dtypes import dtype_of_onnx_type
from ipujax.doors.onnx.operators.graphcore_losses import reduce_losses
from ipujax.doors.onnx.operators.table import operator

Array = jax.Array


@operator("ai.graphcore.Ctc", takes_call=True)
def ctc_loss(
    call: Call,
    logs: Array,
    targets: Array,
    lengths: Array,
    target_lengths: Array,
    reduction: str = "Mean",
    blank: int = 0,
    outDataType: int = 0,
    zeroInfinity: int = 0,
) -> Array | tuple[Array, Array]:
    """Computes the CTC loss; a node of two results also gets the gradient.

    Args:
      call: the call of the node.
      logs: logarithms of probabilities, [time, batch, classes].
      targets: labels, [batch, maximum number of labels].
      lengths: the lengths of the sequences, [batch].
      target_lengths: the number of labels of each sequence, [batch].
      reduction: `Mean` divides by the numbers of labels before it takes the mean.
      blank: the class that stands for no label.
      outDataType: the ONNX type of the loss; 0 for the type of the logarithms.
      zeroInfinity: whether sequences that are too short for their labels have loss 0; otherwise
        their loss is infinite. Their gradient is 0 either way.

    Returns:
      The loss, and the gradient of the sum of the losses with respect to `logs`.
    """
    logs, counts = jnp.asarray(logs), jnp.asarray(target_lengths).astype(jnp.int32)
    wide_logs, dtype = (
        jnp.asarray(logs, jnp.float32),
        dtype_of_onnx_type(outDataType) if outDataType else logs.dtype,
    )
    labels = jnp.asarray(targets).astype(jnp.int32)

    def losses_of_samples(wide: Array) -> Array:
        raw_losses = ctc_losses(wide, labels, jnp.asarray(lengths), counts, blank)
        return jnp.where(raw_losses < -LOG_ZERO / 2, raw_losses, 0 if zeroInfinity else jnp.inf)

    sample_losses = losses_of_samples(wide_logs)
    if reduction == "Mean":
        sample_losses = sample_losses / jnp.maximum(counts, 1)
    loss = reduce_losses(sample_losses, reduction).astype(dtype)
    if len(call.node.results) == 1:
        return loss
    return loss, jax.grad(lambda wide: losses_of_samples(wide).sum())(wide_logs).astype(dtype)


class _Beams(NamedTuple):
    """The W likeliest label prefixes of a beam search.

    Attributes:
      labels: the labels of each prefix, [W, time].
      counts: the number of labels of each prefix, [W].
      ends_blank: log probabilities that the last class read is a blank, [W].
      ends_label: log probabilities that the last class read is the last label, [W].
    """

    labels: Array
    counts: Array
    ends_blank: Array
    ends_label: Array


@operator("ai.graphcore.CtcBeamSearchDecoder")
def ctc_beam_search_decoder(
    logs: Array, lengths: Array, blank: int = 0, beam_width: int = 100, top_paths: int = 1
) -> tuple[Array, Array, Array]:
    """Finds the likeliest labels of sequences by a beam search over prefixes.

    Args:
      logs: logarithms of probabilities, [time, batch, classes].
      lengths: the lengths of the sequences, [batch].
      blank: the class that stands for no label.
      beam_width: the number of prefixes that are kept.
      top_paths: the number of decodings that are returned; at most `beam_width`.

    Returns:
      Logarithms of probabilities [batch, top_paths], numbers of labels [batch, top_paths], and
      labels [batch, top_paths, time], padded with 0.
    """
    if not 0 < top_paths <= beam_width:
        raise check.value_error(
            f"top_paths is {top_paths}, and beam_width {beam_width}",
            "give no more paths than there are beams",
        )
    logs = jnp.asarray(logs)

    def decode_sequence(rows: Array, length: Array) -> tuple[Array, Array, Array]:
        def advance_decoder_beams(beams: _Beams, entry: tuple[Array, Array]) -> tuple[_Beams, None]:
            time, row = entry
            next_beams = _extend_label_beams(beams, row, blank)
            return jax.tree.map(
                lambda a, b: jnp.where(time < length, a, b), next_beams, beams
            ), None

        none = jnp.full(beam_width, -jnp.inf)
        labels = jnp.zeros((beam_width, len(rows)), jnp.int32)
        counts = jnp.zeros(beam_width, jnp.int32)
        start = _Beams(labels, counts, none.at[0].set(0.0), none)
        beams, _ = jax.lax.scan(advance_decoder_beams, start, (jnp.arange(len(rows)), rows))
        total = jnp.logaddexp(beams.ends_blank, beams.ends_label)
        return total[:top_paths], beams.counts[:top_paths], beams.labels[:top_paths]

    total, counts, labels = jax.vmap(decode_sequence, (1, 0))(
        logs.astype(jnp.float32), jnp.asarray(lengths)
    )
    return total.astype(logs.dtype), counts.astype(jnp.uint32), labels.astype(jnp.uint32)


def _extend_label_beams(beams: _Beams, row: Array, blank: int) -> _Beams:
    """Returns the likeliest prefixes after one more class has been read."""
    width, classes = len(beams.counts), len(row)
    total = jnp.logaddexp(beams.ends_blank, beams.ends_label)
    positions = jnp.arange(beams.labels.shape[1])
    last = jnp.where(beams.counts > 0, beams.labels[jnp.arange(width), beams.counts - 1], -1)
    repeats_last = jnp.arange(classes) == last[:, None]
    # Prefixes with one more label: [W, classes]. A repeated label needs a blank in between.
    extended = jnp.where(repeats_last, beams.ends_blank[:, None], total[:, None]) + row
    extended = extended.at[:, blank].set(-jnp.inf)
    ends_blank = total + row[blank]
    ends_label = jnp.where(beams.counts > 0, beams.ends_label + row[last], -jnp.inf)

    # An extended prefix may equal another beam: [W, W], whether the row's beam begins the column's.
    is_before = positions < beams.counts[:, None, None]
    agree = (beams.labels[:, None] == beams.labels[None]) | ~is_before
    is_prefix = agree.all(-1) & (beams.counts[:, None] + 1 == beams.counts) & jnp.isfinite(total)
    merged = jnp.where(is_prefix, extended[:, last], -jnp.inf)
    ends_label = jnp.logaddexp(ends_label, jax.nn.logsumexp(merged, 0))
    is_merged = (is_prefix[:, :, None] & (jnp.arange(classes) == last[:, None])[None]).any(1)
    extended = jnp.where(is_merged, -jnp.inf, extended)

    scores = jnp.concatenate([jnp.logaddexp(ends_blank, ends_label), extended.ravel()])
    _, best = jax.lax.top_k(scores, width)
    is_longer = best >= width
    source = jnp.where(is_longer, (best - width) // classes, best)
    label, counts = (best - width) % classes, beams.counts[source]
    is_new_label = is_longer[:, None] & (positions == counts[:, None])
    return _Beams(
        jnp.where(is_new_label, label[:, None], beams.labels[source]),
        counts + is_longer,
        jnp.where(is_longer, -jnp.inf, ends_blank[source]),
        jnp.where(is_longer, scores[best], ends_label[source]),
    )
