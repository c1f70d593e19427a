"""Kernels as flat lists: calls opened, chains fused, and the order in which they run."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from lowering.jaxprs import constants_to_arguments, trace_flat
from lowering.machine import IPU2, Operation, PlanOptions, Shape
from lowering.machine.kernels import (
    Item,
    Listing,
    Loop,
    count_reads,
    find_proportions,
    fuse_elementwise_chains,
    list_operations,
    schedule_items,
    set_proportions,
)
from lowering.machine.kernels.items import Choice
from lowering.machine.primitives import ELEMENTWISE, VIEWS
from lowering.ops import repeat_with_queues, user_ops
from tests.lowering.machine.samples import A, M, listed
from tests.lowering.samples import N, V, X, trace


def names(listing: Listing) -> list[str]:
    """What runs, in order; loops and choices in brackets."""
    found: list[str] = []
    for item in listing.items:
        match item:
            case Item():
                found.append(" ".join(operation.name for operation in item.operations))
            case Loop():
                found.append(f"loop{[names(body) for body in item.bodies]}")
            case Choice():
                found.append(f"choice{[names(branch) for branch in item.branches]}")
    return found


def chains(fn, *args, most=8):
    return names(fuse_elementwise_chains(listed(fn, *args), ELEMENTWISE.__contains__, most))


# --- what there is --------------------------------------------------------------------------------


@jax.custom_jvp
def with_jvp(x):
    return jnp.sin(x)


@with_jvp.defjvp
def _(primals, tangents):
    return with_jvp(*primals), jnp.cos(primals[0]) * tangents[0]


@jax.custom_vjp
def with_vjp(x):
    return jnp.sin(x)


with_vjp.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (jnp.cos(x) * ct,))


@pytest.mark.parametrize(
    "call",
    [jax.jit(jnp.sin), jax.checkpoint(jnp.sin), with_jvp, with_vjp],
    ids=["jit", "checkpoint", "jvp", "vjp"],
)
def test_calls_are_opened(call):
    listing = listed(lambda x: call(jax.jit(call)(x) * 2), V)
    assert names(listing) == ["sin", "mul", "sin"]
    assert [item.reads[0] for item in listing.items[1:]] == [
        item.writes[0] for item in listing.items[:-1]
    ]
    assert listing.results == listing.items[-1].writes


def test_solvers_run_what_solves():
    """custom_linear_solve has bodies for derivatives too, and constants of each of them."""

    def fn(a, b):
        return lax.custom_linear_solve(
            lambda v: a * v, b, lambda _, b: jnp.cos(b / a), lambda _, b: b / a, symmetric=True
        )

    listing = listed(fn, V, V)
    assert names(listing) == ["div", "cos"]
    assert listing.items[0].reads == (listing.operands[1], listing.operands[0])
    assert "triangular_solve" in names(listed(jnp.linalg.solve, M, M))


def test_other_calls_are_opened():
    custom = jax.custom_batching.custom_vmap(jnp.sin)
    custom.def_vmap(lambda size, batched, x: (jnp.sin(x), True))
    composite = lax.composite(jnp.sin, name="test.sin")
    assert names(listed(lambda x: custom(x) * composite(x), V)) == ["sin", "sin", "mul"]


def test_a_call_that_gives_back_what_it_takes_leaves_no_trace():
    listing = listed(lambda x, y: jax.jit(lambda a, b: (b, a))(x, y), V, V)
    assert not listing.items
    assert listing.results == (listing.operands[1], listing.operands[0])


def test_constants_are_no_operands():
    """Kernels have none, but bodies may, in calls and loops at any depth."""
    table = np.arange(3.0, dtype=np.float32)
    body = jax.make_jaxpr(lambda x: x + jnp.asarray(table))(jnp.zeros(3))
    listing = list_operations(body, PlanOptions())
    constant, addition = listing.items
    assert constant.operations[0].name == "constant"
    assert addition.reads == (*listing.operands, *constant.writes)
    assert len(listing.operands) == 1


def test_literals_have_no_number():
    listing = listed(lambda x: (x * 2.0, 3.0), V)
    (item,) = listing.items
    assert item.reads == (listing.operands[0], None)
    assert item.operations[0].operands == (Shape((3,), "float32"), Shape((), "float32"))
    assert listing.results == (item.writes[0], None)


def test_every_value_has_a_shape():
    listing = listed(lambda x, w: jnp.tanh(x @ w).astype(jnp.bfloat16), X, M.update(shape=(3, 5)))
    made = {item.writes[0]: item.operations[-1].first_result for item in listing.items}
    assert [listing.shapes[value].text for value in made] == [
        "float32[2,5]",
        "float32[2,5]",
        "bfloat16[2,5]",
    ]
    assert all(listing.shapes[value] == shape for value, shape in made.items())


def test_keys_have_their_own_type():
    key = jax.eval_shape(lambda: jax.random.key(0))
    listing = listed(lambda k: jax.random.split(k), key)
    assert listing.shapes[listing.operands[0]].bytes == 8


def test_options_are_for_their_own_products():
    options = PlanOptions(matmul_proportion=0.2, matmul_partials="float16")
    listing = list_operations(trace(lambda x: jnp.sin(x @ x), M), options)
    item = set_proportions(listing, find_proportions(listing, options, IPU2)).items
    assert isinstance(item[0], Item)
    assert isinstance(item[1], Item)
    share = item[0].operations[0].memory_proportion
    assert share is not None
    assert 0 < share < 0.2
    assert item[0].operations[0].partials == "float16"
    assert item[1].operations[0].memory_proportion is None


def test_a_scope_overrules_the_options():
    from lowering import marks

    def fn(x):
        with jax.named_scope(marks.write_mark(marks.ATTRIBUTE, marks.PARTIALS_TYPE, "float16")):
            y = x @ x
        return lax.fori_loop(0, 3, lambda _, c: c @ y, y)

    closed = trace(fn, M)
    first = list_operations(closed, PlanOptions(matmul_partials="float32")).items[0]
    assert isinstance(first, Item)
    assert first.operations[0].partials == "float16"


# --- control flow ---------------------------------------------------------------------------------


def test_scan():
    def fn(c, w, xs):
        return lax.scan(lambda c, x: (c @ w, c.sum() + x.sum()), c, xs)

    (loop,) = listed(fn, M, M, jax.ShapeDtypeStruct((5, 7), jnp.float32)).items
    assert isinstance(loop, Loop)
    assert loop.trips == 5
    assert loop.carried == ((1, 0),)  # operands: w, c, xs
    assert loop.reads == (1, 0, 2)
    (body,) = loop.bodies
    assert [body.shapes[value].dims for value in body.operands] == [(64, 64), (64, 64), (7,)]
    assert len(loop.writes) == len(body.results) == 2


def test_while_has_a_condition_and_no_number_of_trips():
    def fn(x, n, w):
        start = jnp.int32(0)
        return lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * w), (start, x))

    (loop,) = listed(fn, V, N, V).items
    assert isinstance(loop, Loop)
    assert loop.trips is None
    assert [names(body) for body in loop.bodies] == [["lt"], ["add", "mul"]]
    operands = [loop.reads[i] for i in loop.inner[0]]
    assert operands == [1, None, 0]  # n, and the state: 0 and x
    assert [loop.reads[i] for i in loop.inner[1]] == [2, None, 0]
    assert loop.carried == ((2, 0), (3, 1))


def test_branches_read_the_same():
    def fn(x, n):
        return lax.switch(n, [jnp.sin, lambda a: a * 2, lambda a: a], x)

    listing = listed(fn, V, N)
    choice = listing.items[-1]
    assert isinstance(choice, Choice)
    assert [names(branch) for branch in choice.branches] == [["sin"], ["mul"], []]
    assert choice.reads == (listing.operands[0],)


def test_loops_of_queues():
    body, _ = constants_to_arguments(trace_flat(lambda w, c: [c * w], [V, V]))

    def fn(w, c):
        return repeat_with_queues(body, [w], [c], 7, None)

    (loop,) = list_operations(trace_flat(fn, [V, V]), PlanOptions()).items
    assert isinstance(loop, Loop)
    assert (loop.trips, loop.reads, loop.carried) == (7, (0, 1), ((1, 0),))


# --- chains ---------------------------------------------------------------------------------------


def test_elementwise_operations_in_a_row_are_one():
    assert chains(lambda x: jnp.tanh(jnp.sin(x) * 2 + 1), A) == ["sin mul add tanh"]


def test_a_value_that_is_used_twice_is_made_once():
    assert chains(lambda x: jnp.sin(x) * jnp.sin(x), A) == ["sin sin mul"]

    def twice(x):
        y = jnp.sin(x)
        return jnp.cos(y) + y

    assert chains(twice, A) == ["sin", "cos add"]

    def squared(x):
        y = jnp.sin(x)
        return y * y

    assert chains(squared, A) == ["sin", "mul"]


def test_a_result_stays_a_value_of_its_own():
    def fn(x):
        y = jnp.sin(x)
        return y, y + 1

    assert chains(fn, A) == ["sin", "add"]


def test_trees_join():
    assert chains(lambda x, y: jnp.sin(x) * jnp.cos(y), A, A) == ["cos sin mul"]


def test_sizes_do_not_mix():
    # The scalar is multiplied once, not once for each element.
    assert chains(lambda x, s: x * (s * 2), A, A.update(shape=())) == ["mul", "mul"]
    assert chains(lambda x: jnp.sin(x).sum() + 1, A) == ["sin", "reduce_sum", "add"]


@pytest.mark.parametrize("count", [1, 7, 8, 9, 16, 20])
def test_chains_are_of_eight_at_most(count):
    def fn(x):
        for _ in range(count):
            x = jnp.sin(x)
        return x

    found = [len(chain.split()) for chain in chains(fn, A)]
    assert sum(found) == count
    assert max(found) <= 8
    assert len(found) == -(-count // 8)


def test_a_chain_reads_what_its_operations_read_from_outside():
    listing = fuse_elementwise_chains(
        listed(lambda x, y: (jnp.sin(x) + y) * 2.0, A, A), ELEMENTWISE.__contains__
    )
    (item,) = listing.items
    assert isinstance(item, Item)
    # sin(x); None for what sin gives, y; None for what add gives and for the literal.
    assert item.reads == (0, None, 1, None, None)
    assert item.exact_title == "sin add mul float32[1024]"


def test_bodies_have_chains_too():
    def fn(x, n):
        x = lax.fori_loop(0, n, lambda _, c: jnp.sin(c) * 2, x)
        return lax.cond(n > 0, lambda a: jnp.cos(a) + 1, lambda a: a, x)

    assert chains(fn, A, N) == [
        "loop[['lt'], ['add', 'sin mul']]",
        "gt convert_element_type",
        "choice[[], ['cos add']]",
    ]


# --- random lists ---------------------------------------------------------------------------------

SMALL, LARGE = Shape((8,), "float32"), Shape((64,), "float32")


@st.composite
def listings(draw):
    """Elementwise operations, reductions, broadcasts and views on values made before."""
    eqn = trace(jnp.sin, V).jaxpr.eqns[0]
    shapes = [SMALL, LARGE]
    items: list[Item] = []
    for _ in range(draw(st.integers(1, 14))):
        name = draw(st.sampled_from(["sin", "add", "reduce_sum", "broadcast_in_dim", "reshape"]))
        count = 2 if name == "add" else 1
        first = draw(st.integers(0, len(shapes) - 1))
        alike = [i for i, shape in enumerate(shapes) if shape == shapes[first]]
        reads = [first, *(draw(st.sampled_from(alike)) for _ in range(count - 1))]
        result = {"reduce_sum": SMALL, "broadcast_in_dim": LARGE}.get(name, shapes[first])
        shapes.append(result)
        operation = Operation(name, tuple(shapes[i] for i in reads), (result,))
        items.append(Item((operation,), tuple(reads), (len(shapes) - 1,), eqn))
    results = draw(st.lists(st.integers(0, len(shapes) - 1), min_size=1, max_size=4))
    return Listing(tuple(shapes), (0, 1), tuple(results), tuple(items))


def read_before_made(listing: Listing) -> set[int]:
    known, early = set(listing.operands), set[int]()
    for item in listing.items:
        early |= {value for value in item.reads if value is not None} - known
        known.update(item.writes)
    return early | {value for value in listing.results if value is not None} - known


def operations(listing: Listing) -> list[str]:
    return sorted(" ".join(names(listing)).split())


@given(listings(), st.integers(1, 8))
def test_fusing_keeps_every_operation_and_what_it_needs(listing, most):
    result = fuse_elementwise_chains(listing, ELEMENTWISE.__contains__, most)
    assert not read_before_made(result)
    assert operations(result) == operations(listing)
    needed = count_reads(listing)
    alive = {item.writes[0] for item in result.items}
    for item in result.items:
        assert isinstance(item, Item)
        assert len(item.operations) <= most
        sizes = {operation.first_result.elements for operation in item.operations}
        assert len(sizes) == 1
    for item in listing.items:  # whatever left the list was read once
        assert item.writes[0] in alive or needed[item.writes[0]] == 1


@given(listings())
def test_scheduling_only_changes_the_order(listing):
    result = schedule_items(listing, VIEWS.__contains__)
    assert sorted(map(id, result.items)) == sorted(map(id, listing.items))
    assert not read_before_made(result)
    assert schedule_items(result, VIEWS.__contains__).items == result.items


def test_what_ends_more_than_it_begins_comes_early():
    def fn(x, total):
        a = jnp.sort(x)
        b = jnp.sort(x * 2)
        return total + a, b  # as JAX writes it, the addition comes last

    listing = fuse_elementwise_chains(listed(fn, A, A), ELEMENTWISE.__contains__)
    assert names(listing) == ["sort", "mul", "sort", "add"]
    assert names(schedule_items(listing, VIEWS.__contains__)) == ["sort", "add", "mul", "sort"]


def test_bodies_are_put_in_order_too():
    def fn(x, total):
        return lax.fori_loop(0, 3, lambda _, c: (jnp.sort(-c[0]), c[0].T + c[1]), (x, total))

    listing = listed(fn, A, A)
    (before,), (after,) = listing.items, schedule_items(listing, VIEWS.__contains__).items
    assert isinstance(before, Loop)
    assert isinstance(after, Loop)
    assert names(after.bodies[0]) == names(schedule_items(before.bodies[0], VIEWS.__contains__))


def test_views_follow_what_they_see():
    def fn(x):
        a = jnp.sort(x)
        b = jnp.sort(-x)
        return a.reshape(32, 32), b

    order = names(schedule_items(listed(fn, A), VIEWS.__contains__))
    assert order == ["sort", "reshape", "neg", "sort"]


def test_what_belongs_to_the_backward_pass_says_so():
    """In calls, and in loops, whose equations carry no mark of their own."""

    def loss(w, x):
        x = jax.jit(lambda x: jnp.tanh(x @ w))(x)
        return jax.lax.scan(lambda c, _: (jnp.sin(c @ w), None), x, None, 3)[0].sum()

    closed = jax.make_jaxpr(jax.grad(loss))(jnp.zeros((8, 8)), jnp.zeros((4, 8)))
    items = list(flat(list_operations(closed, PlanOptions())))
    products = [item for item in items if item.name == "dot_general"]
    assert [item.backward for item in products] == [False, False, True, True, True]
    assert products[-1].exact_title.endswith(", backward")


def flat(listing):
    """Every item, those in the bodies of loops too."""
    for item in listing.items:
        for body in getattr(item, "bodies", ()):
            yield from flat(body)
        if isinstance(item, Item):
            yield item


def test_scopes_reach_what_libraries_make_inside_of_them():
    def within_a_body(x):
        with jax.named_scope("body"):
            return jnp.tan(x)

    def fn(x):
        with jax.named_scope("outer"):
            x = jax.nn.logsumexp(x, keepdims=True) + x
            with jax.named_scope("inner"):
                x = lax.fori_loop(0, 2, lambda _, c: jnp.sin(c), x)
            x = lax.fori_loop(0, 2, lambda _, c: within_a_body(c), x)
        return jnp.cos(x)

    scopes = {item.name: item.scope for item in flat(listed(fn, A))}
    assert (scopes["exp"], scopes["sin"], scopes["cos"]) == ("outer", "outer/inner", "")
    assert scopes["tan"] == "outer/body"


def test_operations_of_the_users_own_have_their_names():
    op = user_ops.UserOp(name="my / op", target="", attributes="", results=(((1024,), "float32"),))
    closed = jax.make_jaxpr(lambda x: user_ops.user_op_p.bind(x, op=op))(A)
    (item,) = list_operations(closed, PlanOptions()).items
    assert isinstance(item, Item)
    assert item.exact_title == "ipu_user_op:my_op float32[1024]"
    assert item.label == "my op"
    assert item.operations[0].name == "ipu_user_op"
