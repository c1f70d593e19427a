"""The memory of a program whose tensors the user has put on tiles, in place of the planner's."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Sequence
from types import MappingProxyType

import numpy as np

from ipujax.report.report import Report
from lowering import machine

_DATA = ("variables", "constants", "activations", "fifos", "temporaries")
_BIGGEST = 10  # tensors that a report names


@dc.dataclass(frozen=True, slots=True, eq=False)
class PlacedTensor:
    """A tensor that is always there, on the tiles that the user has chosen.

    Attributes:
      name: shape and dtype, as `float32[16]`.
      path: the user's name of it.
      category: "variables" or "constants".
      bytes: int64 [ipus, tiles].
    """

    name: str
    path: str
    category: str
    bytes: np.ndarray


@dc.dataclass(frozen=True, slots=True, eq=False)
class PlacedStep:
    """A step, and the copies of remote data on its tiles.

    Attributes:
      name: the user's name of it.
      bytes: int64 [ipus, tiles].
    """

    name: str
    bytes: np.ndarray


def place_memory(
    report: Report,
    tensors: Sequence[PlacedTensor],
    steps: Sequence[PlacedStep],
    remote_bytes: int = 0,
) -> Report:
    """Returns a report whose memory holds exactly these tensors and copies, beside the code.

    Args:
      report: the report of the program, whose tensors the planner has put somewhere.
      tensors: what is always there.
      steps: those that need copies of remote data, in order.
      remote_bytes: bytes in streaming memory.
    """
    known, shape = report.memory, report.memory.tile_peak_bytes.shape
    categories = {
        name: np.zeros(shape, np.int64) if name in _DATA else bytes_.copy()
        for name, bytes_ in known.tile_categories.items()
    }
    for tensor in tensors:
        categories[tensor.category] += tensor.bytes
    always = sum(categories.values(), np.zeros(shape, np.int64))
    copies = np.stack([np.zeros(shape, np.int64), *(step.bytes for step in steps)])
    totals = copies.sum(axis=2)
    for ipu, step in enumerate(totals.argmax(axis=0).tolist()):
        categories["temporaries"][ipu] = copies[step, ipu]
    peaks = always + copies.max(axis=0)
    ipu, tile = divmod(int(peaks.argmax()), shape[1])
    memory = dc.replace(
        known,
        tile_peak_bytes=peaks,
        tile_categories=MappingProxyType(categories),
        always_live_bytes=always.sum(axis=1),
        peak_bytes=always.sum(axis=1) + totals.max(axis=0),
        biggest=_find_biggest(tensors, ipu, tile),
        remote_bytes=np.array([remote_bytes, *[0] * (shape[0] - 1)], np.int64),
    )
    profile = dc.replace(
        report.profile,
        memory=memory,
        liveness=tuple(_liveness_of_ipu(tensors, steps, ipu) for ipu in range(shape[0])),
        mappings=MappingProxyType({}),
    )
    return dc.replace(report, profile=profile, advice=())


def _find_biggest(
    tensors: Sequence[PlacedTensor], ipu: int, tile: int
) -> tuple[machine.Tensor, ...]:
    held = [tensor for tensor in tensors if tensor.bytes[ipu].any()]
    held.sort(key=lambda tensor: -int(tensor.bytes[ipu].sum()))
    return tuple(
        machine.Tensor(
            name=tensor.name,
            category=tensor.category,
            ipu=ipu,
            total_bytes=int(tensor.bytes[ipu].sum()),
            tile_bytes=int(tensor.bytes[ipu, tile]),
            operation=_operation_of(tensor),
            origin="",
            path=tensor.path,
        )
        for tensor in held[:_BIGGEST]
    )


def _operation_of(tensor: PlacedTensor) -> str:
    return "constant" if tensor.category == "constants" else "argument"


def _liveness_of_ipu(
    tensors: Sequence[PlacedTensor], steps: Sequence[PlacedStep], ipu: int
) -> machine.Liveness:
    copies = np.array([step.bytes[ipu].sum() for step in steps], np.int64)
    return machine.Liveness(
        names=tuple(step.name for step in steps),
        origins=("",) * len(steps),
        operations=(None,) * len(steps),
        bytes=copies,
        temporary_bytes=copies,
        tensors=tuple(
            machine.Lifetime(
                name=tensor.name,
                category=tensor.category,
                operation=_operation_of(tensor),
                origin="",
                mapping=machine.TileBytes(tensor.bytes[ipu]),
                first=None,
                last=None,
                path=tensor.path,
            )
            for tensor in tensors
            if tensor.bytes[ipu].any()
        ),
    )
