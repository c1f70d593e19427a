"""Every public function of JAX, with marks, gives the numbers of `jax.jit` on both engines."""

from __future__ import annotations

import pytest

from tests.numbers import use_ipus
from tests.sweep.check import check
from tests.sweep.examples import Example
from tests.sweep.public import functions
from tests.sweep.tables import arrays, lax, nn, numpy, scipy, stats
from tests.sweep.tables import functions as taking_functions

EXAMPLES = [
    example
    for table in (lax, taking_functions, numpy, arrays, nn, scipy, stats)
    for example in table.EXAMPLES
]


@pytest.mark.sampled(1, 100)
@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_a_function_gives_the_numbers_of_jit(example: Example) -> None:
    use_ipus(2)
    check(example)


def test_every_public_function_has_an_example() -> None:
    assert functions() == {example.function for example in EXAMPLES}
