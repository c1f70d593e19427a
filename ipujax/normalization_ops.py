"""Group, layer, instance and batch normalisation.

Their scale and offset, variables in the original, are the keyword arguments `gamma` and `beta`.
Statistics are computed in float32 at least. Variances are those of all elements (biased), as
`E[x^2] - E[x]^2`; where the configuration sets `norms.use_stable_statistics`, compiled code
subtracts the mean first.
"""

from __future__ import annotations

from ipujax.operators import normalization as _normalization

__all__ = [
    "batch_norm",
    "group_norm",
    "instance_norm",
    "layer_norm",
]


def __dir__() -> list[str]:
    return __all__


batch_norm = _normalization.batch_norm
group_norm = _normalization.group_norm
instance_norm = _normalization.instance_norm
layer_norm = _normalization.layer_norm
