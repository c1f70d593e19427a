"""Synthetic data: arrays that stand in for transfers when the flags ask for it."""

from __future__ import annotations

import numpy as np

from ipujax.system import read_poplar_flags
from lowering import jaxpr

_SEED = 0  # the same data in each run: throughput is measured, and should be comparable


def make_synthetic_array(aval: jaxpr.ShapedValue) -> np.ndarray:
    """Returns an array of a shape and dtype, filled as `--synthetic_data_initializer` says.

    `random` and `normal` draw from the standard normal distribution, `uniform` from [0, 1), an
    integer is a constant; without the flag it is zeros (fact synthetic.initializer_values).
    """
    initializer = read_poplar_flags().synthetic_data_initializer
    dtype = np.dtype(aval.dtype)
    rng = np.random.default_rng(_SEED)
    draw_functions = {"uniform": rng.uniform, "random": rng.normal, "normal": rng.normal}
    if not initializer:
        return np.zeros(aval.shape, dtype)
    if initializer in draw_functions:
        return draw_functions[initializer](size=aval.shape).astype(dtype)
    return np.full(aval.shape, int(initializer), dtype)
