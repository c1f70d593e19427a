"""What programs expect of PyTorch's own names: `torch.ops.poptorch` and `Module.autocast`."""

from __future__ import annotations

import torch

from ipujax.poptorch._impl import internal_cast
from ipujax.poptorch.autocasting import set_module_autocast
from ipujax.poptorch.name_scope import pop_name_scope, push_name_scope
from ipujax.poptorch.poptorch_checks import check

_DTYPES = {"FLOAT": torch.float32, "FLOAT16": torch.float16}


def _cast_to_named_dtype(tensor: torch.Tensor, dtype: str) -> torch.Tensor:
    if dtype not in _DTYPES:
        raise check.wrong_type_error("FLOAT or FLOAT16", dtype, "the target of internal_cast")
    return internal_cast(tensor, _DTYPES[dtype])


def fill_torch_namespace() -> None:
    """Adds the functions to `torch.ops.poptorch`, and the method `autocast` to modules."""
    setattr(torch.nn.Module, "autocast", set_module_autocast)  # noqa: B010 - not in its stubs
    vars(torch.ops.poptorch).update(
        internal_cast=_cast_to_named_dtype,
        push_name_scope=push_name_scope,
        pop_name_scope=pop_name_scope,
    )
