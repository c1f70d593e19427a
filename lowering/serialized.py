"""Products of a traced function in parts, as `ipujax.math_ops.serialized_matmul` computes them.

The results are for models of what that brings: they are lowered and modelled, never run.
"""

from __future__ import annotations

import dataclasses as dc
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from lowering import marks
from lowering.avals import dtype_name, shape_of
from lowering.equations import variables, walk
from lowering.jaxpr import (
    Atom,
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Literal,
    fresh_var,
    name_stack,
    sub_jaxprs,
    user_line,
)
from lowering.passes.rewrite import Anywhere, Rewriter, rewritten

_DTYPES = ("float16", "float32", "int32")


@dc.dataclass(frozen=True, slots=True)
class Product:
    """Products that a line of the user's makes in the forward pass, `[..., m, k] @ [..., k, n]`.

    Attributes:
      line: where.
      shape: of the largest of them, with its dtype.
      extents: for `m`, `k` and `n` what all of these have in common: a number of parts into which
        each of them can be cut divides it.
      largest: `m`, `k` and `n` of the largest one.
    """

    line: str
    shape: str
    extents: dict[str, int]
    largest: dict[str, int]


class _Axes(NamedTuple):
    """Where a dimension is; None where it is not."""

    left: int | None
    right: int | None
    result: int | None


def product_at(closed: ClosedJaxpr, line: str) -> Product | None:
    """What a line multiplies; None if not all of that could be a `serialized_matmul`."""
    here = [eqn for eqn in walk(closed.jaxpr) if _is_product(eqn) and user_line(eqn) == line]
    forward = [eqn for eqn in here if not _is_backward(eqn)]
    if not forward or not all(map(_is_matmul, forward)):
        return None
    extents = [{letter: _extent(eqn, letter) for letter in "mkn"} for eqn in forward]
    sizes = [each["m"] * each["k"] * each["n"] for each in extents]
    biggest = sizes.index(max(sizes))
    result = forward[biggest].outvars[0].aval
    shape = f"{dtype_name(result)}[{','.join(map(str, shape_of(result)))}]"
    common = {letter: math.gcd(*(each[letter] for each in extents)) for letter in "mkn"}
    return Product(line, shape, common, extents[biggest])


def with_serialized(closed: ClosedJaxpr, line: str, letter: str, factor: int) -> ClosedJaxpr:
    """The function, whose products of a line and their derivatives are made in parts.

    Args:
      closed: a function.
      line: one that `product_at` knows.
      letter: which dimension is cut.
      factor: into how many parts.
    """

    def is_it(eqn: JaxprEqn) -> bool:
        here = _is_product(eqn) and user_line(eqn) == line
        return here and _extent(eqn, letter) % factor == 0

    partners = _partners(closed.jaxpr, is_it)
    splitter = _Splitter(factor)

    def put(rewriter: Rewriter, eqn: JaxprEqn) -> None:
        both = partners.get(id(eqn), [eqn])
        if eqn is both[0]:
            joint = splitter.split(rewriter, _joint(both), _axes_of_operands(both, letter))
            rewriter.trace(joint, lambda *values: _in_parts(both, values, letter, factor))

    return rewritten(closed, Anywhere(is_it), put)


class _Splitter:
    """Cuts operands into parts, each once in a body: derivatives read what the product had cut."""

    def __init__(self, factor: int) -> None:
        self._factor = factor
        self._known: dict[tuple[Rewriter, Atom, int], Atom] = {}

    def split(self, rewriter: Rewriter, eqn: JaxprEqn, axes: Sequence[int | None]) -> JaxprEqn:
        """The equation, whose operands are cut along these axes before it."""
        invars = list(eqn.invars)
        for place, (atom, axis) in enumerate(zip(eqn.invars, axes, strict=True)):
            if axis is None or isinstance(atom, Literal):
                continue
            key = rewriter, atom, axis
            if key not in self._known:
                extents = _split_extents(shape_of(atom.aval), axis, self._factor)
                self._known[key] = fresh_var(atom.aval.update(shape=extents))
                cut = eqn.replace(invars=[atom], outvars=[self._known[key]])
                rewriter.trace(cut, lambda x, axis=axis: [_split(x, axis, self._factor)])
            invars[place] = self._known[key]
        return eqn.replace(invars=invars)


def _axes_of_operands(eqns: Sequence[JaxprEqn], letter: str) -> list[int | None]:
    """Along which axis each operand of a joint equation is cut; None for those that stay whole."""
    axes = [_axes(eqn, letter) for eqn in eqns]
    return [axes[0].left, *(each.right for each in axes)]


def _partners(jaxpr: Jaxpr, is_it: Callable[[JaxprEqn], bool]) -> dict[int, list[JaxprEqn]]:
    """The derivatives of one product, which one loop makes, by each of them; at any depth."""
    found: dict[int, list[JaxprEqn]] = {}
    waiting = [jaxpr]
    while waiting:
        body = waiting.pop()
        waiting += [inner for eqn in body.eqns for inner in sub_jaxprs(eqn)]
        places = {var: place for place, eqn in enumerate(body.eqns) for var in eqn.outvars}
        first: dict[Any, tuple[int, JaxprEqn]] = {}
        for place, eqn in enumerate(body.eqns):
            if not is_it(eqn) or not _is_backward(eqn) or isinstance(eqn.invars[0], Literal):
                continue
            start, other = first.setdefault(eqn.invars[0], (place, eqn))
            early = all(places.get(var, -1) < start for var in variables(eqn.invars))
            if other is not eqn and early and id(other) not in found:
                found[id(eqn)] = found[id(other)] = [other, eqn]
    return found


