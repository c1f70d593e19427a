"""Functions of `pipelining_ops` have examples, which print what their docstrings say."""

from __future__ import annotations

import doctest
import inspect

import pytest

from ipujax import pipelining_ops

FUNCTIONS = [
    name for name in pipelining_ops.__all__ if inspect.isfunction(getattr(pipelining_ops, name))
]


def test_the_functions_are_found() -> None:
    assert {"pipeline", "value_and_grad", "forward", "check_pipeline"} <= set(FUNCTIONS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_examples_of_docstrings_print_what_they_say(name: str) -> None:
    text = getattr(pipelining_ops, name).__doc__
    example = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0
