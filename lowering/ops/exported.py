"""The primitive of kernels from a file: compiled code that has no equations.

Such a kernel is a function for all replicas at once, `[replicas, ...]`, since its collectives are
inside. In a Program it is a kernel of one replica like any other: the function itself does what the
vmap over replicas does for other kernels.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Sequence
from typing import Any

from jax import lax

from lowering.ground import InternalError
from lowering.jaxprs import Aval, ShapedArray, shape_of
from lowering.ops.collective_primitives import REPLICAS
from lowering.ops.define import define_primitive, move_examples_to_front


@dc.dataclass(frozen=True, eq=False)
class Exported:
    """A compiled kernel from a file.

    Attributes:
      function: takes flat arrays; those of all replicas, if there are several.
      avals: shapes and dtypes of the results of one replica.
      replicas: the number of replicas that the function was compiled for.
      operations: the arithmetic operations of one run, see `count_operations`.
    """

    function: Callable[..., Sequence[Any]] = dc.field(repr=False)  # its bytes would be shown
    avals: tuple[Aval, ...]
    replicas: int
    operations: float


def call_exported(kernel: Exported, operands: Sequence[Any]) -> list[Any]:
    """Calls a kernel for one replica; where there are several, inside their axis."""
    if kernel.replicas == 1:
        return exported_p.bind(*operands, kernel=kernel, is_whole=True)
    # The replicas' index always differs: so the vmap over them reaches this primitive.
    index = lax.axis_index(REPLICAS)
    return exported_p.bind(index, *operands, kernel=kernel, is_whole=False)


def _avals_of_exported(*operands: Any, kernel: Exported, is_whole: bool) -> list[Aval]:
    del operands
    lead = (kernel.replicas,) if is_whole and kernel.replicas > 1 else ()
    return [
        ShapedArray((*lead, *shape_of(aval)), aval.dtype, weak_type=aval.weak_type)
        for aval in kernel.avals
    ]


def _run_exported(*operands: Any, kernel: Exported, is_whole: bool) -> list[Any]:
    if not is_whole:
        raise InternalError("a kernel for several replicas was run for one of them")
    return list(kernel.function(*operands))


def _vmap_exported(
    primitive: Any, values: Any, dims: Any, *, kernel: Exported, is_whole: bool
) -> Any:
    del is_whole
    _, *operands = move_examples_to_front(values, dims)
    results = primitive.bind(*operands, kernel=kernel, is_whole=True)
    return results, [0] * len(results)


exported_p = define_primitive(
    "ipu_exported", _avals_of_exported, _run_exported, has_several_results=True, vmap=_vmap_exported
)
