"""Convolutions of a multi-convolution run at the same time, each on tiles of its own."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import ipujax as ipu
from ipujax.nn_ops import multi_conv
from lowering import machine
from tests.lowering.samples import lowered

FILTERS = [jnp.ones((3, 3, 16, 16)) for _ in range(4)]
IMAGES = [jnp.ones((1, 16, 16, 16)) for _ in range(4)]


def convolved(images: Any, filters: Any) -> Any:
    """Four convolutions, with what is elementwise between them."""
    return [
        jax.nn.relu(
            lax.conv_general_dilated(x, w, (1, 1), "SAME", None, None, ("NHWC", "HWIO", "NHWC"))
        )
        for x, w in zip(images, filters, strict=True)
    ]


def modelled(function: Any, *operands: Any, reorders: bool = True) -> machine.Profile:
    program = lowered(function, *(operands or (IMAGES, FILTERS)), ipus=1)
    return machine.model(program, machine.ModelOptions(reorders=reorders))


def named(profile: machine.Profile) -> dict[str, int]:
    names = ("multi_conv", "conv_general_dilated")
    return {
        name: sum(o.runs for o in profile.operations if o.name.startswith(name)) for name in names
    }


@pytest.mark.parametrize("reorders", [True, False])
def test_small_convolutions_take_little_longer_than_one(reorders: bool) -> None:
    one = modelled(lambda x, w: convolved(x[:1], w[:1]), reorders=reorders)
    apart = modelled(convolved, reorders=reorders)
    together = modelled(multi_conv(convolved), reorders=reorders)
    assert named(apart) == {"multi_conv": 0, "conv_general_dilated": 4}
    assert named(together) == {"multi_conv": 1, "conv_general_dilated": 0}
    assert one.cycles < together.cycles < 0.7 * apart.cycles
    flops = [sum(o.flops for o in p.operations if "conv" in o.name) for p in (apart, together)]
    assert flops[0] == flops[1]


@pytest.mark.exhaustive
def test_gradients_go_together_too() -> None:
    def gradients(function: Any) -> Any:
        loss = lambda x, w: sum((y**2).sum() for y in function(x, w))  # noqa: E731
        return jax.grad(loss, argnums=(0, 1))

    apart, together = (modelled(gradients(f)) for f in (convolved, multi_conv(convolved)))
    assert named(together) == {"multi_conv": 2, "conv_general_dilated": 0}
    assert together.cycles < 0.7 * apart.cycles


def test_serial_ones_run_one_after_the_other() -> None:
    serial = modelled(multi_conv(convolved, {"planType": "serial"}))
    assert named(serial) == {"multi_conv": 0, "conv_general_dilated": 4}
    assert serial.cycles == modelled(convolved).cycles


def test_calls_that_need_each_other_stay_apart() -> None:
    def twice(images: Any, filters: Any) -> Any:
        both = multi_conv(convolved)
        return both(both(images, filters), filters)

    assert named(modelled(twice)) == {"multi_conv": 2, "conv_general_dilated": 0}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("options", [{"perConvReservedTiles": 350}, {"cycleBackOff": 1.0}])
def test_options_share_tiles_out(options: dict[str, Any]) -> None:
    """The largest convolution has fewer tiles where others have more of them reserved."""
    images = [jnp.ones((1, 64, 64, 16)), *IMAGES[1:]]
    default = modelled(multi_conv(convolved), images, FILTERS)
    other = modelled(multi_conv(convolved, options), images, FILTERS)
    assert other.cycles > default.cycles


def test_reports_follow_the_options() -> None:
    def report(options: dict[str, str]) -> Any:
        struct = [jax.ShapeDtypeStruct(np.shape(x), jnp.float32) for x in IMAGES]
        filters = [jax.ShapeDtypeStruct(np.shape(w), jnp.float32) for w in FILTERS]
        return ipu.compile(multi_conv(convolved, options)).lower(struct, filters).report()

    assert report({}).cycles < report({"planType": "serial"}).cycles
