"""Families of `torchvision.models`: their smallest members."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tests.torch_models.example import (
    CLASSES,
    Build,
    Example,
    backbone,
    classifier,
    segmenter,
    shortened,
)  # fmt: skip
from tests.torch_models.libraries import torchvision

_WHOLE = {
    "alexnet": 64,
    "squeezenet1_1": 64,
    "resnet18": 64,
    "vgg11": 32,
    "googlenet": 64,
    "inception_v3": 96,
    "shufflenet_v2_x0_5": 64,
    "mobilenet_v2": 64,
    "mobilenet_v3_small": 64,
    "mnasnet0_5": 64,
    "efficientnet_b0": 64,
    "efficientnet_v2_s": 64,
    "regnet_x_400mf": 64,
    "regnet_y_400mf": 64,
}
"""Members of families as they are, and the images that they are given: as small as leaves batch
normalization something to work with."""

_DEEP = ("efficientnet_b0", "efficientnet_v2_s", "regnet_x_400mf", "regnet_y_400mf")
"""Of these, one of each run of equal blocks."""

_SMALLER = (
    "resnet50",
    "resnext50_32x4d",
    "wide_resnet50_2",
    "densenet121",
    "convnext_tiny",
    "vit_b_16",
    "swin_t",
    "swin_v2_t",
    "maxvit_t",
)
"""Families of large members: their classes, with fewer and smaller layers."""

_SEGMENTERS = ("fcn_resnet50", "deeplabv3_resnet50", "lraspp_mobilenet_v3_large")
_BACKBONES = ("resnet_fpn", "mobilenet_fpn", "retinanet_head", "ssd_vgg")


def examples() -> dict[str, Build]:
    """All by their names."""
    whole = {n: functools.partial(_whole, n, size) for n, size in _WHOLE.items()}
    smaller = {n: functools.partial(_smaller, n) for n in _SMALLER}
    segmenters = {n: functools.partial(_segmenter, n) for n in _SEGMENTERS}
    return {
        **whole,
        **smaller,
        **segmenters,
        **{n: functools.partial(_backbone, n) for n in _BACKBONES},
    }


def _whole(name: str, size: int) -> Example:
    options: dict[str, Any] = {}
    if name in ("googlenet", "inception_v3"):
        # The second head of inception_v3 needs images of 299 x 299.
        options = {
            "init_weights": False, "transform_input": True, "aux_logits": name == "googlenet",
        }  # fmt: skip
    model = getattr(torchvision().models, name)(num_classes=CLASSES, **options)
    return classifier(shortened(model) if name in _DEEP else model, size)


def _smaller(name: str) -> Example:
    models = torchvision().models
    swin: dict[str, Any] = {
        "patch_size": [4, 4], "embed_dim": 24, "depths": [2, 2], "num_heads": [2, 4],
        "window_size": [4, 4], "num_classes": CLASSES,
    }  # fmt: skip
    block = models.convnext.CNBlockConfig
    makers: dict[str, Callable[[], nn.Module]] = {
        "resnet50": _resnet,
        "resnext50_32x4d": lambda: _resnet(groups=32, width_per_group=4),
        "wide_resnet50_2": lambda: _resnet(width_per_group=128),
        "densenet121": lambda: models.DenseNet(16, (2, 2, 2, 2), 32, num_classes=CLASSES),
        "convnext_tiny": lambda: models.ConvNeXt(
            [block(24, 48, 1), block(48, 96, 1), block(96, None, 2)], num_classes=CLASSES
        ),
        "vit_b_16": lambda: models.VisionTransformer(32, 8, 2, 4, 64, 128, num_classes=CLASSES),
        "swin_t": lambda: models.SwinTransformer(**swin),
        "swin_v2_t": lambda: models.SwinTransformer(
            **swin,
            block=models.swin_transformer.SwinTransformerBlockV2,
            downsample_layer=models.swin_transformer.PatchMergingV2,
        ),
        "maxvit_t": lambda: models.MaxVit(
            (64, 64), 16, 4, [32, 64], [1, 1], 16, 0.0, num_classes=CLASSES
        ),
    }  # fmt: skip
    size = 128 if name == "densenet121" else 64 if "net" in name or "max" in name else 32
    return classifier(makers[name](), size)


def _resnet(**options: Any) -> nn.Module:
    """A member of the family of as many kinds of blocks as its large ones."""
    resnet = torchvision().models.resnet
    return resnet.ResNet(resnet.Bottleneck, [1, 1, 1, 2], num_classes=CLASSES, **options)


def _segmenter(name: str) -> Example:
    segmentation = torchvision().models.segmentation
    if name == "lraspp_mobilenet_v3_large":
        options = {"weights_backbone": None, "num_classes": CLASSES}
        return segmenter(segmentation.lraspp_mobilenet_v3_large(**options), 64)
    features = _resnet(replace_stride_with_dilation=[False, True, True])
    kind = name.removesuffix("_resnet50")
    make = getattr(getattr(segmentation, kind), f"_{kind}_resnet")
    return segmenter(make(features, CLASSES, True), 64)


def _backbone(name: str) -> Example:
    detection = torchvision().models.detection
    utils = detection.backbone_utils
    if name == "resnet_fpn":
        options = {"backbone_name": "resnet18", "weights": None, "trainable_layers": 5}
        return backbone(utils.resnet_fpn_backbone(**options), 64)
    if name == "mobilenet_fpn":
        options = {"backbone_name": "mobilenet_v3_large", "weights": None}
        return backbone(utils.mobilenet_backbone(fpn=True, **options), 64)
    if name == "retinanet_head":
        model = utils.resnet_fpn_backbone(backbone_name="resnet18", weights=None)
        head = detection.retinanet.RetinaNetHead(model.out_channels, 9, CLASSES)
        return backbone(_Headed(model, head), 64, 2)
    model = detection.ssd300_vgg16(weights=None, weights_backbone=None, num_classes=CLASSES)
    return backbone(model.backbone, 300, 1)


class _Headed(nn.Module):
    """A backbone, and the head of a detector on its features."""

    def __init__(self, model: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.head = head

    def forward(self, images: torch.Tensor) -> Any:
        return self.head(list(self.model(images).values()))
