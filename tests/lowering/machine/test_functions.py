"""Repeated sequences of operations are functions: their control code is there once."""

from __future__ import annotations

import dataclasses as dc

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowering.machine import ModelOptions, model
from lowering.machine.kernels.code import BYTES_PER_CALL
from lowering.machine.kernels.functions import SHORTEST_FUNCTION, count_calls
from tests.lowering.samples import lowered

LAYER = list(range(SHORTEST_FUNCTION + 4))


@pytest.mark.parametrize("times", [1, 2, 7])
def test_a_layer_is_there_once_with_a_call_for_each_other(times: int):
    assert count_calls(LAYER * times) == len(LAYER) + times - 1


def test_what_is_between_layers_stays():
    assert count_calls([*LAYER, 98, *LAYER, 99, *LAYER]) == len(LAYER) + 2 + 2


def test_part_of_a_layer_is_a_function_if_it_is_long_enough():
    assert count_calls([*LAYER, *LAYER[4:]]) == len(LAYER) + 1
    assert count_calls([*LAYER, *LAYER[5:]]) == 2 * len(LAYER) - 5


def test_short_programs_have_no_functions():
    assert count_calls([]) == 0
    assert count_calls([1] * (SHORTEST_FUNCTION - 1)) == SHORTEST_FUNCTION - 1


@given(st.lists(st.integers(0, 2), max_size=120))
def test_no_program_has_more_calls_than_operations_or_fewer_than_kinds(operations: list[int]):
    assert len(set(operations)) <= count_calls(operations) <= len(operations)


@given(st.lists(st.integers(0, 9), min_size=SHORTEST_FUNCTION, max_size=60), st.integers(1, 4))
def test_repeating_a_whole_program_adds_calls_alone(operations: list[int], times: int):
    once = count_calls(operations)
    pieces = -(-len(operations) // SHORTEST_FUNCTION)
    assert count_calls(operations * (times + 1)) <= once + times * (pieces + SHORTEST_FUNCTION)


def deep(x: jax.Array, weights: list[jax.Array]) -> jax.Array:
    for w in weights:
        for function in (jnp.sin, jnp.cos, jnp.tanh, jnp.sqrt, jnp.exp, jnp.abs):
            x = function(x @ w)
            x = jnp.sort(x, axis=-1)
    return x


def control_code(layers: int, **options: bool) -> int:
    square = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    program = lowered(deep, square, [square] * layers, ipus=1)
    memory = model(program, dc.replace(ModelOptions(), **options)).memory
    return int(memory.tile_categories["control_code"][0, 0])


def test_equal_layers_of_a_model_are_calls():
    three, four, nine = (control_code(layers) for layers in (3, 4, 9))
    assert (four - three, nine - four) == (BYTES_PER_CALL, 5 * BYTES_PER_CALL)


def test_layers_are_there_each_without_outlining():
    two, three, four = (control_code(layers, outlines=False) for layers in (2, 3, 4))
    assert three - two == four - three > 20 * BYTES_PER_CALL
