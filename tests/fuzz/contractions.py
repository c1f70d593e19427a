"""Operations that read several numbers for each: products, windows, indices, sorting, solving."""

from __future__ import annotations

from tests.fuzz.operations import Writer, to_float
from tests.fuzz.values import INTEGER_VECTOR, Scope, Value

KEYS = (
    "jax.random.split({0})[0]", "jax.random.fold_in({0}, {1})", "jax.random.split({0}, 3)[1]",
    "jax.random.wrap_key_data(jax.random.key_data({0}))", "jax.random.clone({0})",
    "jax.random.split({0}, 3)", "jnp.where(True, {0}, {0})",
)  # fmt: skip
EXACT_DRAWS = (
    "jax.random.bits({0}, {size})", "jax.random.randint({0}, {size}, -3, 4)",
    "jax.random.permutation({0}, 4)", "jax.random.bernoulli({0}, 0.5, (4,))",
    "jax.random.choice({0}, 5, (3,))", "jax.random.key_data({0})",
)  # fmt: skip
DRAWS = (
    "jax.random.uniform({0}, {size})", "jnp.tanh(jax.random.normal({0}, {size}))",
    "jax.random.uniform({0}, {size}, jnp.bfloat16)", "jax.random.rademacher({0}, (3,)) * 0.5",
    "jax.random.truncated_normal({0}, -1.0, 1.0, (3,))",
    "jax.random.normal(jax.random.PRNGKey(3), (4,)) * 0.2",
    "jax.vmap(lambda k: jax.random.uniform(k, (2,)))(jax.random.split({0}, 3))",
)  # fmt: skip


def _matrix(scope: Scope, *, dtype: str | None = None) -> Value:
    def fits(value: Value) -> bool:
        right = value.is_number if dtype is None else value.dtype == dtype
        return right and value.rank == 2 and 0 < value.size <= 24

    return scope.any(
        fits, f"(jnp.arange(12).reshape(3, 4) % 5 - 2).astype(jnp.{dtype or 'float32'})"
    )


def _vector(scope: Scope) -> Value:
    def fits(value: Value) -> bool:
        return value.is_number and value.rank == 1 and value.size > 1

    return scope.any(fits, INTEGER_VECTOR)


def product(scope: Scope) -> None:
    """A product of matrices, vectors or more."""
    first = _matrix(scope)
    second = scope.find(lambda o: o.dtype == first.dtype and o.shape == first.shape) or first
    shrink = "" if first.is_integer else f" * {0.5 / first.shape[1]}"
    templates = [
        "{0} @ {1}.T", "jnp.einsum('ij,kj->ki', {0}, {1})", "jnp.dot({0}, {1}.T)",
        "jnp.einsum('ij,ij->i', {0}, {1})", "jnp.tensordot({0}, {1}, ((1,), (1,)))",
        "lax.dot_general({0}, {1}, (((1,), (1,)), ((0,), (0,))))",
        "jnp.matmul({0}, {1}.T, preferred_element_type={0}.dtype)", "jnp.outer({0}[0], {1}[-1])",
        "{0} @ {1}[0]",
    ]  # fmt: skip
    scope.assign(scope.chance.choice(templates) + shrink, first, second, exact=False)


