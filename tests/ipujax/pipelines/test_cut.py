"""One function, cut at marks into stages, computes what it computes uncut."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipujax.errors import PipelineError
from ipujax.pipelines import split_into_stages
from ipujax.pipelining_ops import StageOutput
from lowering import marks
from tests.ipujax.feeding import configure
from tests.ipujax.pipelining import close, f32, run_pipeline, sgd

V = jax.ShapeDtypeStruct((3,), f32)


def stage(number: int) -> Any:
    return jax.named_scope(marks.write_mark(marks.STAGE, str(number)))


def in_turn(stages: Sequence[Callable[..., Any]], variables: Any, state: Any, *args: Any) -> Any:
    """The stage functions one after the other: the outputs and the last state."""
    given: Sequence[Any] = args
    for function in stages:
        output = function(variables, state, *given)
        given, state = output.outputs, output.state
    return StageOutput(given, state)


# --- a model with all that may be in one ----------------------------------------------------------


@jax.custom_jvp
def bent(x: Any) -> Any:
    return jnp.tanh(x)


@bent.defjvp
def _(primals: Any, tangents: Any) -> Any:
    """Not the derivative of tanh, so that one sees whether it is used."""
    return bent(*primals), 2.0 * tangents[0]


SIZE = 4
SHIFT = jnp.linspace(-1, 1, SIZE)
MATRIX = np.cos(np.arange(SIZE * SIZE) * 7.0).reshape(SIZE, SIZE).astype(f32) / 2
VARIABLES = {name: jnp.asarray(MATRIX) + i / 10 for i, name in enumerate("abc")}


def perceptron(w: Any, x: Any, y: Any) -> Any:
    """The loss; three stages, with a skip connection, a shared constant and a regulariser."""
    mask = jnp.tril(jnp.ones((SIZE, SIZE)))
    with stage(0):
        first = bent(x @ (w["a"] * mask) + SHIFT)
    with stage(1):
        second = jax.checkpoint(lambda x, b: jnp.sin(x @ b))(first, w["b"])

    @jax.jit
    def last(x: Any, skip: Any) -> Any:
        with stage(2):
            x = jax.nn.relu(x @ (w["c"] * mask) + SHIFT)
        return x + skip

    error = jnp.square(last(second, first) - y).mean()
    return error + 0.1 * sum(jnp.square(leaf).sum() for leaf in w.values())


def element(number: int) -> tuple[Any, Any]:
    x = np.sin(np.arange(2 * SIZE) + number).reshape(2, SIZE).astype(f32)
    return x, np.cos(x)


def elements() -> Any:
    return map(element, range(6))


def cut_perceptron() -> tuple[Callable[..., Any], ...]:
    return split_into_stages(perceptron, VARIABLES, None, element(0))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("engine", ["fused", "replay"])
def test_a_pipeline_of_the_stages_trains_as_the_function_does(engine: str) -> None:
    configure(4)
    (variables, _), losses = run_pipeline(
        cut_perceptron(), 6, engine=engine, variables=VARIABLES, data=elements,
        optimizer_function=sgd(0.1),
    )  # fmt: skip
    gradient = jax.jit(jax.value_and_grad(perceptron))
    wanted = [gradient(VARIABLES, *element(i)) for i in range(6)]
    close(losses[0], np.array([loss for loss, _ in wanted]))
    for name, before in VARIABLES.items():
        close(variables[name], before - 0.1 * sum(g[name] for _, g in wanted))


def test_a_pipeline_of_the_stages_infers_as_the_function_does() -> None:
    configure(4)
    _, losses = run_pipeline(cut_perceptron(), 6, variables=VARIABLES, data=elements)
    close(losses[0], np.array([jax.jit(perceptron)(VARIABLES, *element(i)) for i in range(6)]))


# --- what goes where ------------------------------------------------------------------------------


def primitives(function: Callable[..., Any], *args: Any) -> list[str]:
    return [eqn.primitive.name for eqn in jax.make_jaxpr(function)(*args).eqns]


def test_what_has_no_mark_is_where_all_that_it_needs_is_there() -> None:
    def function(w: Any, x: Any) -> Any:
        early = jnp.sin(x)
        with stage(0):
            x = early * w["a"]
        penalty = jnp.exp(w["a"])
        with stage(1):
            x = x * w["b"]
        return jnp.cos(x) + jnp.log(penalty) + jnp.tan(w["b"])

    w = {"a": V, "b": V}
    first, second = split_into_stages(function, w, None, [V])
    assert primitives(first, w, V) == ["sin", "mul", "exp", "log"]
    assert primitives(second, w, V, V) == ["mul", "cos", "add", "tan", "add"]


def test_what_depends_on_constants_alone_is_in_each_stage_that_uses_it() -> None:
    def function(w: Any, x: Any) -> Any:
        steps = jnp.arange(3.0)
        with stage(0):
            x = x * steps
        with stage(1):
            return x * jnp.sin(x) - steps

    first, second = split_into_stages(function, V, None, [V])
    assert primitives(first, V, V) == ["iota", "mul"]
    assert primitives(second, V, V) == ["iota", "sin", "mul", "sub"]


def test_what_is_made_of_labels_is_made_where_it_is_read() -> None:
    labels = jax.ShapeDtypeStruct((3,), np.int32)

    def function(w: Any, x: Any, y: Any) -> Any:
        wide = jax.nn.one_hot(y, 50) + 0.5
        narrow = y[:1] * 2
        with stage(0):
            x = x * w
        with stage(2):
            return (x[:, None] * wide).sum() + narrow.sum()

    stages = split_into_stages(function, V, None, [V, labels], count=3)
    handed = jax.eval_shape(stages[0], V, V, labels)
    handed = jax.eval_shape(stages[1], V, *handed)
    assert sorted(aval.size for aval in handed) == [1, 3, 3]
    x, y = np.float32([1, 2, 3]), np.int32([4, 5, 6])
    given: Any = (x, y)
    for one in stages[:-1]:
        given = one(x, *given)
    close(stages[-1](x, *given), function(x, x, y), 1e-4)


def test_keyword_arguments_and_structured_outputs() -> None:
    def function(w: Any, *, x: Any, y: Any) -> Any:
        with stage(0):
            x = {"x": x * w}
        with stage(1):
            return {"sum": x["x"] + y, "given": y, "one": 1.0}

    x, y, w = np.float32([1, 2, 3]), np.float32([4, 5, 6]), np.float32(2)
    first, second = split_into_stages(function, w, None, kwargs={"x": x, "y": y})
    got = second(w, *first(w, y=y, x=x))
    assert got["one"] == 1.0
    close(got["sum"], [6, 9, 12])
    close(got["given"], y)


# --- state ----------------------------------------------------------------------------------------


def with_state(w: Any, state: Any, x: Any) -> StageOutput:
    """Batch norm's mean in stage 1, a seed, a metric and two counters."""
    seed, here = jax.random.split(jax.random.wrap_key_data(state["seed"]))
    with stage(0):
        x = x * jax.random.bernoulli(here, 0.5, x.shape) * w
    with stage(1):
        centred = x - state["mean"]
    mean = 0.9 * state["mean"] + 0.1 * jax.lax.stop_gradient(x.mean())
    with stage(2):
        loss = jnp.square(centred).sum()
    new = {
        "seed": jax.random.key_data(seed),
        "mean": mean,
        "total": state["total"] + loss,
        "steps": state["steps"] + 1,
        "largest": jnp.maximum(x.max(), state["kept"]),
        "kept": state["kept"],
    }
    return StageOutput(loss, new)


