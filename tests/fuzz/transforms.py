"""Transformations of functions: derivatives, batches, and rules of one's own."""

from __future__ import annotations

from tests.fuzz.blocks import BODIES, fill, last
from tests.fuzz.control_flow import in_tuple
from tests.fuzz.values import INTEGER_VECTOR, Scope, Value


def _variables(scope: Scope, most: int) -> list[Value]:
    """What a function is differentiated for."""
    found = [scope.any(lambda v: v.is_float and 0 < v.size <= 12) for _ in range(most)]
    return found[: scope.chance.randint(1, most)]


def _smooth(
    scope: Scope,
    inside: list[Value],
    *,
    scalar: bool,
    prefix: str = "loss",
    most: int = 4,
    closes: bool = True,
    forward: bool = False,
) -> str:
    """A function of floats that can be differentiated in reverse, or in both modes."""

    def write(inner: Scope) -> str:
        fill(inner, 1, most)
        result = _float(inner, inside)
        return f"jnp.mean({result.name})" if scalar else result.name

    return scope.define(
        prefix,
        inside,
        write,
        closes=closes,
        smooth=True,
        forward=forward or scope.context.forward,
        unbounded=False,
        ordered=False,
        refs=False,
    )


def _float(inner: Scope, inside: list[Value]) -> Value:
    """A float32 that depends on what the function is of."""
    own = [value for value in inner.own if value.is_float and value.size > 0]
    result = inner.chance.choice(own) if own else inside[0]
    mixed = inner.assign("jnp.mean({0}) * 0.5 + jnp.sin({1})", result, inside[0])
    return inner.fit(mixed, mixed.shape, "float32")


def gradient(scope: Scope) -> None:
    """`grad` and `value_and_grad`."""
    variables = _variables(scope, 2)
    name = _smooth(scope, [scope.fresh(value) for value in variables], scalar=True)
    given = ", ".join(value.name for value in variables)
    numbers = tuple(range(len(variables)))
    results = [scope.strong(value) for value in variables]
    squashed = "lambda g: [jnp.tanh(x).astype(x.dtype) for x in g]"
    if scope.chance.random() < 0.4:
        value = Value(scope.draft.name("v"), (), "float32", exact=False)
        both = f"jax.value_and_grad({name}, {numbers})({given})"
        scope.results([value, *results], f"(lambda y, g: (y, *map(jnp.tanh, g)))(*{both})")
        return
    targets = ", ".join(value.name for value in results)
    scope.line(
        f"{targets}, = ({squashed})(jax.grad({name}, {numbers})({given}))",
        "\n".join(f"{value.name} = {value.plain()}" for value in results),
    )
    for value in results:
        scope.know(value)


def second(scope: Scope) -> None:
    """`hessian`, `jacfwd`, `jacrev`, and the gradient of a gradient."""
    variable = scope.any(
        lambda v: v.dtype == "float32" and v.rank <= 1 and 0 < v.size <= 4,
        "jnp.linspace(-1.0, 1.0, 3)",
    )
    way = scope.chance.choice(["hessian", "jacfwd", "jacrev", "gradient"])
    name = _smooth(
        scope,
        [scope.fresh(variable)],
        scalar=way in ("hessian", "gradient"),
        most=3,
        forward=way in ("hessian", "jacfwd"),
    )
    text = {
        "hessian": f"jax.hessian({name})({{0}})",
        "jacfwd": f"jax.jacfwd({name})({{0}})",
        "jacrev": f"jax.jacrev({name})({{0}})",
        "gradient": f"jax.grad(lambda x: jnp.mean(jnp.sin(jax.grad({name})(x))))({{0}})",
    }[way]
    total = f"jnp.tanh(jnp.mean({text}.astype(jnp.float32)))".format(variable.name)
    scope.result(Value(scope.draft.name("v"), (), "float32", exact=False), total)


def forward(scope: Scope) -> None:
    """`jvp`, `vjp`, `linearize` and `linear_transpose`."""
    (variable, *_) = _variables(scope, 1)
    way = scope.chance.choice(["jvp", "linearize", "vjp"])
    name = _smooth(scope, [scope.fresh(variable)], scalar=True, forward=way != "vjp")
    x = f"jnp.asarray({variable.name}, jnp.{variable.dtype})"
    dtype = "jnp.float32"
    texts = {
        "jvp": f"jax.jvp({name}, ({x},), (jnp.cos({x}),))",
        "linearize": f"(lambda y, f: (y, f(jnp.cos({x}))))(*jax.linearize({name}, {x}))",
        "vjp": f"(lambda y, f: (y, jnp.mean(f({dtype}(1))[0]).astype({dtype})))"
        f"(*jax.vjp({name}, {x}))",
    }
    value = Value(scope.draft.name("v"), (), "float32", exact=False)
    tangent = Value(scope.draft.name("v"), (), "float32", exact=False)
    scope.results([value, tangent], f"(lambda y, t: (y, jnp.tanh(t)))(*{texts[way]})")