def window(scope: Scope) -> None:
    """A convolution, or a reduction over windows."""
    if scope.chance.random() < 0.4:
        first, second = _vector(scope), _vector(scope)
        if first.dtype != second.dtype:
            second = first
        mode = scope.chance.choice(["full", "same", "valid"])
        shrink = "" if first.is_integer else f" * {0.5 / min(first.size, second.size)}"
        scope.assign(f"jnp.convolve({{0}}, {{1}}, '{mode}'){shrink}", first, second, exact=False)
        return
    value = _matrix(scope, dtype=scope.chance.choice(["float32", "float32", "bfloat16"]))
    templates = [
        "lax.conv({0}[None, None], {0}[None, None, :2, :2], (1, 1), 'SAME')[0, 0] * 0.125",
        "lax.conv_general_dilated({0}[None, None], {0}[None, None, :1, :2], (1, 2), "
        "((0, 0), (1, 1)), rhs_dilation=(1, 2))[0, 0] * 0.25",
        "lax.conv_general_dilated({0}.T[None], {0}[:, :, None] * 0.1, (1,), 'SAME', "
        "dimension_numbers=('NWC', 'WIO', 'NWC'))[0] * 0.1" if value.shape[0] == value.shape[1]
        else "lax.conv_transpose({0}[None, :, :, None] * 0.25, {0}[:2, :2, None, None], (2, 2), "
        "'SAME')[0, :, :, 0]",
        "lax.reduce_window({0}, {0}.dtype.type(0), lax.add, (2, 2), (1, 1), 'SAME') * 0.25",
    ]  # fmt: skip
    if not scope.context.smooth:
        low = "jnp.asarray(-jnp.inf, {0}.dtype)"
        templates.append(f"lax.reduce_window({{0}}, {low}, lax.max, (2, 2), (2, 2), 'SAME')")
    scope.assign(scope.chance.choice(templates), value, exact=False)


def indexing(scope: Scope) -> None:
    """Rows and elements that numbers name: read, or written."""
    value = scope.any(lambda v: v.is_number and v.rank > 0 and 0 < v.size <= 32, INTEGER_VECTOR)
    index = scope.any(
        lambda v: v.is_integer and v.rank <= 1 and 0 < v.size <= 8, "jnp.asarray([2, 0, 1])"
    )
    last = value.shape[0] - 1
    if index.rank and scope.chance.random() < 0.7:
        chosen = scope.assign(f"jnp.minimum({{0}} & 3, {last}).astype(jnp.int32)", index)
        templates = _many_rows(value, smooth=scope.context.smooth)
    else:
        chosen = scope.assign(f"jnp.minimum(jnp.sum({{0}}) & 3, {last}).astype(jnp.int32)", index)
        templates = _one_row(value)
    template = scope.chance.choice(templates)
    changes = any(word in template for word in (".mul", ".add", "segment"))
    scope.assign(template, value, chosen, exact=value.exact and not changes)


def _one_row(value: Value) -> list[str]:
    factor = "{0}[0]" if value.is_integer else "{0}[0] * 0.5"
    return [
        "jnp.asarray({0})[{1}]",
        "lax.dynamic_index_in_dim({0}, {1}, 0, keepdims=False)",
        "lax.dynamic_update_slice_in_dim({0}, {0}[-1:], {1}, 0)",
        "lax.dynamic_slice_in_dim({0}, {1}, 1, 0)",
        "jnp.asarray({0}).at[{1}].set({0}[0])",
        f"jnp.asarray({{0}}).at[{{1}}].mul({factor})",
        "jnp.roll({0}, {1}, 0)",
    ]


def _many_rows(value: Value, *, smooth: bool) -> list[str]:
    part = "jnp.asarray({0})" if value.is_integer else "jnp.asarray({0} * 0.25)"
    templates = [
        "jnp.asarray({0})[{1}]",
        "jnp.take({0}, {1}, 0)",
        "jnp.take({0}, {1}, 0, mode='clip')",
        f"{part}.at[{{1}}].add({part}[:1])",
        f"jax.ops.segment_sum({part}[{{1}}], {{1}}, {value.shape[0]})",
        "jnp.asarray({0}).at[{1}].get(mode='fill', fill_value=0)",
        "jnp.asarray({0}).at[{1},].get(mode='clip')",
    ]
    if not smooth:
        templates += [
            "jnp.asarray({0}).at[{1}].min({0}[0])",
            "jnp.asarray({0}).at[{1}].max({0}[-1])",
        ]
    return templates


