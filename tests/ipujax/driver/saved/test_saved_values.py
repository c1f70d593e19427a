"""Values and structures as JSON: what comes back is equal, and of the same types."""

from __future__ import annotations

import collections
import dataclasses as dc
import enum
import json
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipujax.driver.saved import encoded_values as values
from ipujax.errors import ExecutableError


class Colour(enum.Enum):
    """Of the rainbow."""

    RED = "r"


class Pair(NamedTuple):
    left: Any
    right: Any


@jax.tree_util.register_dataclass
@dc.dataclass
class Layer:
    weights: Any
    name: str = dc.field(metadata={"static": True})


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.sampled_from([Colour.RED, Colour, int, jnp.dtype("bfloat16"), np.dtype("int8")]),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.integers() | st.tuples(st.text(), st.integers()), inner)
    ),
    max_leaves=10,
)


def typed(value: Any) -> Any:
    """The value with its types, which equality alone does not see."""
    if isinstance(value, dict):
        return dict, [(typed(k), typed(v)) for k, v in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value), [typed(each) for each in value]
    return type(value), value


@given(PLAIN)
def test_values_come_back(value: Any) -> None:
    again = values.decode_value(json.loads(json.dumps(values.encode_value(value, "it"))))
    assert typed(again) == typed(value)


def test_numbers_that_equality_does_not_tell_apart() -> None:
    for value in (math.nan, -0.0, math.inf):
        assert repr(values.decode_value(values.encode_value(value, "it"))) == repr(value)


TREES = st.recursive(
    st.just(0) | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        | st.builds(Pair, inner, inner)
        | st.builds(Layer, inner, st.text(max_size=3))
        | st.dictionaries(st.text(max_size=3), inner, max_size=3).map(collections.OrderedDict)
        | inner.map(lambda x: collections.defaultdict(list, a=x))
    ),
    max_leaves=8,
)


@given(TREES)
def test_structures_come_back(tree: Any) -> None:
    structure = jax.tree.structure(tree)
    again = values.decode_tree(json.loads(json.dumps(values.encode_tree(structure, "it"))))
    assert again == structure


@pytest.mark.parametrize(
    "value",
    [print, lambda: 0, object(), {1, 2}, np.zeros(3)],
    ids=lambda value: type(value).__name__,
)
def test_others_are_refused(value: Any) -> None:
    with pytest.raises(ExecutableError, match=r"it holds .* cannot be put into a file"):
        values.encode_value(value, "it")


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int4", "int8", "uint32", "float16", "bfloat16", "float8_e4m3fn", "complex64"],
)
def test_arrays_come_back(dtype: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(jnp.dtype(dtype))
    for own in (array, array.T, array[0, 0], array[:0]):
        again = values.decode_array(*values.encode_array(own))
        assert again.dtype == own.dtype
        np.testing.assert_array_equal(again, own)


@pytest.mark.parametrize(
    "x",
    [1.0, np.float32(1), jnp.zeros((2, 0), "bfloat16"), *map(jax.random.key, (0,))],
    ids=repr,
)
def test_avals_come_back(x: Any) -> None:
    aval = jax.typeof(x)
    again = values.decode_aval(json.loads(json.dumps(values.encode_aval(aval))))
    assert (again, again.weak_type) == (aval, aval.weak_type)