STATE = {
    "seed": np.uint32([1, 2]),
    "mean": f32(3),
    "total": f32(4),
    "steps": np.int32(5),
    "largest": f32(0),
    "kept": f32(-1),
}


def test_each_leaf_of_the_state_is_changed_by_the_stage_that_reads_it() -> None:
    x = np.float32([1, 2, 3])
    stages = split_into_stages(with_state, V, STATE, [V])
    changed: list[set[str]] = []
    given: Any = [x]
    for function in stages:
        output = function(x, STATE, *given)
        changed.append({name for name, leaf in output.state.items() if leaf is not STATE[name]})
        given = output.outputs
    assert changed == [{"seed", "largest"}, {"mean"}, {"total", "steps"}]
    wanted = jax.jit(with_state)(x, STATE, x)
    got = in_turn(stages, x, STATE, x)
    jax.tree.map(close, got, wanted)


def test_a_state_must_come_back_in_its_form() -> None:
    def function(w: Any, state: Any, x: Any) -> Any:
        with stage(0):
            return x * w

    with pytest.raises(PipelineError, match="StageOutput"):
        split_into_stages(function, V, V, [V])
    with pytest.raises(PipelineError, match="form in which it was given"):
        split_into_stages(lambda w, s, x: StageOutput(function(w, s, x), [s, s]), V, V, [V])