def vmapped(scope: Scope) -> None:
    """`vmap`, over one operand or two, with collectives over the batch."""
    rows = scope.any(lambda v: v.is_number and v.rank > 0 and 0 < v.shape[0] <= 4, INTEGER_VECTOR)
    other = scope.any(lambda v: v.is_number)
    both = other.rank > 0 and other.shape[0] == rows.shape[0] and scope.chance.random() < 0.6
    inside = [
        scope.fresh(rows, shape=rows.shape[1:]),
        scope.fresh(other, shape=other.shape[1:]) if both else scope.fresh(other),
    ]
    axis = scope.draft.name("axis") if scope.chance.random() < 0.3 else ""
    results: list[Value] = []

    def write(inner: Scope) -> str:
        fill(inner, 1, 4)
        if axis:
            way = "pmean" if inside[0].is_float else inner.chance.choice(["psum", "pmax"])
            text = f"lax.{way}({inside[0].name}, '{axis}')"
            inner.result(inner.fresh(inside[0]), text)
        results.append(last(inner))
        return results[0].name

    name = scope.define("each", inside, write, ordered=False, refs=False)
    options = f"in_axes=(0, {0 if both else None})" + (f", axis_name='{axis}'" if axis else "")
    stack = scope.fresh(results[0], shape=(rows.shape[0], *results[0].shape))
    scope.result(stack, f"jax.vmap({name}, {options})({rows.name}, {other.name})")


def custom_rule(scope: Scope) -> None:
    """`custom_jvp` and `custom_vjp`, called as they are or differentiated."""
    (variable, *_) = _variables(scope, 1)
    x = scope.fresh(variable)
    # JAX does not differentiate what such functions close over, and says so.
    closes = not scope.context.smooth
    name = _smooth(scope, [x], scalar=True, prefix="custom", most=3, closes=closes)
    also = scope.fresh(variable)
    slope = _smooth(scope, [also], scalar=True, prefix="slope", most=2, closes=closes)
    rule = scope.draft.name("f")
    if scope.chance.random() < 0.5 or scope.context.forward:
        scope.line(
            f"{rule} = jax.custom_jvp({name})\n"
            f"{rule}.defjvp(lambda x, t: "
            f"({rule}(*x), {slope}(*x) * jnp.mean(t[0]).astype(jnp.float32)))"
        )
    else:
        scope.line(
            f"{rule} = jax.custom_vjp({name})\n"
            f"{rule}.defvjp(lambda x: ({rule}(x), x), "
            f"lambda x, g: (jnp.full_like(x, ({slope}(x) * g).astype(x.dtype)),))"
        )
    value = Value(scope.draft.name("v"), (), "float32", exact=False)
    scope.result(value, f"{rule}({variable.name})")
    if scope.chance.random() < 0.7:
        result = scope.strong(variable)
        scope.result(result, f"jax.grad({rule})({variable.name})")


def tree_call(scope: Scope) -> None:
    """A jitted function of a NamedTuple, which gives one back."""
    if "structures" not in scope.draft.features:
        return
    first, other = scope.number(), scope.number()
    inside = [scope.fresh(first), scope.fresh(other)]
    pack = Value(scope.draft.name("c"), (), "tuple")
    results: list[Value] = []

    def write(inner: Scope) -> str:
        inner.line(f"{inside[0].name}, {inside[1].name} = {pack.name}")
        inner.values += inside
        fill(inner, 1, 3)
        results.extend([last(inner), inside[0]])
        return f"Pair{in_tuple(results)}"

    name = scope.define("called", [pack], write)
    scope.results(
        [scope.fresh(value) for value in results],
        f"jax.jit({name})(Pair({first.name}, {other.name}))",
    )


BODIES.extend([
    (2, gradient), (0.8, second), (1, forward), (2, vmapped), (1, custom_rule), (0.5, tree_call),
])  # fmt: skip
