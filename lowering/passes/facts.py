"""Which values hold a NaN or an infinity: bits, 32 of which are found at once.

A part of `insert_checks`. XLA's compiler takes the longer the more kernels a program has, and each
reduction is one, with a copy of what leads to it. So the values of one shape share theirs: their
elements are made into words with a bit for each value, and one reduction ORs the words. What
follows from the bits of other values needs none of its own.
"""

from __future__ import annotations

import dataclasses as dc
import functools
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lowering import marks
from lowering.avals import size_of
from lowering.jaxpr import JaxprEqn, is_tracer

Bits = frozenset[int]
"""Bits one of which is set if something is so; with none, it is never so."""

NEVER: Bits = frozenset()

_Sources = Sequence[Any] | None
_Find = Callable[[Callable[[int], Any]], Any]

_WORD = 32
_NO_FAULT = np.iinfo(np.int32).max

# Each element of the result is one of the operand's, but for its sign and its fraction.
_SAME = frozenset({
    "abs", "broadcast_in_dim", "ceil", "copy", "copy_p", "expand_dims", "floor",
    "ipu_recomputation_checkpoint", "neg", "optimization_barrier", "reshape", "rev", "round",
    "sharding_constraint", "squeeze", "stop_gradient", "transpose",
})  # fmt: skip

# NaN for NaN only, and never infinite.
_BOUNDED = frozenset({"erf", "erfc", "logistic", "sign", "tanh"})

# NaN for NaN only.
_NAN_FOR_NAN = frozenset({"exp", "exp2", "expm1", "square"})


@dc.dataclass(frozen=True, slots=True)
class Facts:
    """Whether there is a NaN, and whether there is an infinity, among a value's elements."""

    nan: Bits = NEVER
    inf: Bits = NEVER


@dc.dataclass(frozen=True, slots=True)
class _Fault:
    """It happened if one of `happened` is set and none of `unless` is."""

    number: int
    happened: Bits
    unless: Bits


@dc.dataclass(frozen=True, slots=True)
class _Look:
    """Bits, and what finds them for each element: a number with that many digits, lowest first.

    It gets a function that makes constants of the value's shape.
    """

    bits: Sequence[int]
    find: _Find


