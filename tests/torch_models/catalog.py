"""Which models there are."""

from __future__ import annotations

from collections.abc import Callable

from tests.torch_models import timm_models, torchvision_models, transformers_models
from tests.torch_models.example import Build

FAMILIES: dict[str, Callable[[], dict[str, Build]]] = {
    "torchvision": torchvision_models.examples,
    "transformers": transformers_models.examples,
    "timm": timm_models.examples,
}
"""By library: gives its models by their names."""


def names(families: tuple[str, ...] = tuple(FAMILIES)) -> list[str]:
    """All models as `library/name`."""
    return [f"{family}/{name}" for family in families for name in FAMILIES[family]()]
