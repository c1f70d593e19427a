"""CTC by brute force: every alignment of a few time steps."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Label = tuple[int, ...]


def label_of(alignment: Label, blank: int) -> Label:
    """What an alignment says: repeats first, then blanks, are dropped."""
    return tuple(c for c, _ in itertools.groupby(alignment) if c != blank)


def probabilities(log_probs: Array, blank: int) -> dict[Label, float]:
    """The probability of each label that `[time, classes]` log probabilities can give."""
    time, classes = log_probs.shape
    chances = np.exp(np.asarray(log_probs, np.float64))
    found: dict[Label, float] = {}
    for alignment in itertools.product(range(classes), repeat=time):
        label = label_of(alignment, blank)
        chance = float(np.prod([chances[t, c] for t, c in enumerate(alignment)]))
        found[label] = found.get(label, 0.0) + chance
    return found


def log_softmax(logits: Array) -> Array:
    """Along the last axis, in float64."""
    wide = np.asarray(logits, np.float64)
    shifted = wide - wide.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
