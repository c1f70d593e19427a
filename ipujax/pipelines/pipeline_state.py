"""The untrained state of a pipeline, which its stages change from micro-batch to micro-batch."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ipujax.ground import PipelineError, structure_text
from ipujax.operators import without_weak_type
from ipujax.pipelines.single_argument_checks import check


@check.guard
class StageOutput(NamedTuple):
    """The result of a stage that changes the untrained state: its outputs and the new state.

    Attributes:
      outputs: as a stage without state returns them.
      state: the state that the stage was given, with other arrays in the place of those leaves that
        it changes. A leaf that is the same array as before is not changed.
    """

    outputs: Any
    state: Any


def find_changed_leaves(function_name: str, old_state: Any, new_state: Any) -> dict[int, jax.Array]:
    """Finds the leaves of the state that a function of a stage has changed.

    Args:
      function_name: the function, for messages.
      old_state: the state that it was given, None if there is none.
      new_state: the one that it returned.

    Returns:
      The new arrays by their places among the state's leaves; no gradients flow through them.

    Raises:
      PipelineError: a state of another structure, or leaves of other shapes or dtypes.
    """
    if old_state is None:
        raise PipelineError(
            f"{function_name} returns a StageOutput, but the pipeline has no untrained state",
            fix="pass state=..., or return the outputs alone",
        )
    old_leaves, structure = jax.tree.flatten_with_path(old_state)
    returned, new_structure = jax.tree.flatten(new_state)
    if new_structure != structure:
        raise PipelineError(
            f"{function_name} returns a state of another structure than it was given:\n"
            f"  given    {structure_text(structure)}\n  returned {structure_text(new_structure)}",
            fix="return the whole state, with other arrays in the place of the changed ones",
        )
    changed: dict[int, jax.Array] = {}
    for leaf_number, ((path, old), leaf) in enumerate(zip(old_leaves, returned, strict=True)):
        if leaf is old:
            continue
        new = jnp.asarray(leaf)
        if (new.shape, new.dtype) != (old.shape, old.dtype):
            raise PipelineError(
                f"{function_name} turns state{jax.tree_util.keystr(path)} from "
                f"{old.dtype}{list(old.shape)} into {new.dtype}{list(new.shape)}",
                fix="keep its shape, and cast it (`.astype`) before it is returned",
            )
        changed[leaf_number] = lax.stop_gradient(without_weak_type(new))
    return changed


def state_leaf_path(state: Any, leaf_number: int) -> str:
    """Returns the path to a leaf of the state, for messages."""
    return jax.tree_util.keystr(jax.tree.leaves_with_path(state)[leaf_number][0])


def replace_leaves(state: Any, changed: dict[int, Any]) -> Any:
    """Returns the state with some leaves replaced, by their numbers."""
    leaves, structure = jax.tree.flatten(state)
    return structure.unflatten(
        [changed.get(leaf_number, leaf) for leaf_number, leaf in enumerate(leaves)]
    )
