"""One sample, computed by PyTorch and by what the front end makes of it."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch.utils import _pytree as pytree

from ipujax.doors.torch import jax_dtype_of, to_jax
from ipujax.errors import FrontendError
from ipujax.frontends import from_torch
from tests.torch_operators.samples import Sample

PASSED, EXPORT, MISSING, WRONG = "passed", "cannot be exported", "missing", "wrong"
SKIPPED = "PyTorch refuses"  # the sample itself: there is nothing to compare

TOLERANCE = 2e-4
_MOMENTS_OF = 100  # numbers at least, for random ones to be compared by their moments
_DEVIATIONS = 6.0
_SEEDS = 3


class Outcome(NamedTuple):
    """What came of a sample: one of the words above, and the particulars."""

    word: str
    why: str = ""


class Differs(Exception):
    """What PyTorch gives is not what JAX gives."""


def compare(sample: Sample) -> Outcome:
    """Values, dtypes and gradients of a sample."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            wanted = _by_torch(sample)
        except Exception as error:
            return Outcome(SKIPPED, _said(error))
        try:
            model = from_torch(sample.module, tuple(t.detach() for t in sample.tensors))
        except FrontendError as error:
            return _not_converted(error)
        except Exception as error:
            return Outcome(WRONG, f"conversion: {_said(error)}")
        try:
            _compare_precisely(model, sample, wanted)
        except Exception as error:
            return Outcome(WRONG, _said(error))
    return Outcome(PASSED)


class Wanted(NamedTuple):
    """What PyTorch gives: for each of some seeds all results, and whether these differ."""

    by_seed: list[list[Any]]
    is_random: bool

    @property
    def first(self) -> list[Any]:
        return self.by_seed[0]


def _by_torch(sample: Sample) -> Wanted:
    results: list[list[Any]] = []
    for seed in range(_SEEDS):
        torch.manual_seed(seed)
        # Some entries of the database set a seed of their own.
        with mock.patch.object(torch, "manual_seed"):
            results.append(pytree.tree_leaves(sample.module(*(t.clone() for t in sample.tensors))))
    differ = not all(all(map(_equal, results[0], other)) for other in results[1:])
    return Wanted(results, sample.is_undefined or differ)


def _equal(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor):
        return one == other
    return torch.equal(one, other) or torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)


def _not_converted(error: FrontendError) -> Outcome:
    if error.__cause__ is not None or "static graphs" in str(error):
        return Outcome(EXPORT, _said(error))
    names = re.findall(r"([\w.]+) in the outermost module", str(error))
    return Outcome(MISSING, " ".join(names) if names else _said(error))


def _compare_precisely(model: Any, sample: Sample, wanted: Wanted) -> None:
    """Compares with PyTorch, and where that differs with what it gives with twice the digits."""
    try:
        _compare(model, sample, wanted)
    except Differs as error:
        if wanted.is_random or not any(t.dtype is torch.float32 for t in sample.tensors):
            raise
        precise = sample._replace(tensors=tuple(map(_with_64_bits, sample.tensors)))
        try:
            _compare(model, precise, _by_torch(precise))
        except Exception:
            raise error from None


