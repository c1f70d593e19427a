"""The structures of a module's inputs and outputs, between PyTorch and JAX."""

from __future__ import annotations

import dataclasses as dc
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from torch.utils import _pytree as pytree

from ipujax.frontends.checks import check
from ipujax.frontends.pytorch.capture import Captured


def leaves_of(found: Captured, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The leaves of what the user gives.

    Raises:
      FrontendError: (a `ValueError`) other structures, shapes, dtypes or constants than those of
        the example.
    """
    paths, structure = pytree.tree_flatten_with_path((tuple(args), kwargs))
    if structure != found.in_tree:
        raise check.refuse(
            f"the model was traced for inputs {found.in_tree}, and is given {structure}",
            "give inputs of the structure that it was traced for",
        )
    for (path, leaf), example in zip(paths, found.examples, strict=True):
        _check_leaf(path, leaf, example)
    return [leaf for _, leaf in paths]


def _check_leaf(path: Any, leaf: Any, example: Any) -> None:
    name = f"input {pytree.keystr(path[1:])}"
    again = "convert the module anew, with an example of this form"
    if not isinstance(example, jax.ShapeDtypeStruct):
        if type(leaf) is not type(example) or leaf != example:
            said = f"{name} is the constant {example!r} in the traced model, and {leaf!r} is given"
            static = "give the constant as it is: name it in jax.jit's static_argnums"
            raise check.refuse(said, static if isinstance(leaf, Tracer) else again)
        return
    if leaf is None:
        raise check.refuse(f"{name} is a tensor in the traced model, and None is given", again)
    given = jax.ShapeDtypeStruct(np.shape(leaf), jnp.result_type(leaf))
    if given != example:
        raise check.refuse(
            f"{name} has shape {given.shape} and dtype {given.dtype}, and the model was traced for "
            f"shape {example.shape} and dtype {example.dtype}",
            again,
        )


def plain(tree: Any) -> Any:
    """A structure that JAX knows: dictionaries and tuples in the place of PyTorch's own classes."""
    if isinstance(tree, dict):
        return {name: plain(item) for name, item in tree.items()}
    if isinstance(tree, tuple):
        items = tuple(map(plain, tree))
        return type(tree)(*items) if hasattr(tree, "_fields") else items
    if isinstance(tree, list):
        return [plain(item) for item in tree]
    if dc.is_dataclass(tree) and not isinstance(tree, type):
        return {field.name: plain(getattr(tree, field.name)) for field in dc.fields(tree)}
    return tree
