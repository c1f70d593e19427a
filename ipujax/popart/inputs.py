"""Shapes of inputs that a model leaves open."""

from __future__ import annotations

from ipujax.popart.checks import check
from ipujax.popart.tensor_info import TensorInfo


class InputShapeInfo:
    """Types and shapes of inputs, by name; those that a model does not have are ignored."""

    def __init__(self) -> None:
        self._infos: dict[str, TensorInfo] = {}

    def add(self, id: str, info: TensorInfo) -> None:
        """Says what an input is."""
        self._infos[check.text(id, "an input")] = check.instance(info, TensorInfo, "the info")

    def has(self, id: str) -> bool:
        """Whether an input is known."""
        return id in self._infos

    def get(self, id: str) -> TensorInfo:
        """What was said of an input.

        Raises:
          PopARTError: (a `ValueError`) nothing was.
        """
        if id not in self._infos:
            raise check.refuse(f"nothing is said of input {id!r}", "say it with add()")
        return self._infos[id]

    def getAllTensorIds(self) -> list[str]:
        """The inputs that are known."""
        return list(self._infos)
