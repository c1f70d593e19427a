"""A plugin of pytest: every test runs in the scope of a strategy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ipujax.ipu_strategy import IPUStrategy


@pytest.fixture(autouse=True)
def scope() -> Iterator[None]:
    """The scope."""
    with IPUStrategy().scope():
        yield
