"""Python's garbage collector while something is traced, lowered or modelled."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest

import ipujax as ipu
from tests.ipujax.reporting import struct

DEFAULT = (700, 10, 10)


@pytest.fixture(autouse=True)
def default_collector() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*DEFAULT)
    yield
    gc.set_threshold(*before)


def test_the_collector_runs_seldom_while_a_function_is_traced() -> None:
    found: list[tuple[int, int, int]] = []

    def fn(x: object) -> object:
        found.append(gc.get_threshold())
        inner = ipu.compile(lambda y: y).lower(struct(3))  # as deep as one likes
        found.append(gc.get_threshold())
        assert inner is not None
        return x

    ipu.compile(fn).lower(struct(3)).report()
    assert found[0] == found[1]
    new, middle, old = found[0]
    assert new > 10 * DEFAULT[0]
    assert middle >= DEFAULT[1]
    assert old > 10 * DEFAULT[2]
    assert gc.get_threshold() == DEFAULT


def test_an_error_leaves_the_collector_as_it_was() -> None:
    def fn(x: object) -> object:
        raise KeyError("no")

    with pytest.raises(KeyError):
        ipu.compile(fn)(np.float32(1))
    assert gc.get_threshold() == DEFAULT


def test_who_has_turned_the_collector_off_keeps_it_off() -> None:
    gc.set_threshold(0, 0, 0)
    found: list[tuple[int, int, int]] = []

    def fn(x: object) -> object:
        found.append(gc.get_threshold())
        return x

    ipu.compile(fn)(np.float32(1))
    assert found[0] == gc.get_threshold() == (0, 0, 0)