def _with_64_bits(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype is not torch.float32:
        return tensor
    return tensor.detach().double().requires_grad_(tensor.requires_grad)


def _compare(model: Any, sample: Sample, wanted: Wanted) -> None:
    inputs = tuple(map(to_jax, sample.tensors))

    def function(*inputs: Any, seed: int = 0) -> list[Any]:
        results = model.apply(model.variables, *inputs, key=jax.random.key(seed))[0]
        return pytree.tree_leaves(results)

    got = function(*inputs)
    if len(got) != len(wanted.first):
        raise Differs(f"{len(got)} results in the place of {len(wanted.first)}")
    for number, (mine, theirs) in enumerate(zip(got, wanted.first, strict=True)):
        _same(mine, theirs, f"result {number}", with_values=not wanted.is_random)
    if sample.is_undefined:
        return
    if wanted.is_random:
        drawn = [got, *(function(*inputs, seed=seed) for seed in range(1, _SEEDS))]
        for number, theirs in enumerate(zip(*wanted.by_seed, strict=True)):
            if isinstance(theirs[0], torch.Tensor):
                mine = [_plain(results[number]) for results in drawn]
                _alike(_stacked(mine), _stacked(map(_numbers, theirs)), f"result {number}")
    else:
        _compare_gradients(function, inputs, sample, wanted.first)


def _compare_gradients(
    function: Any, inputs: tuple[jax.Array, ...], sample: Sample, wanted: list[Any]
) -> None:
    into = [i for i, t in enumerate(sample.tensors) if t.requires_grad]
    out = [i for i, v in enumerate(wanted) if isinstance(v, torch.Tensor) and v.requires_grad]
    if not into or not out:
        return
    generator = torch.Generator().manual_seed(0)
    cotangents = [
        torch.randn(wanted[i].shape, generator=generator, dtype=wanted[i].dtype) for i in out
    ]
    try:
        theirs = torch.autograd.grad(
            [wanted[i] for i in out],
            [sample.tensors[i] for i in into],
            cotangents,
            allow_unused=True,
            materialize_grads=True,
        )
    except (RuntimeError, NotImplementedError):
        return  # PyTorch does not differentiate this after all

    def differentiable(*values: jax.Array) -> list[jax.Array]:
        given = list(inputs)
        for i, value in zip(into, values, strict=True):
            given[i] = value
        results = function(*given)
        return [results[i] for i in out]

    _, back = jax.vjp(differentiable, *(inputs[i] for i in into))
    # The conjugate is the difference between the two libraries' conventions.
    mine = back([jnp.conj(to_jax(c)) for c in cotangents])
    for number, one, other in zip(into, mine, theirs, strict=True):
        _same(jnp.conj(one), other, f"gradient of input {number}")


def _same(mine: Any, theirs: Any, what: str, *, with_values: bool = True) -> None:
    if not isinstance(theirs, torch.Tensor):
        if mine != theirs:
            raise Differs(f"{what}: {mine!r} in the place of {theirs!r}")
        return
    mine = jnp.asarray(mine)
    if mine.shape != tuple(theirs.shape):
        raise Differs(f"{what}: shape {mine.shape} in the place of {tuple(theirs.shape)}")
    if mine.dtype != jax_dtype_of(theirs.dtype):
        raise Differs(f"{what}: {mine.dtype} in the place of {jax_dtype_of(theirs.dtype)}")
    if not with_values:
        return
    one, other = _plain(mine), _numbers(theirs)
    limit = TOLERANCE if mine.dtype.itemsize >= 4 else 2e-2
    limit = limit if np.issubdtype(one.dtype, np.inexact) else 0
    differ = ~np.isclose(one, other, rtol=limit, atol=limit * _size(other), equal_nan=True)
    if differ.any():
        raise Differs(f"{what}: {_excerpt(one, other, differ)}")


def _numbers(tensor: torch.Tensor) -> np.ndarray:
    """Of a tensor of its own: gradients may be zeros that nowhere are in memory."""
    return _plain(to_jax(torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor.detach())))


def _stacked(draws: Iterable[np.ndarray]) -> np.ndarray:
    """All draws together: one may be of few channels that are kept or dropped as a whole."""
    return np.concatenate([draw.reshape(-1) for draw in draws])


def _size(numbers: np.ndarray) -> float:
    """What differences may grow with: sums of large numbers may be small ones."""
    largest = np.max(np.abs(numbers), initial=0, where=np.isfinite(numbers))
    return max(1.0, float(largest) / 10)


def _plain(value: jax.Array) -> np.ndarray:
    small = value.dtype in (jnp.bfloat16, jnp.float16)
    return np.asarray(value.astype(jnp.float32) if small else value)


def _alike(one: np.ndarray, other: np.ndarray, what: str) -> None:
    """Compares means and deviations of random numbers, if there are enough of them."""
    if one.size < _MOMENTS_OF or not np.isfinite(other).all():
        return
    one, other = one.astype(np.float64), other.astype(np.float64)
    error = max(one.std(), other.std()) / one.size**0.5
    if abs(one.mean() - other.mean()) > _DEVIATIONS * error * 2**0.5:
        raise Differs(f"{what}: mean {one.mean():.3g} in the place of {other.mean():.3g}")
    if not 0.5 <= (one.std() + 1e-9) / (other.std() + 1e-9) <= 2:
        raise Differs(f"{what}: deviation {one.std():.3g} in the place of {other.std():.3g}")


def _excerpt(one: np.ndarray, other: np.ndarray, differ: np.ndarray) -> str:
    """The first numbers that differ."""
    mine, theirs = one[differ][:4], other[differ][:4]
    return f"{differ.sum()} of {one.size}: {mine.tolist()} in the place of {theirs.tolist()}"


def _said(error: BaseException) -> str:
    lines = str(error).splitlines()
    text = lines[0] if lines else ""
    return (
        text[:300]
        if isinstance(error, Differs | FrontendError)
        else f"{type(error).__name__}: {text}"[:300]
    )
