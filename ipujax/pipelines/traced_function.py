"""A user's function, traced on the arguments of one micro-batch."""

from __future__ import annotations

import dataclasses as dc
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ipujax.ground import PipelineTypeError
from ipujax.pipelines.micro_batch_arguments import (
    ArgumentLeaf,
    MicroBatchArguments,
    Role,
    has_aval,
)
from ipujax.pipelines.pipeline_stages import Pytree, describe_definition_line
from lowering import jaxpr, pipelines

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


@dc.dataclass(frozen=True, eq=False)
class TracedFunction:
    """A function of one micro-batch, flat, with its marks on top.

    Attributes:
      name: the user's name for it.
      closed: the arrays of `arguments` that it reads -> the loss (if it has one), other outputs.
      leaves: what the arguments of `closed` are.
      arguments: the arguments of the call.
      has_loss: whether the first output is a loss.
      outputs: the structure of the other outputs.
      key_kinds: the kind of key of the other outputs that are typed keys, which `closed` gives as
        their data.
    """

    name: str
    closed: jaxpr.ClosedJaxpr
    leaves: tuple[ArgumentLeaf, ...]
    arguments: MicroBatchArguments
    has_loss: bool
    outputs: Any
    key_kinds: Mapping[int, Any]

    def leaves_by_variable(self) -> dict[jaxpr.Var, ArgumentLeaf]:
        """Returns the leaf that each argument or constant of `closed` stands for."""
        body = self.closed.jaxpr
        constants = zip(body.constvars, self.closed.consts, strict=True)
        leaves = {var: ArgumentLeaf("a constant", Role.WHOLE, value) for var, value in constants}
        return leaves | dict(zip(body.invars, self.leaves, strict=True))

    @property
    def digest(self) -> str:
        """What identifies the computation, with its shapes and dtypes."""
        text = _ADDRESS.sub("", str(self.closed.jaxpr))
        return hashlib.sha256(text.encode()).hexdigest()

    def rebuild_outputs(self, stacks: Sequence[jax.Array]) -> Pytree:
        """Returns the outputs but for the loss in the user's structure, with keys as keys.

        Args:
          stacks: of each output the arrays of all micro-batches, along a new axis 0.
        """
        arrays = list(stacks)
        for number, kind in self.key_kinds.items():
            arrays[number] = jax.random.wrap_key_data(arrays[number], impl=kind)
        return self.outputs.unflatten(arrays)


def trace_micro_batch(
    function: Callable[..., Pytree],
    arguments: MicroBatchArguments,
    *,
    has_loss: bool,
    has_aux: bool = True,
) -> TracedFunction:
    """Traces a function on the arguments of one micro-batch.

    Args:
      function: returns a loss, `(loss, aux)`, or with `has_loss=False` any outputs.
      arguments: of the call.
      has_loss: whether it returns a loss.
      has_aux: whether it returns more than the loss.

    Raises:
      PipelineError: (a `ValueError`) a loss that is no scalar, or no pair with `has_aux`.
      PipelineTypeError: (a `TypeError`) a loss or an output that cannot be one.
    """
    structures: list[Any] = []
    key_kinds: dict[int, Any] = {}

    def call_flat_function(*flat: jax.Array) -> list[jax.Array]:
        args, kwargs = arguments.rebuild_call(flat)
        loss, outputs = _split_result(function, function(*args, **kwargs), has_loss, has_aux)
        leaves, structure = jax.tree.flatten(outputs)
        arrays = [_as_output(function, leaf) for leaf in leaves]
        structures.append(structure)
        for number, array in enumerate(arrays):
            if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
                key_kinds[number] = jax.random.key_impl(array)
                arrays[number] = jax.random.key_data(array)
        return [*loss, *arrays]

    array_leaves = arguments.arrays
    avals = [leaf.aval_in_micro_batch(arguments.micro_batches) for leaf in array_leaves]
    traced = jaxpr.trace_flat(call_flat_function, avals)
    closed, reads = jaxpr.prune_unused(pipelines.inline_jits_with_stage_marks(traced))
    return TracedFunction(
        name=getattr(function, "__name__", type(function).__name__),
        closed=closed,
        leaves=tuple(array_leaves[i] for i in reads),
        arguments=arguments,
        has_loss=has_loss,
        outputs=structures[-1],
        key_kinds=key_kinds,
    )


def _split_result(
    function: Callable[..., Pytree], result: Any, has_loss: bool, has_aux: bool
) -> tuple[Sequence[jax.Array], Pytree]:
    """Splits what the user's function returned into its loss, if it has one, and the rest."""
    if not has_loss:
        return (), result
    if not has_aux:
        return (_require_loss(function, result),), None
    if not isinstance(result, tuple) or len(result) != 2:
        raise PipelineTypeError(
            f"with has_aux=True the function returns a pair (loss, aux), not {_describe(result)}",
            where=describe_definition_line(function),
            fix="return (loss, aux), or leave has_aux out",
        )
    loss, aux = result
    return (_require_loss(function, loss),), aux


def _require_loss(function: Callable[..., Pytree], loss: Any) -> jax.Array:
    """Returns a loss as an array, or raises an error if it cannot be differentiated."""
    is_array = not isinstance(loss, (tuple, list)) and has_aval(loss)
    array = jnp.asarray(loss) if is_array else None
    if array is None or array.shape or not jnp.issubdtype(array.dtype, jnp.floating):
        is_pair = isinstance(loss, tuple) and len(loss) == 2
        fix = "reduce it, as jnp.mean does; of a complex number take jnp.abs or jnp.real"
        raise PipelineTypeError(
            "the loss must be a real floating-point scalar, and the function returned "
            f"{_describe(loss)}",
            where=describe_definition_line(function),
            fix="for (loss, aux), pass has_aux=True" if is_pair else fix,
        )
    return array


def _as_output(function: Callable[..., Pytree], leaf: Any) -> jax.Array:
    """Returns an output as an array."""
    if not has_aval(leaf):
        raise PipelineTypeError(
            "an output of the function is no array, so that those of the micro-batches cannot be "
            f"put together: {_describe(leaf)}",
            where=describe_definition_line(function),
            fix="return arrays, or None",
        )
    return jnp.asarray(leaf)


def _describe(result: Any) -> str:
    """Returns what a function returned as a text, with shapes in the place of arrays."""
    shapes = jax.tree.map(
        lambda x: f"{x.dtype}{list(x.shape)}" if isinstance(x, jax.Array) else x, result
    )
    return shapes if isinstance(shapes, str) else repr(shapes).replace("'", "")
