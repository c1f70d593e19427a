"""Which leaves of variables an optimizer sees: those that have gradients, and no others.

Integers, booleans and random keys may stand among the variables, as tables or counters that a
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

from ipujax.checks.arguments import Checks
from ipujax.errors import OptimizerError, OptimizerTypeError

check = Checks(OptimizerTypeError, OptimizerError)

Step = Callable[[Any, Any, Any], tuple[Any, Any]]
"""Gradients, state, variables -> updates, new state."""

_MASKED = optax.MaskedNode()
_BELONG = "give the gradients that jax.grad gives for these very variables, in their structure"


def is_trained(leaf: Any) -> bool:
    """Returns whether a variable, or its aval, has a gradient: whether it is of float or complex.

    Args:
      leaf: an array, an aval, or a Python number.
    """
    return bool(jnp.issubdtype(_dtype(leaf), jnp.inexact))


def are_all_trained(variables: Any) -> bool:
    """Returns whether each leaf of a pytree of variables has a gradient."""
    return all(map(is_trained, jax.tree.leaves(variables)))


def only_trained(tree: Any, variables: Any) -> Any:
    """Returns a tree with `optax.MaskedNode` where the leaf of the variables is not trained.

    Args:
      tree: in the structure of the variables; leaves may be None.
      variables: says which leaves are trained.
    """
    return jax.tree.map(lambda v, x: x if is_trained(v) else _MASKED, variables, tree)


def without_untrained(gradients: Any, variables: Any) -> Any:
    """Returns gradients with None in the place of each leaf that is not trained."""
    return jax.tree.map(lambda v, g: g if is_trained(v) else None, variables, gradients)


def apply_updates(variables: optax.Params, updates: Any) -> optax.Params:
    """Returns variables after an update, as `optax.apply_updates` does; others stay untouched."""

    def apply(variable: Any, update: Any) -> Any:
        return optax.apply_updates(variable, update) if is_trained(variable) else variable

    return jax.tree.map(apply, variables, updates)


def initial_state(opt: Any, variables: Any) -> Any:
    """Returns an optimizer's initial state, in the structure of `opt.init(variables)`.

    Leaves that are not trained have no say in it, such as in the dtype of a sum over all leaves.
    """
    whole = opt.init(variables)
    if are_all_trained(variables):
        return whole
    masked_variables = only_trained(variables, variables)
    structure, parts = _parts_of_state(opt, masked_variables, whole)
    if structure is None:
        return whole
    own = jax.tree.leaves(opt.init(masked_variables), is_leaf=_is_masked)
    pairs = zip(parts, own, strict=True)
    return structure.unflatten([part if masked else new for (masked, part), new in pairs])


def map_trained(mapped: Callable[[Any, Any], Any], gradients: Any, variables: Any) -> Any:
    """Returns what a function makes of the gradients of trained leaves; the others' stay.

    Args:
      mapped: gradients, variables -> gradients.
      gradients: in the structure of the variables; leaves may be None.
      variables: None where nobody gave any; then all gradients are mapped.

    What has another structure than the variables is returned as it is, for the caller to refuse.
    """
    if variables is None or are_all_trained(variables):
        return mapped(gradients, variables)
    made = mapped(only_trained(gradients, variables), only_trained(variables, variables))
    leaves, structure = jax.tree.flatten(variables)
    try:
        news = structure.flatten_up_to(made)
    except ValueError:
        return made
    olds = structure.flatten_up_to(gradients)
    triples = zip(leaves, news, olds, strict=True)
    return structure.unflatten([new if is_trained(leaf) else old for leaf, new, old in triples])


def step_trained(step: Step, opt: Any, gradients: Any, state: Any, variables: Any) -> Any:
    """Runs an optimizer's step on the trained leaves alone.

    Args:
      step: what the optimizer does with gradients, state and variables.
      opt: the optimizer, whose `init` tells which part of the state belongs to which leaf.
      gradients: in the structure of the variables; those of other leaves are not read.
      state: what `opt.init` gives for all variables, or for those that are trained.
      variables: None where nobody gave any; then all gradients are the optimizer's.

    Returns:
      `(updates, state)` in the structures of the variables and of the given state. The update of a
      leaf that is not trained is zero; None where its gradient is, and for random keys.
    """
    if variables is None or are_all_trained(variables):
        return step(gradients, state, variables)
    masked_variables = only_trained(variables, variables)
    structure, parts = _parts_of_state(opt, masked_variables, state)
    if structure is None:
        updates, state = _step_beside_zeros(step, gradients, state, variables)
        return _with_zeros(updates, gradients, variables), state
    masked_state = structure.unflatten([_MASKED if m else part for m, part in parts])
    masked_gradients = only_trained(gradients, variables)
    updates, changed = step(masked_gradients, masked_state, masked_variables)
    news = jax.tree.leaves(changed, is_leaf=_is_masked)
    if len(news) != len(parts):
        return _with_zeros(updates, gradients, variables), changed
    pairs = zip(parts, news, strict=True)
    filled = structure.unflatten([old if masked else new for (masked, old), new in pairs])
    return _with_zeros(updates, gradients, variables), filled


def _parts_of_state(opt: Any, masked_variables: Any, state: Any) -> tuple[Any, Any]:
    """What the state has at each place of a state for the trained leaves, and whether it is masked.

    Returns:
      The structure of such a state, and for each of its leaves whether no trained variable has it,
      and what the given state has there; `(None, [])` if the given state is not of this form.
    """
    shapes = jax.eval_shape(opt.init, masked_variables)
    leaves, structure = jax.tree.flatten(shapes, is_leaf=_is_masked)
    try:
        parts = structure.flatten_up_to(state)
    except (ValueError, TypeError):  # such as one vector of all variables together
        return None, []
    for leaf, part in zip(leaves, parts, strict=True):
        if not _is_masked(leaf) and jnp.shape(part) != leaf.shape:
            return None, []
    return structure, [(_is_masked(leaf), part) for leaf, part in zip(leaves, parts, strict=True)]


def _step_beside_zeros(step: Step, gradients: Any, state: Any, variables: Any) -> tuple[Any, Any]:
    """A step in which the other leaves are zeros: they add nothing to norms and sums."""

    def stand_in(variable: Any, leaf: Any) -> Any:
        return leaf if is_trained(variable) else jnp.zeros(jnp.shape(variable), jnp.float32)

    beside = jax.tree.map(stand_in, variables, gradients)
    updates, new = step(beside, state, jax.tree.map(stand_in, variables, variables))
    if jax.tree.structure(new) != jax.tree.structure(state):
        return updates, new
    return updates, jax.tree.map(_in_dtype_of, new, state)


def _in_dtype_of(new: Any, old: Any) -> Any:
    """What an optimizer keeps for a variable that is not trained has that variable's dtype."""
    return new if is_trained(old) else jnp.asarray(new, _dtype(old))


