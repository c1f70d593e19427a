"""The primitive of kernels that come from a file: compiled code, which nobody can look into.

Such a kernel is a function for all replicas at once, `[replicas, ...]`, since its collectives are
inside. In a Program it is a kernel of one replica like any other: the vmap over the replicas, in
which engines run kernels, is what the function does already.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Sequence
from typing import Any

from jax import lax

from lowering.avals import shape_of
from lowering.errors import InternalError
from lowering.jaxpr import Aval, ShapedArray
from lowering.ops.collectives import REPLICAS
from lowering.ops.define import at_front, define


@dc.dataclass(frozen=True, eq=False)
class Exported:
    """A kernel from a file.

    Attributes:
      function: of flat arrays; of several replicas' arrays, if there are several.
      avals: of the results of one replica.
      replicas: that the function was compiled for.
      operations: of one run, see `count_operations`.
    """

    function: Callable[..., Sequence[Any]] = dc.field(repr=False)  # its bytes would be shown
    avals: tuple[Aval, ...]
    replicas: int
    operations: float


def call_exported(kernel: Exported, operands: Sequence[Any]) -> list[Any]:
    """The kernel's results for one replica; where there are several, inside their axis."""
    if kernel.replicas == 1:
        return exported_p.bind(*operands, kernel=kernel, is_whole=True)
    # Whatever else the replicas share, their index differs: so there is a vmap to be seen.
    index = lax.axis_index(REPLICAS)
    return exported_p.bind(index, *operands, kernel=kernel, is_whole=False)


def _avals(*operands: Any, kernel: Exported, is_whole: bool) -> list[Aval]:
    del operands
    lead = (kernel.replicas,) if is_whole and kernel.replicas > 1 else ()
    return [
        ShapedArray((*lead, *shape_of(aval)), aval.dtype, weak_type=aval.weak_type)
        for aval in kernel.avals
    ]


def _run(*operands: Any, kernel: Exported, is_whole: bool) -> list[Any]:
    if not is_whole:
        raise InternalError("a kernel for several replicas was run for one of them")
    return list(kernel.function(*operands))


def _vmap(primitive: Any, values: Any, dims: Any, *, kernel: Exported, is_whole: bool) -> Any:
    del is_whole
    _, *operands = at_front(values, dims)
    results = primitive.bind(*operands, kernel=kernel, is_whole=True)
    return results, [0] * len(results)


exported_p = define("ipu_exported", _avals, _run, several=True, vmap=_vmap)
