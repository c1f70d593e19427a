"""PopLibs' reductions of tensors over dimensions."""

from __future__ import annotations

import dataclasses as dc
import enum
from collections.abc import Sequence as AbstractSequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ipujax.poplar.element_types import BOOL, Type, type_of_dtype
from ipujax.poplar.exceptions import check, index_error, type_error
from ipujax.poplar.graph import Graph
from ipujax.poplar.graph_parts import ComputeSet, OperationComputeSet
from ipujax.poplar.library_operations import Operand, add_planned, read_title
from ipujax.poplar.program import Sequence
from ipujax.poplar.tensors import Tensor
from ipujax.poplar.user_lines import user_line


class Operation(enum.Enum):
    """The operations that combine the elements of a reduction."""

    ADD = 0
    MUL = 1
    MIN = 2
    MAX = 3
    LOGICAL_AND = 4
    LOGICAL_OR = 5
    SQUARE_ADD = 6
    LOG_ADD = 7


_REDUCE = {
    Operation.ADD: jnp.sum,
    Operation.MUL: jnp.prod,
    Operation.MIN: jnp.min,
    Operation.MAX: jnp.max,
    Operation.LOGICAL_AND: jnp.all,
    Operation.LOGICAL_OR: jnp.any,
    Operation.SQUARE_ADD: lambda x, axis: jnp.sum(jnp.square(x), axis=axis),
    Operation.LOG_ADD: jax.scipy.special.logsumexp,
}
_UPDATE = {
    Operation.ADD: jnp.add,
    Operation.MUL: jnp.multiply,
    Operation.MIN: jnp.minimum,
    Operation.MAX: jnp.maximum,
    Operation.LOGICAL_AND: jnp.logical_and,
    Operation.LOGICAL_OR: jnp.logical_or,
    Operation.SQUARE_ADD: jnp.add,
    Operation.LOG_ADD: jnp.logaddexp,
}
_SCALABLE = (Operation.ADD, Operation.SQUARE_ADD)


@check.guard
@dc.dataclass(frozen=True)
class ReduceParams:
    """The operation of a reduction, with its scale and whether it updates its output.

    Attributes:
      op: the operation.
      update: whether the result joins what the output holds.
      scale: a factor of the result, a number or a tensor of one element; of additions alone.
    """

    op: Operation
    update: bool = False
    scale: Operand | None = None

    def __post_init__(self) -> None:
        check.require_instance(self.op, Operation, "op", "a popops.Operation")
        check.require_flag(self.update, "update")
        if self.scale is not None and self.op not in _SCALABLE:
            raise check.value_error(f"{self.op.name} takes no scale", "leave out the scale")


def _read_params(params: Any) -> ReduceParams:
    """Returns `ReduceParams`, also from an operation alone, or from a list of its attributes."""
    if isinstance(params, (list, tuple)):
        return ReduceParams(*params)
    if isinstance(params, Operation):
        return ReduceParams(params)
    return check.require_instance(params, ReduceParams, "params")


@check.guard
@dc.dataclass(frozen=True)
class SingleReduceOp:
    """One of the reductions of `reduceMany`.

    Attributes:
      in_: the tensor.
      dims: the dimensions that are reduced.
      params: the operation.
      outType: the type of the result; may be left out, so that the name comes fourth.
      debugName: a name.
    """

    in_: Tensor
    dims: AbstractSequence[int]
    params: ReduceParams
    outType: Type | str | None = None
    debugName: str = ""

    @property
    def type(self) -> Type | None:
        """The type of the result, if it is not the operand's."""
        return self.outType if isinstance(self.outType, Type) else None

    def __post_init__(self) -> None:
        object.__setattr__(self, "params", _read_params(self.params))
        if isinstance(self.outType, str):  # C++ lets the type be left out
            object.__setattr__(self, "debugName", self.outType)
            object.__setattr__(self, "outType", None)


@check.guard
def reduce(graph: Graph, in_: Tensor, *arguments: Any) -> Tensor:
    """Adds a reduction over dimensions to a program, and returns its tensor.

    Args:
      graph: the graph.
      in_: the tensor.
      *arguments: `dims, params, prog`, or `outType, dims, params, prog`; and a name, and options,
        which change nothing. An `Operation` alone is good for `params`; a list instead of `prog`
        takes the compute sets to execute.

    Raises:
      poplar_error: dimensions that the tensor does not have; an update without an output.
    """
    out_type = arguments[0] if arguments and isinstance(arguments[0], Type) else None
    reduction_arguments = arguments[1:] if out_type else arguments
    if len(reduction_arguments) < 3:
        raise check.type_error("reduce lacks arguments", "give dims, params and prog")
    dims, params, prog, *names = reduction_arguments
    if _read_params(params).update:
        raise check.value_error("an update needs an output", "call reduceWithOutput")
    return _add(graph, in_, out_type, None, dims, params, prog, *names)


