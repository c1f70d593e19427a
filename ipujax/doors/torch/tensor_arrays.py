"""Conversion between PyTorch tensors and JAX arrays."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from ipujax.doors.models import check

# An IPU computes with at most 32 bits, and so does JAX in ipujax.
_FLOATS_OF_8_BITS: dict[torch.dtype, object] = {
    torch.float8_e4m3fn: jnp.dtype(jnp.float8_e4m3fn),
    torch.float8_e5m2: jnp.dtype(jnp.float8_e5m2),
    torch.float8_e4m3fnuz: jnp.dtype(jnp.float8_e4m3fnuz),
    torch.float8_e5m2fnuz: jnp.dtype(jnp.float8_e5m2fnuz),
}
_DTYPES: dict[torch.dtype, Any] = {
    **_FLOATS_OF_8_BITS,
    torch.float64: jnp.float32,
    torch.float32: jnp.float32,
    torch.float16: jnp.float16,
    torch.bfloat16: jnp.bfloat16,
    torch.int64: jnp.int32,
    torch.int32: jnp.int32,
    torch.int16: jnp.int16,
    torch.int8: jnp.int8,
    torch.uint8: jnp.uint8,
    torch.uint16: jnp.uint16,
    torch.uint32: jnp.uint32,
    torch.uint64: jnp.uint32,
    torch.bool: jnp.bool_,
    torch.complex64: jnp.complex64,
    torch.complex128: jnp.complex64,
}

_NARROWED = {
    torch.float64: torch.float32, torch.int64: torch.int32, torch.uint64: torch.uint32,
    torch.complex128: torch.complex64,
}  # fmt: skip

_SAME_IN_NUMPY = frozenset(
    {
        torch.float32, torch.float16, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
    }
)  # fmt: skip
"""The dtypes that are the same in JAX, PyTorch and NumPy."""

_UNKNOWN_TO_NUMPY: dict[Any, tuple[Any, torch.dtype]] = {
    jnp.dtype(jnp.bfloat16): (np.uint16, torch.bfloat16),
    **{own: (np.uint8, dtype) for dtype, own in _FLOATS_OF_8_BITS.items()},
}
"""For dtypes that NumPy lacks: the integer dtype of the same size, and PyTorch's dtype."""

EXTREMES = {2**63 - 1: 2**31 - 1, -(2**63): -(2**31)}
"""The greatest and least 64-bit integers, which often mean no bound, with the 32-bit ones."""


def jax_dtype_of(dtype: torch.dtype) -> Any:
    """Returns the JAX dtype of a PyTorch dtype; 64-bit dtypes become 32-bit ones.

    Raises:
      FrontendError: (a `ValueError`) JAX has no such dtype, for example of quantized numbers.
    """
    if dtype not in _DTYPES:
        raise check.value_error(
            f"the dtype {dtype} is not supported on IPUs", "convert them with Tensor.to"
        )
    return jnp.dtype(_DTYPES[dtype])


def aval_of_tensor(tensor: torch.Tensor) -> jax.ShapeDtypeStruct:
    """Returns the JAX shape and dtype of a tensor."""
    return jax.ShapeDtypeStruct(tuple(tensor.shape), jax_dtype_of(tensor.dtype))


def to_jax(tensor: torch.Tensor) -> jax.Array:
    """Converts a tensor to a JAX array, which shares its memory where possible.

    64-bit numbers are converted to 32 bits; the greatest and least integers, which often mean no
    bound, to the greatest and least 32-bit ones.

    Raises:
      FrontendError: (a `ValueError`) an integer does not fit into 32 bits.
    """
    tensor = tensor.detach().resolve_conj().resolve_neg()
    narrow = _NARROWED.get(tensor.dtype, tensor.dtype)
    if tensor.dtype in (torch.int64, torch.uint64) and tensor.numel():
        tensor = _clamp_integers(torch.iinfo(narrow), tensor)
    tensor = tensor.to(narrow).contiguous()
    if tensor.numel() == 0:
        return jnp.zeros(tuple(tensor.shape), jax_dtype_of(tensor.dtype))
    if tensor.dtype is torch.bool:
        return jnp.asarray(tensor.numpy())
    if tensor.dtype in _FLOATS_OF_8_BITS:
        return jnp.asarray(tensor.view(torch.uint8).numpy().view(_DTYPES[tensor.dtype]))
    return jnp.from_dlpack(tensor)


def _clamp_integers(narrow: torch.iinfo, tensor: torch.Tensor) -> torch.Tensor:
    """Returns 64-bit integers clamped to a narrower dtype; refuses those that do not fit."""
    signed = tensor.view(torch.int64)
    is_outside = (signed < narrow.min) | (signed > narrow.max)
    for value in signed[is_outside].tolist():
        if value not in EXTREMES:
            raise check.value_error(
                f"the integer {value} does not fit into the 32 bits that IPUs have",
                "compute with smaller integers",
            )
    return signed.clamp(narrow.min, narrow.max)


def to_numpy(tensor: torch.Tensor) -> np.ndarray | jax.Array:
    """Converts a tensor to a NumPy array where its dtype allows that, else to a JAX array."""
    if tensor.dtype not in _SAME_IN_NUMPY or tensor.is_neg():
        return to_jax(tensor)
    return tensor.numpy(force=True)


def to_torch(array: object) -> torch.Tensor:
    """Converts an array to a tensor that owns its memory."""
    copied = np.asarray(array).copy()
    if copied.dtype in _UNKNOWN_TO_NUMPY:
        bits, dtype = _UNKNOWN_TO_NUMPY[copied.dtype]
        return torch.from_numpy(copied.view(bits)).view(dtype)
    return torch.from_numpy(copied)
