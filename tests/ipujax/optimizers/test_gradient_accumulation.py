"""The ways to reduce the gradients of mini-batches."""

from __future__ import annotations

import pytest

import ipujax as ipu
from ipujax.gradient_accumulation import (
    GradientAccumulationReductionMethod as Method,
)
from ipujax.optimizers import parse_reduction_method


def test_values_are_the_later_releases() -> None:
    assert [(m.name, m.value) for m in Method] == [("SUM", 0), ("MEAN", 1), ("RUNNING_MEAN", 2)]
    assert ipu.gradient_accumulation.GradientAccumulationReductionMethod is Method


@pytest.mark.parametrize("method", list(Method))
def test_a_method_is_itself_or_its_name(method: Method) -> None:
    for given in (method, method.name, method.name.lower(), method.name.title()):
        assert parse_reduction_method(given) is method


@pytest.mark.parametrize("given", [0, None, Method, b"SUM"])
def test_other_types_are_refused(given: object) -> None:
    with pytest.raises(ipu.errors.OptimizerTypeError, match="SUM, MEAN, RUNNING_MEAN") as caught:
        parse_reduction_method(given)
    assert isinstance(caught.value, TypeError)


def test_other_names_are_refused() -> None:
    with pytest.raises(ipu.errors.OptimizerError, match="no reduction method 'median'") as caught:
        parse_reduction_method("median")
    assert isinstance(caught.value, ValueError)
