"""Tensors of PyTorch as arrays of JAX, and back."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from ipujax.frontends.checks import check

# An IPU computes with 32 bits at most, and so does JAX here.
_FLOATS_OF_8_BITS: dict[torch.dtype, Any] = {
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

_PLAIN = frozenset(
    {
        torch.float32, torch.float16, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
    }
)  # fmt: skip
"""Those that are the same here, in PyTorch and in NumPy."""

_UNKNOWN_TO_NUMPY: dict[Any, tuple[Any, torch.dtype]] = {
    jnp.dtype(jnp.bfloat16): (np.uint16, torch.bfloat16),
    **{own: (np.uint8, dtype) for dtype, own in _FLOATS_OF_8_BITS.items()},
}
"""By dtypes that NumPy has from elsewhere: integers of as many bits, and PyTorch's own."""

EXTREMES = {2**63 - 1: 2**31 - 1, -(2**63): -(2**31)}
"""The greatest and least integers of 64 bits, and those of 32: they often mean just that."""


def dtype_of(dtype: torch.dtype) -> Any:
    """The dtype on an IPU of tensors of a dtype; those of 64 bits have 32.

    Raises:
      FrontendError: (a `ValueError`) there is none, as for quantized numbers.
    """
    if dtype not in _DTYPES:
        raise check.refuse(f"IPUs have no numbers of {dtype}", "convert them with Tensor.to")
    return jnp.dtype(_DTYPES[dtype])


def aval_of(tensor: torch.Tensor) -> jax.ShapeDtypeStruct:
    """Shape and dtype on an IPU of a tensor."""
    return jax.ShapeDtypeStruct(tuple(tensor.shape), dtype_of(tensor.dtype))


def to_jax(tensor: torch.Tensor) -> jax.Array:
    """The values of a tensor, in the same memory where that can be.

    Integers and floats of 64 bits are converted to 32; the greatest and least integers, which
    often mean just that, to those of 32 bits.

    Raises:
      FrontendError: (a `ValueError`) an integer does not fit into 32 bits.
    """
    tensor = tensor.detach().resolve_conj().resolve_neg()
    narrow = _NARROWED.get(tensor.dtype, tensor.dtype)
    if tensor.dtype in (torch.int64, torch.uint64) and tensor.numel():
        tensor = _within(torch.iinfo(narrow), tensor)
    tensor = tensor.to(narrow).contiguous()
    if tensor.numel() == 0:
        return jnp.zeros(tuple(tensor.shape), dtype_of(tensor.dtype))
    if tensor.dtype is torch.bool:
        return jnp.asarray(tensor.numpy())
    if tensor.dtype in _FLOATS_OF_8_BITS:
        return jnp.asarray(tensor.view(torch.uint8).numpy().view(_DTYPES[tensor.dtype]))
    return jnp.from_dlpack(tensor)


def _within(narrow: torch.iinfo, tensor: torch.Tensor) -> torch.Tensor:
    """Integers of 64 bits that fit into those of another dtype."""
    signed = tensor.view(torch.int64)
    is_outside = (signed < narrow.min) | (signed > narrow.max)
    for value in signed[is_outside].tolist():
        if value not in EXTREMES:
            raise check.refuse(
                f"the integer {value} does not fit into the 32 bits that IPUs have",
                "compute with smaller integers",
            )
    return signed.clamp(narrow.min, narrow.max)


def to_numpy(tensor: torch.Tensor) -> Any:
    """As `to_jax`, as an array of NumPy where that is the quick way into a compiled program."""
    if tensor.dtype not in _PLAIN or tensor.is_neg():
        return to_jax(tensor)
    return tensor.numpy(force=True)


def to_torch(array: Any) -> torch.Tensor:
    """A tensor of its own with the values of an array."""
    own = np.asarray(array).copy()
    if own.dtype in _UNKNOWN_TO_NUMPY:
        bits, dtype = _UNKNOWN_TO_NUMPY[own.dtype]
        return torch.from_numpy(own.view(bits)).view(dtype)
    return torch.from_numpy(own)
