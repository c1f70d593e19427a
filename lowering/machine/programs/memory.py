"""What each IPU's memory holds, code included, as reports tell it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from lowering import ir
from lowering.machine.kernels.alive import Live
from lowering.machine.kernels.code import CodeUse, code_bytes
from lowering.machine.kernels.listing import shape
from lowering.machine.kernels.totals import KernelCost
from lowering.machine.liveness import Lifetime, Liveness, OnTiles, TileBytes
from lowering.machine.mapping import TileMapping
from lowering.machine.options import ModelOptions
from lowering.machine.profile import CATEGORIES, FETCHED, Memory, Tensor
from lowering.machine.programs.residency import Residency
from lowering.machine.programs.storing import kept_bytes, only_passing

_BIGGEST = 10  # tensors that a report names


def liveness_of(home: Residency, io_tiles: int = 0) -> Liveness:
    """The steps and tensors of one IPU, in plain data.

    Args:
      home: what it holds.
      io_tiles: tiles behind the others, which hold nothing.
    """
    alive = home.alive
    lying: dict[TileMapping, OnTiles] = {}

    def lifetime(tensor: Live, first: int | None, last: int | None) -> Lifetime:
        mapping = tensor.laid.mapping
        if mapping not in lying:
            lying[mapping] = _on_all_tiles(mapping, io_tiles)
        return Lifetime(
            name=tensor.name,
            category=tensor.category,
            operation=tensor.operation,
            origin=tensor.origin,
            mapping=lying[mapping],
            first=first,
            last=last,
            value=tensor.value,
            path=tensor.path,
        )

    lives = zip(alive.tensors, alive.first.tolist(), alive.last.tolist(), strict=True)
    always = (lifetime(tensor, None, None) for tensor in home.always)
    others = (lifetime(tensor, first, last) for tensor, first, last in lives if first <= last)
    return Liveness(
        names=alive.names,
        origins=alive.origins,
        operations=alive.operations,
        bytes=alive.bytes,
        temporary_bytes=alive.temporary_bytes,
        tensors=(*always, *others),
    )


def _on_all_tiles(mapping: TileMapping, io_tiles: int) -> OnTiles:
    if not io_tiles:
        return mapping
    return TileBytes(np.pad(mapping.bytes_per_tile(), (0, io_tiles)))


def memory_of(
    homes: Sequence[Residency],
    liveness: Sequence[Liveness],
    code: Sequence[Mapping[object, CodeUse]],
    options: ModelOptions,
) -> Memory:
    """The memory of all IPUs of a replica.

    Args:
      homes: what each IPU holds beside code.
      liveness: the same in plain data.
      code: what each IPU's operations need; see `code_of`.
      options: the chip, and whether code counts.
    """
    tiles = (len(homes), options.compute_target.tiles_per_ipu)
    categories = {name: np.zeros(tiles, dtype=np.int64) for name in CATEGORIES}
    always = np.zeros(tiles, dtype=np.int64)
    for ipu, uses in enumerate(code):
        home, alive = homes[ipu], homes[ipu].alive
        held = {name: bytes_[ipu] for name, bytes_ in categories.items()}
        if options.compiles_code:
            compiled = code_bytes(uses.values(), tiles[1], outlines=options.outlines)
            for name, bytes_ in compiled.items():
                held[name] += bytes_
        _lay(home.always, held)
        always[ipu] = sum(held.values())
        _lay(alive.at(alive.worst), held)
        if len(alive.bytes):
            used = alive.space_tiles[alive.worst]
            held["temporaries"][:used] += alive.space[alive.worst]
    peaks = always + np.stack([home.alive.tile_peak_bytes for home in homes])
    ipu, tile = divmod(int(peaks.argmax()), tiles[1])
    fetched = sum((categories[name] for name in FETCHED), np.zeros(tiles, dtype=np.int64))
    io_tiles = ((0, 0), (0, options.io_tiles))
    return Memory(
        tile_peak_bytes=np.pad(peaks, io_tiles),
        tile_categories={name: np.pad(bytes_, io_tiles) for name, bytes_ in categories.items()},
        always_live_bytes=always.sum(axis=1),
        peak_bytes=always.sum(axis=1) + np.array([home.alive.most_bytes for home in homes]),
        limit=options.target.usable_bytes_per_tile,
        most_code_bytes=int(fetched.max()),
        code_limit=options.target.code_bytes_per_tile,
        biggest=_biggest(liveness[ipu], ipu, tile),
        remote_bytes=np.array([home.remote_bytes for home in homes]),
    )


def _lay(tensors: Iterable[Live], held: dict[str, np.ndarray]) -> None:
    """Adds tensors to what the tiles hold of each category."""
    for tensor in tensors:
        held[tensor.category] += tensor.laid.mapping.bytes_per_tile()


def code_of(
    program: ir.Program, kernels: Mapping[int, KernelCost], options: ModelOptions
) -> list[dict[object, CodeUse]]:
    """What each IPU's programs need, every signature once.

    Args:
      program: the whole program.
      kernels: the cost of each `Execute`, by its identity.
      options: the chip, and what is shared.
    """
    uses: list[dict[object, CodeUse]] = [{} for _ in range(program.ipus)]
    passing = only_passing(program)
    for node in ir.walk(program.body):
        match node:
            case ir.Execute():
                code = kernels[id(node)].code
            case ir.Load() | ir.Store() if (node.value, node.ipu) not in passing:
                code = _remote_code(program, node, options)
            case _:
                continue
        known = uses[node.ipu]
        for signature, use in code.items():
            known[signature] = known[signature].again(use) if signature in known else use
    return uses


def _remote_code(
    program: ir.Program, node: ir.Load | ir.Store, options: ModelOptions
) -> Mapping[object, CodeUse]:
    """An exchange with streaming memory; buffers that are merged and alike share its code."""
    if not node.storage.remote:
        return {}
    whole = shape(program.avals[node.value])
    kept = kept_bytes(whole, node.storage, program.local_replicas)
    most = -(-kept // options.compute_target.tiles_per_ipu)
    buffer = whole if options.merges_remote else node
    return {(type(node), node.storage, buffer): CodeUse((), 1, 1, most)}


def _biggest(liveness: Liveness, ipu: int, tile: int) -> tuple[Tensor, ...]:
    return tuple(
        Tensor(
            name=tensor.name,
            category=tensor.category,
            ipu=ipu,
            total_bytes=tensor.total_bytes,
            tile_bytes=int(tensor.mapping.bytes_per_tile()[tile]),
            operation=tensor.operation,
            origin=tensor.origin,
            value=tensor.value,
            path=tensor.path,
        )
        for tensor in liveness.alive_at(liveness.worst)[:_BIGGEST]
    )
