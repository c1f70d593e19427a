"""PopLibs' norms: statistics of groups of elements, whitening, scale and shift, gradients.

Activations are [batch, channels, *field]. Each kind of norm says which elements share a mean:
`split` gives the activations with these in the last dimension, `merge` is its inverse.
"""

from __future__ import annotations

import dataclasses as dc
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ipujax.poplar.exceptions import check, index_error
from ipujax.poplar.graph import Graph
from ipujax.poplar.library_operations import add_planned, read_title, split_at_program
from ipujax.poplar.program import Sequence
from ipujax.poplar.tensors import Tensor
from ipujax.poplar.user_lines import user_line


@dc.dataclass(frozen=True, slots=True)
class Norm:
    """A kind of norm.

    Attributes:
      name: its name in reports.
      split: activations -> [groups, elements of a group].
      merge: these, and the activations' shape -> activations.
    """

    name: str
    split: Callable[[jax.Array], jax.Array]
    merge: Callable[[jax.Array, tuple[int, ...]], jax.Array]


def _split_channels(x: jax.Array) -> jax.Array:
    return jnp.moveaxis(x, 1, 0).reshape(x.shape[1], -1)


def _merge_channels(y: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    batch, channels, *field = shape
    return jnp.moveaxis(y.reshape(channels, batch, *field), 0, 1)


BATCH_NORM = Norm("batchNorm", _split_channels, _merge_channels)


def group_norm(name: str, groups: int, *, is_strided: bool = True) -> Norm:
    """Returns the norm of groups of channels of each image; channel c is in group c % groups.

    Args:
      name: its name in reports.
      groups: the number of groups.
      is_strided: if False, neighbouring channels make a group instead.
    """

    def order(shape: tuple[int, ...]) -> tuple[int, ...]:
        channels_per_group = shape[1] // groups
        return (channels_per_group, groups) if is_strided else (groups, channels_per_group)

    def split(x: jax.Array) -> jax.Array:
        parts = x.reshape(x.shape[0], *order(x.shape), -1)
        parts = jnp.moveaxis(parts, 2, 1) if is_strided else parts
        return parts.reshape(x.shape[0] * groups, -1)

    def merge(y: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        parts = y.reshape(shape[0], groups, shape[1] // groups, -1)
        parts = jnp.moveaxis(parts, 1, 2) if is_strided else parts
        return parts.reshape(shape)

    return Norm(name, split, merge)


NormOf = Callable[[Tensor, Tensor | None, Any], Norm]
"""Activations, statistics if there are any yet, a call's trailing arguments -> the norm."""

NormFunctions = tuple[Callable[..., Any], ...]


def define_functions(adjective: str, norm_of: NormOf) -> NormFunctions:
    """Returns the functions of a kind of norm: whiten, normalise, and both kinds of gradients.

    Args:
      adjective: the first word of their names, such as "batch".
      norm_of: a function that returns the norm for a call.
    """

    def whiten(
        graph: Graph, acts: Tensor, mean: Tensor, iStdDev: Tensor, prog: Sequence, *rest: Any
    ) -> Tensor:
        """Adds the activations less their mean, times the inverse standard deviation."""
        return add_whiten(graph, norm_of(acts, iStdDev, rest), acts, mean, iStdDev, prog, rest)

    def normalise(
        graph: Graph, acts: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, iStdDev: Tensor,
        prog: Sequence, *rest: Any,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Adds the norm of activations; returns it, and the whitened ones for the gradients."""
        norm = norm_of(acts, iStdDev, rest)
        white = add_whiten(graph, norm, acts, mean, iStdDev, prog, rest)
        return add_affine(graph, norm, white, gamma, beta, prog, rest), white

    def gradients(graph: Graph, acts: Tensor, gradsIn: Tensor, *arguments: Any) -> Tensor:
        """Adds the gradient of the activations, through their statistics; returns its tensor.

        Args:
          graph: the graph.
          acts: the whitened activations; or the activations, if their mean is given.
          gradsIn: the gradient of the norm.
          *arguments: `iStdDev, gamma, prog`, or `mean, iStdDev, gamma, prog`; and a type, a name
            and options.
        """
        operands, prog, trailing_arguments = split_at_program(
            f"{adjective}NormGradients", arguments, (2, 3)
        )
        *mean, deviation, gamma = operands
        norm = norm_of(acts, deviation, trailing_arguments)
        if mean:
            acts = add_whiten(graph, norm, acts, mean[0], deviation, prog, trailing_arguments)
        return add_gradients(graph, norm, acts, gradsIn, deviation, gamma, prog, trailing_arguments)

    def parameter_gradients(
        graph: Graph, acts: Tensor, gradsIn: Tensor, *arguments: Any
    ) -> tuple[Tensor, Tensor]:
        """Adds the gradients of gamma and beta, and returns both.

        Args:
          graph: the graph.
          acts: the whitened activations; or the activations, if their statistics are given.
          gradsIn: the gradient of the norm.
          *arguments: `prog`, or `mean, iStdDev, prog`; and a type, a name and options.
        """
        statistics, prog, trailing_arguments = split_at_program(
            f"{adjective}NormParamGradients", arguments, (0, 2)
        )
        norm = norm_of(acts, statistics[1] if statistics else None, trailing_arguments)
        if statistics:
            mean, deviation = statistics
            acts = add_whiten(graph, norm, acts, mean, deviation, prog, trailing_arguments)
        return add_parameter_gradients(graph, norm, acts, gradsIn, prog, trailing_arguments)

    return (
        _publish(whiten, f"{adjective}NormWhiten"),
        _publish(normalise, f"{adjective}Normalise"),
        _publish(gradients, f"{adjective}NormGradients"),
        _publish(parameter_gradients, f"{adjective}NormParamGradients"),
    )


def define_statistics(norm: Norm, group: str) -> Callable[..., tuple[Tensor, Tensor]]:
    """Returns PopLibs' function of a norm's statistics.

    Args:
      norm: the norm.
      group: the elements that share a mean, in words, such as "channel".
    """

    def statistics(
        graph: Graph, acts: Tensor, eps: float, prog: Sequence, unbiasedVarEstimate: bool,
        *rest: Any,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        return add_statistics(graph, norm, acts, eps, prog, unbiasedVarEstimate, rest)

    statistics.__doc__ = f"""Adds the mean and the inverse standard deviation of each {group}.

        Args:
          graph: the graph.
          acts: [batch, channels, *field].
          eps: added to the variance.
          prog: the sequence.
          unbiasedVarEstimate: whether the variance is divided by one less than the count.
          *rest: `stableAlgo` and the type of partial sums, which change nothing: sums are stable
            and in float; a name and options.

        Returns:
          Both, 1-d.
        """
    return _publish(statistics, f"{norm.name}Statistics")


def _publish(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Returns a function under its public name, with its arguments' errors made Poplar's."""
    function.__name__ = function.__qualname__ = name
    return check.guard(function)


def add_statistics(
    graph: Graph, norm: Norm, acts: Tensor, eps: float, prog: Sequence, unbiased: bool,
    trailing_arguments: Any,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Adds the mean and the inverse standard deviation of each group, and returns both."""
    _require_activations(acts)
    unbiased = check.require_flag(unbiased, "unbiasedVarEstimate")

    def compute(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        parts = norm.split(x).astype(jnp.float32)
        mean = parts.mean(1)
        squares = jnp.square(parts - mean[:, None]).sum(1)
        variance = squares / (parts.shape[1] - unbiased)
        return mean.astype(x.dtype), lax.rsqrt(variance + eps).astype(x.dtype)

    # PopLibs' `stableAlgo`, a flag, changes nothing: sums are always stable.
    without_flags = [argument for argument in trailing_arguments if not isinstance(argument, bool)]
    title = read_title(f"{norm.name}Statistics", without_flags)
    mean, deviation = add_planned(graph, prog, title, compute, [acts])
    return mean, deviation


def add_whiten(
    graph: Graph, norm: Norm, acts: Tensor, mean: Tensor, deviation: Tensor, prog: Sequence,
    trailing_arguments: Any,
) -> Tensor:  # fmt: skip
    """Adds the activations less their mean, times the inverse standard deviation."""
    _require_activations(acts)

    def compute(x: jax.Array, mean: jax.Array, deviation: jax.Array) -> jax.Array:
        white = (norm.split(x) - mean[:, None]) * deviation[:, None]
        return norm.merge(white, x.shape)

    title = read_title(f"{norm.name}Whiten", trailing_arguments)
    return add_planned(graph, prog, title, compute, [acts, mean, deviation])[0]


def add_affine(
    graph: Graph, norm: Norm, acts: Tensor, gamma: Tensor, beta: Tensor, prog: Sequence,
    trailing_arguments: Any,
) -> Tensor:  # fmt: skip
    """Adds `acts * gamma + beta`, with a gamma and a beta for each channel."""
    _require_activations(acts)

    def compute(x: jax.Array, gamma: jax.Array, beta: jax.Array) -> jax.Array:
        return x * _of_channels(gamma, x) + _of_channels(beta, x)

    title = read_title(f"{norm.name}Scale", trailing_arguments)
    return add_planned(graph, prog, title, compute, [acts, gamma, beta])[0]


def add_gradients(
    graph: Graph, norm: Norm, white: Tensor, gradsIn: Tensor, deviation: Tensor, gamma: Tensor,
    prog: Sequence, trailing_arguments: Any,
) -> Tensor:  # fmt: skip
    """Adds the gradient of the activations, through their statistics."""

    def compute(
        white: jax.Array, g: jax.Array, deviation: jax.Array, gamma: jax.Array
    ) -> jax.Array:
        scaled, x = norm.split(g * _of_channels(gamma, g)), norm.split(white)
        centred = scaled - scaled.mean(1, keepdims=True)
        centred = centred - x * (scaled * x).mean(1, keepdims=True)
        return norm.merge(centred * deviation[:, None], white.shape)

    title = read_title(f"{norm.name}Gradients", trailing_arguments)
    return add_planned(graph, prog, title, compute, [white, gradsIn, deviation, gamma])[0]


def add_parameter_gradients(
    graph: Graph, norm: Norm, white: Tensor, gradsIn: Tensor, prog: Sequence,
    trailing_arguments: Any,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Adds the gradients of gamma and beta, and returns both."""

    def compute(white: jax.Array, g: jax.Array) -> tuple[jax.Array, jax.Array]:
        axes = (0, *range(2, g.ndim))
        return (g * white).sum(axes), g.sum(axes)

    title = read_title(f"{norm.name}ParamGradients", trailing_arguments)
    gamma, beta = add_planned(graph, prog, title, compute, [white, gradsIn])
    return gamma, beta


def count_groups(acts: Tensor, deviation: Tensor) -> int:
    """Returns the number of groups of channels: statistics have one element per image and group."""
    groups, remainder = divmod(deviation.numElements(), max(1, acts.dim(0)))
    if remainder or not groups or acts.dim(1) % groups:
        raise index_error(f"{deviation} has no statistics of {acts}", where=user_line())
    return groups


def _require_activations(acts: Any) -> None:
    if check.require_instance(acts, Tensor, "acts").rank() < 2 or not math.prod(acts.shape()):
        raise index_error(f"a norm of {acts}", where=user_line(), fix="give [batch, channels, ...]")


def _of_channels(values: jax.Array, x: jax.Array) -> jax.Array:
    return values.reshape(1, -1, *[1] * (x.ndim - 2))
