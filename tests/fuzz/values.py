"""What a point of a program can read, and the statements that are written there.

Two rules keep last-bit differences between engines from growing. Floats stay in [-2, 2]: each
operation is scaled so that it stays there. And whatever jumps (comparisons, rounding, integers)
reads *exact* values only: those on whose every bit all engines must agree.
"""

from __future__ import annotations

import dataclasses as dc
import functools
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.fuzz.source import Define, Line, Statement

FLOAT_VECTOR, INTEGER_VECTOR = "jnp.arange(4.0) % 3 - 1.0", "jnp.arange(4) - 1"
SHAPES = ((), (3,), (4,), (2, 3), (3, 4), (4, 4), (2, 3, 2))
FLOATS = ("float32", "float16", "bfloat16")
INTEGERS = ("int32", "int8", "int16", "uint32", "uint8")
LARGEST = 32  # elements that operations which enlarge may give

FEATURES = (
    "shards", "replicas", "loops", "transforms", "random", "solves", "callbacks", "refs", "queues",
    "reports", "constants", "replicated-callbacks", "structures", "outside", "donation",
    "contexts", "static", "cache",
)  # fmt: skip
"""What `--without` can leave out."""


@dc.dataclass(frozen=True)
class Value:
    """Something that an expression can read.

    Attributes:
      name: the expression, a name nearly always.
      shape: its shape.
      dtype: the name of its dtype; `key` for typed keys.
      weak: whether its type is weak.
      exact: whether all engines must agree on every bit.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    weak: bool = False
    exact: bool = True

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS

    @property
    def is_integer(self) -> bool:
        return self.dtype in INTEGERS

    @property
    def is_number(self) -> bool:
        return self.is_float or self.is_integer

    @property
    def is_index(self) -> bool:
        """Whether it can choose: an integer or a boolean."""
        return self.is_integer or self.dtype == "bool"

    def plain(self) -> str:
        """An expression of the same type without operands."""
        if self.dtype == "key":
            return f"jax.random.split(jax.random.key(0), {self.shape})"
        return f"jnp.ones({self.shape}, jnp.{self.dtype})"


@dc.dataclass(frozen=True)
class Context:
    """What may be written at a point.

    Attributes:
      depth: how many more levels of bodies there may be.
      smooth: only what has a derivative that does not jump.
      forward: only what has a derivative in forward mode.
      unbounded: loops whose number of iterations is not known.
      ordered: effects in order.
      refs: reading and writing Refs.
    """

    depth: int = 2
    smooth: bool = False
    forward: bool = False
    unbounded: bool = True
    ordered: bool = True
    refs: bool = True


class Draft:
    """What all scopes of one program share: chance, names, and how much may still be written."""

    def __init__(self, chance: random.Random, features: Iterable[str], size: int):
        self.chance, self.features, self.size = chance, frozenset(features), size
        self.constants: list[Statement] = []
        self.dtypes: set[str] = set()
        self._names: dict[str, int] = {}

    @property
    def precision(self) -> str:
        """The coarsest float of the program."""
        return next((each for each in ("bfloat16", "float16") if each in self.dtypes), "float32")

    def name(self, prefix: str) -> str:
        """A new name."""
        number = self._names.get(prefix, 0)
        self._names[prefix] = number + 1
        return f"{prefix}{number}"


class Scope:
    """A block of statements being written, and the values that it can read."""

    def __init__(self, draft: Draft, values: Sequence[Value], context: Context):
        self.draft, self.context = draft, context
        self.chance = draft.chance
        self.values = list(values)
        self.own: list[Value] = []  # those made here
        self.refs: list[Value] = []
        self.statements: list[Statement] = []

    # --- writing --------------------------------------------------------------------------------

    def line(self, text: str, plain: str | None = None) -> None:
        """Writes a line as it is."""
        self.statements.append(Line(text, plain))

    def know(self, value: Value) -> Value:
        """Makes a value known that a line has given its name."""
        self.values.append(value)
        self.own.append(value)
        self.draft.dtypes.add(value.dtype)
        return value

    def assign(self, template: str, *operands: Value, exact: bool | None = None) -> Value:
        """Writes `name = template`, `{0}`, `{1}` being the operands.

        Exact if all operands are, unless `exact` says otherwise; integers always are.
        """
        shape, dtype, weak = type_of(template, operands)
        if exact is None:
            exact = all(operand.exact for operand in operands)
        name = self.draft.name("v")
        value = Value(name, shape, dtype, weak, exact or dtype not in (*FLOATS, "complex64"))
        text = template.format(*(operand.name for operand in operands))
        self.line(f"{name} = {text}", f"{name} = {value.plain()}")
        return self.know(value)

    def results(self, names: Sequence[Value], text: str) -> None:
        """Writes an assignment of a tuple to names, whose types are known."""
        targets = ", ".join(value.name for value in names) + ","
        plains = "\n".join(f"{value.name} = {value.plain()}" for value in names)
        self.line(f"{targets} = {text}", plains)
        for value in names:
            self.know(value)

    def result(self, value: Value, text: str) -> Value:
        """Writes an assignment to one name, whose type is known."""
        self.line(f"{value.name} = {text}", f"{value.name} = {value.plain()}")
        return self.know(value)

    def fresh(self, like: Value, *, shape: tuple[int, ...] | None = None) -> Value:
        """A value of that type with a new name; floats are no longer exact."""
        return dc.replace(
            like,
            name=self.draft.name("v"),
            shape=like.shape if shape is None else shape,
            exact=not like.is_float and like.dtype != "complex64",
        )

    def strong(self, like: Value) -> Value:
        """The same, of a strong type."""
        return dc.replace(self.fresh(like), weak=False)

    def define(
        self,
        prefix: str,
        parameters: Sequence[Value],
        write: Callable[[Scope], str],
        *,
        closes: bool = True,
        **context: Any,
    ) -> str:
        """Writes a nested function.

        Args:
          prefix: of its name.
          parameters: its parameters.
          write: writes its body and gives the expression that it returns.
          closes: whether it may read the values around it.
          context: what is otherwise in its context.
        """
        name = self.draft.name(prefix)
        inner = dc.replace(self.context, depth=self.context.depth - 1, **context)
        known = [value for value in parameters if value.dtype != "tuple"]
        around = self.values if closes else []
        scope = Scope(self.draft, [*around, *known, *known], inner)
        scope.refs = self.refs if inner.refs else []
        result = write(scope)
        head = f"def {name}({', '.join(value.name for value in parameters)}):"
        self.statements.append(Define(head, tuple(scope.statements), result))
        return name

    # --- reading --------------------------------------------------------------------------------

    def find(self, wanted: Callable[[Value], bool]) -> Value | None:
        """One of the values that fit, the latest more often."""
        fitting = [value for value in self.values if wanted(value)]
        if not fitting:
            return None
        if self.chance.random() < 0.5:
            fitting = fitting[-4:]
        return self.chance.choice(fitting)

    def any(self, wanted: Callable[[Value], bool], make: str = FLOAT_VECTOR) -> Value:
        """One of the values that fit; a new one, made by an expression, if there is none."""
        return self.find(wanted) or self.assign(make)

    def number(self) -> Value:
        """A float or an integer."""
        return self.any(lambda value: value.is_number)

    def real(self) -> Value:
        """A float."""
        return self.any(lambda value: value.is_float)

    def integer(self) -> Value:
        """An integer."""
        return self.any(lambda value: value.is_integer, INTEGER_VECTOR)

    def boolean(self) -> Value:
        """One exact boolean, made of what is there."""
        choice = self.integer()
        return self.assign(f"(jnp.sum({{0}}) & 1) == {self.chance.randint(0, 1)}", choice)

    def beside(self, value: Value, wanted: Callable[[Value], bool]) -> Value:
        """Another operand of an elementwise operation."""

        def fits(other: Value) -> bool:
            return wanted(other) and (other.shape == value.shape or other.shape == ())

        return self.find(fits) or value

    def fit(self, value: Value, shape: tuple[int, ...], dtype: str) -> Value:
        """A value of a shape and a dtype, made of another."""
        if value.shape == shape and value.dtype == dtype and not value.weak:
            return value
        if dtype == "complex64":
            real = self.fit(value, shape, "float32")
            return self.assign("lax.complex({0}, {0} * 0.5)", real)
        text = {"key": "jax.random.key_data({0})", "complex64": "{0}.real"}.get(value.dtype, "{0}")
        floats = value.is_float or value.dtype == "complex64"
        if value.shape != shape:
            text = f"jnp.mean({text})" if floats else f"jnp.sum({text})"
        if dtype in FLOATS and not floats:
            mask = 1 if value.dtype == "bool" and value.shape == shape else 3
            text = f"(({text}) & {mask}) * 0.5"
        if dtype not in FLOATS and floats:
            text = f"0 * ({text})"  # noise must not reach integers
        return self.assign(f"jnp.broadcast_to(({text}).astype(jnp.{dtype}), {shape})", value)


_NAMES: dict[str, Any] = {"jax": jax, "jnp": jnp, "np": np, "lax": lax, "functools": functools}


@functools.lru_cache(maxsize=20_000)
def _type_of(template: str, types: tuple[tuple[Any, ...], ...]) -> tuple[Any, ...]:
    names = [f"_{number}" for number in range(len(types))]
    code = f"lambda {', '.join(names)}: {template.format(*names)}"
    out = jax.eval_shape(eval(code, dict(_NAMES)), *(_struct(*each) for each in types))
    dtype = "key" if jnp.issubdtype(out.dtype, jax.dtypes.prng_key) else str(out.dtype)
    return out.shape, dtype, out.weak_type


def _struct(shape: tuple[int, ...], dtype: str, weak: bool) -> jax.ShapeDtypeStruct:
    kind: Any = jax.random.key(0).dtype if dtype == "key" else jnp.dtype(dtype)
    return jax.ShapeDtypeStruct(shape, kind, weak_type=weak)


def type_of(template: str, operands: Sequence[Value]) -> tuple[tuple[int, ...], str, bool]:
    """Shape, dtype and weakness of an expression of operands."""
    return _type_of(template, tuple((o.shape, o.dtype, o.weak) for o in operands))