@check.guard
def allTrue(graph: Graph, A: Tensor, prog: Sequence, debugContext: str = "") -> Tensor:
    """Adds the logical and of all elements of a BOOL tensor; returns its scalar."""
    check.require_instance(A, Tensor, "A")
    if A.type != BOOL:
        raise type_error(
            f"allTrue of {A}", where=user_line(), fix="compare its elements first, as popops.neq"
        )
    params = ReduceParams(Operation.LOGICAL_AND)
    return _add(graph, A, None, None, range(A.rank()), params, prog, debugContext)


@check.guard
def reduceWithOutput(
    graph: Graph,
    in_: Tensor,
    out: Tensor,
    dims: AbstractSequence[int],
    params: ReduceParams,
    prog: Sequence | list[ComputeSet],
    *rest: Any,
) -> None:
    """Adds a reduction over dimensions, which is written to a tensor; a name may follow.

    Instead of a program, a list takes the compute sets to execute, one after the other.
    """
    check.require_instance(out, Tensor, "out")
    _add(graph, in_, out.type, out, dims, params, prog, *rest)


@check.guard
def reduceMany(
    graph: Graph,
    reductions: AbstractSequence[SingleReduceOp],
    outputs: list[Tensor],
    prog: Sequence,
    *rest: Any,
) -> None:
    """Adds several reductions to a program.

    Args:
      graph: the graph.
      reductions: the reductions.
      outputs: a tensor for each, or an empty list, which their tensors are put into.
      prog: the sequence.
      *rest: a name, and options, which change nothing.
    """
    names = [argument for argument in rest if isinstance(argument, str)]
    options = [argument for argument in rest if not isinstance(argument, str)]
    if outputs and len(outputs) != len(reductions):
        raise check.value_error("outputs has another length than reductions", "give an empty list")
    results = [
        _add(
            graph, reduction.in_, outputs[n].type if outputs else reduction.type,
            outputs[n] if outputs else None, reduction.dims, reduction.params, prog,
            reduction.debugName or "".join(names), *options,
        )
        for n, reduction in enumerate(reductions)
    ]  # fmt: skip
    outputs[:] = results


def _add(
    graph: Graph,
    in_: Tensor,
    out_type: Type | None,
    out: Tensor | None,
    dims: AbstractSequence[int],
    params: ReduceParams,
    prog: Sequence | list[ComputeSet],
    *rest: Any,
) -> Tensor:
    check.require_instance(in_, Tensor, "in")
    params = _read_params(params)
    axes = tuple(check.require_integer(dim, "a dimension", at_least=0) for dim in dims)
    if any(axis >= in_.rank() for axis in axes) or len({*axes}) != len(axes):
        raise index_error(f"reduction of {in_} over dimensions {list(dims)}", where=user_line())
    type = out_type or type_of_dtype(_default_dtype(params.op, in_))
    # A scale, and an output that is updated, are further operands.
    optional_operands = (params.scale, out if params.update else None)
    extra = [operand for operand in optional_operands if operand is not None]

    def compute(x: jax.Array, *operands: Any) -> jax.Array:
        wide = x.astype(jnp.promote_types(x.dtype, type.dtype)) if params.op in _SCALABLE else x
        result = (
            _REDUCE[params.op](wide, axis=axes) if axes else _REDUCE[params.op](wide[None], axis=0)
        )
        if params.scale is not None:
            result = result * jnp.reshape(operands[0], ())
        if params.update:
            result = _UPDATE[params.op](operands[-1], result.astype(type.dtype))
        return lax.convert_element_type(result, type.dtype)

    name = read_title(f"reduce{params.op.name.title().replace('_', '')}", rest)
    sequence = Sequence() if isinstance(prog, list) else prog
    result = add_planned(graph, sequence, name, compute, [in_, *extra], outs=[out])[0]
    if isinstance(prog, list):
        prog += [OperationComputeSet(name, graph.root, operation=each) for each in sequence.parts()]
    return result


def _default_dtype(op: Operation, tensor: Tensor) -> Any:
    is_logical = op in (Operation.LOGICAL_AND, Operation.LOGICAL_OR)
    return jnp.bool_ if is_logical else tensor.type.dtype
