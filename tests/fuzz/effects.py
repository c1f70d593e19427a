"""Calls of the host: told in order, mentioned in any order, or asked for a value."""

from __future__ import annotations

from tests.fuzz.blocks import TABLE
from tests.fuzz.values import INTEGER_VECTOR, Scope


def tell(scope: Scope) -> None:
    """A value is handed to the host."""
    if "callbacks" not in scope.draft.features:
        return
    value = scope.any(lambda v: v.dtype not in ("key", "bfloat16"))
    tag = len(scope.draft.constants) + scope.draft.size
    if not scope.context.ordered:
        if not scope.context.smooth:
            scope.line(f"jax.debug.callback(mention, {tag}, {value.name})")
        return
    ways = [
        f"io_callback(tell, None, {tag}, {value.name}, ordered=True)",
        f"jax.debug.callback(note, {tag}, {value.name}, ordered=True)",
        f"jax.debug.callback(mention, {tag}, {value.name})",
    ]
    scope.line(scope.chance.choice(ways))


def ask(scope: Scope) -> None:
    """The host computes something of a value."""
    if "callbacks" not in scope.draft.features or scope.context.smooth:
        return
    value = scope.any(lambda v: v.dtype in ("int32", "float32") and not v.weak, INTEGER_VECTOR)
    struct = f"jax.ShapeDtypeStruct({value.shape}, jnp.{value.dtype})"
    scope.result(
        scope.strong(value),
        f"jax.pure_callback(lambda x: np.negative(x), {struct}, {value.name}, "
        "vmap_method='sequential')",
    )


def answer(scope: Scope) -> None:
    """An ordered call that gives a value back."""
    if "callbacks" not in scope.draft.features or not scope.context.ordered:
        return
    value = scope.any(lambda v: v.dtype == "int32" and not v.weak, INTEGER_VECTOR)
    struct = f"jax.ShapeDtypeStruct({value.shape}, jnp.int32)"
    scope.result(
        scope.strong(value),
        f"io_callback(lambda x: (tell(x), np.asarray(x + 1))[1], {struct}, {value.name}, "
        "ordered=True)",
    )


TABLE.extend([(0.9, tell), (0.3, ask), (0.3, answer)])
