"""Refs: made, read, written, swapped and added to, in straight code and in bodies."""

from __future__ import annotations

from tests.fuzz.blocks import TABLE
from tests.fuzz.source import Line
from tests.fuzz.values import INTEGER_VECTOR, Scope, Value


def outer(scope: Scope, names: list[str]) -> tuple[str, ...]:
    """Refs that are there before the program: closed over, or arguments, whose values it gives."""
    arguments: list[str] = []
    for number in range(2):
        if scope.chance.random() > 0.12:
            continue
        dtype = scope.chance.choice(["float32", "int32"])
        value = f"kept(jax.new_ref(jnp.ones((3,), jnp.{dtype})))"
        name = f"x{len(names) + number}r"
        if scope.chance.random() < 0.5:
            name = scope.draft.name("ref")
            scope.draft.constants.append(Line(f"{name} = {value}"))
        else:
            arguments.append(value)
        scope.refs.append(Value(name, (3,), dtype, exact=dtype == "int32"))
    return tuple(arguments)


def new_ref(scope: Scope) -> None:
    """A Ref of a value."""
    value = scope.any(lambda v: v.is_number and v.size <= 16, INTEGER_VECTOR)
    ref = Value(scope.draft.name("ref"), value.shape, value.dtype, exact=not value.is_float)
    scope.line(f"{ref.name} = jax.new_ref(jnp.asarray({value.name}, jnp.{value.dtype}))")
    scope.refs = [*scope.refs, ref]


def touch(scope: Scope) -> None:
    """A Ref is read or written; made first, if there is none."""
    if "refs" not in scope.draft.features or not scope.context.refs:
        return
    if not scope.refs or scope.chance.random() < 0.15:
        new_ref(scope)
    ref = scope.chance.choice(scope.refs)
    way = scope.chance.choice(["read", "write", "add", "swap", "row"])
    if way == "read":
        scope.result(scope.fresh(ref), f"{ref.name}[...]")
        return
    if way == "row" and ref.rank and ref.shape[0]:
        scope.line(f"{ref.name}[0] = {ref.name}[{ref.shape[0] - 1}]")
        return
    value = scope.find(lambda v: (v.shape, v.dtype) == (ref.shape, ref.dtype))
    new = value or scope.fit(scope.number(), ref.shape, ref.dtype)
    if way == "swap":
        scope.result(scope.fresh(ref), f"jax.ref.swap({ref.name}, ..., {new.name})")
    elif way == "add" and not ref.is_float:
        scope.line(f"jax.ref.addupdate({ref.name}, ..., {new.name})")
    elif way == "add":
        scope.line(f"{ref.name}[...] = ({ref.name}[...] + {new.name}) * 0.5")
    else:
        scope.line(f"{ref.name}[...] = {new.name}")


TABLE.extend([(0.8, touch)])
