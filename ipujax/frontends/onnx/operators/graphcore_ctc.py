"""PopART's own operators of connectionist temporal classification: the loss, and a decoder."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ipujax.doors.graphs import Call
from ipujax.frontends.checks import check
from ipujax.frontends.onnx.dtypes import dtype_of
from ipujax.frontends.onnx.operators.graphcore_losses import reduced
from ipujax.frontends.onnx.operators.table import operator

Array = jax.Array

_IMPOSSIBLE = -1e30  # a logarithm whose sums and differences are finite: gradients of -inf are NaN


@operator("ai.graphcore.Ctc")
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
    """What it costs to read labels in sequences; a node of two results has the gradient, too.

    Args:
      call: the node.
      logs: logarithms of probabilities, [time, batch, classes].
      targets: labels, [batch, most labels].
      lengths: of the sequences, [batch].
      target_lengths: how many labels each has, [batch].
      reduction: `Mean` divides by the numbers of labels before it takes the mean.
      blank: the class that stands for no label.
      outDataType: the type of the loss as ONNX numbers it; 0 for that of the logarithms.
      zeroInfinity: whether sequences that are too short for their labels cost nothing; otherwise
        their loss is infinite. Their gradient is 0 either way.

    Returns:
      The loss, and the gradient of the sum of the losses by `logs`.
    """
    logs, counts = jnp.asarray(logs), jnp.asarray(target_lengths).astype(jnp.int32)
    wide, dtype = (
        jnp.asarray(logs, jnp.float32),
        dtype_of(outDataType) if outDataType else logs.dtype,
    )
    by_sample = jax.vmap(_loss, (1, 0, 0, 0, None))

    def losses(wide: Array) -> Array:
        found = by_sample(wide, jnp.asarray(targets), jnp.asarray(lengths), counts, blank)
        return jnp.where(found < -_IMPOSSIBLE / 2, found, 0 if zeroInfinity else jnp.inf)

    each = losses(wide)
    if reduction == "Mean":
        each = each / jnp.maximum(counts, 1)
    loss = reduced(each, reduction).astype(dtype)
    if len(call.node.results) == 1:
        return loss
    return loss, jax.grad(lambda wide: losses(wide).sum())(wide).astype(dtype)


def _loss(logs: Array, targets: Array, length: Array, count: Array, blank: int) -> Array:
    """Of one sequence: the forward algorithm over labels with blanks around them."""
    labels = jnp.full(2 * len(targets) + 1, blank).at[1::2].set(targets.astype(jnp.int32))
    # A label may follow another one at once, unless they are the same.
    skips = (labels != blank) & (labels != jnp.roll(labels, 2))
    places = jnp.arange(len(labels))

    def step(before: Array, entry: tuple[Array, Array]) -> tuple[Array, None]:
        time, row = entry
        one, two = (_moved(before, by) for by in (1, 2))
        two = jnp.where(skips, two, _IMPOSSIBLE)
        after = jnp.logaddexp(jnp.logaddexp(before, one), two) + row[labels]
        after = jnp.maximum(after, _IMPOSSIBLE)
        return jnp.where(time < length, after, before), None

    first = jnp.where(places <= 1, logs[0][labels], _IMPOSSIBLE)
    start = jnp.where(length > 0, first, jnp.where(places == 0, 0.0, _IMPOSSIBLE))
    last, _ = jax.lax.scan(step, start, (jnp.arange(1, len(logs)), logs[1:]))
    label = jnp.where(count > 0, last[jnp.maximum(2 * count - 1, 0)], _IMPOSSIBLE)
    return -jnp.logaddexp(last[2 * count], label)


def _moved(values: Array, by: int) -> Array:
    return jnp.pad(values, (by, 0), constant_values=_IMPOSSIBLE)[: len(values)]


class _Beams(NamedTuple):
    """The likeliest beginnings, W of them.

    Attributes:
      labels: [W, time].
      counts: how many labels each has, [W].
      ends_blank: the logarithms of the probabilities that the last class read is a blank, [W].
      ends_label: that it is the last label, [W].
    """

    labels: Array
    counts: Array
    ends_blank: Array
    ends_label: Array


@operator("ai.graphcore.CtcBeamSearchDecoder")
def ctc_beam_search_decoder(
    logs: Array, lengths: Array, blank: int = 0, beam_width: int = 100, top_paths: int = 1
) -> tuple[Array, Array, Array]:
    """The likeliest labels of sequences, by a search that keeps some beginnings.

    Args:
      logs: logarithms of probabilities, [time, batch, classes].
      lengths: of the sequences, [batch].
      blank: the class that stands for no label.
      beam_width: how many beginnings are kept.
      top_paths: how many readings are given; at most `beam_width`.

    Returns:
      Logarithms of probabilities [batch, top_paths], numbers of labels [batch, top_paths], and
      labels [batch, top_paths, time], which after their number are 0.
    """
    if not 0 < top_paths <= beam_width:
        raise check.refuse(
            f"top_paths is {top_paths}, and beam_width {beam_width}",
            "give no more paths than there are beams",
        )
    logs = jnp.asarray(logs)

    def decoded(rows: Array, length: Array) -> tuple[Array, Array, Array]:
        def step(beams: _Beams, entry: tuple[Array, Array]) -> tuple[_Beams, None]:
            time, row = entry
            after = _after(beams, row, blank)
            return jax.tree.map(lambda a, b: jnp.where(time < length, a, b), after, beams), None

        none = jnp.full(beam_width, -jnp.inf)
        labels = jnp.zeros((beam_width, len(rows)), jnp.int32)
        counts = jnp.zeros(beam_width, jnp.int32)
        start = _Beams(labels, counts, none.at[0].set(0.0), none)
        beams, _ = jax.lax.scan(step, start, (jnp.arange(len(rows)), rows))
        total = jnp.logaddexp(beams.ends_blank, beams.ends_label)
        return total[:top_paths], beams.counts[:top_paths], beams.labels[:top_paths]

    total, counts, labels = jax.vmap(decoded, (1, 0))(
        logs.astype(jnp.float32), jnp.asarray(lengths)
    )
    return total.astype(logs.dtype), counts.astype(jnp.uint32), labels.astype(jnp.uint32)


def _after(beams: _Beams, row: Array, blank: int) -> _Beams:
    """The likeliest beginnings after one more class has been read."""
    width, classes = len(beams.counts), len(row)
    total = jnp.logaddexp(beams.ends_blank, beams.ends_label)
    places = jnp.arange(beams.labels.shape[1])
    last = jnp.where(beams.counts > 0, beams.labels[jnp.arange(width), beams.counts - 1], -1)
    same = jnp.arange(classes) == last[:, None]
    # A label longer: [W, classes]. The label that is last already needs a blank between.
    longer = jnp.where(same, beams.ends_blank[:, None], total[:, None]) + row
    longer = longer.at[:, blank].set(-jnp.inf)
    ends_blank = total + row[blank]
    ends_label = jnp.where(beams.counts > 0, beams.ends_label + row[last], -jnp.inf)

    # Where that is another beam, both are one: [W, W], whether the row's is the column's start.
    is_before = places < beams.counts[:, None, None]
    agree = (beams.labels[:, None] == beams.labels[None]) | ~is_before
    begins = agree.all(-1) & (beams.counts[:, None] + 1 == beams.counts) & jnp.isfinite(total)
    joined = jnp.where(begins, longer[:, last], -jnp.inf)
    ends_label = jnp.logaddexp(ends_label, jax.nn.logsumexp(joined, 0))
    gone = (begins[:, :, None] & (jnp.arange(classes) == last[:, None])[None]).any(1)
    longer = jnp.where(gone, -jnp.inf, longer)

    scores = jnp.concatenate([jnp.logaddexp(ends_blank, ends_label), longer.ravel()])
    _, chosen = jax.lax.top_k(scores, width)
    is_longer = chosen >= width
    source = jnp.where(is_longer, (chosen - width) // classes, chosen)
    label, counts = (chosen - width) % classes, beams.counts[source]
    here = is_longer[:, None] & (places == counts[:, None])
    return _Beams(
        jnp.where(here, label[:, None], beams.labels[source]),
        counts + is_longer,
        jnp.where(is_longer, -jnp.inf, ends_blank[source]),
        jnp.where(is_longer, scores[chosen], ends_label[source]),
    )
