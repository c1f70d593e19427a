"""Variants of a function with products in parts, as by `ipujax.math_ops.serialized_matmul`.

The variants serve to model what that would gain: they are lowered and modelled, never run.
"""

from __future__ import annotations

import dataclasses as dc
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from lowering import marks
from lowering.jaxprs import (
    Atom,
    ClosedJaxpr,
    EquationFinder,
    EquationRewriter,
    Jaxpr,
    JaxprEqn,
    Literal,
    dtype_name,
    fresh_var,
    name_stack,
    rewrite_equations,
    shape_of,
    sub_jaxprs,
    typed_jax,
    unique_variables,
    user_line,
    walk_equations,
)

_DTYPES = ("float16", "float32", "int32")


@dc.dataclass(frozen=True, slots=True)
class Product:
    """The products `[..., m, k] @ [..., k, n]` that a source line makes in the forward pass.

    Attributes:
      line: the user's source line.
      shape: the shape and dtype of the largest result.
      extents: the greatest common divisors of the sizes of `m`, `k` and `n`: every number of parts
        into which all products can be cut divides them.
      largest: `m`, `k` and `n` of the largest one.
    """

    line: str
    shape: str
    extents: dict[str, int]
    largest: dict[str, int]


class _Axes(NamedTuple):
    """The axis of a dimension in each operand and in the result; None where it is not."""

    left: int | None
    right: int | None
    result: int | None


def find_product_at_line(closed: ClosedJaxpr, line: str) -> Product | None:
    """Returns the products of a line; None if one could not be a `serialized_matmul`."""
    products_on_line = [
        eqn for eqn in walk_equations(closed.jaxpr) if _is_product(eqn) and user_line(eqn) == line
    ]
    forward = [eqn for eqn in products_on_line if not _is_backward(eqn)]
    if not forward or not all(map(_is_matmul, forward)):
        return None
    extents = [{letter: _size_of_dimension(eqn, letter) for letter in "mkn"} for eqn in forward]
    num_multiplications = [
        sizes_of_product["m"] * sizes_of_product["k"] * sizes_of_product["n"]
        for sizes_of_product in extents
    ]
    index_of_largest = num_multiplications.index(max(num_multiplications))
    result = forward[index_of_largest].outvars[0].aval
    shape = f"{dtype_name(result)}[{','.join(map(str, shape_of(result)))}]"
    common = {letter: math.gcd(*(each[letter] for each in extents)) for letter in "mkn"}
    return Product(line, shape, common, extents[index_of_largest])


def serialize_products(
    closed: ClosedJaxpr, line: str, dimension: str, num_parts: int
) -> ClosedJaxpr:
    """Returns the function with the products of a line, and their derivatives, in parts.

    Args:
      closed: a function.
      line: a source line with products (see `Product`).
      dimension: the dimension that is cut, "m", "k" or "n".
      num_parts: into how many parts.
    """

    def is_product_to_split(eqn: JaxprEqn) -> bool:
        is_on_line = _is_product(eqn) and user_line(eqn) == line
        return is_on_line and _size_of_dimension(eqn, dimension) % num_parts == 0

    partners = _find_products_in_one_loop(closed.jaxpr, is_product_to_split)
    splitter = _Splitter(num_parts)

    def replace_by_loop(rewriter: EquationRewriter, eqn: JaxprEqn) -> None:
        joint_products = partners.get(id(eqn), [eqn])
        if eqn is joint_products[0]:
            joint = splitter.split_operands_of_equation(
                rewriter,
                _join_products_of_one_operand(joint_products),
                _axes_to_split(joint_products, dimension),
            )
            rewriter.replace_by_function(
                joint,
                lambda *values: _multiply_products_in_parts(
                    joint_products, values, dimension, num_parts
                ),
            )

    return rewrite_equations(closed, EquationFinder(is_product_to_split), replace_by_loop)


