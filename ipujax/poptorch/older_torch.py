"""The calls of older PyTorch versions that PopTorch's programs make."""

from __future__ import annotations

from torch.utils.data import Sampler


def accept_older_calls() -> None:
    """Makes PyTorch accept calls again that it accepted in PopTorch's time.

    Samplers were given the data set: `super().__init__(data_source)` in a class derived from
    `torch.utils.data.Sampler`, which never used it.
    """
    if Sampler.__init__ is object.__init__:
        Sampler.__init__ = _init_sampler  # pyright: ignore[reportAttributeAccessIssue]


def _init_sampler(self: Sampler[object], data_source: object = None) -> None:
    del self, data_source
