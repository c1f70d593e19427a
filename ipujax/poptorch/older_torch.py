"""What PopTorch's programs call as the PyTorch of their time took it, and today's does not."""

from __future__ import annotations

from typing import Any

from torch.utils.data import Sampler


def accept_older_calls() -> None:
    """Has PyTorch take these calls again; one that it takes anyway stays as it is.

    Samplers were given the data set: `super().__init__(data_source)` in a class derived from
    `torch.utils.data.Sampler`, which never used it.
    """
    if Sampler.__init__ is object.__init__:
        Sampler.__init__ = _sampler_of  # pyright: ignore[reportAttributeAccessIssue]


def _sampler_of(self: Sampler[Any], data_source: Any = None) -> None:
    del self, data_source
