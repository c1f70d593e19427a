"""Compiled functions for one JAX device, loaded for another one instead of compiled again.

Stages that are alike are equal kernels, each on a device of its own. XLA compiles for one device at
a time, and takes some twenty times as long as it takes to load what it has compiled.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import jax
from jax.experimental import serialize_executable

from lowering import jaxpr


def copy_executable(compiled: jax.stages.Compiled, device: Any) -> jax.stages.Compiled | None:
    """Returns a compiled function of one device for another device; None if JAX cannot do that.

    It cannot for functions with constants, and has no promise for this: `None` is always right.

    Args:
      compiled: the function, which has been compiled in this process.
      device: the JAX device, of the same kind.
    """
    config: Any = jax.config
    if config.jax_compilation_cache_dir:  # what comes from there cannot be serialized
        return None
    try:
        serialized, in_tree, out_tree = serialize_executable.serialize(compiled)
        loader = _DeviceLoader(io.BytesIO(serialized), device)
        executable, arguments, no_kwargs = loader.load()
        loaded = executable.load()
    except Exception:  # whatever JAX's internals raise: then it is compiled
        return None
    arguments_info = in_tree.unflatten(arguments)
    return jax.stages.Compiled(loaded, [], arguments_info, out_tree, no_kwargs=no_kwargs)


class _DeviceLoader(pickle.Unpickler):
    """A reader of what `serialize` has just written, in which one device takes another's place."""

    def __init__(self, stream: io.BytesIO, device: Any):
        super().__init__(stream)
        self._device = device

    def persistent_load(self, pid: Any) -> Any:
        """Returns what JAX has left out of the pickle: an executable, a device or the client."""
        match pid:
            case ("exec", code):
                return jaxpr.load_executable_for_device(code, self._device)
            case ("device", _):
                return self._device
            case ("client",):
                return self._device.client
            case _:
                raise pickle.UnpicklingError(f"unknown part {pid!r:.100}")
