"""Graphs of operators and what evaluates them, of no library."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ipujax.doors.graphs import Evaluation, Graph, Node, Operators, Ref, substitute_refs
from ipujax.errors import FrontendError, InternalError

FLOAT = jax.ShapeDtypeStruct((), jnp.float32)

OPERATORS = Operators()


@OPERATORS.register("add")
def add(x, y):
    return x + y


@OPERATORS.register("halves")
def halves(x):
    return x / 2, x / 2 + 1


@OPERATORS.register("draw", takes_call=True)
def draw(call):
    return jax.random.uniform(call.key)


@OPERATORS.register("twice", takes_call=True)
def twice(call, graph, x):
    (once,) = call.graphs[graph](x)
    return call.graphs[graph](once)[0]


def evaluated(graph, values=(), key=None, **options):
    named = dict(zip(graph.inputs, values, strict=True))
    return substitute_refs(graph.outputs, Evaluation(OPERATORS, **options)(graph, named, key))


def test_sources_are_the_inputs_that_values_are_made_of_in_the_end():
    nodes = (
        Node("add", (Ref("a"), Ref("b")), results=("y",)),
        Node("draw", (Ref("c"),), results=("z",)),
        Node("add", (Ref("y"), Ref("z")), results=("w",)),
        Node("halves", (Ref("d"),), results=("y",)),
    )
    graph = Graph(("a", "b", "c", "d", "e"), nodes, (Ref("w"), Ref("y")))
    assert graph.find_source_inputs(["w"], lambda node: False) == {"a", "b", "c"}
    assert graph.find_source_inputs(["w"], lambda node: node.operator == "draw") == {"a", "b"}
    assert graph.find_source_inputs(["y", "e"], lambda node: False) == {"d", "e"}


def test_names_may_get_new_values():
    nodes = (
        Node("halves", (Ref("x"),), results=("half", "x"), avals=(FLOAT, None)),
        Node("add", (Ref("x"), Ref("half")), results=("y",), avals=(FLOAT,)),
    )
    outputs = evaluated(Graph(("x",), nodes, (Ref("y"), Ref("x"), 7)), (4.0,))
    np.testing.assert_array_equal(outputs, [5.0, 3.0, 7])


def test_results_have_the_dtype_that_the_library_tells():
    node = Node("add", (1, 2), results=("y",), avals=(FLOAT,))
    (result,) = evaluated(Graph((), (node,), (Ref("y"),)))
    assert result.dtype == jnp.float32


def test_draws_are_apart_and_need_a_key():
    nodes = tuple(Node("draw", results=(name,), avals=(FLOAT,), scope="m") for name in "ab")
    graph = Graph((), nodes, (Ref("a"), Ref("b")))
    one, other = evaluated(graph, key=jax.random.key(0))
    assert one != other
    with pytest.raises(FrontendError, match="draw of module 'm' draws random numbers"):
        evaluated(graph)


def test_inner_graphs_are_functions():
    inner = Graph(("x",), (Node("add", (Ref("x"), 3), {}, ("y",), (None,)),), (Ref("y"),))
    node = Node("twice", ("g", Ref("x")), results=("y",), avals=(None,))
    graph = Graph(("x",), (node,), (Ref("y"),), {"g": inner})
    assert evaluated(graph, (1,)) == (7,)
    assert set(graph.operators()) == {"add", "twice"}


@pytest.mark.parametrize(
    ("module", "scopes"),
    [("encoder.0", "encoder/0"), ("encoder/layer.0", "encoder/layer.0"), ("", "")],
)
def test_modules_are_scopes(module, scopes):
    node = Node("add", (Ref("x"), 1), results=("y",), avals=(None,), scope=module)
    graph = Graph(("x",), (node,), (Ref("y"),))
    (eqn,) = jax.make_jaxpr(lambda x: evaluated(graph, (x,)))(1.0).eqns
    assert str(eqn.source_info.name_stack) == scopes


def test_what_an_operator_cannot_do_is_an_error_with_its_place():
    node = Node("add", (jnp.ones(2), jnp.ones(3)), {}, ("y",), (None,), "m", "model.py:3")
    with pytest.raises(FrontendError, match=r"(?s)add of module 'm'.*model\.py:3"):
        evaluated(Graph((), (node,), (Ref("y"),)))


def test_a_table_has_one_function_for_each_operator():
    table = Operators(OPERATORS)
    with pytest.raises(InternalError, match="two functions are registered for add"):
        table.register("add")(lambda x: x)
    assert table.missing(Graph((), (Node("none"),), ())).keys() == {"none"}
