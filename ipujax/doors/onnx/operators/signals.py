"""ONNX Fourier transforms, window functions and mel weights."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from onnx import TensorProto

from ipujax.doors.graphs import Operand
from ipujax.doors.onnx.dtypes import dtype_of_onnx_type
from ipujax.doors.onnx.operators.table import operator

Array = jax.Array
Numbers = np.ndarray


def _int_of_one_element(value: Operand) -> int:
    """Returns the integer in an array of one element."""
    return int(np.ravel(value)[0])


@operator("DFT", 20, static=("dft_length", "axis"))
def dft(
    x: Array, dft_length: Operand = None, axis: Operand = -2, inverse: int = 0, onesided: int = 0
) -> Array:
    """Transforms real signals [..., 1] or complex ones [..., 2] by a discrete Fourier transform."""
    axis = _int_of_one_element(-2 if axis is None else axis) % x.ndim
    length = None if dft_length is None else _int_of_one_element(dft_length)
    signal = _to_complex(x)
    if inverse and onesided:
        return jnp.fft.irfft(signal, length, axis)[..., None].astype(x.dtype)
    if inverse:
        return _real_and_imaginary(jnp.fft.ifft(signal, length, axis), x.dtype)
    if jnp.iscomplexobj(signal):
        return _real_and_imaginary(jnp.fft.fft(signal, length, axis), x.dtype)
    half = jnp.fft.rfft(signal, length, axis)
    if onesided:
        return _real_and_imaginary(half, x.dtype)
    return _real_and_imaginary(_full_spectrum(half, length or x.shape[axis], axis), x.dtype)


def _full_spectrum(half: Array, length: int, axis: int) -> Array:
    """Returns the full spectrum of a real signal from its first half."""
    mirrored_half = jax.lax.slice_in_dim(half, 1, (length + 1) // 2, axis=axis)
    return jnp.concatenate([half, jnp.flip(jnp.conj(mirrored_half), axis)], axis)


@operator("DFT", 17, static=("dft_length",))
def dft_17(x: Array, dft_length: Operand = None, axis: int = 1, **attributes: int) -> Array:
    return dft(x, dft_length, axis, **attributes)


def _to_complex(x: Array) -> Array:
    wide = jnp.asarray(x, jnp.promote_types(x.dtype, jnp.float32))
    if wide.shape[-1] == 1:
        return wide[..., 0]
    return jax.lax.complex(wide[..., 0], wide[..., 1])


def _real_and_imaginary(values: Array, dtype: DTypeLike) -> Array:
    return jnp.stack([values.real, values.imag], -1).astype(dtype)


@operator("STFT", 17, static=("frame_step", "frame_length"))
def stft(
    signal: Array,
    frame_step: Operand,
    window: Array | None = None,
    frame_length: Operand = None,
    onesided: int = 1,
) -> Array:
    """Returns the spectra of frames: [batch, frames, frequencies, 2]."""
    if frame_length is not None:
        length = _int_of_one_element(frame_length)
    else:
        length = signal.shape[1] if window is None else window.shape[0]
    step = _int_of_one_element(frame_step)
    starts = np.arange((signal.shape[1] - length) // step + 1) * step
    frames = jnp.take(signal, starts[:, None] + np.arange(length), 1, mode="clip")
    if window is not None:
        frames = frames * jnp.reshape(window, (-1, 1)).astype(signal.dtype)
    return dft(frames, None, 2, onesided=onesided)


def _register_window(name: str, terms: tuple[float, ...]) -> None:
    """Registers a window function that is a sum of cosines with alternating signs."""

    @operator(name, 17, static=("size",))
    def make_window(
        size: Operand, output_datatype: int = TensorProto.FLOAT, periodic: int = 1
    ) -> Numbers:
        count = _int_of_one_element(size)
        turns = 2 * np.pi * np.arange(count) / max(count if periodic else count - 1, 1)
        values = sum((-1) ** k * term * np.cos(k * turns) for k, term in enumerate(terms))
        return np.asarray(values, dtype_of_onnx_type(output_datatype))


for _name, _terms in {
    "HannWindow": (0.5, 0.5),
    "HammingWindow": (25 / 46, 21 / 46),
    "BlackmanWindow": (0.42, 0.5, 0.08),
}.items():
    _register_window(_name, _terms)


@operator("MelWeightMatrix", 17, static=(
    "num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz"
))  # fmt: skip
def mel_weight_matrix(
    num_mel_bins: Operand,
    dft_length: Operand,
    sample_rate: Operand,
    lower_edge_hertz: Operand,
    upper_edge_hertz: Operand,
    output_datatype: int = TensorProto.FLOAT,
) -> Numbers:
    """Returns the weights of frequency bins in triangles of equal mel width."""
    count, length = _int_of_one_element(num_mel_bins), _int_of_one_element(dft_length)
    lowest, highest = (
        _hertz_to_mel(float(np.ravel(h)[0])) for h in (lower_edge_hertz, upper_edge_hertz)
    )
    mels = lowest + np.arange(count + 2) * (highest - lowest) / (count + 2)
    hertz = 700 * np.expm1(mels / 2595 * math.log(10))
    edges = ((length + 1) * hertz // _int_of_one_element(sample_rate)).astype(int)
    rows = np.arange(length // 2 + 1)[:, None]
    left_edges, peak_bins, right_edges = edges[:-2], edges[1:-1], edges[2:]
    rising = (rows - left_edges) / np.maximum(peak_bins - left_edges, 1)
    falling = (right_edges - rows) / np.maximum(right_edges - peak_bins, 1)
    values = np.where(rows < peak_bins, rising, falling)
    values = np.where(rows == peak_bins, 1, np.maximum(values, 0))
    return values.astype(dtype_of_onnx_type(output_datatype))


def _hertz_to_mel(hertz: float) -> float:
    return 2595 * math.log1p(hertz / 700) / math.log(10)