# --- what cannot be cut ---------------------------------------------------------------------------


def refused(function: Callable[..., Any], message: str, **options: Any) -> PipelineError:
    with pytest.raises(PipelineError, match=re.escape(message)) as caught:
        split_into_stages(function, V, None, [V], **options)
    assert caught.value.fix
    return caught.value


def test_stages_that_are_not_in_order() -> None:
    def function(w: Any, x: Any) -> Any:
        with stage(0):
            x = x * w
        with stage(1), jax.named_scope("encoder"):
            x = jnp.sin(x)
        x = x + 1
        with stage(0), jax.named_scope("decoder"):
            return x * w

    error = refused(
        function, "`decoder` is in stage 0, and needs what `encoder` computes in stage 1"
    )
    assert error.where.startswith(__file__)


def test_marks_that_leave_a_stage_out() -> None:
    def function(w: Any, x: Any) -> Any:
        with stage(0):
            x = x * w
        with stage(3):
            return x + w

    refused(function, "nothing that the results need is in stage 1, 2, and the highest stage is 3")
    refused(function, "something is in stage 3, and the last stage is 1", count=2)
    refused(lambda w, x: x * w, "nothing in the function says which stage it is in")
    x = np.float32([1, 2, 3])
    stages = split_into_stages(function, V, None, [V], count=5)
    assert len(stages) == 5
    given = [x]
    for one in stages[:-1]:
        given = one(x, *given)
    close(stages[-1](x, *given), x * x + x)


def test_one_operation_of_two_stages() -> None:
    def function(w: Any, x: Any) -> Any:
        def step(x: Any, _: Any) -> Any:
            with stage(0):
                x = x * w
            with stage(1):
                return x + w, None

        return jax.lax.scan(step, x, None, 3)[0]

    refused(function, "is one operation (scan) of the stages 0, 1, so that it cannot be cut")


def test_marks_of_one_stage_inside_an_operation_are_its_own() -> None:
    def function(w: Any, x: Any) -> Any:
        with stage(0):
            x = x * w

        @jax.checkpoint
        def block(x: Any) -> Any:
            with stage(1):
                return jnp.sin(x) * w

        return block(x)

    _, second = split_into_stages(function, V, None, [V])
    assert len(primitives(second, V, V)) == 1


# --- random functions -----------------------------------------------------------------------------

NODES = st.lists(
    st.tuples(st.sampled_from(["mark", "none", "jit"]), st.integers(0, 99), st.integers(0, 99)),
    min_size=3,
    max_size=14,
)


def graph(nodes: Sequence[tuple[str, int, int]], w: Any, state: Any, x: Any) -> StageOutput:
    """Sums and products of earlier values, variables and state, in stages that only rise."""
    values = [x, *w, *state, jnp.arange(2.0)]
    before = -1
    for number, (kind, left, right) in enumerate(nodes):
        a, b = values[left % len(values)], values[right % len(values)]
        at = number * 3 // len(nodes)
        is_marked = kind != "none" or at > before  # each stage has something
        before = at

        def node(a: Any, b: Any, at: int = at, is_marked: bool = is_marked) -> Any:
            if not is_marked:
                return a + 0.5 * b
            with stage(at):
                return jnp.sin(a) * b + at

        values.append(jax.jit(node)(a, b) if kind == "jit" else node(a, b))
    new = [values[-3] + state[0], state[1], values[-1] - state[2]]
    return StageOutput(sum(values), new)


@pytest.mark.exhaustive
@settings(max_examples=60)
@given(NODES)
def test_stages_one_after_the_other_are_the_function(nodes: list[tuple[str, int, int]]) -> None:
    def function(*args: Any) -> StageOutput:
        return graph(nodes, *args)

    w, state = [f32([1, 2]), f32([0.3, 0.4])], [f32([5, 6]), f32([0.7, 0.8]), f32([9, 10])]
    x = f32([0.1, 0.2])
    stages = split_into_stages(function, w, state, [x])
    assert len(stages) == 3
    jax.tree.map(close, in_turn(stages, w, state, x), function(w, state, x))
