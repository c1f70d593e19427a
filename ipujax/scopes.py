"""Scopes: where operations run, and what else is said about them.

Each scope writes a mark into the name stack, which JAX carries through every transformation; under
plain `jax.jit` marks mean nothing.
"""

from __future__ import annotations

import contextlib
import operator
import threading
from collections.abc import Generator
from typing import Any

import jax
import numpy as np

from ipujax.driver import tracing
from ipujax.errors import ScopeError
from lowering import jaxpr, marks

_local = threading.local()


@contextlib.contextmanager
def ipu_shard(index: int) -> Generator[None]:
    """Places the operations of the block on one IPU (shard) of the device.

    Args:
      index: the shard, from 0; programs with shards up to S - 1 need a multiple of S IPUs, S
        rounded up to a power of two.

    Raises:
      ScopeError: if the index is negative or no integer.
    """
    with jax.named_scope(marks.write(marks.SHARD, str(_shard_index(index)))):
        yield


@contextlib.contextmanager
def ipu_scope(device: str) -> Generator[None]:
    """Names the device for the programs that are compiled in the block.

    Args:
      device: such as `/device:IPU:0`; TensorFlow's longer names do as well. With a device that is
        no IPU, compiling in the block is an error.
    """
    if not isinstance(device, str):
        raise ScopeError(f"ipu_scope takes a device name such as '/device:IPU:0', not {device!r}")
    devices: list[str] = _stack("devices")
    devices.append(device)
    try:
        yield
    finally:
        devices.pop()


def current_device() -> str | None:
    """The device of the innermost `ipu_scope`, if any."""
    devices: list[str] = _stack("devices")
    return devices[-1] if devices else None


@contextlib.contextmanager
def ipu_jit_scope(ipu_scope: str) -> Generator[None]:
    """Names a set of operations that belong together.

    One function is one program here, so scopes are compiled together in any case; the name is in
    the equations' name stacks, for profiles and reports.

    Args:
      ipu_scope: the name.
    """
    if not isinstance(ipu_scope, str):
        raise ScopeError(f"ipu_jit_scope takes a name, not {ipu_scope!r}")
    with jax.named_scope(marks.write(marks.JIT_SCOPE, ipu_scope)):
        yield


@contextlib.contextmanager
def outside_compilation_scope(name: str = "outside") -> Generator[None]:
    """Runs the operations of the block on the host, between two segments on the device.

    With replicas it is done once: with the values of the first one, and all get the results.

    Args:
      name: shown in the Program's text.

    Raises:
      ScopeError: directly inside another such scope. Inside control flow, lowering raises
        `OutsideCompilationError`.
    """
    open_scopes: list[str] = _stack("outside")
    if open_scopes:
        raise ScopeError(
            f"outside_compilation_scope('{name}') inside outside_compilation_scope"
            f"('{open_scopes[-1]}') at {jaxpr.current_user_line() or 'an unknown line'}: the "
            "operations are on the host already; remove the inner scope"
        )
    open_scopes.append(name)
    try:
        with jax.named_scope(marks.write(marks.OUTSIDE, name)):
            yield
    finally:
        open_scopes.pop()


@contextlib.contextmanager
def frontend_attribute(
    attribute_name: str, attribute_value: str, restore_to: str | None = None
) -> Generator[None]:
    """Attaches an attribute to the operations of the block; inner scopes win.

    Args:
      attribute_name: the attribute.
      attribute_value: its value.
      restore_to: what the attribute is after the block, until the compiled function ends, if
        nothing around the block sets it.

    `sharding.has_attr` reads it back.
    """
    for text in (attribute_name, attribute_value, restore_to):
        if text is not None and not isinstance(text, str):
            raise ScopeError(f"frontend attributes are strings, not {text!r}")
    attributes: list[str] = _stack("attributes")
    attributes.append(attribute_name)
    try:
        with _attribute(attribute_name, attribute_value):
            yield
    finally:
        attributes.pop()
        frame = tracing.current()
        if restore_to is not None and attribute_name not in attributes and frame is not None:
            frame.scopes.enter_context(_attribute(attribute_name, restore_to))


@contextlib.contextmanager
def partials_type(override_type: Any) -> Generator[None]:
    """The type of the partial results of convolutions and matrix products of float16 in the block.

    With float32, all products are added up before the result is rounded; with float16, so is the
    sum of every 16 products along one contracted axis, and each sum of such sums. Gradients
    follow. Products of float32 stay as they are; grouped convolutions are rounded once. Acts in
    compiled code; plain JAX leaves the type to XLA.

    Args:
      override_type: float16 or float32, as NumPy or JAX names it.

    Raises:
      ScopeError: if it is something else.
    """
    try:
        name = "None" if override_type is None else np.dtype(override_type).name
    except TypeError:
        name = repr(override_type)
    if name not in ("float16", "float32"):
        raise ScopeError(f"partials are float16 or float32, not {name}")
    with _attribute(marks.PARTIALS_TYPE, name):
        yield


@contextlib.contextmanager
def stochastic_rounding(override: bool) -> Generator[None]:
    """Rounds the float16 results of the block, and of its gradients, stochastically, or does not.

    A result becomes one of its two neighbours, at random, so that the expected value is exact. The
    random numbers come from the device's seed (`utils.reset_ipu_seed`). Acts in compiled code.

    Args:
      override: whether to round stochastically, whatever the configuration says.

    Raises:
      ScopeError: if it is no bool.
    """
    if not isinstance(override, bool):
        raise ScopeError(f"stochastic_rounding takes True or False, not {override!r}")
    with _attribute(marks.STOCHASTIC_ROUNDING, str(override)):
        yield


def _attribute(name: str, value: str) -> contextlib.AbstractContextManager[Any]:
    return jax.named_scope(marks.write(marks.ATTRIBUTE, name, value))


def _shard_index(index: Any) -> int:
    try:
        number = operator.index(index) if not isinstance(index, (bool, np.bool_)) else None
    except TypeError:
        number = None
    if number is None:
        raise ScopeError(
            f"a shard index is an integer, not {index!r} ({type(index).__name__}){_where()}\n"
            "  fix:   give ipu_shard a Python int; which IPU runs what is known before the run"
        )
    if number < 0:
        raise ScopeError(
            f"a shard index is not negative, but this one is {number}{_where()}\n"
            "  fix:   count IPUs from 0"
        )
    return number


def _where() -> str:
    line = jaxpr.current_user_line()
    return f"\n  where: {line}" if line else ""


def _stack(name: str) -> list[str]:
    if not hasattr(_local, name):
        setattr(_local, name, [])
    return getattr(_local, name)
