"""Functions that read and propagate the shards of a jaxpr's equations.

The original's act on TensorFlow's operations and graphs; these act on equations and jaxprs, as
`jax.make_jaxpr(fn)(*args)` gives them. None is needed to compile a program.
"""

from __future__ import annotations

from ipujax.operators import sharding as _sharding

__all__ = [
    "dependencies",
    "get_shard_from_colocation",
    "has_attr",
    "propagate_sharding",
]


def __dir__() -> list[str]:
    return __all__


dependencies = _sharding.dependencies
get_shard_from_colocation = _sharding.get_shard_from_colocation
has_attr = _sharding.has_attr
propagate_sharding = _sharding.propagate_sharding
