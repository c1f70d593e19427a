"""Loops, conditions and calls."""

from __future__ import annotations

from tests.fuzz.blocks import BODIES, fill, last, returned
from tests.fuzz.values import INTEGER_VECTOR, Scope, Value


def _carried(scope: Scope, most: int = 2) -> tuple[list[Value], str]:
    """What a loop carries, and the tuple of initial values: strong types, so that they stay."""
    chosen: list[Value] = []
    for _ in range(scope.chance.randint(1, most)):
        value = scope.any(lambda v: v.dtype != "key" and 0 < v.size <= 16)
        chosen.append(value)
    if "random" in scope.draft.features and scope.chance.random() < 0.25:
        key = scope.find(lambda v: v.dtype == "key" and v.shape == ())
        chosen += [key] if key is not None else []
    texts = [f"jnp.asarray({v.name}, jnp.{v.dtype})" if v.weak else v.name for v in chosen]
    return chosen, f"({', '.join(texts)},)"


def packed(scope: Scope) -> Value:
    """A parameter that holds a tuple: nothing reads it but the line that takes it apart."""
    return Value(scope.draft.name("c"), (), "tuple")


def unpack(scope: Scope, values: list[Value], pack: Value) -> None:
    """Names for the entries of a tuple that a body gets; its statements like to read them."""
    scope.line(f"{', '.join(value.name for value in values)}, = {pack.name}")
    scope.values += [*values, *values]


def in_tuple(values: list[Value]) -> str:
    """The values in a tuple."""
    return f"({', '.join(value.name for value in values)},)"


def scan(scope: Scope) -> None:
    """`lax.scan`: carries, rows, constants, backwards or unrolled."""
    carried, initial = _carried(scope)
    inside = [scope.strong(value) for value in carried]
    rows = scope.find(lambda v: v.rank > 0 and 0 < v.shape[0] <= 4)
    empty = rows is not None and scope.chance.random() < 0.04
    length = rows.shape[0] if rows is not None else scope.chance.randint(1, 3)
    row = scope.fresh(rows, shape=rows.shape[1:]) if rows is not None else None
    stacked: list[Value] = []
    pack = packed(scope)
    unused = packed(scope)

    def write(inner: Scope) -> str:
        unpack(inner, inside, pack)
        if row is not None:
            inner.values.append(row)
        fill(inner, 1, 4)
        result = returned(inner, inside)
        extra = last(inner)
        stacked.append(extra)
        return f"{result}, {extra.name}"

    name = scope.define("body", [pack, row or unused], write)
    options = f", reverse={scope.chance.random() < 0.3}"
    if scope.chance.random() < 0.2:
        options += f", unroll={scope.chance.choice([2, 'True'])}"
    if rows is None:
        options += f", length={length}"
    finals = [scope.strong(value) for value in carried]
    stack = scope.fresh(stacked[0], shape=(0 if empty else length, *stacked[0].shape))
    scope.results(
        [*finals, stack],
        f"(lambda done: (*done[0], done[1]))(lax.scan({name}, {initial}, "
        f"{rows.name if rows is not None else None}{'[:0]' if empty else ''}{options}))",
    )


def while_loop(scope: Scope) -> None:
    """`lax.while_loop` with a limit that is known at run time only."""
    if not scope.context.unbounded:
        return
    carried, initial = _carried(scope)
    inside = [scope.strong(value) for value in carried]
    limit = scope.integer()
    test, pack = packed(scope), packed(scope)
    counter = Value(scope.draft.name("i"), (), "int32")
    more = f"({test.name}[0] < (jnp.sum({limit.name}) & 3))"
    exact = [n for n, v in enumerate(inside) if v.is_integer]
    if exact and scope.chance.random() < 0.3:
        more += f" & ((jnp.sum({test.name}[{exact[0] + 1}]) & 7) != 0)"

    def write(inner: Scope) -> str:
        unpack(inner, [counter, *inside], pack)
        fill(inner, 1, 4)
        return f"({counter.name} + 1, *{returned(inner, inside)})"

    condition = scope.define("test", [test], lambda inner: _test(inner, more))
    name = scope.define("body", [pack], write)
    finals = [scope.strong(value) for value in carried]
    scope.results(
        [Value(scope.draft.name("i"), (), "int32"), *finals],
        f"lax.while_loop({condition}, {name}, (jnp.int32(0), *{initial}))",
    )


def _test(inner: Scope, more: str) -> str:
    """A condition, with a statement or two of its own."""
    if inner.chance.random() < 0.3:
        more += f" & (jnp.sum({inner.assign('{0} | 1', inner.integer()).name}) != 0)"
    return more


