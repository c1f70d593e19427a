"""Prefix beam search over CTC's log probabilities, as one scan over time.

A beam is a prefix: the classes read so far, with the probability of its alignments that end in a
blank and of those that end in its last class. A step offers each beam as it is, and each beam
with one more class; the best `width` of these are the next beams. A longer prefix may be a beam
already. It must not be there twice: its parent's probability is added to the beam, and the offer is
withdrawn. So the search must know which beam is another's parent. It keeps, for all pairs, whether
one is the beginning of the other; that follows from the step before and one class of each pair.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ipujax.operators.nn.log_space import IMPOSSIBLE, NEVER, log_add

NO_CLASS = -1


class _Beams(NamedTuple):
    """The beams of one example, the best first.

    Attributes:
      ends_in_blank: `[width]` log probabilities.
      ends_in_class: `[width]` log probabilities.
      length: `[width]` int32.
      last: `[width]` int32, each prefix's last class, or `NO_CLASS`.
      classes: `[width, time]` int32, the prefixes, with `NO_CLASS` after their ends.
      begins: `[width, width]` bool: whether the first prefix is the beginning of the second, or
        all of it. Beams without any probability are nobody's beginning and have none.
    """

    ends_in_blank: jax.Array
    ends_in_class: jax.Array
    length: jax.Array
    last: jax.Array
    classes: jax.Array
    begins: jax.Array

    @property
    def total_log_prob(self) -> jax.Array:
        """The log probability of each beam, `[width]`."""
        return log_add(self.ends_in_blank, self.ends_in_class)


@functools.partial(jax.jit, static_argnums=(2, 3))  # outside compiled code, loops compile once
def search_prefixes(
    log_probs: jax.Array, steps: jax.Array, width: int, blank: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Finds the `width` most probable prefixes of each example.

    Args:
      log_probs: `[time, batch, classes]` float32.
      steps: `[batch]` int32, how many of the time steps count.
      width: how many beams to follow.
      blank: the class of blanks.

    Returns:
      Log probabilities `[batch, width]`, the best first; lengths `[batch, width]`; classes
      `[batch, width, time]`, `NO_CLASS` after the ends. Where there are fewer prefixes, the rest
      are empty, with minus infinity.
    """

    def search_one(log_probs: jax.Array, steps: jax.Array) -> _Beams:
        return _run_search(log_probs, steps, width, blank)

    beams = jax.vmap(search_one, in_axes=(1, 0))(jnp.maximum(log_probs, NEVER), steps)
    is_none = beams.total_log_prob < IMPOSSIBLE
    return (
        jnp.where(is_none, -jnp.inf, beams.total_log_prob),
        jnp.where(is_none, 0, beams.length),
        jnp.where(is_none[:, :, None], NO_CLASS, beams.classes),
    )


def _run_search(log_probs: jax.Array, steps: jax.Array, width: int, blank: int) -> _Beams:
    """Returns the beams of one example after its last step."""
    time = log_probs.shape[0]

    def advance_beams(
        beams: _Beams, numbered_log_prob: tuple[jax.Array, jax.Array]
    ) -> tuple[_Beams, None]:
        number, log_prob = numbered_log_prob
        moved = _extend_beams(beams, log_prob, blank)
        selected = [jnp.where(number < steps, a, b) for a, b in zip(moved, beams, strict=True)]
        return _Beams(*selected), None

    return lax.scan(advance_beams, _initial_beams(width, time), (jnp.arange(time), log_probs))[0]


def _initial_beams(width: int, time: int) -> _Beams:
    """Returns the initial beams: the empty prefix, and beams of probability 0."""
    nothing = jnp.full((width,), NEVER, jnp.float32)
    return _Beams(
        ends_in_blank=nothing.at[0].set(0.0),
        ends_in_class=nothing,
        length=jnp.zeros((width,), jnp.int32),
        last=jnp.full((width,), NO_CLASS, jnp.int32),
        classes=jnp.full((width, time), NO_CLASS, jnp.int32),
        begins=jnp.zeros((width, width), jnp.bool_).at[0, 0].set(True),
    )


def _extend_beams(beams: _Beams, log_prob: jax.Array, blank: int) -> _Beams:
    width, classes = beams.last.shape[0], log_prob.shape[0]
    total = beams.total_log_prob
    of_last = jnp.where(beams.last == NO_CLASS, NEVER, log_prob[beams.last])
    # To double its last class, a prefix must have ended in a blank.
    doubles = jnp.arange(classes) == beams.last[:, None]
    longer = jnp.where(doubles, beams.ends_in_blank[:, None], total[:, None]) + log_prob
    longer = longer.at[:, blank].set(NEVER)

    parent, has_parent = _find_parents(beams)
    from_parent = jnp.where(has_parent, longer[parent, beams.last], NEVER)
    in_blank = total + log_prob[blank]
    in_class = log_add(beams.ends_in_class + of_last, from_parent)
    withdrawn = jnp.where(has_parent, parent, width)
    longer = longer.at[withdrawn, beams.last].set(NEVER, mode="drop")

    offers = jnp.concatenate([log_add(in_blank, in_class), longer.reshape(-1)])
    score, chosen = lax.top_k(offers, width)
    grows = chosen >= width
    source = jnp.where(grows, (chosen - width) // classes, chosen)
    return _append_classes(
        beams._replace(
            ends_in_blank=jnp.where(grows, NEVER, in_blank[source]),
            ends_in_class=jnp.where(grows, score, in_class[source]),
        ),
        source,
        jnp.where(grows, (chosen - width) % classes, NO_CLASS),
    )


def _find_parents(beams: _Beams) -> tuple[jax.Array, jax.Array]:
    """Returns each beam's parent, the beam without its last class, and whether it exists."""
    one_less = beams.length[:, None] + 1 == beams.length
    is_parent = beams.begins & one_less
    return jnp.argmax(is_parent, axis=0), jnp.any(is_parent, axis=0)


def _append_classes(beams: _Beams, source: jax.Array, added: jax.Array) -> _Beams:
    """Returns the prefixes of the beams `source` with the classes `added`, unless `NO_CLASS`.

    The probabilities in `beams` are those of the result already.
    """
    grows = added != NO_CLASS
    end = beams.length[source]
    is_end_position = jnp.arange(beams.classes.shape[1]) == end[:, None]
    classes = jnp.where(is_end_position & grows[:, None], added[:, None], beams.classes[source])
    # A prefix that grew begins another if it did before, and that one goes on with its class.
    goes_on = classes[:, end].T == added[:, None]
    exists = beams.total_log_prob > IMPOSSIBLE
    begins = beams.begins[source][:, source] & (goes_on | ~grows[:, None])
    return beams._replace(
        length=end + grows,
        last=jnp.where(grows, added, beams.last[source]),
        classes=classes,
        begins=begins & exists & exists[:, None],
    )
