from __future__ import annotations

import jax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowering import marks
from lowering.jaxprs import jaxpr
from tests.lowering.samples import S, trace

TEXTS = st.text(max_size=20)


@given(st.integers(0, 1 << 20))
def test_shards_come_back(shard):
    assert marks.read_marks(marks.write_mark(marks.SHARD, str(shard))).shard == shard


@given(TEXTS, TEXTS, TEXTS)
def test_names_come_back(outside, unit, scope):
    stack = "/".join(
        [
            marks.write_mark(marks.OUTSIDE, outside),
            marks.write_mark(marks.UNIT, unit),
            marks.write_mark(marks.JIT_SCOPE, scope),
        ]
    )
    found = marks.read_marks(stack)
    assert (found.outside, found.unit, found.jit_scope) == (outside, unit, scope)


@given(st.dictionaries(TEXTS, TEXTS, max_size=4))
def test_attributes_come_back_in_order(attributes):
    stack = "/".join(marks.write_mark(marks.ATTRIBUTE, *item) for item in attributes.items())
    assert marks.read_marks(stack).attributes == tuple(attributes.items())


@settings(max_examples=25)
@given(TEXTS, TEXTS, st.integers(0, 9))
def test_marks_survive_jax_and_its_transformations(name, value, shard):
    def fn(x):
        with (
            jax.named_scope(marks.write_mark(marks.SHARD, str(shard))),
            jax.named_scope(marks.write_mark(marks.ATTRIBUTE, name, value)),
        ):
            return jax.jit(lambda y: y * y * y)(x)

    closed = trace(jax.grad(fn), S)
    stacks = [jaxpr.name_stack(eqn) for eqn in closed.jaxpr.eqns]
    found = [marks.read_marks(stack) for stack in stacks if stack]
    assert found
    assert all(f.shard == shard and f.attributes == ((name, value),) for f in found)
    assert {f.backward for f in found} == {False, True}


@pytest.mark.parametrize(
    ("stack", "shard", "backward"),
    [
        ("", None, False),
        ("layer/dense", None, False),
        ("ipu_shard[1]", 1, False),
        ("ipu_shard[1]/ipu_shard[3]", 3, False),
        ("jvp(ipu_shard[2])/x", 2, False),
        ("transpose(jvp(ipu_shard[2]))/x", 2, True),
        ("vmap(transpose(jvp(ipu_shard[2])))", 2, True),
        ("transpose(jvp())", None, True),
        ("my_ipu_shard[4]", None, False),
        ("ipu_shard[next]", None, False),
        ("transposed/x", None, False),
    ],
)
def test_stacks(stack, shard, backward):
    found = marks.read_marks(stack)
    assert (found.shard, found.backward) == (shard, backward)


@pytest.mark.parametrize(
    ("stack", "scope"),
    [
        ("", ""),
        ("layer/dense", "dense"),
        ("jvp(layer)/dense", "dense"),
        ("transpose(jvp(dropout))/jvp(dropout)/rematted_computation", "dropout"),
        ("vmap(transpose(jvp(a/b)))", "b"),
        ("transpose(jvp())", ""),
        ("layer(1)", "layer(1)"),
        ("jvp(layer(1))", "layer(1)"),
        ("dense/ipu_shard[1]", "dense"),
        ("jvp(ipu_shard[1])/frontend_attribute[partials_type=float16]", ""),
        ("dense/narrowed[mul]", "dense"),
        ("ipu_shards", "ipu_shards"),
    ],
)
def test_the_innermost_name_that_somebody_gave(stack, scope):
    assert marks.innermost_user_scope(stack) == scope


@pytest.mark.parametrize(
    ("stack", "scopes"),
    [
        ("", ""),
        ("model/layer/dense", "model/layer/dense"),
        ("transpose(jvp(a/b))", "a/b"),
        ("transpose(jvp(a/b))/jvp(a/b)/rematted_computation", "a/b"),
        ("layer/ipu_shard[1]/dense", "layer/dense"),
        ("layer/layer", "layer/layer"),
        ("step/transpose(step)/jvp(block)", "step/block"),
        ("step/a/transpose(step/a)/jvp(block)/c", "step/a/block/c"),
        ("step/a/transpose(step)/a/jvp(block)/c", "step/a/block/c"),
        ("step/transpose(jvp(step))", "step/step"),
    ],
)
def test_all_names_that_somebody_gave(stack, scopes):
    assert marks.user_scopes(stack) == scopes


def test_scopes_in_a_body_come_after_those_around_it():
    assert marks.join_user_scopes("a", "b") == marks.join_user_scopes("a", "a/b") == "a/b"
    assert (
        marks.join_user_scopes("a", "")
        == marks.join_user_scopes("", "a")
        == marks.join_user_scopes("a", "a")
        == "a"
    )
    assert marks.join_user_scopes("a", "ab") == "a/ab"


def test_numeric_scopes():
    partials = marks.write_mark(marks.ATTRIBUTE, marks.PARTIALS_TYPE, "float16")
    rounding = marks.write_mark(marks.ATTRIBUTE, marks.STOCHASTIC_ROUNDING, "False")
    found = marks.read_marks(f"{partials}/{rounding}")
    assert (found.partials_type, found.stochastic_rounding) == ("float16", False)
    assert marks.read_marks("").stochastic_rounding is None


@pytest.mark.parametrize(
    ("enclosing", "stack", "joined"),
    [("", "", ""), ("a", "", "a"), ("", "b", "b"), ("a", "b", "a/b")],
)
def test_joined(enclosing, stack, joined):
    assert marks.join_name_stacks(enclosing, stack) == joined


def test_a_pipeline_stage_is_read_back_and_is_no_users_scope() -> None:
    stack = f"model/jvp({marks.write_mark(marks.STAGE, '2')})"
    assert marks.read_marks(stack).stage == 2
    assert marks.innermost_user_scope(stack) == "model"
