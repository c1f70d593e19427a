"""Iterables without an end, and arrays larger than the machine, are refused at once."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ipujax as ipu
from ipujax.errors import FeedError, IPUError
from ipujax.ipu_strategy import IPUStrategy

CALLS: dict[str, Callable[[Any], Any]] = {
    "static": lambda endless: ipu.compile(abs, static_argnums=endless),
    "donated": lambda endless: ipu.compile(abs, donate_argnums=endless),
    "run": lambda endless: IPUStrategy().run(abs, endless),
    "by name": lambda endless: IPUStrategy().run(abs, kwargs=endless),
    "compile": lambda endless: ipu.ipu_compiler.compile(abs, endless),
    "shape": lambda endless: ipu.embedding_ops.create_host_embedding("e", endless, np.float32),
    "variables": lambda endless: ipu.compile(lambda: ipu.loops.repeat(2, abs, endless))(),
}


@pytest.mark.parametrize("call", CALLS)
def test_an_iterable_without_an_end_is_refused(call: str) -> None:
    with pytest.raises(IPUError):
        CALLS[call](itertools.count())


def test_an_element_that_is_larger_than_the_machine_is_refused() -> None:
    large = np.broadcast_to(np.float32(1), (10**7, 10**7))
    source = ipu.ipu_infeed_queue.IPUInfeedQueue([large])
    with pytest.raises(FeedError, match="takes 400,000,000,000,000 bytes, more than this machine"):
        ipu.compile(lambda: ipu.loops.repeat(1, lambda x: None, [], source))()