def _joint(eqns: Sequence[JaxprEqn]) -> JaxprEqn:
    """Products of one left operand as one equation: that, all right ones, and all results."""
    invars = [eqns[0].invars[0], *(eqn.invars[1] for eqn in eqns)]
    return eqns[0].replace(invars=invars, outvars=[var for eqn in eqns for var in eqn.outvars])


def _is_product(eqn: JaxprEqn) -> bool:
    return eqn.primitive.name == "dot_general"


def _is_backward(eqn: JaxprEqn) -> bool:
    stack = name_stack(eqn)
    return marks.read(stack).backward and "rematted_computation" not in stack


def _is_matmul(eqn: JaxprEqn) -> bool:
    """Whether it multiplies matrices, or one with several: `[..., m, k] @ [k, n]`."""
    (contracted, _), _ = eqn.params["dimension_numbers"]
    left, right = (_free(eqn, side) for side in (0, 1))
    types = {dtype_name(atom.aval) for atom in eqn.invars}
    plain = len(contracted) == 1 and len(left) >= 1 and len(right) == 1
    return plain and len(types) == 1 and types <= set(_DTYPES)


def _free(eqn: JaxprEqn, side: int) -> list[int]:
    """The dimensions of an operand that are in the result alone."""
    contracted, batched = eqn.params["dimension_numbers"]
    taken = {*contracted[side], *batched[side]}
    return [axis for axis in range(len(shape_of(eqn.invars[side].aval))) if axis not in taken]


def _axes(eqn: JaxprEqn, letter: str) -> _Axes:
    """Where a dimension of the forward product is in it, or in one of its derivatives.

    JAX takes the cotangent `[..., m, n]` as the left operand of both: for that of the left operand
    it contracts `n`, the last dimension, and for that of the right one all those in front.
    """
    (contracted, of_right), (batched, _) = eqn.params["dimension_numbers"]
    roles = "mkn"  # free on the left, contracted, free on the right
    if _is_backward(eqn):
        last = len(shape_of(eqn.invars[0].aval)) - 1
        roles = "mnk" if tuple(contracted) == (last,) else "nmk"
    role = roles.index(letter)
    if role == 1:
        place = max(range(len(contracted)), key=contracted.__getitem__)
        return _Axes(contracted[place], of_right[place], None)
    free = [_free(eqn, side) for side in (0, 1)]
    if role == 0:
        return _Axes(free[0][-1], None, len(batched) + len(free[0]) - 1)
    return _Axes(None, free[1][-1], len(shape_of(eqn.outvars[0].aval)) - 1)


def _extent(eqn: JaxprEqn, letter: str) -> int:
    left, right, _ = _axes(eqn, letter)
    operand, axis = (0, left) if left is not None else (1, right)
    return int(shape_of(eqn.invars[operand].aval)[axis or 0])


def _in_parts(
    eqns: Sequence[JaxprEqn], operands: Sequence[Any], letter: str, factor: int
) -> list[Any]:
    """What products of one left operand give, in one loop."""
    axes = [_axes(eqn, letter) for eqn in eqns]
    cut = _axes_of_operands(eqns, letter)
    pairs = list(zip(_joint(eqns).invars, operands, cut, strict=True))
    # Literals are none of the operands that have been cut already.
    whole = [_split(x, axis, factor) if isinstance(a, Literal) else x for a, x, axis in pairs]
    parts = [None if axis is None else x for x, axis in zip(whole, cut, strict=True)]
    left, *rights = operands

    def multiply(totals: list[Any], parts: tuple[Any, list[Any]]) -> tuple[list[Any], list[Any]]:
        part = left if parts[0] is None else parts[0]
        products: list[Any] = []
        for eqn, right, other in zip(eqns, rights, parts[1], strict=True):
            params = eqn.primitive.get_bind_params(eqn.params)
            products.append(eqn.primitive.bind(part, right if other is None else other, **params))
        pairs = list(zip(totals, products, strict=True))
        sums = [None if total is None else total + product for total, product in pairs]
        return sums, [product if total is None else None for total, product in pairs]

    starts = [None if a.result is not None else _zeros(e) for e, a in zip(eqns, axes, strict=True)]
    totals, stacks = lax.scan(multiply, starts, (parts[0], parts[1:]))
    return [
        total.astype(dtype_name(eqn.outvars[0].aval))
        if each.result is None
        else _joined(stack, each.result)
        for eqn, each, total, stack in zip(eqns, axes, totals, stacks, strict=True)
    ]


def _zeros(eqn: JaxprEqn) -> Any:
    """What parts are added to: halves in float32 in the forward pass, gradients as they are."""
    result = eqn.outvars[0].aval
    wide = dtype_name(result) == "float16" and not _is_backward(eqn)
    return jnp.zeros(shape_of(result), "float32" if wide else dtype_name(result))


def _split(x: Any, axis: int | None, factor: int) -> Any:
    if axis is None:
        return None
    extents = *x.shape[:axis], factor, x.shape[axis] // factor, *x.shape[axis + 1 :]
    return jnp.moveaxis(x.reshape(extents), axis, 0)


def _split_extents(shape: Sequence[int], axis: int, factor: int) -> tuple[int, ...]:
    """The extents of what `_split` gives."""
    return factor, *shape[:axis], shape[axis] // factor, *shape[axis + 1 :]


def _joined(parts: Any, axis: int) -> Any:
    extents = list(parts.shape[1:])
    extents[axis] *= len(parts)
    return jnp.moveaxis(parts, 0, axis).reshape(extents)
