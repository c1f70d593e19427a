"""The untrained state of a pipeline: what its stages change from micro-batch to micro-batch."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ipujax.checks.structures import shown
from ipujax.errors import PipelineError
from ipujax.pipelines.values import check


@check.guard
class StageOutput(NamedTuple):
    """What a stage of a pipeline with untrained state may return in place of its outputs alone.

    Attributes:
      outputs: as a stage without state returns them.
      state: the state that the stage was given, with other arrays in the place of those leaves that
        it changes. A leaf that is the same array as before is not changed.
    """

    outputs: Any
    state: Any


def changes(who: str, before: Any, after: Any) -> dict[int, jax.Array]:
    """What a function of a stage has changed.

    Args:
      who: the function, for messages.
      before: the state that it was given, None if there is none.
      after: the one that it returned.

    Returns:
      The new arrays by their places among the state's leaves; no gradients flow through them.

    Raises:
      PipelineError: a state of another structure, or leaves of other shapes or dtypes.
    """
    if before is None:
        raise PipelineError(
            f"{who} returns a StageOutput, but the pipeline has no untrained state",
            fix="pass state=..., or return the outputs alone",
        )
    given, structure = jax.tree.flatten_with_path(before)
    returned, other = jax.tree.flatten(after)
    if other != structure:
        raise PipelineError(
            f"{who} returns a state of another structure than it was given:\n"
            f"  given    {shown(structure)}\n  returned {shown(other)}",
            fix="return the whole state, with other arrays in the place of the changed ones",
        )
    made: dict[int, jax.Array] = {}
    for place, ((path, old), leaf) in enumerate(zip(given, returned, strict=True)):
        if leaf is old:
            continue
        new = jnp.asarray(leaf)
        if (new.shape, new.dtype) != (old.shape, old.dtype):
            raise PipelineError(
                f"{who} turns state{jax.tree_util.keystr(path)} from "
                f"{old.dtype}{list(old.shape)} into {new.dtype}{list(new.shape)}",
                fix="keep its shape, and cast it (`.astype`) before it is returned",
            )
        made[place] = lax.stop_gradient(strong(new))
    return made


def leaf_name(state: Any, place: int) -> str:
    """The path to a leaf, for messages."""
    return jax.tree_util.keystr(jax.tree.leaves_with_path(state)[place][0])


def with_changes(state: Any, changed: dict[int, Any]) -> Any:
    """The state with other leaves at some places."""
    leaves, structure = jax.tree.flatten(state)
    return structure.unflatten([changed.get(place, leaf) for place, leaf in enumerate(leaves)])


def strong(leaf: Any) -> jax.Array:
    """An array whose dtype gives way to no other, as that of a Python number would."""
    array = jnp.asarray(leaf)
    return lax.convert_element_type(array, array.dtype)