class _Splitter:
    """A cutter of operands; cuts each once in a body, for the product and its derivatives."""

    def __init__(self, num_parts: int) -> None:
        self._factor = num_parts
        self._known: dict[tuple[EquationRewriter, Atom, int], Atom] = {}

    def split_operands_of_equation(
        self, rewriter: EquationRewriter, eqn: JaxprEqn, axes: Sequence[int | None]
    ) -> JaxprEqn:
        """Returns the equation with its operands cut along these axes before it."""
        invars = list(eqn.invars)
        for position, (atom, axis) in enumerate(zip(eqn.invars, axes, strict=True)):
            if axis is None or isinstance(atom, Literal):
                continue
            key = rewriter, atom, axis
            if key not in self._known:
                extents = _split_extents(shape_of(atom.aval), axis, self._factor)
                part = self._known[key] = fresh_var(atom.aval.update(shape=extents))
                cut = eqn.replace(invars=[atom], outvars=[part])

                def split_operand(x: Any, axis: int = axis) -> list[Any]:
                    return [_split_operand_axis(x, axis, self._factor)]

                rewriter.replace_by_function(cut, split_operand)
            invars[position] = self._known[key]
        return eqn.replace(invars=invars)


def _axes_to_split(eqns: Sequence[JaxprEqn], dimension: str) -> list[int | None]:
    """Returns the axis along which each operand of a joint equation is cut, or None."""
    axes = [_axes_of_dimension(eqn, dimension) for eqn in eqns]
    return [axes[0].left, *(axes_of_product.right for axes_of_product in axes)]


def _find_products_in_one_loop(
    jaxpr: Jaxpr, is_product_to_split: Callable[[JaxprEqn], bool]
) -> dict[int, list[JaxprEqn]]:
    """Returns, at any depth, the two derivatives of a product that one loop makes, by each."""
    partners: dict[int, list[JaxprEqn]] = {}
    waiting = [jaxpr]
    while waiting:
        body = waiting.pop()
        waiting += [sub_jaxpr for eqn in body.eqns for sub_jaxpr in sub_jaxprs(eqn)]
        position_of_variable = {
            var: position for position, eqn in enumerate(body.eqns) for var in eqn.outvars
        }
        first_use_of_operand: dict[Any, tuple[int, JaxprEqn]] = {}
        for place, eqn in enumerate(body.eqns):
            if (
                not is_product_to_split(eqn)
                or not _is_backward(eqn)
                or isinstance(eqn.invars[0], Literal)
            ):
                continue
            first_position, partner = first_use_of_operand.setdefault(eqn.invars[0], (place, eqn))
            can_move_up = all(
                position_of_variable.get(var, -1) < first_position
                for var in unique_variables(eqn.invars)
            )
            if partner is not eqn and can_move_up and id(partner) not in partners:
                partners[id(eqn)] = partners[id(partner)] = [partner, eqn]
    return partners


def _join_products_of_one_operand(eqns: Sequence[JaxprEqn]) -> JaxprEqn:
    """Returns one equation for products of one left operand, with all right ones and results."""
    invars = [eqns[0].invars[0], *(eqn.invars[1] for eqn in eqns)]
    return eqns[0].replace(invars=invars, outvars=[var for eqn in eqns for var in eqn.outvars])


def _is_product(eqn: JaxprEqn) -> bool:
    return eqn.primitive.name == "dot_general"


def _is_backward(eqn: JaxprEqn) -> bool:
    stack = name_stack(eqn)
    return marks.read_marks(stack).backward and "rematted_computation" not in stack


def _is_matmul(eqn: JaxprEqn) -> bool:
    """Returns whether a product multiplies matrices: `[..., m, k] @ [k, n]`."""
    (contracted, _), _ = eqn.params["dimension_numbers"]
    free_left, free_right = (_free_axes(eqn, side) for side in (0, 1))
    types = {dtype_name(atom.aval) for atom in eqn.invars}
    has_matmul_axes = len(contracted) == 1 and len(free_left) >= 1 and len(free_right) == 1
    return has_matmul_axes and len(types) == 1 and types <= set(_DTYPES)


def _free_axes(eqn: JaxprEqn, side: int) -> list[int]:
    """Returns the axes of an operand that are neither contracted nor batched."""
    contracted, batched = eqn.params["dimension_numbers"]
    used_axes = {*contracted[side], *batched[side]}
    return [axis for axis in range(len(shape_of(eqn.invars[side].aval))) if axis not in used_axes]


