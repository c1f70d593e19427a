"""The bits that tell which values hold a NaN or an infinity; one reduction finds 32 of them.

This is a part of `insert_checks`. XLA's compiler takes longer the more kernels a program has, and
each reduction is one, with a copy of the operations that lead to it. So the values of one shape
share a reduction: their elements are made into words with a bit for each value, and one reduction
ORs the words. A value whose bits follow from those of other values needs none of its own.
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
from lowering.jaxprs import JaxprEqn, is_tracer, size_of, typed_jax

Bits = frozenset[int]
"""Bits one of which is set if a fact holds; without any, it never holds."""

NEVER: Bits = frozenset()

_Sources = Sequence[Any] | None
_Find = Callable[[Callable[[int], Any]], Any]

_WORD = 32
_NO_FAULT = np.iinfo(np.int32).max

# Each element of the result is an element of the operand, up to its sign and its fraction.
_SAME = frozenset({
    "abs", "broadcast_in_dim", "ceil", "copy", "copy_p", "expand_dims", "floor",
    "ipu_recomputation_checkpoint", "neg", "optimization_barrier", "reshape", "rev", "round",
    "sharding_constraint", "squeeze", "stop_gradient", "transpose",
})  # fmt: skip

# The result is NaN for NaN only, and never infinite.
_BOUNDED = frozenset({"erf", "erfc", "logistic", "sign", "tanh"})

# The result is NaN for NaN only.
_NAN_FOR_NAN = frozenset({"exp", "exp2", "expm1", "square"})


@dc.dataclass(frozen=True, slots=True)
class Facts:
    """The bits that tell whether a value has a NaN, and whether it has an infinity."""

    nan: Bits = NEVER
    inf: Bits = NEVER


@dc.dataclass(frozen=True, slots=True)
class _ConditionalFault:
    """A fault that happened if a bit of `happened` is set and none of `unless` is."""

    number: int
    happened: Bits
    unless: Bits


@dc.dataclass(frozen=True, slots=True)
class _BitFinder:
    """Some bits, and a function that finds them for each element of a value.

    The function returns a number with that many binary digits, lowest first. It takes a function
    that makes constants of the value's shape.
    """

    bits: Sequence[int]
    find: _Find


class FaultWatch:
    """The bits of one body, found while that is traced.

    Values are known by their `id`, and kept so that no other gets it.

    Args:
      spread: whether operations without a mark may be on different IPUs; then values share a
        reduction only if they come from the same one.
      infinities: whether infinities matter.
    """

    def __init__(self, *, spread: bool, infinities: bool):
        self._spread, self._infinities = spread, infinities
        self._kept: list[Any] = []
        self._facts: dict[int, Facts] = {}
        self._made_by: dict[int, tuple[JaxprEqn, Sequence[Any], int]] = {}
        self._origin: dict[int, int] = {}
        self._looks: dict[tuple[int | None, Hashable, tuple[int, ...]], list[_BitFinder]] = {}
        self._words: list[Any] = []
        self._places: list[int] = []  # the position of each bit in `_words`
        self._faults: list[_ConditionalFault] = []

    def record_equation(self, eqn: JaxprEqn, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Records the equation behind values, before their facts are asked for."""
        for i, out in enumerate(outputs):
            self._kept.append(out)
            self._made_by[id(out)] = eqn, inputs, i
            arrays = (x for x in inputs if is_tracer(x) and jnp.ndim(x))
            source = id(next(arrays, out))
            self._origin[id(out)] = self._origin.get(source, source)

    def facts_of_value(self, value: Any, shard: int | None) -> Facts:
        """Returns the facts of a value; looks on `shard` if they are not known yet."""
        if id(value) not in self._facts:
            self._kept.append(value)
            self._facts[id(value)] = self._find_facts(value, shard)
        return self._facts[id(value)]

    def is_harmless(self, value: Any) -> bool:
        """Returns whether making a value cannot be a fault."""
        nans, infs = self._sources_of_nan_and_infinity(value)
        return nans is not None and infs is not None

    def bits_of_mask(self, mask: Callable[[], Any], value: Any, shard: int | None) -> Bits:
        """Returns the bit that tells whether a mask of a value's elements has a True."""

        def find_true_elements(full: Callable[[int], Any]) -> Any:
            return lax.select(jnp.broadcast_to(mask(), jnp.shape(value)), full(1), full(0))

        return frozenset(self._add_bit_finder(1, find_true_elements, value, shard))

    def add_fault(self, number: int, happened: Bits, unless: Bits) -> None:
        """Adds a fault that is reported unless one of a smaller number happened."""
        self._faults.append(_ConditionalFault(number, happened, unless))

    def reduce_full_words(self, *, all: bool = False) -> None:
        """Reduces the values that fill a word by now, so that they need not live any longer."""
        for key, finders in list(self._looks.items()):
            if all or sum(len(finder.bits) for finder in finders) >= _WORD - 1:
                del self._looks[key]
                shard, _, shape = key
                for finders_of_word in _pack_finders_into_words(finders):
                    self._reduce_to_word(shard, shape, finders_of_word)

    def number_of_first_fault(self, fault_numbers_of_bodies: Sequence[Any]) -> Any:
        """Returns the smallest number of a fault that happened, int32[]; 0 for none.

        Args:
          fault_numbers_of_bodies: such numbers of the bodies inside.
        """
        if not self._faults and not fault_numbers_of_bodies:
            return jnp.int32(0)
        numbers = [
            jnp.where(number == 0, _NO_FAULT, number)[None] for number in fault_numbers_of_bodies
        ]
        if self._faults:
            numbers.append(self._numbers_of_faults())
        smallest = jnp.min(jnp.concatenate(numbers))
        return jnp.where(smallest == _NO_FAULT, 0, smallest)

    def _numbers_of_faults(self) -> Any:
        """Returns the number of each fault that happened; `_NO_FAULT` for each other one."""
        self.reduce_full_words(all=True)
        words = jnp.stack([*self._words, jnp.uint32(0)])
        masks = lax.shift_left(lax.full((_WORD,), 1, np.uint32), lax.iota(np.uint32, _WORD))
        bits = (words[:, None] & masks[None, :]).reshape(-1) != 0
        width = max(len(fault.happened) for fault in self._faults)
        table = typed_jax.asarray(self._table_of_faults(width))
        is_set = bits.at[table[:, 1:]].get(mode="promise_in_bounds", wrap_negative_indices=False)
        happened = jnp.any(is_set[:, :width], axis=1) & ~jnp.any(is_set[:, width:], axis=1)
        return jnp.where(happened, table[:, 0], _NO_FAULT)

    def _table_of_faults(self, width: int) -> Any:
        """Returns a row per fault: its number, the positions of `width` bits, and of `unless`."""
        columns = 1 + width + max(len(fault.unless) for fault in self._faults)
        table = np.full((len(self._faults), columns), len(self._words) * _WORD)  # a bit never set
        for row, fault in zip(table, self._faults, strict=True):
            row[0] = fault.number
            for start, bits in ((1, fault.happened), (1 + width, fault.unless)):
                row[start : start + len(bits)] = [self._places[bit] for bit in sorted(bits)]
        return table.astype(np.int32)

    def _find_facts(self, value: Any, shard: int | None) -> Facts:
        aval = jax.typeof(value)
        if not jnp.issubdtype(aval.dtype, jnp.inexact) or not size_of(aval):
            return Facts()
        if not is_tracer(value) and bool(np.isfinite(np.asarray(value)).all()):
            return Facts()
        nans, infs = self._sources_of_nan_and_infinity(value)
        nan = (
            None
            if nans is None
            else NEVER.union(*(self.facts_of_value(x, shard).nan for x in nans))
        )
        inf = (
            None
            if infs is None
            else NEVER.union(*(self.facts_of_value(x, shard).inf for x in infs))
        )
        inf = inf if self._infinities else NEVER
        if nan is None and inf is None:
            both = self._add_bit_finder(
                2, lambda full: _classify_elements(value, full), value, shard
            )
            return Facts(frozenset(both[:1]), frozenset(both[1:]))
        if nan is None:
            nan = self.bits_of_mask(lambda: lax.ne(value, value), value, shard)
        if inf is None:
            inf = self.bits_of_mask(lambda: jnp.isinf(value), value, shard)
        return Facts(nan, inf)

    def _sources_of_nan_and_infinity(self, value: Any) -> tuple[_Sources, _Sources]:
        """Returns the operands that NaN and infinities come from; None if they may be new."""
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
        same = inputs[i] if name in _SAME else _operand_with_same_class(name, inputs, value)
        return (None, None) if same is None else ([same], [same])

    def _add_bit_finder(
        self, count: int, find: _Find, value: Any, shard: int | None
    ) -> Sequence[int]:
        """Adds bits that are found in a value on its shard."""
        self._kept.append(value)
        origin = self._origin.get(id(value), id(value))
        source = origin if self._spread and shard is None else None
        bits = range(len(self._places), len(self._places) + count)
        self._places += [-1] * count
        self._looks.setdefault((shard, source, jnp.shape(value)), []).append(_BitFinder(bits, find))
        return bits

    def _reduce_to_word(
        self, shard: int | None, shape: tuple[int, ...], finders: Sequence[_BitFinder]
    ) -> None:
        word: Any = None
        bit_position = len(self._words) * _WORD + sum(len(finder.bits) for finder in finders)
        with marks.place_on_shard(shard):

            @functools.cache
            def full(number: int) -> Any:
                return lax.full(shape, number, np.uint32)

            for look in finders:
                digits = look.find(full)
                if word is not None:
                    shifted_word = lax.shift_left(word, full(len(look.bits)))
                    digits = lax.bitwise_or(shifted_word, digits)
                word = digits
                bit_position -= len(look.bits)
                for i, bit in enumerate(look.bits):
                    self._places[bit] = bit_position + i
            if word.ndim:
                word = lax.reduce(word, np.uint32(0), lax.bitwise_or, range(word.ndim))
        self._words.append(word)


