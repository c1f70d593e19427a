"""Operations without bodies: elementwise ones, casts, shapes, reductions and constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tests.fuzz.values import FLOATS, INTEGER_VECTOR, INTEGERS, LARGEST, Scope, Value

Writer: TypeAlias = Callable[[Scope], object]

# Floats in [-2, 2] stay there, and errors hardly grow.
SMOOTH = (
    "jnp.sin({0})", "jnp.cos({0})", "jnp.tanh({0})", "-{0}", "jnp.exp(-{0} * {0})",
    "jax.nn.sigmoid({0})", "jnp.log1p({0} * {0})", "jnp.sqrt({0} * {0} + 0.5) * 0.9",
    "lax.rsqrt(1.0 + {0} * {0})", "jnp.arctan({0})", "jax.scipy.special.erf({0})",
    "jax.nn.softplus({0}) * 0.5", "jax.nn.gelu({0})", "jax.nn.silu({0})", "{0} * 0.5 + 0.25",
    "jnp.square({0}) * 0.5", "{0} ** 3 * 0.25", "jnp.expm1({0} * 0.5)", "1.0 - {0} * 0.5",
    "lax.stop_gradient({0})", "jnp.sinh({0} * 0.5)", "jnp.exp2({0} * 0.5) * 0.5",
)  # fmt: skip
CONTINUOUS = (
    "jnp.abs({0})", "jax.nn.relu({0})", "jnp.clip({0}, -1, 1)", "jax.nn.leaky_relu({0})",
    "jnp.nan_to_num({0})", "jax.nn.hard_tanh({0})",
)  # fmt: skip
JUMPS = (
    "jnp.floor({0} * 0.5)", "jnp.round({0} * 0.5)", "jnp.sign({0})", "jnp.ceil({0} * 0.5)",
    "jnp.trunc({0} * 0.5)", "{0} % 2", "jnp.heaviside({0}, 1.0)",
)  # fmt: skip
BINARY = (
    "({0} + {1}) * 0.5", "({0} - {1}) * 0.5", "{0} * {1} * 0.5", "{0} / (1.0 + {1} * {1})",
    "jnp.logaddexp({0}, {1}) * 0.5", "jnp.arctan2({0}, 2.5 + {1}) * 0.5",
    "lax.clamp({0} * 0, {0} * 0.1 + 0.1, {0} * 0 + 0.15)", "jnp.where(True, {0}, {1})",
)  # fmt: skip
BINARY_CONTINUOUS = ("jnp.maximum({0}, {1})", "jnp.minimum({0}, {1})")
INTEGER = (
    "-{0}", "~{0}", "jnp.abs({0})", "jnp.sign({0})", "{0} // 3", "{0} % 5", "{0} >> 1", "{0} << 2",
    "{0} * 3", "{0} + 1", "{0} ** 2", "lax.population_count({0})", "lax.clz({0})",
    "jnp.clip({0}, 0, 3)", "jnp.right_shift({0}, 2)", "jnp.invert({0})",
)  # fmt: skip
INTEGER_BINARY = (
    "{0} + {1}", "{0} - {1}", "{0} * {1}", "{0} & {1}", "{0} | {1}", "{0} ^ {1}",
    "jnp.maximum({0}, {1})", "jnp.minimum({0}, {1})", "jnp.where({0} > {1}, {0}, {1})",
    "{0} // (({1} & 3) + 1)", "lax.rem({0}, {0} * 0 + 3)",
)  # fmt: skip
COMPARE = ("{0} > {1}", "{0} == {1}", "{0} <= {1}", "{0} != {1}")
LOGIC = ("{0} & {1}", "{0} | {1}", "{0} ^ {1}", "~{0}", "jnp.where({0}, {1}, ~{1})")
CONSTANTS = (
    "jnp.arange(4)", "jnp.arange(3.0) - 1.0", "jnp.arange(2, 8, 2)", "lax.iota(jnp.int32, 3)",
    "lax.broadcasted_iota(jnp.int32, (2, 3), 1)", "jnp.eye(3)", "jnp.eye(4, dtype=jnp.int32)",
    "jnp.full((2, 3), 0.5)", "jnp.ones((3, 4), jnp.bfloat16)", "jnp.zeros((4,), jnp.int8)",
    "jnp.linspace(-1.0, 1.0, 4)", "jnp.asarray(1.5)", "jnp.asarray(2)", "jnp.float16(0.5)",
    "jnp.tri(3)", "jnp.arange(6).reshape(2, 3)", "jnp.asarray([1, -1, 2], jnp.int8)",
    "jnp.array([True, False, True])", "jnp.asarray(np.float32([[1, -1, 0.5], [0.25, 2, -2]]))",
    "jnp.arange(4, dtype=jnp.uint32)", "jnp.asarray(True)", "1e-3 + jnp.ones(3)",
)  # fmt: skip


def unary(scope: Scope) -> None:
    """An elementwise operation of a float."""
    value = scope.real()
    jumps = value.exact and not scope.context.smooth and scope.chance.random() < 0.4
    table = JUMPS if jumps else SMOOTH
    if not jumps and not scope.context.smooth and scope.chance.random() < 0.25:
        table = CONTINUOUS
    scope.assign(scope.chance.choice(table), value, exact=jumps)


def binary(scope: Scope) -> None:
    """An elementwise operation of two floats."""
    first = scope.real()
    second = scope.beside(first, lambda other: other.is_float)
    continuous = not scope.context.smooth and scope.chance.random() < 0.2
    scope.assign(
        scope.chance.choice(BINARY_CONTINUOUS if continuous else BINARY), first, second, exact=False
    )


def integers(scope: Scope) -> None:
    """An elementwise operation of one or two integers."""
    first = scope.integer()
    if scope.chance.random() < 0.4:
        scope.assign(scope.chance.choice(INTEGER), first)
        return
    second = scope.beside(first, lambda other: other.is_integer)
    scope.assign(scope.chance.choice(INTEGER_BINARY), first, _same_width(scope, first, second))


def _same_width(scope: Scope, first: Value, second: Value) -> Value:
    """Operands that together stay in 32 bits: int32 with uint32 would become a float or int64."""
    if "uint32" in (first.dtype, second.dtype) and first.dtype != second.dtype:
        return scope.assign(f"{{0}}.astype(jnp.{first.dtype})", second)
    return second


def compare(scope: Scope) -> None:
    """A comparison, or logic on booleans."""
    if scope.chance.random() < 0.3:
        first = scope.find(lambda value: value.dtype == "bool")
        if first is not None:
            second = scope.beside(first, lambda other: other.dtype == "bool")
            scope.assign(scope.chance.choice(LOGIC), first, second)
            return
    first = scope.any(lambda value: value.is_number and value.exact, INTEGER_VECTOR)
    second = scope.beside(first, lambda other: other.dtype == first.dtype and other.exact)
    scope.assign(scope.chance.choice(COMPARE), first, second)


def where(scope: Scope) -> None:
    """One or the other of two values."""
    value = scope.number()
    mask = scope.beside(value, lambda other: other.dtype == "bool")
    if mask.dtype != "bool":
        mask = scope.boolean()
    other = scope.beside(value, lambda other: other.dtype == value.dtype)
    scope.assign("jnp.where({0}, {1}, {2})", mask, value, other)


def cast(scope: Scope) -> None:
    """Another dtype."""
    value = scope.any(lambda value: value.is_number or value.dtype == "bool")
    if value.is_float and value.exact and not scope.context.smooth and scope.chance.random() < 0.5:
        scope.assign(f"{{0}}.astype(jnp.{scope.chance.choice(('int32', 'int8', 'bool'))})", value)
    elif value.is_float:
        dtype = scope.chance.choice(FLOATS)
        scope.assign(f"{{0}}.astype(jnp.{dtype})", value, exact=False)
    elif scope.chance.random() < 0.6:
        dtype = scope.chance.choice(FLOATS[:1] * 3 + FLOATS)
        scope.assign(to_float(value, dtype), value)
    else:
        dtype = scope.chance.choice((*INTEGERS, "bool"))
        scope.assign(f"{{0}}.astype(jnp.{dtype})", value)


def to_float(value: Value, dtype: str) -> str:
    """An exact float in [-2, 2] of an integer or a boolean."""
    if value.dtype == "bool":
        return f"{{0}}.astype(jnp.{dtype})"
    small = "{0} & 1" if value.dtype.startswith("u") else "({0} & 3) - 1"
    return f"({small}).astype(jnp.{dtype})"


def mixed(scope: Scope) -> None:
    """A float and an integer: types are promoted."""
    value = scope.real()
    other = scope.beside(value, lambda other: other.is_integer)
    if other.is_integer:
        scope.assign("{0} * ({1} & 1).astype(jnp.int8) * 0.5", value, other, exact=False)
    else:
        scope.assign("{0} * 2 * 0.25", value, exact=False)


def constant(scope: Scope) -> None:
    """A constant; the next operations like to read it."""
    if "constants" not in scope.draft.features:
        return
    text = scope.chance.choice(CONSTANTS)
    # XLA may or may not fold what is computed at trace time under `jit`.
    value = scope.assign(text, exact="linspace" not in text and "e-3" not in text)
    if scope.chance.random() < 0.5 and value.is_number:
        scope.assign("{0} * 2 - {0}", value)


def shape(scope: Scope) -> None:
    """The same numbers in another shape, or some of them."""
    value = scope.any(lambda value: value.size <= LARGEST and value.dtype != "key")
    templates = ["{0}.reshape(-1)", "{0}[None]", "jnp.ravel({0})", "jnp.stack([{0}])"]
    if value.rank:
        templates += [
            "jnp.flip({0}, 0)", "jnp.roll({0}, 1, 0)", "{0}[1:]", "{0}[::-1]", "{0}[0]",
            "{0}[..., 0]", "{0}[..., None]", "jnp.flip({0})", "{0}[-1]", "jnp.roll({0}, -1)",
            "{0}[..., ::2]", "jnp.moveaxis({0}, 0, -1)", "jnp.atleast_2d({0})",
        ]  # fmt: skip
    if value.rank >= 2:
        templates += [
            "{0}.T", "{0}.T.reshape({0}.shape)", "jnp.swapaxes({0}, 0, 1)", "jnp.tril({0})",
            "jnp.diagonal({0})", "{0}.T.reshape(1, -1).T", "{0}[:, 0]", "{0}[:, ::-1]",
            "jnp.einsum('ij...->ji...', {0})", "jnp.triu({0})", "jnp.rot90({0})",
        ]  # fmt: skip
    if value.size <= LARGEST // 2:
        templates += ["jnp.stack([{0}, {0}])", "jnp.tile({0}, 2)", "jnp.repeat({0}, 2)"]
        if value.rank:
            templates += [
                "jnp.concatenate([{0}, {0}[:1]])", "jnp.pad({0}, 1)",
                "jnp.pad({0}, 1, mode='edge')",
                "lax.pad({0}, {0}.dtype.type(0), [(1, 0, 1)] + [(0, 0, 0)] * ({0}.ndim - 1))",
                "jnp.broadcast_to({0}, (2, *{0}.shape))", "jnp.append({0}, {0})",
            ]  # fmt: skip
    template = scope.chance.choice(templates)
    if (value.dtype == "bool" and "lax.pad" in template) or value.size == 0:
        return
    if value.rank and min(value.shape) < 2 and "1:" in template:
        return
    scope.assign(template, value)


def join(scope: Scope) -> None:
    """Two values of one shape become one."""
    value = scope.any(lambda value: 0 < value.size <= LARGEST // 2 and value.dtype != "key")
    other = scope.find(lambda o: o.shape == value.shape and o.dtype == value.dtype) or value
    templates = ["jnp.stack([{0}, {1}])", "jnp.stack([{0}, {1}], -1)"]
    if value.rank:
        templates += ["jnp.concatenate([{0}, {1}])", "jnp.concatenate([{1}, {0}], -1)"]
    scope.assign(scope.chance.choice(templates), value, other)


def reduction(scope: Scope) -> None:
    """Fewer numbers, or running totals."""
    value = scope.any(lambda v: v.is_number and v.rank > 0 and v.size > 0)
    axis = scope.chance.choice([None, 0, -1])
    if value.is_integer:
        templates = [
            "jnp.sum({0}, {axis})", "jnp.prod({0}, {axis})", "jnp.max({0}, {axis})",
            "jnp.argmax({0}, {axis})", "jnp.cumsum({0}, {axis})", "jnp.any({0} > 0, {axis})",
            "jnp.cumprod({0}, {axis})", "lax.cummax({0}, 0)", "jnp.min({0}, {axis})",
            "jnp.all({0} > 0, {axis})", "jnp.bitwise_xor.reduce({0}, {some})", "lax.cummin({0}, 0)",
            "jnp.count_nonzero({0}, {axis})", "lax.cumsum({0}, 0, reverse=True)",
        ]  # fmt: skip
    else:
        templates = [
            "jnp.mean({0}, {axis})", "jnp.prod({0} * 0.5, {axis})",
            "jnp.cumprod({0} * 0.5, {axis})",
            "jnp.var({0}, {axis}) * 0.5", "jax.nn.softmax({0}, {some})",
            "jax.scipy.special.logsumexp({0}, {axis}) * 0.3", "jnp.cumsum({0} / {0}.size, {axis})",
            "jax.nn.log_softmax({0}, {some}) * 0.25", "lax.cumlogsumexp({0} * 0.5, 0) * 0.3",
            "jnp.sqrt(jnp.mean({0} * {0}, {axis}) + 0.1)",
            "jnp.sum({0} / {0}.size, {axis}, keepdims=True)",
        ]  # fmt: skip
        if not scope.context.smooth:
            templates += ["jnp.max({0}, {axis})", "jnp.min({0}, {axis})", "lax.cummax({0}, 0)"]
            if value.exact:
                templates += ["jnp.argmin({0}, {axis})", "jnp.any({0} > 0, {axis})"]
    some = axis if axis is not None else 0
    template = scope.chance.choice(templates)
    template = template.replace("{axis}", str(axis)).replace("{some}", str(some))
    exact = value.exact and any(name in template for name in ("max", "min", "any"))
    scope.assign(template, value, exact=exact)


def complexes(scope: Scope) -> None:
    """Complex numbers: made, calculated with, and taken apart."""
    value = scope.find(lambda value: value.dtype == "complex64")
    if value is None or scope.chance.random() < 0.3:
        first = scope.any(lambda v: v.dtype == "float32", "jnp.linspace(-1.0, 1.0, 4)")
        second = scope.beside(first, lambda o: o.dtype == "float32" and o.shape == first.shape)
        scope.assign("lax.complex({0} * 0.5, {1} * 0.5)", first, second, exact=False)
        return
    templates = [
        "{0} * {0} * 0.25", "jnp.conj({0})", "{0}.real", "{0}.imag", "jnp.exp(1j * {0}.real)",
        "{0} * 1j", "({0} * jnp.conj({0})).real * 0.5", "{0} / (3.0 + {0} * 0.5)",
    ]  # fmt: skip
    if value.rank:
        templates += ["jnp.fft.fft({0}) / 8", "jnp.fft.ifft({0})", "jnp.mean({0}, 0)"]
    scope.assign(scope.chance.choice(templates), value, exact=False)


def duplicate(scope: Scope) -> None:
    """What is there already, once more."""
    value = scope.any(lambda value: value.is_number)
    scope.assign(scope.chance.choice(["{0} + 0", "{0} * 1", "jnp.copy({0})"]), value)


OPERATIONS: tuple[tuple[float, Writer], ...] = (
    (4, unary), (4, binary), (3, integers), (1.5, compare), (1.5, where), (2, cast), (1, mixed),
    (2, constant), (3, shape), (1, join), (2.5, reduction), (1, complexes), (0.4, duplicate),
)  # fmt: skip