def ordering(scope: Scope) -> None:
    """Sorting, and what rests on it."""
    smooth = scope.context.smooth
    value = scope.any(
        lambda v: v.is_number and v.rank > 0 and v.size > 1 and (v.exact or not smooth),
        INTEGER_VECTOR,
    )
    templates = ["jnp.sort({0})", "jnp.sort({0}, 0)", "jnp.sort({0}, descending=True)"]
    n = value.shape[-1]
    if value.exact:
        templates += [
            "jnp.argsort({0})", f"lax.top_k({{0}}, {min(n, 2)})[1]", "jnp.unique({0}, size=3)",
            "jnp.searchsorted(jnp.sort({0}.reshape(-1)), {0})", "jnp.argsort({0}, descending=True)",
            "lax.sort(({0}, {0} * 2), num_keys=1)[1]", "jnp.nonzero({0}, size=3)[0]",
            "jnp.take_along_axis({0}, jnp.argsort({0}, -1), -1)", "({0} == jnp.max({0})).sum()",
        ]  # fmt: skip
    elif smooth:
        return
    else:
        templates.append(f"lax.top_k({{0}}, {min(n, 2)})[0]")
    scope.assign(scope.chance.choice(templates), value)


def linear_algebra(scope: Scope) -> None:
    """Solves and factorisations of well-conditioned matrices."""
    if "solves" not in scope.draft.features:
        return
    value = scope.any(
        lambda v: v.dtype == "float32" and v.rank == 2 and v.shape[0] in (3, 4),
        "jnp.linspace(-1.0, 1.0, 12).reshape(3, 4)",
    )
    spd = f"({{0}} @ {{0}}.T * {0.25 / value.shape[1]} + jnp.eye({value.shape[0]}) * 2.0)"
    right = "{0}[:, 0]"
    templates = [
        f"jnp.linalg.solve({spd}, {right})", f"jnp.linalg.cholesky({spd}) * 0.5",
        f"jnp.linalg.inv({spd})", f"jnp.linalg.slogdet({spd})[1] * 0.1",
        f"jax.scipy.linalg.solve_triangular({spd}, {right}, lower=True)",
        f"jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor({spd}), {right})",
        f"jax.scipy.sparse.linalg.cg(lambda x: {spd} @ x, {right}, maxiter=2)[0]",
        f"jax.scipy.sparse.linalg.cg({spd}, {right}, maxiter=2)[0]",
        f"lax.custom_linear_solve(lambda x: {spd} @ x, {right}, "
        f"lambda mv, b: jnp.linalg.solve({spd}, b), lambda mv, b: jnp.linalg.solve({spd}.T, b))",
    ]  # fmt: skip
    if not scope.context.smooth:
        templates.append(
            f"jax.scipy.sparse.linalg.bicgstab(lambda x: {spd} @ x, {right}, maxiter=1)[0]"
        )
    scope.assign(scope.chance.choice(templates), value, exact=False)


def draws(scope: Scope) -> None:
    """Keys and random numbers."""
    if "random" not in scope.draft.features:
        return
    key = scope.find(lambda value: value.dtype == "key" and value.rank == 0)
    if key is None or scope.chance.random() < 0.1:
        seed = scope.any(lambda v: v.is_integer and v.rank == 0, "jnp.asarray(7)")
        key = scope.assign("jax.random.key({0} & 15)", seed)
    choice = scope.chance.random()
    if choice < 0.35:
        other = scope.any(lambda v: v.is_integer and v.rank == 0, "jnp.asarray(3)")
        scope.assign(scope.chance.choice(KEYS), key, other)
        return
    size = str(scope.chance.choice([(), (3,), (2, 3)]))
    if choice < 0.7:
        scope.assign(scope.chance.choice(EXACT_DRAWS).replace("{size}", size), key)
    else:
        scope.assign(scope.chance.choice(DRAWS).replace("{size}", size), key, exact=False)


def counted(scope: Scope) -> None:
    """One-hot rows and histograms."""
    index = scope.any(lambda v: v.is_integer and v.rank == 1, "jnp.arange(4)")
    ways = [
        "jax.nn.one_hot({0} & 3, 3)",
        "jnp.bincount({0} & 3, length=4)",
        to_float(index, "float32"),
    ]
    scope.assign(scope.chance.choice(ways), index)


CONTRACTIONS: tuple[tuple[float, Writer], ...] = (
    (2, product), (1, window), (2, indexing), (1, ordering), (0.7, linear_algebra), (1.5, draws),
    (0.4, counted),
)  # fmt: skip
