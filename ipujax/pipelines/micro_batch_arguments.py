"""The arguments of a function that runs once per micro-batch: which are split, and which go whole.

Every leaf of a call has a role. Differentiated leaves, and those of arguments that are not split,
are the same for all micro-batches. Of an argument that is split, arrays are cut along axis 0,
scalar typed keys are folded with the micro-batch's number, and everything else goes whole.
"""

from __future__ import annotations

import dataclasses as dc
import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipujax.ground import parameter_names, suggest_split
from ipujax.pipelines.pipeline_stages import Aval, Pytree
from ipujax.pipelines.single_argument_checks import check
from lowering import shape_of


class Role(enum.Enum):
    """The way in which a leaf of the arguments reaches the micro-batches."""

    DIFFERENTIATED = "differentiated"
    WHOLE = "whole"
    SPLIT = "split along axis 0"
    FOLDED = "a key, folded with the micro-batch's number"
    STATIC = "no array: passed on as it is"


@dc.dataclass(frozen=True, eq=False)
class ArgumentLeaf:
    """A leaf of the arguments of one call.

    Attributes:
      path: what the user calls it, such as `batch['tokens']`.
      role: how it reaches the micro-batches.
      value: an array; with `Role.STATIC` anything else.
    """

    path: str
    role: Role
    value: Any

    @property
    def source(self) -> ArgumentLeaf:
        """The leaf of the call that this is, or is a part of."""
        return self

    def aval_in_micro_batch(self, micro_batches: int) -> Aval:
        """Returns the shape and dtype of the leaf in one micro-batch."""
        aval = jax.typeof(self.value)
        if self.role is not Role.SPLIT:
            return aval
        size, *others = shape_of(aval)
        return jax.ShapeDtypeStruct((size // micro_batches, *others), aval.dtype)

    def take_micro_batch(self, number: int, micro_batches: int) -> jax.Array:
        """Returns the part of the array that belongs to the micro-batch of a number."""
        if self.role is Role.FOLDED:
            return jax.random.fold_in(self.value, number)
        rows = self.stack_micro_batches(micro_batches)
        return rows[number] if self.role is Role.SPLIT else rows

    def stack_micro_batches(self, micro_batches: int) -> jax.Array:
        """Returns the array with the micro-batches along a new axis 0, if it is split."""
        if self.role is not Role.SPLIT:
            return self.value
        size, *others = self.value.shape
        return self.value.reshape(micro_batches, size // micro_batches, *others)


@dc.dataclass(frozen=True, eq=False)
class MicroBatchArguments:
    """The arguments of one call, flat and with their roles.

    Attributes:
      leaves: of the positional arguments in order, then of those by keyword.
      structure: of `(args, kwargs)`.
      micro_batches: the number of micro-batches.
    """

    leaves: tuple[ArgumentLeaf, ...]
    structure: Any
    micro_batches: int

    @property
    def arrays(self) -> list[ArgumentLeaf]:
        """The leaves that are arrays."""
        return [leaf for leaf in self.leaves if leaf.role is not Role.STATIC]

    @property
    def differ_between_micro_batches(self) -> bool:
        """True if micro-batches are given different arguments, or if there is only one."""
        roles = {leaf.role for leaf in self.leaves}
        return self.micro_batches == 1 or not roles.isdisjoint({Role.SPLIT, Role.FOLDED})

    def take_micro_batch(self, number: int) -> list[jax.Array]:
        """Returns what one micro-batch is given in the place of `arrays`."""
        return [leaf.take_micro_batch(number, self.micro_batches) for leaf in self.arrays]

    def rebuild_call(self, arrays: Sequence[Any]) -> tuple[tuple[Pytree, ...], dict[str, Pytree]]:
        """Returns positional and keyword arguments with other arrays in the place of `arrays`."""
        remaining = iter(arrays)
        leaves = [
            leaf.value if leaf.role is Role.STATIC else next(remaining) for leaf in self.leaves
        ]
        return self.structure.unflatten(leaves)


def resolve_argnums(argnums: Collection[int], count: int, argument: str) -> tuple[int, ...]:
    """Returns the positions of arguments as numbers from 0 on.

    Args:
      argnums: positions; negative ones count from the end.
      count: how many positional arguments the call has.
      argument: the name of the argument with these positions, for messages.

    Raises:
      PipelineError: (a `ValueError`) a position that the call has not, or one twice.
    """
    positions = [number + count if number < 0 else number for number in argnums]
    for number, position in zip(argnums, positions, strict=True):
        if not 0 <= position < count:
            raise check.value_error(
                f"{argument} names positional argument {number}, and the call has {count}",
                "pass that argument by position, or name another one",
            )
    if len(set(positions)) < len(positions):
        raise check.value_error(f"{argument}={tuple(argnums)} names an argument twice")
    return tuple(positions)


def assign_roles(
    function: Callable[..., Pytree],
    args: Sequence[Pytree],
    kwargs: Mapping[str, Pytree],
    *,
    micro_batches: int,
    differentiated: Collection[int],
    split: Collection[int],
    split_names: Collection[str],
) -> MicroBatchArguments:
    """Assigns a role to each leaf of a call's arguments.

    Args:
      function: the function that is called, for the names of its parameters.
      args: its positional arguments.
      kwargs: its keyword arguments.
      micro_batches: the number of micro-batches.
      differentiated: the positions of the arguments to differentiate, from 0 on.
      split: the positions of the arguments to split.
      split_names: the keyword arguments to split.

    Raises:
      PipelineError: (a `ValueError`) an array that does not divide into the micro-batches.
      PipelineTypeError: (a `TypeError`) a differentiated leaf that is no array of floats.
    """
    positions = tuple(range(len(args)))
    names = parameter_names(function, positions) or [f"args[{i}]" for i in positions]
    paths_and_leaves, structure = jax.tree_util.tree_flatten_with_path((tuple(args), dict(kwargs)))
    leaves: list[ArgumentLeaf] = []
    fixes = {number: suggest_split(args[number], differentiated=True) for number in differentiated}
    for (kind, key, *rest), value in paths_and_leaves:
        if isinstance(kind, jax.tree_util.SequenceKey) and kind.idx == 0:
            number = key.idx if isinstance(key, jax.tree_util.SequenceKey) else 0
            path = f"{names[number]}{jax.tree_util.keystr(tuple(rest))}"
            is_split = number in split
            is_differentiated, fix = number in differentiated, fixes.get(number)
        else:
            name = key.key if isinstance(key, jax.tree_util.DictKey) else str(key)
            path = f"{name}{jax.tree_util.keystr(tuple(rest))}"
            is_split, is_differentiated, fix = name in split_names, False, None
        if is_differentiated:
            leaf = ArgumentLeaf(path, Role.DIFFERENTIATED, _require_inexact(value, path, fix))
        else:
            leaf = _assign_role_by_value(path, value, is_split, micro_batches)
        leaves.append(leaf)
    return MicroBatchArguments(tuple(leaves), structure, micro_batches)


def _require_inexact(value: Any, path: str, fix: str | None) -> jax.Array:
    """Returns a differentiated leaf as an array, or raises an error if it cannot be one."""
    try:
        array = jnp.asarray(value)
    except TypeError:
        raise check.type_error(
            f"{path} is to be differentiated, and is no array: {value!r}",
            fix or "leave it out of the differentiated argument: pass it in another one",
        ) from None
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        raise check.type_error(
            f"{path} is to be differentiated, and is {array.dtype}{list(array.shape)}: gradients "
            "are defined for arrays of floats",
            fix
            or "pass it in an argument that argnums does not name, which batch_argnums does not "
            "name either if it is the same for all micro-batches",
        )
    return array


def _assign_role_by_value(
    path: str, value: Any, is_split: bool, micro_batches: int
) -> ArgumentLeaf:
    """Assigns the role of a leaf that is not differentiated."""
    if isinstance(value, (bool, int, float, complex, str)) or not has_aval(value):
        return ArgumentLeaf(path, Role.STATIC, value)
    array = jnp.asarray(value)
    if not is_split:
        return ArgumentLeaf(path, Role.WHOLE, array)
    if not array.shape:
        is_key = jnp.issubdtype(array.dtype, jax.dtypes.prng_key)
        return ArgumentLeaf(path, Role.FOLDED if is_key else Role.WHOLE, array)
    if array.shape[0] % micro_batches:
        fix = (
            "pass a key of jax.random.PRNGKey as jax.random.wrap_key_data(key): each micro-batch "
            "gets it folded with its number"
            if array.shape == (2,) and array.dtype == jnp.uint32
            else f"give a multiple of {micro_batches} rows, or another number of micro_batches; "
            "what is the same for all micro-batches belongs to an argument that batch_argnums "
            "does not name"
        )
        raise check.value_error(
            f"{path} has {array.shape[0]} rows along axis 0, which do not divide into "
            f"{micro_batches} equal micro-batches: it is {array.dtype}{list(array.shape)}",
            fix,
        )
    return ArgumentLeaf(path, Role.SPLIT, array)


def has_aval(value: Any) -> bool:
    """Returns whether JAX takes a value as an array."""
    if isinstance(value, (jax.Array, np.generic)):
        return True
    try:
        jax.typeof(value)
    except TypeError:
        return False
    return True
