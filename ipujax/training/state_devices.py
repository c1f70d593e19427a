"""The JAX devices of a state between calls: each array is on that of the IPU that uses it."""

from __future__ import annotations

import jax
from jax.sharding import SingleDeviceSharding

from ipujax.ground import current_instance
from ipujax.training.training_state import Tree
from lowering import is_numeric_dtype, jaxpr


def gathers_results(*, alone: bool) -> bool:
    """Returns whether a program that carries state brings it to JAX's first device.

    It does where its IPUs are in several processes, each of which then has all of the state.

    Args:
      alone: whether the program runs in this process only.
    """
    instance = current_instance()
    return not alone and instance.count > 1 and instance.spread == "ipus"


def release_state(state: Tree) -> Tree:
    """Returns a state with which one can compute outside of compiled programs.

    The arrays stay where they are. JAX refuses to compute with arrays that were put on several
    devices; those of the returned state it brings to its default device when it computes with them.
    """
    first_device = {jax.local_devices()[0]}

    def release_array(leaf: Tree) -> Tree:
        sharding = getattr(leaf, "sharding", None)
        if not isinstance(sharding, SingleDeviceSharding) or sharding.device_set == first_device:
            return leaf
        return jaxpr.release_from_device(leaf) if is_numeric_dtype(leaf.dtype) else leaf

    return jax.tree.map(release_array, state)