def _with_zeros(updates: Any, gradients: Any, variables: Any) -> Any:
    """Updates with a zero at each leaf that is not trained."""

    def fill(variable: Any, update: Any, gradient: Any) -> Any:
        if is_trained(variable):
            return update
        if gradient is None or jnp.issubdtype(_dtype(variable), jax.dtypes.extended):
            return None
        return jnp.zeros(jnp.shape(variable), _dtype(variable))

    return jax.tree.map(fill, variables, updates, gradients)


def _is_masked(node: Any) -> bool:
    return isinstance(node, optax.MaskedNode)


def _dtype(leaf: Any) -> Any:
    dtype = getattr(leaf, "dtype", None)
    return jnp.result_type(leaf) if dtype is None else dtype


# --- gradients that belong to variables -----------------------------------------------------------


def check_gradients(caller: str, gradients: Any, variables: Any) -> None:
    """Refuses gradients that do not belong to the variables.

    Args:
      caller: the optimizer's method, for messages.
      gradients: a pytree; leaves may be None.
      variables: a pytree; None where nobody gave any, which checks nothing.

    Raises:
      OptimizerError: (a `ValueError`) other names, a missing leaf, another shape, or a dtype that
        no gradient of the variable has.
    """
    if variables is None:
        return
    given, wanted = _by_name(gradients), _by_name(variables)
    missing = [name for name in wanted if name not in given]
    foreign = [name for name in given if name not in wanted]
    if missing or foreign:
        lacks = [f"there is none for {_join_names(missing)}"] if missing else []
        has = [f"there is one for {_join_names(foreign)}, which is no variable"] if foreign else []
        raise check.refuse(
            f"{caller} was given gradients that do not belong to the variables: "
            + ", and ".join([*lacks, *has]),
            _BELONG,
        )
    for name, variable in wanted.items():
        if (wrong := _mismatch(given[name], variable)) is not None:
            raise check.refuse(f"{caller} was given {wrong} for variable {name}", _BELONG)
    if jax.tree.structure(gradients, is_leaf=_is_none) != jax.tree.structure(
        variables, is_leaf=_is_none
    ):
        raise check.refuse(
            f"{caller} was given gradients in containers of other types than the variables': "
            f"{jax.tree.structure(gradients)} for {jax.tree.structure(variables)}",
            _BELONG,
        )


def _is_none(leaf: object) -> bool:
    return leaf is None


def _by_name(tree: Any) -> dict[str, Any]:
    """The leaves of a tree, None among them, by their names for messages."""
    leaves = jax.tree_util.tree_leaves_with_path(tree, is_leaf=_is_none)
    return {jax.tree_util.keystr(path) or "the only one": leaf for path, leaf in leaves}


def _join_names(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _mismatch(gradient: Any, variable: Any) -> str | None:
    """Returns what is wrong with a gradient for a variable; None if nothing is."""
    if gradient is None or variable is None:
        return None
    try:
        dtype, shape = _dtype(gradient), jnp.shape(gradient)
    except (TypeError, ValueError):
        return f"a {type(gradient).__name__}, which is no array,"
    if shape != jnp.shape(variable):
        return f"a gradient of shape {list(shape)} instead of {list(jnp.shape(variable))}"
    if not is_trained(variable):
        return None
    kind = jnp.inexact if jnp.issubdtype(_dtype(variable), jnp.complexfloating) else jnp.floating
    if jnp.issubdtype(dtype, kind):
        return None
    return f"a gradient of {dtype.name}, where the variable is {_dtype(variable).name},"