class Watch:
    """The bits of one body, found while that is traced.

    Values are known by their `id`, and kept so that no other gets it.

    Args:
      spread: whether operations without a mark may be on different IPUs; then values are looked
        at together only if they come from the same one.
      infinities: whether they matter.
    """

    def __init__(self, *, spread: bool, infinities: bool):
        self._spread, self._infinities = spread, infinities
        self._kept: list[Any] = []
        self._facts: dict[int, Facts] = {}
        self._made_by: dict[int, tuple[JaxprEqn, Sequence[Any], int]] = {}
        self._origin: dict[int, int] = {}
        self._looks: dict[tuple[int | None, Hashable, tuple[int, ...]], list[_Look]] = {}
        self._words: list[Any] = []
        self._places: list[int] = []  # of each bit among those of `_words`
        self._faults: list[_Fault] = []

    def made(self, eqn: JaxprEqn, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Notes what values were made of, before their facts are asked for."""
        for i, out in enumerate(outputs):
            self._kept.append(out)
            self._made_by[id(out)] = eqn, inputs, i
            arrays = (x for x in inputs if is_tracer(x) and jnp.ndim(x))
            source = id(next(arrays, out))
            self._origin[id(out)] = self._origin.get(source, source)

    def facts(self, value: Any, shard: int | None) -> Facts:
        """What a value holds; `shard` is where to look if it is the first time."""
        if id(value) not in self._facts:
            self._kept.append(value)
            self._facts[id(value)] = self._found(value, shard)
        return self._facts[id(value)]

    def is_harmless(self, value: Any) -> bool:
        """Whether making it cannot be a fault."""
        nans, infs = self._sources(value)
        return nans is not None and infs is not None

    def where(self, mask: Callable[[], Any], value: Any, shard: int | None) -> Bits:
        """Whether a mask of a value's elements has a True."""

        def find(full: Callable[[int], Any]) -> Any:
            return lax.select(jnp.broadcast_to(mask(), jnp.shape(value)), full(1), full(0))

        return frozenset(self._look_for(1, find, value, shard))

    def add_fault(self, number: int, happened: Bits, unless: Bits) -> None:
        """Something to report if nothing of a smaller number happened."""
        self._faults.append(_Fault(number, happened, unless))

    def reduce(self, *, all: bool = False) -> None:
        """Looks at the values that fill a word by now, so that they need not live any longer."""
        for key, looks in list(self._looks.items()):
            if all or sum(len(look.bits) for look in looks) >= _WORD - 1:
                del self._looks[key]
                shard, _, shape = key
                for together in _fitting(looks):
                    self._reduce(shard, shape, together)

    def first(self, inner: Sequence[Any]) -> Any:
        """The smallest number of a fault that happened, int32[]; 0 for none.

        Args:
          inner: such numbers of the bodies inside.
        """
        if not self._faults and not inner:
            return jnp.int32(0)
        numbers = [jnp.where(number == 0, _NO_FAULT, number)[None] for number in inner]
        if self._faults:
            numbers.append(self._happened())
        smallest = jnp.min(jnp.concatenate(numbers))
        return jnp.where(smallest == _NO_FAULT, 0, smallest)

    def _happened(self) -> Any:
        """The number of each fault that happened; `_NO_FAULT` of each other."""
        self.reduce(all=True)
        words = jnp.stack([*self._words, jnp.uint32(0)])
        masks = lax.shift_left(lax.full((_WORD,), 1, np.uint32), lax.iota(np.uint32, _WORD))
        bits = (words[:, None] & masks[None, :]).reshape(-1) != 0
        width = max(len(fault.happened) for fault in self._faults)
        table = jnp.asarray(self._table(width))
        is_set = bits.at[table[:, 1:]].get(mode="promise_in_bounds", wrap_negative_indices=False)
        happened = jnp.any(is_set[:, :width], axis=1) & ~jnp.any(is_set[:, width:], axis=1)
        return jnp.where(happened, table[:, 0], _NO_FAULT)

    def _table(self, width: int) -> Any:
        """A row for each fault: its number, the places of `width` bits, and of those of others."""
        columns = 1 + width + max(len(fault.unless) for fault in self._faults)
        table = np.full((len(self._faults), columns), len(self._words) * _WORD)  # which is not set
        for row, fault in zip(table, self._faults, strict=True):
            row[0] = fault.number
            for start, bits in ((1, fault.happened), (1 + width, fault.unless)):
                row[start : start + len(bits)] = [self._places[bit] for bit in sorted(bits)]
        return table.astype(np.int32)

    def _found(self, value: Any, shard: int | None) -> Facts:
        aval = jax.typeof(value)
        if not jnp.issubdtype(aval.dtype, jnp.inexact) or not size_of(aval):
            return Facts()
        if not is_tracer(value) and bool(np.isfinite(np.asarray(value)).all()):
            return Facts()
        nans, infs = self._sources(value)
        nan = None if nans is None else NEVER.union(*(self.facts(x, shard).nan for x in nans))
        inf = None if infs is None else NEVER.union(*(self.facts(x, shard).inf for x in infs))
        inf = inf if self._infinities else NEVER
        if nan is None and inf is None:
            both = self._look_for(2, lambda full: _nan_and_inf(value, full), value, shard)
            return Facts(frozenset(both[:1]), frozenset(both[1:]))
        if nan is None:
            nan = self.where(lambda: lax.ne(value, value), value, shard)
        if inf is None:
            inf = self.where(lambda: jnp.isinf(value), value, shard)
        return Facts(nan, inf)

    def _sources(self, value: Any) -> tuple[_Sources, _Sources]:
        """Where a value has its NaN from, and its infinities; None if it may have made some."""
        if id(value) not in self._made_by:
            return None, None
        eqn, inputs, i = self._made_by[id(value)]
        name = eqn.primitive.name
        if any(map(_is_complex, (value, *inputs))):
            return None, None
        if name == "concatenate":
            return inputs, inputs
        if name in _BOUNDED:
            return inputs, ()
        if name in _NAN_FOR_NAN or (name == "integer_pow" and eqn.params["y"] > 0):
            return inputs, None
        same = inputs[i] if name in _SAME else _surviving(name, inputs, value)
        return (None, None) if same is None else ([same], [same])

    def _look_for(self, count: int, find: _Find, value: Any, shard: int | None) -> Sequence[int]:
        """New bits, to be found in a value where it is."""
        self._kept.append(value)
        origin = self._origin.get(id(value), id(value))
        place = origin if self._spread and shard is None else None
        bits = range(len(self._places), len(self._places) + count)
        self._places += [-1] * count
        self._looks.setdefault((shard, place, jnp.shape(value)), []).append(_Look(bits, find))
        return bits

    def _reduce(self, shard: int | None, shape: tuple[int, ...], looks: Sequence[_Look]) -> None:
        word: Any = None
        place = len(self._words) * _WORD + sum(len(look.bits) for look in looks)
        with marks.on_shard(shard):
            full = functools.cache(lambda number: lax.full(shape, number, np.uint32))
            for look in looks:
                digits = look.find(full)
                if word is not None:
                    room = lax.shift_left(word, full(len(look.bits)))
                    digits = lax.bitwise_or(room, digits)
                word = digits
                place -= len(look.bits)
                for i, bit in enumerate(look.bits):
                    self._places[bit] = place + i
            if word.ndim:
                word = lax.reduce(word, np.uint32(0), lax.bitwise_or, range(word.ndim))
        self._words.append(word)


def _fitting(looks: Sequence[_Look]) -> Iterator[list[_Look]]:
    """As many together as fit into a word."""
    together: list[_Look] = []
    for look in looks:
        if sum(len(other.bits) for other in (*together, look)) > _WORD:
            yield together
            together = []
        together.append(look)
    yield together


def _nan_and_inf(value: Any, full: Callable[[int], Any]) -> Any:
    """1 for NaN, 2 for infinity, 3 for a complex number that is both."""
    if _is_complex(value):
        parts = [_nan_and_inf(part, full) for part in (lax.real(value), lax.imag(value))]
        return lax.bitwise_or(parts[0], parts[1])
    wrong = lax.select(lax.ne(value, value), full(1), full(2))
    return lax.select(lax.is_finite(value), full(0), wrong)


def _surviving(name: str, inputs: Sequence[Any], value: Any) -> Any:
    """The operand that a result is finite, infinite or NaN with, element by element, if any."""
    target = jnp.finfo(jax.typeof(value).dtype)
    if name == "convert_element_type":
        return inputs[0] if _holds(target, jax.typeof(inputs[0]).dtype) else None
    if name not in ("add", "sub", "mul", "div"):
        return None
    first, second = inputs
    known = [not is_tracer(first), not is_tracer(second)]
    if sum(known) != 1 or (name == "div" and known[0]):
        return None
    operand, constant = (second, first) if known[0] else (first, second)
    size = np.abs(np.asarray(constant, np.float64))
    if name in ("add", "sub"):  # less than half of the largest number's last place
        return operand if (size < float(target.max) * float(target.eps) / 4).all() else None
    scale = size if name == "mul" else 1 / np.where(size == 0, np.nan, size)
    # Denormal numbers may count as zeros.
    return operand if ((scale <= 1) & (scale >= 2 * float(target.tiny))).all() else None


def _holds(target: Any, source: Any) -> bool:
    """Whether a float type has a finite number for each of another type."""
    if source == np.bool_:
        return True
    if jnp.issubdtype(source, jnp.integer):
        return float(jnp.iinfo(source).max) <= float(target.max)
    if not jnp.issubdtype(source, jnp.floating):
        return False
    return target.bits >= 16 and float(jnp.finfo(source).max) <= float(target.max)


def _is_complex(value: Any) -> bool:
    return jnp.issubdtype(jax.typeof(value).dtype, jnp.complexfloating)
