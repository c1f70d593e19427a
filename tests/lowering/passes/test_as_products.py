"""Convolutions that a scope lets be products: which become some, and that the numbers stay."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax import lax

from ipujax.scopes import frontend_attribute
from lowering import ir, lower, move_channels_last, rewrite_convolutions_as_products
from lowering.ground import Options
from lowering.jaxprs import Var, function_of_jaxpr, walk_equations
from tests.lowering.samples import jaxpr_text, kernels

FIRST, LAST = ("NCHW", "OIHW", "NCHW"), ("NHWC", "HWIO", "NHWC")


def convolution(numbers=FIRST, strides=(1, 1), padding="SAME", **options):
    def marked(x, w):
        with frontend_attribute("convolutions", "products"):
            return lax.conv_general_dilated(
                x, w, strides, padding, dimension_numbers=numbers, **options
            )

    return marked


def with_gradients(function):
    """The results, both gradients, and a gradient of their sum of squares."""

    def of(x, w):
        def first(x, w):
            results, back = jax.vjp(function, x, w)
            return results, *back(lax.cos(results))

        values = first(x, w)
        second = jax.grad(lambda *given: sum((v**2).sum() for v in first(*given)), (0, 1))(x, w)
        return *values, *second

    return of


# The function, the shapes of images and filters.
FORMS = {
    "few images": (convolution(), (2, 4, 4, 4), (32, 4, 3, 3)),
    "channels last": (convolution(LAST), (2, 4, 4, 4), (3, 3, 4, 32)),
    "mixed": (convolution(("NHWC", "OIHW", "HWNC")), (2, 4, 4, 4), (32, 4, 3, 3)),
    "features between": (convolution(("CNHW", "HIOW", "NHWC")), (4, 2, 4, 4), (3, 4, 32, 3)),
    "strided": (convolution(strides=(2, 1)), (2, 4, 5, 6), (64, 4, 3, 3)),
    "without padding": (convolution(padding="VALID"), (2, 4, 4, 5), (32, 4, 3, 2)),
    "uneven padding": (convolution(padding=[(2, 0), (-1, 1)]), (2, 4, 4, 4), (32, 4, 3, 3)),
    "dilated": (convolution(rhs_dilation=(2, 1)), (2, 4, 5, 5), (64, 4, 3, 3)),
    "of one element": (convolution(strides=(2, 2)), (2, 4, 5, 5), (6, 4, 1, 1)),
    "transposed": (convolution(lhs_dilation=(2, 2), padding=[(2, 1)] * 2), (2, 4, 3, 3),
                   (64, 4, 3, 3)),
    "dilated twice": (convolution(lhs_dilation=(3, 2), rhs_dilation=(2, 3), padding=[(4, 5)] * 2),
                      (1, 4, 3, 3), (96, 4, 2, 2)),
    "one place": (convolution(padding="VALID"), (3, 4, 3, 3), (5, 4, 3, 3)),
    "small images": (convolution(), (9, 3, 2, 2), (3, 3, 3, 3)),
    "small, strided": (convolution(strides=(2, 1), padding=[(3, 2)] * 2), (9, 3, 2, 4),
                       (3, 3, 3, 3)),
    "small, dilated": (convolution(LAST, lhs_dilation=(2, 1), rhs_dilation=(1, 2),
                                   padding=[(4, 4)] * 2), (9, 2, 2, 3), (3, 3, 3, 3)),
    "small, spread": (convolution(lhs_dilation=(2, 2), padding=[(1, 2)] * 2), (64, 3, 2, 2),
                      (3, 3, 3, 3)),
    "few features": (convolution(), (2, 12, 6, 6), (2, 12, 3, 3)),
    "one dimension": (convolution(("NCW", "OIW", "NCW"), (1,)), (2, 4, 4), (32, 4, 3)),
    "three dimensions": (convolution(("NCDHW", "OIDHW", "NCDHW"), (1, 1, 2)), (1, 2, 2, 3, 2),
                         (32, 2, 2, 2, 2)),
}  # fmt: skip


def lowered(function, *shapes):
    structs = [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
    return lower(jax.make_jaxpr(function)(*structs), Options())


def kernel(program):
    (only,) = [
        node.kernel.jaxpr for node in ir.walk_nodes(program.body) if isinstance(node, ir.Execute)
    ]
    return only


def convolutions(program):
    return [
        eqn
        for eqn in walk_equations(kernel(program))
        if eqn.primitive is lax.conv_general_dilated_p
    ]


def is_slow(eqn):
    """Whether XLA makes it a plain loop: its images are smaller than its filters."""
    numbers, (images, filters) = eqn.params["dimension_numbers"], (v.aval.shape for v in eqn.invars)
    pairs = zip(numbers.lhs_spec[2:], numbers.rhs_spec[2:], strict=True)
    return any(1 < images[i] < filters[k] for i, k in pairs)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("form", FORMS)
def test_the_same_numbers_and_derivatives(form):
    function, *shapes = FORMS[form]
    program = lowered(with_gradients(function), *shapes)
    changed = rewrite_convolutions_as_products(program)
    assert len(convolutions(changed)) < len(convolutions(program)) or "small" in form
    assert not any(map(is_slow, convolutions(move_channels_last(changed))))
    rng = np.random.default_rng(0)
    operands = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    given, became = (
        jax.jit(function_of_jaxpr(kernel(each)))(*operands)
        for each in (program, move_channels_last(changed))
    )
    for one, other in zip(given, became, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-5 * np.abs(one).max())


def test_all_of_few_images_with_many_features_are_products():
    function, *shapes = FORMS["few images"]

    def gradients(x, w):
        return jax.grad(lambda x, w: (function(x, w) ** 2).sum(), (0, 1))(x, w)

    program = lowered(gradients, *shapes)
    assert len(convolutions(program)) == 3
    changed = rewrite_convolutions_as_products(program)
    assert not convolutions(changed)
    # Filters are neither turned round nor transposed, which would copy them.
    transposes = [
        eqn for eqn in walk_equations(kernel(changed)) if eqn.primitive is lax.transpose_p
    ]
    assert not [eqn for eqn in transposes if eqn.invars[0].aval.shape == shapes[1]]
    turned = {
        eqn.outvars[0] for eqn in walk_equations(kernel(changed)) if eqn.primitive is lax.rev_p
    }
    assert not turned & {
        atom
        for eqn in walk_equations(kernel(changed))
        for atom in eqn.invars
        if isinstance(atom, Var)
    }


def test_gradients_with_few_features_are_products():
    """The gradient for three features of images; both others are faster as they are."""
    function, shapes = convolution(), [(8, 3, 16, 16), (16, 3, 3, 3)]

    def gradients(x, w):
        results, back = jax.vjp(function, x, w)
        return results, *back(results)

    changed = rewrite_convolutions_as_products(lowered(gradients, *shapes))
    results = [eqn.outvars[0].aval.shape for eqn in convolutions(changed)]
    assert len(results) == 2
    assert (8, 3, 16, 16) not in results


def test_those_of_loops_too():
    def fn(x, w):
        return lax.fori_loop(0, 2, lambda _, x: convolution()(x, w), x)

    program = lowered(fn, (1, 32, 2, 2), (32, 32, 3, 3))
    assert convolutions(program)
    assert not convolutions(rewrite_convolutions_as_products(program))


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (convolution(), [(8, 4, 16, 16), (8, 4, 3, 3)]),
        (convolution(), [(8, 4, 16, 16), (4, 4, 3, 3)]),
        (convolution(lhs_dilation=(8, 8), padding=[(7, 7)] * 2), [(2, 8, 3, 3), (3, 8, 8, 8)]),
        (convolution(feature_group_count=2), [(2, 4, 4, 4), (32, 2, 3, 3)]),
        (lambda x, w: lax.conv(x, w, (1, 1), "SAME"), [(2, 4, 4, 4), (32, 4, 3, 3)]),
        (convolution(), [(0, 4, 4, 4), (32, 4, 3, 3)]),
        (lambda x, w: convolution()(x.astype("bfloat16"), w.astype("bfloat16")),
         [(2, 4, 4, 4), (32, 4, 3, 3)]),
    ],
    ids=["large images", "no fewer features", "many gaps", "groups", "no mark", "nothing",
         "other numbers"],
)  # fmt: skip
def test_others_stay(function, shapes):
    program = lowered(function, *shapes)
    assert kernel(rewrite_convolutions_as_products(program)) is kernel(program)


def test_the_text(golden):
    function, *shapes = FORMS["few images"]
    program = rewrite_convolutions_as_products(lowered(function, *shapes))
    golden("\n".join(jaxpr_text(node.kernel.jaxpr) for node in kernels(program)))
