"""Memory: how full each tile is, of what, and what a tile can hold."""

from __future__ import annotations

import dataclasses as dc
from typing import Any

import numpy as np

from ipujax.report.document.fields import described
from ipujax.report.document.runs import from_repeats, repeats
from ipujax.report.document.strings import Strings
from lowering import machine


def encode(memory: machine.Memory, strings: Strings) -> dict[str, Any]:
    """The section; all its texts are written out, so `strings` stays as it is."""
    ipu, tile = memory.worst
    by_ipu = range(len(memory.tile_peak_bytes))
    return {
        "fits": bool(memory.fits),
        "limit": int(memory.limit),
        "missing_bytes": int(memory.missing_bytes),
        "worst": {"ipu": ipu, "tile": tile},
        "most_code_bytes": int(memory.most_code_bytes),
        "code_limit": int(memory.code_limit),
        "tile_peak_bytes": [repeats(peaks) for peaks in memory.tile_peak_bytes],
        "tile_categories": [
            {
                name: repeats(bytes_[ipu])
                for name, bytes_ in memory.tile_categories.items()
                if bytes_[ipu].any()
            }
            for ipu in by_ipu
        ],
        "always_live_bytes": memory.always_live_bytes.tolist(),
        "peak_bytes": memory.peak_bytes.tolist(),
        "remote_bytes": memory.remote_bytes.tolist(),
        "by_category": dict(memory.by_category),
        "ipu_categories": {name: b.tolist() for name, b in memory.ipu_categories.items()},
        "biggest": [dc.asdict(tensor) for tensor in memory.biggest],
    }


def decode(data: dict[str, Any], texts: list[str]) -> machine.Memory:
    """What `encode` wrote; what follows from the rest is not read.

    Raises:
      ValueError: arrays that are not of the same IPUs and tiles.
    """
    peaks = np.stack([from_repeats(found) for found in data["tile_peak_bytes"]])
    categories = {name: np.zeros_like(peaks) for name in machine.CATEGORIES}
    for ipu, held in zip(range(len(peaks)), data["tile_categories"], strict=True):
        for name, found in held.items():
            categories[name][ipu] = _whole(from_repeats(found), peaks.shape[1])
    return machine.Memory(
        tile_peak_bytes=peaks,
        tile_categories=categories,
        always_live_bytes=np.array(data["always_live_bytes"], dtype=np.int64),
        peak_bytes=np.array(data["peak_bytes"], dtype=np.int64),
        limit=data["limit"],
        most_code_bytes=data["most_code_bytes"],
        code_limit=data["code_limit"],
        biggest=tuple(described(machine.Tensor, tensor) for tensor in data["biggest"]),
        remote_bytes=np.array(data["remote_bytes"], dtype=np.int64),
    )


def _whole(bytes_: np.ndarray, tiles: int) -> np.ndarray:
    if len(bytes_) != tiles:
        raise ValueError(f"{len(bytes_)} of {tiles} tiles")
    return bytes_
