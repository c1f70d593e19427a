"""Maxima of windows as maxima of slices: which are rewritten, and that the numbers stay."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax import lax

from lowering import lower, rewrite_window_maxima
from lowering.ground import Options
from lowering.jaxprs import function_of_jaxpr, walk_equations
from tests.lowering.samples import kernels, lowered

IMAGES = (2, 3, 9, 10)


def maximum(window, strides=(1, 1), padding=((0, 0), (0, 0)), **options):
    def pool(x):
        lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
        steps = {name: (1, 1, *steps) for name, steps in options.items()}
        return lax.reduce_window(
            x, np.asarray(lowest, x.dtype), lax.max, (1, 1, *window), (1, 1, *strides),
            ((0, 0), (0, 0), *padding), **steps,
        )  # fmt: skip

    return pool


FORMS = {
    "three by three": maximum((3, 3)),
    "with strides and padding": maximum((3, 3), (2, 2), ((1, 1), (1, 1))),
    "of two sizes": maximum((2, 4), (2, 3), ((0, 1), (2, 0))),
    "many elements": maximum((5, 4), (1, 2), ((2, 2), (1, 2))),
    "all of an axis": maximum((9, 1)),
    "strides alone": maximum((1, 1), (2, 3)),
    "negative padding": maximum((3, 3), (1, 1), ((-1, 2), (0, -2))),
    "dilated": maximum((3, 2), (2, 1), ((1, 1), (0, 0)), window_dilation=(2, 3)),
}


def window_maxima(program):
    eqns = [eqn for node in kernels(program) for eqn in walk_equations(node.kernel.jaxpr)]
    return [eqn for eqn in eqns if eqn.primitive is lax.reduce_window_max_p]


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint8"])
@pytest.mark.parametrize("form", FORMS)
def test_maxima_of_slices_are_those_of_windows(form, dtype):
    struct = jax.ShapeDtypeStruct(IMAGES, dtype)
    program = lower(jax.make_jaxpr(FORMS[form])(struct), Options())
    changed = rewrite_window_maxima(program)
    assert len(window_maxima(program)) == 1
    assert not window_maxima(changed)
    x = (np.random.default_rng(0).normal(size=IMAGES) * 40).astype(np.int32).astype(dtype)
    if dtype == "float32":
        x[0, 0, 3, 3] = np.nan
    ((before,), (after,)) = kernels(program), kernels(changed)
    (expected,), (result,) = (
        jax.jit(function_of_jaxpr(node.kernel.jaxpr))(x) for node in (before, after)
    )
    np.testing.assert_array_equal(result, expected)


def test_those_in_bodies_too():
    def scanned(x):
        return lax.scan(lambda carry, _: (maximum((3, 3), padding=((1, 1), (1, 1)))(carry), 0), x,
                        length=2)[0]  # fmt: skip

    program = lowered(scanned, np.ones(IMAGES, np.float32))
    assert window_maxima(program)
    assert not window_maxima(rewrite_window_maxima(program))


@pytest.mark.parametrize(
    "function",
    [
        maximum((2, 2), padding=((0, 40), (0, 0)), base_dilation=(3, 1)),
        maximum((40, 1), padding=((20, 20), (0, 0))),
        lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 1, 3, 3), (1, 1, 1, 1), "VALID"),
    ],
    ids=["spread", "large windows", "sums"],
)
def test_others_stay(function):
    program = lowered(function, np.ones(IMAGES, np.float32))
    assert kernels(rewrite_window_maxima(program)) == kernels(program)