def fori(scope: Scope) -> None:
    """`lax.fori_loop`, its bounds numbers or values."""
    carried, initial = _carried(scope)
    inside = [scope.strong(value) for value in carried]
    index, pack = Value(scope.draft.name("i"), (), "int32"), packed(scope)

    def write(inner: Scope) -> str:
        unpack(inner, inside, pack)
        fill(inner, 1, 4)
        return returned(inner, inside)

    name = scope.define("body", [index, pack], write)
    first, bound = str(scope.chance.randint(0, 1)), str(scope.chance.randint(1, 4))
    if scope.context.unbounded and scope.chance.random() < 0.5:
        bound = f"(jnp.sum({scope.integer().name}) & 3).astype(jnp.int32)"
    scope.results(
        [scope.strong(value) for value in carried],
        f"lax.fori_loop({first}, {bound}, {name}, {initial})",
    )


def _branch(scope: Scope, types: list[Value], operands: list[Value]) -> str:
    inside = [scope.fresh(value) for value in operands]

    def write(inner: Scope) -> str:
        fill(inner, 0, 3)
        return returned(inner, types)

    return scope.define("branch", inside, write)


def cond(scope: Scope) -> None:
    """`lax.cond` and `lax.switch`."""
    count = scope.chance.choice([2, 2, 2, 1, 3])
    operands = [scope.any(lambda v: v.dtype != "key") for _ in range(scope.chance.randint(0, 2))]
    types = [scope.any(lambda v: v.is_number) for _ in range(scope.chance.randint(1, 2))]
    types = [scope.strong(value) for value in types]
    names = [_branch(scope, types, operands) for _ in range(count)]
    given = "".join(f", {value.name}" for value in operands)
    if count == 2:
        choice = scope.find(lambda v: v.dtype == "bool" and v.shape == ()) or scope.boolean()
        text = f"lax.cond({choice.name}, {names[0]}, {names[1]}{given})"
    else:
        index = f"(jnp.sum({scope.integer().name}) & 3).astype(jnp.int32) - 1"
        text = f"lax.switch({index}, [{', '.join(names)}]{given})"
    scope.results([scope.strong(value) for value in types], text)


def mapped(scope: Scope) -> None:
    """`lax.map`, whole or in batches."""
    rows = scope.any(lambda v: v.is_number and v.rank > 0 and 0 < v.shape[0] <= 4, INTEGER_VECTOR)
    row, results = scope.fresh(rows, shape=rows.shape[1:]), []

    def write(inner: Scope) -> str:
        fill(inner, 1, 3)
        results.append(last(inner))
        return results[0].name

    batched = scope.chance.random() < 0.2
    name = scope.define("each", [row], write, ordered=scope.context.ordered and not batched,
                        refs=scope.context.refs and not batched)  # fmt: skip
    options = ", batch_size=2" if batched else ""
    stack = scope.fresh(results[0], shape=(rows.shape[0], *results[0].shape))
    scope.result(stack, f"lax.map({name}, {rows.name}{options})")


CALLS = (
    "jax.jit({})", "jax.jit({})", "jax.checkpoint({})", "jax.jit(jax.checkpoint({}))",
    "jax.checkpoint({}, policy=jax.checkpoint_policies.dots_saveable)", "jax.jit({}, inline=True)",
    "jax.named_call({}, name='inner')",
)  # fmt: skip


def associative_scan(scope: Scope) -> None:
    """`lax.associative_scan` with an operation that is one."""
    value = scope.any(lambda v: v.is_number and v.rank > 0 and 0 < v.shape[0] <= 8, INTEGER_VECTOR)
    if value.is_integer:
        way = scope.chance.choice(["p + q", "p * q", "jnp.maximum(p, q)", "p ^ q"])
    else:
        way = (
            "p * q * 0.5"
            if scope.context.smooth
            else scope.chance.choice(["p * q * 0.5", "jnp.minimum(p, q)"])
        )
    reverse = scope.chance.random() < 0.3
    scope.assign(f"lax.associative_scan(lambda p, q: {way}, {{0}}, reverse={reverse})", value,
                 exact=value.exact and "*" not in way)  # fmt: skip


def call(scope: Scope) -> None:
    """`jax.jit` or `jax.checkpoint` of a function; sometimes called twice."""
    operands = [scope.any(lambda v: v.dtype != "key") for _ in range(scope.chance.randint(1, 2))]
    inside = [scope.fresh(value) for value in operands]
    results: list[Value] = []

    def write(inner: Scope) -> str:
        fill(inner, 1, 4)
        results.extend([last(inner), last(inner)][: scope.chance.randint(1, 2)])
        return in_tuple(results)

    wrapped = scope.chance.choice(CALLS)
    remat = "checkpoint" in wrapped
    name = scope.define("called", inside, write, ordered=scope.context.ordered and not remat,
                        refs=scope.context.refs and not remat)  # fmt: skip
    given = ", ".join(value.name for value in operands)
    function = scope.draft.name("f")
    scope.line(f"{function} = {wrapped.format(name)}")
    for _ in range(scope.chance.choice([1, 1, 2])):
        scope.results([scope.fresh(value) for value in results], f"{function}({given})")


BODIES.extend([
    (2.5, scan), (2, while_loop), (1.5, fori), (2.5, cond), (1, mapped), (0.6, associative_scan),
    (2, call),
])  # fmt: skip
