"""The JAX of TessellateIPU's time: `jit` with a backend, devices, and older names."""

from __future__ import annotations

import contextlib
import functools
import sys
import types
from collections.abc import Callable, Generator
from contextvars import ContextVar
from typing import Any

import jax
from jax import core

from ipujax.driver import compile as compile_for_ipus
from ipujax.tessellate.utils.ipu_device import IpuDevice, ipu_devices

_BACKEND: ContextVar[str] = ContextVar("backend", default="")
_JIT, _DEVICES, _DEVICE_PUT = jax.jit, jax.devices, jax.device_put

Primitive: Any = type(jax.lax.add_p)
"""JAX's class of primitives."""


def current_backend() -> str:
    """Returns the backend of the `jit` that is tracing at present, or ""."""
    return _BACKEND.get()


@contextlib.contextmanager
def _on_backend(name: str) -> Generator[None]:
    token = _BACKEND.set(name)
    try:
        yield
    finally:
        _BACKEND.reset(token)


def jit(
    fun: Callable[..., Any] | None = None, /, *, backend: str | None = None, **options: Any
) -> Any:
    """Compiles a function with `jax.jit`, or for `backend="ipu"` with `ipu.compile`.

    Args:
      fun: the function; without it, this is a decorator.
      backend: "ipu", or a platform of JAX's, which is then the one that there is.
      **options: those of `jax.jit`.
    """
    if backend is None:
        return _JIT(fun, **options) if fun is not None else _JIT(**options)
    if fun is None:
        return functools.partial(jit, backend=backend, **options)

    @functools.wraps(fun)
    def on_backend(*arguments: Any, **keywords: Any) -> Any:
        with _on_backend(backend):
            return fun(*arguments, **keywords)

    return (
        compile_for_ipus(on_backend, **options) if backend == "ipu" else _JIT(on_backend, **options)
    )


def devices(backend: str | None = None) -> list[Any]:
    """Returns the devices of a backend as `jax.devices` does; `"ipu"` has one."""
    return list(ipu_devices()) if backend == "ipu" else _DEVICES(backend)


def device_put(x: Any, device: Any = None, **options: Any) -> Any:
    """Puts arrays on a device as `jax.device_put` does; a virtual IPU's are on JAX's first device.

    Args:
      x: a pytree of arrays.
      device: one of JAX's, or of `devices("ipu")`.
      **options: those of `jax.device_put`.
    """
    return _DEVICE_PUT(x, None if isinstance(device, IpuDevice) else device, **options)


def accept_older_calls() -> None:
    """Replaces functions of `jax` by those that know IPUs, and adds its older names.

    An array's device was a method: a device of today, called, gives itself.
    """
    jax.jit, jax.devices, jax.device_put = jit, devices, device_put  # type: ignore[assignment]
    jax.ShapedArray = core.ShapedArray  # type: ignore[attr-defined]
    jax.Device.__call__ = lambda device: device  # type: ignore[method-assign]
    core.Primitive = Primitive  # type: ignore[attr-defined]
    module = types.ModuleType("jax.config", "JAX's options, which had a module of their own.")
    module.config = jax.config  # type: ignore[attr-defined]
    sys.modules.setdefault(module.__name__, module)
