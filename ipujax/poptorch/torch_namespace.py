"""`torch.ops.poptorch`: where the original's own operators were, of which programs call some."""

from __future__ import annotations

import torch

from ipujax.poptorch._impl import internal_cast
from ipujax.poptorch.checks import check
from ipujax.poptorch.name_scope import pop_name_scope, push_name_scope

_DTYPES = {"FLOAT": torch.float32, "FLOAT16": torch.float16}


def _cast(tensor: torch.Tensor, dtype: str) -> torch.Tensor:
    if dtype not in _DTYPES:
        raise check.other_than("FLOAT or FLOAT16", dtype, "the target of internal_cast")
    return internal_cast(tensor, _DTYPES[dtype])


def fill_namespace() -> None:
    """Gives the namespace these functions; they consist of PyTorch's operators."""
    vars(torch.ops.poptorch).update(
        internal_cast=_cast, push_name_scope=push_name_scope, pop_name_scope=pop_name_scope
    )
