"""popnn.bn: norms over a batch, of each channel."""

from __future__ import annotations

from typing import Any

from ipujax.poplar.exceptions import check
from ipujax.poplar.graph import Graph
from ipujax.poplar.library_operations import split_at_program
from ipujax.poplar.popnn_norms import (
    BATCH_NORM,
    add_affine,
    define_functions,
    define_statistics,
)
from ipujax.poplar.tensors import Tensor

batchNormStatistics = define_statistics(BATCH_NORM, "channel")
batchNormWhiten, _normalise, batchNormGradients, batchNormParamGradients = define_functions(
    "batch", lambda *_: BATCH_NORM
)


@check.guard
def batchNormalise(graph: Graph, acts: Tensor, *arguments: Any) -> Any:
    """Adds the norm of activations to a program.

    Args:
      graph: the graph.
      acts: [batch, channels, *field].
      *arguments: `gamma, beta, mean, iStdDev, prog`; or, with what these come to for each channel,
        `combinedMultiplicand, addend, prog`; and a name and options.

    Returns:
      The norm and the whitened activations, which gradients need; of the second form the norm.
    """
    operands, prog, trailing_arguments = split_at_program("batchNormalise", arguments, (2, 4))
    if len(operands) == 4:
        return _normalise(graph, acts, *arguments)
    factors, addend = operands
    return add_affine(graph, BATCH_NORM, acts, factors, addend, prog, trailing_arguments)
