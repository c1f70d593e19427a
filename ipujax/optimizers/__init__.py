"""Optimizers that wrap an optax transformation and are one themselves.

A training step has two parts. `compute_gradients` maps the gradients of each mini-batch,
`apply_gradients` turns the mapped gradients into an update of the variables. `update`, the one
function that optax calls, does both. Optax's explicit state holds the values that the original's
optimizers kept in variables; outside compiled code there is one replica.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
