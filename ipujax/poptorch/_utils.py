"""The private function of the original's `poptorch._utils` that public programs call."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import torch


def combine_batch_tensors_gen(
    tensors: Sequence[Sequence[torch.Tensor]],
) -> Generator[torch.Tensor]:
    """Concatenates the tensors of several batches along their first axis, one after the other.

    Args:
      tensors: for each batch its tensors, in one order.
    """
    for column in zip(*tensors, strict=True):
        yield torch.cat(column)
