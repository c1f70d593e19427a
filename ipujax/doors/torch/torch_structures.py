"""Checks and conversions of input and output structures between PyTorch and JAX."""

from __future__ import annotations

import dataclasses as dc
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from torch.utils import _pytree as pytree

from ipujax.doors.models import check
from ipujax.doors.torch.capture import ModuleTrace
from ipujax.ground import PyTree


def flatten_inputs(
    module_trace: ModuleTrace, args: tuple[object, ...], kwargs: dict[str, object]
) -> list[PyTree]:
    """Flattens user inputs and checks them against the example inputs of the trace.

    Raises:
      FrontendError: (a `ValueError`) the structure, a shape, a dtype or a constant differs from the
        example.
    """
    paths, structure = pytree.tree_flatten_with_path((tuple(args), kwargs))
    if structure != module_trace.in_tree:
        raise check.value_error(
            f"the model was traced for inputs {module_trace.in_tree}, and is given {structure}",
            "give inputs of the structure that it was traced for",
        )
    for (path, leaf), example in zip(paths, module_trace.examples, strict=True):
        _check_input_leaf(path, leaf, example)
    return [leaf for _, leaf in paths]


def _check_input_leaf(path: Any, leaf: Any, example: object) -> None:
    name = f"input {pytree.keystr(path[1:])}"
    conversion_fix = "convert the model again, with an example of this shape and dtype"
    if not isinstance(example, jax.ShapeDtypeStruct):
        if type(leaf) is not type(example) or leaf != example:
            problem = (
                f"{name} is the constant {example!r} in the traced model, and {leaf!r} is given"
            )
            static_fix = "give the constant as it is: name it in jax.jit's static_argnums"
            raise check.value_error(
                problem, static_fix if isinstance(leaf, Tracer) else conversion_fix
            )
        return
    if leaf is None:
        raise check.value_error(
            f"{name} is a tensor in the traced model, and None is given", conversion_fix
        )
    aval = jax.ShapeDtypeStruct(np.shape(leaf), jnp.result_type(leaf))
    if aval != example:
        raise check.value_error(
            f"{name} has shape {aval.shape} and dtype {aval.dtype}, and the model was traced for "
            f"shape {example.shape} and dtype {example.dtype}",
            conversion_fix,
        )


def to_jax_pytree(tree: PyTree) -> PyTree:
    """Converts a structure to dictionaries and tuples, which JAX knows as pytrees."""
    if isinstance(tree, dict):
        return {name: to_jax_pytree(item) for name, item in tree.items()}
    if isinstance(tree, tuple):
        items = tuple(map(to_jax_pytree, tree))
        return type(tree)(*items) if hasattr(tree, "_fields") else items
    if isinstance(tree, list):
        return [to_jax_pytree(item) for item in tree]
    if dc.is_dataclass(tree) and not isinstance(tree, type):
        return {field.name: to_jax_pytree(getattr(tree, field.name)) for field in dc.fields(tree)}
    return tree