def _pack_finders_into_words(finders: Sequence[_BitFinder]) -> Iterator[list[_BitFinder]]:
    """Yields as many finders together as fit into a word."""
    group: list[_BitFinder] = []
    for finder in finders:
        if sum(len(group_member.bits) for group_member in (*group, finder)) > _WORD:
            yield group
            group = []
        group.append(finder)
    yield group


def _classify_elements(value: Any, full: Callable[[int], Any]) -> Any:
    """Returns 1 for NaN, 2 for infinity, 3 for a complex number that is both."""
    if _is_complex(value):
        parts = [_classify_elements(part, full) for part in (lax.real(value), lax.imag(value))]
        return lax.bitwise_or(parts[0], parts[1])
    wrong = lax.select(lax.ne(value, value), full(1), full(2))
    return lax.select(lax.is_finite(value), full(0), wrong)


def _operand_with_same_class(name: str, inputs: Sequence[Any], value: Any) -> Any:
    """Returns the operand that a result is NaN, infinite or finite with, or None."""
    target = typed_jax.finfo(jax.typeof(value).dtype)
    if name == "convert_element_type":
        return inputs[0] if _has_range_of(target, jax.typeof(inputs[0]).dtype) else None
    if name not in ("add", "sub", "mul", "div"):
        return None
    first_operand, second_operand = inputs
    are_constants = [not is_tracer(first_operand), not is_tracer(second_operand)]
    if sum(are_constants) != 1 or (name == "div" and are_constants[0]):
        return None
    operand, constant = (
        (second_operand, first_operand) if are_constants[0] else (first_operand, second_operand)
    )
    size = np.abs(np.asarray(constant, np.float64))
    if name in ("add", "sub"):  # less than half of the largest number's last place
        return operand if (size < float(target.max) * float(target.eps) / 4).all() else None
    scale = size if name == "mul" else 1 / np.where(size == 0, np.nan, size)
    # Denormal numbers may be flushed to zero.
    return operand if ((scale <= 1) & (scale >= 2 * float(target.tiny))).all() else None


def _has_range_of(target: Any, source: Any) -> bool:
    """Returns whether a float type has a finite number for each one of another type."""
    if source == np.bool_:
        return True
    if jnp.issubdtype(source, jnp.integer):
        return float(jnp.iinfo(source).max) <= float(target.max)
    if not jnp.issubdtype(source, jnp.floating):
        return False
    return target.bits >= 16 and float(typed_jax.finfo(source).max) <= float(target.max)


def _is_complex(value: Any) -> bool:
    return jnp.issubdtype(jax.typeof(value).dtype, jnp.complexfloating)
