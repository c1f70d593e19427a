"""Families of timm: small members."""

from __future__ import annotations

import functools
from typing import Any

from tests.torch_models.example import CLASSES, Build, Example, classifier, shortened
from tests.torch_models.libraries import timm

_SMALL = {"img_size": 32, "patch_size": 8, "embed_dim": 64, "depth": 2}
_VIT = {**_SMALL, "num_heads": 4}
_SWIN = {
    "img_size": 32, "patch_size": 4, "window_size": 4, "embed_dim": 24, "depths": (2, 2),
    "num_heads": (2, 4),
}  # fmt: skip

_MODELS: dict[str, tuple[int, dict[str, Any]]] = {
    "resnet10t": (64, {}),
    "seresnext26d_32x4d": (64, {"layers": (1, 1, 1, 1)}),
    "res2net50_14w_8s": (64, {"layers": (1, 1, 1, 1)}),
    "resnest14d": (64, {}),
    "resnetv2_50": (64, {"layers": (1, 1, 1, 1)}),
    "regnetx_002": (64, {}),
    "densenet121": (64, {"block_config": (2, 2, 2, 2)}),
    "repvgg_a0": (64, {}),
    "efficientnet_b0": (64, {}),
    "mobilenetv3_small_050": (64, {}),
    "ghostnet_050": (64, {}),
    "rexnet_100": (64, {"depth_mult": 0.5}),
    "nf_regnet_b0": (64, {}),
    "dla34": (64, {"levels": (1, 1, 1, 1, 1, 1)}),
    "convnext_atto": (64, {"depths": (1, 1, 1, 1)}),
    "edgenext_xx_small": (64, {"depths": (1, 2, 2, 2)}),
    "mobilevit_xxs": (64, {}),
    "poolformerv2_s12": (64, {}),
    "vit_tiny_patch16_224": (32, _VIT),
    "deit_tiny_distilled_patch16_224": (32, _VIT),
    "beit_base_patch16_224": (32, _VIT),
    "eva02_tiny_patch14_224": (32, _VIT),
    "cait_xxs24_224": (32, _VIT),
    "xcit_nano_12_p16_224": (32, {**_VIT, "patch_size": 16}),
    "swin_tiny_patch4_window7_224": (32, _SWIN),
    "swinv2_tiny_window8_256": (32, _SWIN),
    "mixer_s16_224": (32, {"img_size": 32}),
    "resmlp_12_224": (32, {"img_size": 32}),
    "levit_128s": (64, {"img_size": 64, "depth": (1, 1, 1)}),
    "pvt_v2_b0": (64, {"depths": (1, 1, 1, 1)}),
    "coatnet_nano_rw_224": (64, {"img_size": 64, "depths": (1, 1, 1, 1)}),
    "inception_next_atto": (64, {"depths": (1, 1, 1, 1)}),
}
"""By name: the size of images, and options that make a model smaller."""

_DEEP = (
    "repvgg_a0",
    "efficientnet_b0",
    "mobilenetv3_small_050",
    "nf_regnet_b0",
    "mobilevit_xxs",
    "poolformerv2_s12",
    "mixer_s16_224",
    "resmlp_12_224",
)
"""Those without such options: one of each run of equal blocks."""


def examples() -> dict[str, Build]:
    """All by their names."""
    return {name: functools.partial(_example, name) for name in _MODELS}


def _example(name: str) -> Example:
    size, options = _MODELS[name]
    model = timm().create_model(name, pretrained=False, num_classes=CLASSES, **options)
    return classifier(shortened(model) if name in _DEEP else model, size)