def _axes_of_dimension(eqn: JaxprEqn, dimension: str) -> _Axes:
    """Returns the axes of a dimension of the forward product, in it or in a derivative.

    JAX takes the cotangent `[..., m, n]` as the left operand of both: for that of the left operand
    it contracts `n`, the last dimension, and for that of the right one all those in front.
    """
    (contracted, contracted_right), (batched, _) = eqn.params["dimension_numbers"]
    roles = "mkn"  # free on the left, contracted, free on the right
    if _is_backward(eqn):
        last = len(shape_of(eqn.invars[0].aval)) - 1
        roles = "mnk" if tuple(contracted) == (last,) else "nmk"
    role = roles.index(dimension)
    if role == 1:
        position = max(range(len(contracted)), key=contracted.__getitem__)
        return _Axes(contracted[position], contracted_right[position], None)
    free_axes = [_free_axes(eqn, side) for side in (0, 1)]
    if role == 0:
        return _Axes(free_axes[0][-1], None, len(batched) + len(free_axes[0]) - 1)
    return _Axes(None, free_axes[1][-1], len(shape_of(eqn.outvars[0].aval)) - 1)


def _size_of_dimension(eqn: JaxprEqn, dimension: str) -> int:
    left_axis, right_axis, _ = _axes_of_dimension(eqn, dimension)
    operand, axis = (0, left_axis) if left_axis is not None else (1, right_axis)
    return int(shape_of(eqn.invars[operand].aval)[axis or 0])


def _multiply_products_in_parts(
    eqns: Sequence[JaxprEqn], operands: Sequence[Any], dimension: str, num_parts: int
) -> list[Any]:
    """Computes products of one left operand, part by part, in one loop."""
    axes = [_axes_of_dimension(eqn, dimension) for eqn in eqns]
    split_axes = _axes_to_split(eqns, dimension)
    pairs = list(zip(_join_products_of_one_operand(eqns).invars, operands, split_axes, strict=True))
    # Literals are not cut yet, unlike the other operands.
    split_operands = [
        _split_operand_axis(x, axis, num_parts) if isinstance(a, Literal) else x
        for a, x, axis in pairs
    ]
    parts = [
        None if axis is None else x for x, axis in zip(split_operands, split_axes, strict=True)
    ]
    left_operand, *right_operands = operands

    def multiply_one_part(
        totals: list[Any], parts: tuple[Any, list[Any]]
    ) -> tuple[list[Any], list[Any]]:
        left_part = left_operand if parts[0] is None else parts[0]
        products: list[Any] = []
        for eqn, right_operand, right_part in zip(eqns, right_operands, parts[1], strict=True):
            params = eqn.primitive.get_bind_params(eqn.params)
            products.append(
                eqn.primitive.bind(
                    left_part, right_operand if right_part is None else right_part, **params
                )
            )
        pairs = list(zip(totals, products, strict=True))
        sums = [None if total is None else total + product for total, product in pairs]
        return sums, [product if total is None else None for total, product in pairs]

    initial_totals = [
        None if a.result is not None else _zeros_for_sum_of_parts(e)
        for e, a in zip(eqns, axes, strict=True)
    ]
    totals, stacks = lax.scan(multiply_one_part, initial_totals, (parts[0], parts[1:]))
    return [
        total.astype(dtype_name(eqn.outvars[0].aval))
        if product_axes.result is None
        else _join_parts(stack, product_axes.result)
        for eqn, product_axes, total, stack in zip(eqns, axes, totals, stacks, strict=True)
    ]


def _zeros_for_sum_of_parts(eqn: JaxprEqn) -> Any:
    """Returns the zeros that parts are added to; a forward float16 product is added in float32."""
    result = eqn.outvars[0].aval
    wide = dtype_name(result) == "float16" and not _is_backward(eqn)
    return typed_jax.zeros(shape_of(result), "float32" if wide else dtype_name(result))


def _split_operand_axis(x: Any, axis: int | None, num_parts: int) -> Any:
    if axis is None:
        return None
    extents = *x.shape[:axis], num_parts, x.shape[axis] // num_parts, *x.shape[axis + 1 :]
    return jnp.moveaxis(x.reshape(extents), axis, 0)


def _split_extents(shape: Sequence[int], axis: int, num_parts: int) -> tuple[int, ...]:
    """Returns the extents of an array that is split along an axis, the parts in front."""
    return num_parts, *shape[:axis], shape[axis] // num_parts, *shape[axis + 1 :]


def _join_parts(parts: Any, axis: int) -> Any:
    extents = list(parts.shape[1:])
    extents[axis] *= len(parts)
    return jnp.moveaxis(parts, 0, axis).reshape(extents)
