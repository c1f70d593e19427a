"""Scopes that place operations on IPUs, or attach attributes to them."""

from __future__ import annotations

import contextlib
import numbers
import threading
from collections.abc import Generator

import jax
from jax.typing import DTypeLike

from ipujax.ground import HALF_OR_SINGLE, Checks, ScopeError, parse_dtype
from ipujax.host import trace_frames
from lowering import jaxpr, marks

_check = Checks(ScopeError, ScopeError)


class _Open(threading.local):
    """The scopes that this thread is in, outer ones first: their devices and names."""

    def __init__(self) -> None:
        self.devices: list[str] = []
        self.outside: list[str] = []
        self.attributes: list[str] = []


_open = _Open()


@_check.guard
@contextlib.contextmanager
def ipu_shard(index: int) -> Generator[None]:
    """Places the operations of the block on one IPU (shard) of the device.

    Args:
      index: the shard, from 0; programs with shards up to S - 1 need a multiple of S IPUs, S
        rounded up to a power of two.

    Raises:
      ScopeError: if the index is negative or no integer.
    """
    # Which IPU runs what is known before the run.
    with jax.named_scope(
        marks.write_mark(marks.SHARD, str(_check.require_integer(index, "a shard index", 0)))
    ):
        yield


@_check.guard
@contextlib.contextmanager
def pipeline_stage(index: int) -> Generator[None]:
    """Marks the operations of the block as part of a stage of a pipeline.

    `pipelining_ops.value_and_grad` and `forward` cut a function at these marks; elsewhere they
    mean nothing.

    Args:
      index: the number of the stage, from 0; it ascends along the data.

    Raises:
      ScopeError: if the index is negative or no integer.
    """
    number = _check.require_integer(index, "the index of a pipeline_stage", 0)
    with jax.named_scope(marks.write_mark(marks.STAGE, str(number))):
        yield


@_check.guard
@contextlib.contextmanager
def ipu_scope(device: str) -> Generator[None]:
    """Names the device for the programs that are compiled in the block.

    Args:
      device: such as `/device:IPU:0`; TensorFlow's longer names do as well. With a device that is
        no IPU, compiling in the block is an error.
    """
    _check.require_text(device, "the device of ipu_scope")
    with _push_name(_open.devices, device):
        yield


def current_device() -> str | None:
    """Returns the device of the innermost `ipu_scope`, or None."""
    return _open.devices[-1] if _open.devices else None


@_check.guard
@contextlib.contextmanager
def ipu_jit_scope(ipu_scope: str | int) -> Generator[None]:
    """Names a set of operations that belong together.

    One function is one program here, so scopes are compiled together in any case; the name is in
    the equations' name stacks, for profiles and reports.

    Args:
      ipu_scope: the name, or a number that stands for one, as the original's own `ipu_scope` used.
    """
    if isinstance(ipu_scope, bool) or not isinstance(ipu_scope, numbers.Integral):
        _check.require_instance(
            ipu_scope, str, "the name of ipu_jit_scope", "a string or an integer"
        )
    with jax.named_scope(marks.write_mark(marks.JIT_SCOPE, str(ipu_scope))):
        yield


@_check.guard
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
    _check.require_text(name, "the name of outside_compilation_scope")
    if _open.outside:
        raise ScopeError(
            f"outside_compilation_scope('{name}') inside outside_compilation_scope"
            f"('{_open.outside[-1]}') at {jaxpr.current_user_line() or 'an unknown line'}: the "
            "operations are on the host already; remove the inner scope"
        )
    with _push_name(_open.outside, name), jax.named_scope(marks.write_mark(marks.OUTSIDE, name)):
        yield


@_check.guard
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
    _check.require_text(attribute_name, "a frontend attribute")
    _check.require_text(attribute_value, f"frontend attribute `{attribute_name}`")
    _check.require_text(restore_to, f"restore_to of `{attribute_name}`", optional=True)
    try:
        with (
            _push_name(_open.attributes, attribute_name),
            _attribute_scope(attribute_name, attribute_value),
        ):
            yield
    finally:
        frame, is_set = trace_frames.current_trace_frame(), attribute_name in _open.attributes
        if restore_to is not None and not is_set and frame is not None:
            frame.scopes.enter_context(_attribute_scope(attribute_name, restore_to))


@_check.guard
@contextlib.contextmanager
def partials_type(override_type: DTypeLike) -> Generator[None]:
    """Sets the type of partial results of float16 convolutions and matmuls in the block.

    With float32, all products are added up before the result is rounded; with float16, so is the
    sum of every 16 products along one contracted axis, and each sum of such sums. Gradients
    follow. Products of float32 stay as they are; grouped convolutions are rounded once. Acts in
    compiled code; plain JAX leaves the type to XLA.

    Args:
      override_type: float16 or float32, as NumPy or JAX names it.

    Raises:
      ScopeError: if it is something else.
    """
    dtype = parse_dtype(override_type)
    name = repr(override_type) if dtype is None else dtype.name
    if name not in HALF_OR_SINGLE:
        raise ScopeError(f"partials are float16 or float32, not {name}")
    with _attribute_scope(marks.PARTIALS_TYPE, name):
        yield


@_check.guard
@contextlib.contextmanager
def stochastic_rounding(override: bool) -> Generator[None]:
    """Switches stochastic rounding of float16 results on or off in the block.

    A result becomes one of its two neighbours, at random, so that the expected value is exact. The
    random numbers come from the device's seed (`utils.reset_ipu_seed`). Acts in compiled code.

    Args:
      override: whether to round stochastically, whatever the configuration says.

    Raises:
      ScopeError: if it is no bool.
    """
    _check.require_flag(override, "the override of stochastic_rounding")
    with _attribute_scope(marks.STOCHASTIC_ROUNDING, str(override)):
        yield


keep_lines_apart = marks.keep_lines_apart


def attribute_scope_name(name: str, value: str) -> str:
    """Returns the name of a `jax.named_scope` that gives its operations a frontend attribute."""
    return marks.write_mark(marks.ATTRIBUTE, name, value)


def _attribute_scope(name: str, value: str) -> contextlib.AbstractContextManager[object]:
    return jax.named_scope(attribute_scope_name(name, value))


@contextlib.contextmanager
def _push_name(names: list[str], name: str) -> Generator[None]:
    names.append(name)
    try:
        yield
    finally:
        names.pop()
