"""Convolutions of any form, put into the one that is fast in loops."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax import lax

from lowering import ir, lower, move_channels_last
from lowering.ground import Options
from lowering.jaxprs import function_of_jaxpr, walk_equations
from tests.lowering.samples import jaxpr_text, lowered

IMAGES, FILTERS = (2, 8, 8, 4), (3, 3, 4, 6)


def convolution(numbers=("NHWC", "HWIO", "NHWC"), strides=(1, 1), padding="SAME", **options):
    return lambda x, w: lax.conv_general_dilated(
        x, w, strides, padding, dimension_numbers=numbers, **options
    )


def gradients(function):
    def of(x, w):
        results, back = jax.vjp(function, x, w)
        return results, *back(results)

    return of


FORMS = {
    "channels last": (convolution(), IMAGES, FILTERS),
    "strided": (convolution(strides=(2, 1)), IMAGES, FILTERS),
    "without padding": (convolution(padding="VALID"), IMAGES, FILTERS),
    "dilated": (convolution(rhs_dilation=(2, 2)), IMAGES, FILTERS),
    "transposed": (convolution(lhs_dilation=(2, 2), padding=[(1, 1)] * 2), IMAGES, FILTERS),
    "depthwise": (convolution(feature_group_count=4), IMAGES, (3, 3, 1, 8)),
    "in groups": (convolution(feature_group_count=2), IMAGES, (3, 3, 2, 6)),
    "channels first": (convolution(("NCHW", "OIHW", "NCHW")), (2, 4, 8, 8), (6, 4, 3, 3)),
    "mixed": (convolution(("NHWC", "OIHW", "HWNC")), IMAGES, (6, 4, 3, 3)),
    "one dimension": (convolution(("NWC", "WIO", "NWC"), (1,)), (2, 8, 4), (3, 4, 6)),
}


def kernels(program):
    return [
        node.kernel.jaxpr for node in ir.walk_nodes(program.body) if isinstance(node, ir.Execute)
    ]


def convolutions(program):
    eqns = [eqn for closed in kernels(program) for eqn in walk_equations(closed)]
    return [eqn for eqn in eqns if eqn.primitive is lax.conv_general_dilated_p]


@pytest.mark.parametrize("form", FORMS)
def test_every_convolution_is_channels_last_and_gives_the_same(form):
    function, *shapes = FORMS[form]
    structs = [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
    program = lower(jax.make_jaxpr(gradients(function))(*structs), Options())
    changed = move_channels_last(program)
    assert len(convolutions(changed)) == len(convolutions(program)) == 3
    rank = len(shapes[0])
    image = (0, rank - 1, *range(1, rank - 1))
    for eqn in convolutions(changed):
        numbers = eqn.params["dimension_numbers"]
        assert numbers.lhs_spec == numbers.out_spec == image
        assert numbers.rhs_spec == (rank - 1, rank - 2, *range(rank - 2))
    rng = np.random.default_rng(0)
    operands = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    ((before,), (after,)) = kernels(program), kernels(changed)
    results = [jax.jit(function_of_jaxpr(closed))(*operands) for closed in (before, after)]
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


def test_those_in_bodies_too():
    filters = np.ones((4, 4, 3, 3), np.float32)

    def fn(x):
        step = convolution(("NCHW", "OIHW", "NCHW"))
        return lax.fori_loop(0, 2, lambda _, x: jax.jit(step)(x, filters), x)

    struct = jax.ShapeDtypeStruct((2, 4, 8, 8), np.float32)
    (eqn,) = convolutions(move_channels_last(lower(jax.make_jaxpr(fn)(struct), Options())))
    assert eqn.params["dimension_numbers"].lhs_spec == (0, 3, 1, 2)


def test_kernels_without_others_stay():
    structs = [jax.ShapeDtypeStruct(shape, np.float32) for shape in (IMAGES, FILTERS)]
    program = lower(jax.make_jaxpr(convolution())(*structs), Options())
    assert kernels(move_channels_last(program))[0] is kernels(program)[0]


@pytest.mark.parametrize("form", ["channels first", "mixed"])
def test_the_text(form, golden):
    function, *shapes = FORMS[form]
    program = move_channels_last(lowered(function, *(np.ones(shape, "f4") for shape in shapes)))
    golden("\n".join(jaxpr_text(closed) for closed in kernels(program)))
