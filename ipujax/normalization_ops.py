"""Group, layer, instance and batch normalisation.

Their scale and offset, variables in the original, are the keyword arguments `gamma` and `beta`.
Statistics are computed in float32 at least. Variances are those of all elements (biased), as
`E[x^2] - E[x]^2`; where the configuration sets `norms.use_stable_statistics`, compiled code
subtracts the mean first.
"""

from ipujax.ground import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
