"""The trained leaves of variables, which have gradients: the only ones that optimizers see.

Integers, booleans and random keys may be among the variables, as tables or counters that a
model reads. No optimizer of optax expects them: a norm over all gradients fails, and a decay
changes them. So each step runs on trees in which `optax.MaskedNode` stands for such a leaf, as
`optax.masked` does it. The optimizer's state keeps the structure that `opt.init(variables)` gave.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from ipujax.ground import Checks, OptimizerError, OptimizerTypeError, PyTree

check = Checks(OptimizerTypeError, OptimizerError)

Step = Callable[[PyTree, PyTree, PyTree], tuple[PyTree, PyTree]]
"""Gradients, state, variables -> updates, new state."""

_MASKED = optax.MaskedNode()
_BELONG = "give the gradients that jax.grad gives for these very variables, in their structure"


def has_gradient(leaf: PyTree) -> bool:
    """Returns whether a variable, or its aval, has a gradient: whether it is of float or complex.

    Args:
      leaf: an array, an aval, or a Python number.
    """
    return bool(jnp.issubdtype(_dtype_of_leaf(leaf), jnp.inexact))


def are_all_trained(variables: PyTree) -> bool:
    """Returns whether each leaf of a pytree of variables has a gradient."""
    return all(map(has_gradient, jax.tree.leaves(variables)))


def mask_untrained_leaves(tree: PyTree, variables: PyTree) -> PyTree:
    """Returns a tree with `optax.MaskedNode` where the leaf of the variables is not trained.

    Args:
      tree: a tree in the structure of the variables; leaves may be None.
      variables: the variables, which decide the trained leaves.
    """
    return jax.tree.map(
        lambda variable, leaf: leaf if has_gradient(variable) else _MASKED, variables, tree
    )


def drop_untrained_gradients(gradients: PyTree, variables: PyTree) -> PyTree:
    """Returns gradients with None in the place of each leaf that is not trained."""
    return jax.tree.map(
        lambda variable, gradient: gradient if has_gradient(variable) else None,
        variables,
        gradients,
    )


def apply_updates(variables: optax.Params, updates: PyTree) -> optax.Params:
    """Returns variables after an update, as `optax.apply_updates` does; others stay untouched."""

    def apply_leaf_update(variable: PyTree, update: PyTree) -> PyTree:
        return optax.apply_updates(variable, update) if has_gradient(variable) else variable

    return jax.tree.map(apply_leaf_update, variables, updates)


def init_optimizer_state(opt: optax.GradientTransformation, variables: PyTree) -> PyTree:
    """Returns an optimizer's initial state, in the structure of `opt.init(variables)`.

    Leaves that are not trained do not influence it, such as the dtype of a sum over all leaves.
    """
    full_state = opt.init(variables)
    if are_all_trained(variables):
        return full_state
    masked_variables = mask_untrained_leaves(variables, variables)
    structure, parts_of_state = _match_state_to_trained(opt, masked_variables, full_state)
    if structure is None:
        return full_state
    trained_parts = jax.tree.leaves(opt.init(masked_variables), is_leaf=_is_masked)
    pairs = zip(parts_of_state, trained_parts, strict=True)
    return structure.unflatten([part if masked else new for (masked, part), new in pairs])


def map_trained_gradients(
    map_function: Callable[[PyTree, PyTree], PyTree], gradients: PyTree, variables: PyTree
) -> PyTree:
    """Returns the gradients, with those of trained leaves mapped by a function.

    Args:
      map_function: gradients, variables -> gradients.
      gradients: gradients in the structure of the variables; leaves may be None.
      variables: the variables; with None all gradients are mapped.

    Gradients of another structure than the variables are returned, for the caller to refuse.
    """
    if variables is None or are_all_trained(variables):
        return map_function(gradients, variables)
    mapped_gradients = map_function(
        mask_untrained_leaves(gradients, variables), mask_untrained_leaves(variables, variables)
    )
    leaves, structure = jax.tree.flatten(variables)
    try:
        new_gradients = structure.flatten_up_to(mapped_gradients)
    except ValueError:
        return mapped_gradients
    old_gradients = structure.flatten_up_to(gradients)
    triples = zip(leaves, new_gradients, old_gradients, strict=True)
    return structure.unflatten([new if has_gradient(leaf) else old for leaf, new, old in triples])


def run_step_on_trained(
    step: Step,
    opt: optax.GradientTransformation,
    gradients: PyTree,
    state: PyTree,
    variables: PyTree,
) -> PyTree:
    """Runs an optimizer's step on the trained leaves alone.

    Args:
      step: the optimizer's step: gradients, state, variables -> updates, new state.
      opt: the optimizer, whose `init` shows which part of the state belongs to which leaf.
      gradients: gradients in the structure of the variables; those of other leaves are not read.
      state: the state that `opt.init` gives for all variables, or for those that are trained.
      variables: the variables; with None the step sees all gradients.

    Returns:
      `(updates, state)` in the structures of the variables and of the given state. The update of a
      leaf that is not trained is zero; None where its gradient is, and for random keys.
    """
    if variables is None or are_all_trained(variables):
        return step(gradients, state, variables)
    masked_variables = mask_untrained_leaves(variables, variables)
    structure, parts = _match_state_to_trained(opt, masked_variables, state)
    if structure is None:
        updates, state = _run_step_with_zeros(step, gradients, state, variables)
        return _fill_zero_updates(updates, gradients, variables), state
    masked_state = structure.unflatten(
        [_MASKED if is_masked else part for is_masked, part in parts]
    )
    masked_gradients = mask_untrained_leaves(gradients, variables)
    updates, new_state = step(masked_gradients, masked_state, masked_variables)
    new_parts = jax.tree.leaves(new_state, is_leaf=_is_masked)
    if len(new_parts) != len(parts):
        return _fill_zero_updates(updates, gradients, variables), new_state
    pairs = zip(parts, new_parts, strict=True)
    filled_state = structure.unflatten([old if masked else new for (masked, old), new in pairs])
    return _fill_zero_updates(updates, gradients, variables), filled_state


def _match_state_to_trained(
    opt: optax.GradientTransformation, masked_variables: PyTree, state: PyTree
) -> tuple[PyTree, PyTree]:
    """Matches a state with one of the trained leaves alone; returns its parts.

    Returns:
      The structure of a state of the trained leaves, and for each of its leaves whether it is
      masked, and the part of the given state there; `(None, [])` if the state does not match.
    """
    state_of_trained = jax.eval_shape(opt.init, masked_variables)
    leaves, structure = jax.tree.flatten(state_of_trained, is_leaf=_is_masked)
    try:
        parts = structure.flatten_up_to(state)
    except (ValueError, TypeError):  # such as one vector for all variables together
        return None, []
    for leaf, part in zip(leaves, parts, strict=True):
        if not _is_masked(leaf) and jnp.shape(part) != leaf.shape:
            return None, []
    return structure, [(_is_masked(leaf), part) for leaf, part in zip(leaves, parts, strict=True)]


def _run_step_with_zeros(
    step: Step, gradients: PyTree, state: PyTree, variables: PyTree
) -> tuple[PyTree, PyTree]:
    """Runs a step in which untrained leaves are zeros, which add nothing to norms and sums."""

    def stand_in(variable: PyTree, leaf: PyTree) -> PyTree:
        return leaf if has_gradient(variable) else jnp.zeros(jnp.shape(variable), jnp.float32)

    gradients_with_zeros = jax.tree.map(stand_in, variables, gradients)
    updates, new_state = step(
        gradients_with_zeros, state, jax.tree.map(stand_in, variables, variables)
    )
    if jax.tree.structure(new_state) != jax.tree.structure(state):
        return updates, new_state
    return updates, jax.tree.map(_keep_dtype_of_untrained, new_state, state)


def _keep_dtype_of_untrained(new: PyTree, old: PyTree) -> PyTree:
    """Returns a leaf of the new state, in the old dtype unless that is trained."""
    return new if has_gradient(old) else jnp.asarray(new, _dtype_of_leaf(old))


def _fill_zero_updates(updates: PyTree, gradients: PyTree, variables: PyTree) -> PyTree:
    """Returns updates with a zero at each leaf that is not trained."""

    def fill_update(variable: PyTree, update: PyTree, gradient: PyTree) -> PyTree:
        if has_gradient(variable):
            return update
        if gradient is None or jnp.issubdtype(_dtype_of_leaf(variable), jax.dtypes.extended):
            return None
        return jnp.zeros(jnp.shape(variable), _dtype_of_leaf(variable))

    return jax.tree.map(fill_update, variables, updates, gradients)


def _is_masked(node: PyTree) -> bool:
    return isinstance(node, optax.MaskedNode)


def _dtype_of_leaf(leaf: PyTree) -> Any:
    dtype = getattr(leaf, "dtype", None)
    return jnp.result_type(leaf) if dtype is None else dtype


# --- gradients that belong to variables -----------------------------------------------------------


def check_gradients(caller: str, gradients: PyTree, variables: PyTree) -> None:
    """Refuses gradients that do not belong to the variables.

    Args:
      caller: the optimizer's method, for messages.
      gradients: a pytree; leaves may be None.
      variables: a pytree; None checks nothing.

    Raises:
      OptimizerError: (a `ValueError`) other names, a missing leaf, another shape, or a dtype that
        no gradient of the variable has.
    """
    if variables is None:
        return
    gradients_by_name, variables_by_name = _leaves_by_name(gradients), _leaves_by_name(variables)
    missing = [name for name in variables_by_name if name not in gradients_by_name]
    foreign = [name for name in gradients_by_name if name not in variables_by_name]
    if missing or foreign:
        missing_text = [f"there is none for {_join_names(missing)}"] if missing else []
        foreign_text = (
            [f"there is one for {_join_names(foreign)}, which is no variable"] if foreign else []
        )
        raise check.value_error(
            f"{caller} was given gradients that do not belong to the variables: "
            + ", and ".join([*missing_text, *foreign_text]),
            _BELONG,
        )
    for name, variable in variables_by_name.items():
        if (mismatch := _describe_gradient_mismatch(gradients_by_name[name], variable)) is not None:
            raise check.value_error(f"{caller} was given {mismatch} for variable {name}", _BELONG)
    if jax.tree.structure(gradients, is_leaf=is_none) != jax.tree.structure(
        variables, is_leaf=is_none
    ):
        raise check.value_error(
            f"{caller} was given gradients in containers of other types than the variables': "
            f"{jax.tree.structure(gradients)} for {jax.tree.structure(variables)}",
            _BELONG,
        )


def is_none(leaf: object) -> bool:
    """Returns whether a leaf of gradients is None."""
    return leaf is None


def _leaves_by_name(tree: PyTree) -> dict[str, PyTree]:
    """Returns the leaves of a tree, with None among them, by their names for messages."""
    leaves = jax.tree_util.tree_leaves_with_path(tree, is_leaf=is_none)
    return {jax.tree_util.keystr(path) or "the only one": leaf for path, leaf in leaves}


def _join_names(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _describe_gradient_mismatch(gradient: PyTree, variable: PyTree) -> str | None:
    """Returns the fault of a gradient for a variable; None if there is none."""
    if gradient is None or variable is None:
        return None
    try:
        dtype, shape = _dtype_of_leaf(gradient), jnp.shape(gradient)
    except (TypeError, ValueError):
        return f"a {type(gradient).__name__}, which is no array,"
    if shape != jnp.shape(variable):
        return f"a gradient of shape {list(shape)} instead of {list(jnp.shape(variable))}"
    if not has_gradient(variable):
        return None
    expected_kind = (
        jnp.inexact
        if jnp.issubdtype(_dtype_of_leaf(variable), jnp.complexfloating)
        else jnp.floating
    )
    if jnp.issubdtype(dtype, expected_kind):
        return None
    return f"a gradient of {dtype.name}, where the variable is {_dtype_of_leaf(variable).name},"
