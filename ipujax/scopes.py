"""Scopes that place operations on IPUs, or attach attributes to them.

Each scope writes a mark into the name stack, which JAX carries through every transformation; under
plain `jax.jit` marks mean nothing.
"""

from __future__ import annotations

from ipujax.operators import scopes as _scopes

__all__ = [
    "current_device",
    "frontend_attribute",
    "ipu_jit_scope",
    "ipu_scope",
    "ipu_shard",
    "outside_compilation_scope",
    "partials_type",
    "stochastic_rounding",
]


def __dir__() -> list[str]:
    return __all__


current_device = _scopes.current_device
frontend_attribute = _scopes.frontend_attribute
ipu_jit_scope = _scopes.ipu_jit_scope
ipu_scope = _scopes.ipu_scope
ipu_shard = _scopes.ipu_shard
outside_compilation_scope = _scopes.outside_compilation_scope
partials_type = _scopes.partials_type
stochastic_rounding = _scopes.stochastic_rounding
