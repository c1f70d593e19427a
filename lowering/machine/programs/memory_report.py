"""The contents of each IPU's memory, code included, as reports show it."""

from __future__ import annotations

import collections
import dataclasses as dc
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias, overload

import numpy as np

from lowering import ir
from lowering.machine.cost import Phase, Shape
from lowering.machine.kernels.alive import LiveTensor
from lowering.machine.kernels.code import CodeUse, compute_code_bytes
from lowering.machine.kernels.functions import count_calls
from lowering.machine.kernels.layouts import OperandTiles
from lowering.machine.kernels.listing import shape_of_aval
from lowering.machine.kernels.totals import KernelCost, SignatureNumbers
from lowering.machine.liveness_report import Lifetime, Liveness, OnTiles, TileBytes
from lowering.machine.machine_options import ModelOptions
from lowering.machine.mapping import TileMapping
from lowering.machine.profile import CATEGORIES, FETCHED, Memory, Tensor
from lowering.machine.programs.program_facts import ProgramFacts
from lowering.machine.programs.remote_storage import bytes_stored_per_replica
from lowering.machine.programs.residency import Residency
from lowering.machine.transfers.exchange_code import scattered_pieces
from lowering.ops import Storage

_PACKET_BYTES = 1_024  # at most, between a tile and streaming memory [H, C600]
_BIGGEST = 10  # tensors that a report names


def liveness_of_ipu(residency: Residency, io_tiles: int = 0) -> Liveness:
    """Returns the steps and tensors of one IPU as plain data.

    Args:
      residency: the tensors that it holds.
      io_tiles: tiles behind the others, which hold nothing.
    """
    record = residency.alive
    return Liveness(
        names=record.names,
        origins=record.origins,
        operations=record.operations,
        bytes=record.bytes,
        temporary_bytes=record.temporary_bytes,
        tensors=_Lifetimes(residency, io_tiles),
    )


class _Lifetimes(Sequence[Lifetime]):
    """The lifetimes of one IPU's tensors, described as soon as somebody looks at them."""

    def __init__(self, residency: Residency, io_tiles: int) -> None:
        self._residency, self._io_tiles = residency, io_tiles

    def __len__(self) -> int:
        return len(self._all)

    @overload
    def __getitem__(self, index: int) -> Lifetime: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Lifetime]: ...
    def __getitem__(self, index: int | slice) -> Lifetime | Sequence[Lifetime]:
        return self._all[index]

    def __iter__(self) -> Iterator[Lifetime]:
        return iter(self._all)

    @functools.cached_property
    def _all(self) -> tuple[Lifetime, ...]:
        record = self._residency.alive
        on_all_tiles = functools.cache(self._add_io_tiles)

        def describe(tensor: LiveTensor, first: int | None, last: int | None) -> Lifetime:
            return Lifetime(
                name=tensor.name,
                category=tensor.category,
                operation=tensor.operation,
                origin=tensor.origin,
                mapping=on_all_tiles(tensor.laid.mapping),
                first=first,
                last=last,
                value=tensor.value,
                path=tensor.path,
                label=tensor.label,
                scope=tensor.scope,
            )

        lives = zip(record.tensors, record.first.tolist(), record.last.tolist(), strict=True)
        permanent_lifetimes = (describe(tensor, None, None) for tensor in self._residency.always)
        temporary_lifetimes = (
            describe(tensor, first, last) for tensor, first, last in lives if first <= last
        )
        return (*permanent_lifetimes, *temporary_lifetimes)

    def _add_io_tiles(self, mapping: TileMapping) -> OnTiles:
        if not self._io_tiles:
            return mapping
        if mapping.by_hand is not None:
            return dc.replace(mapping, tiles=mapping.tiles + self._io_tiles)
        return TileBytes(np.pad(mapping.bytes_per_tile(), (0, self._io_tiles)))


def memory_of_replica(
    residencies: Sequence[Residency],
    liveness: Sequence[Liveness],
    code: Sequence[IpuCode],
    options: ModelOptions,
) -> Memory:
    """Returns the memory of all IPUs of a replica.

    Args:
      residencies: the tensors of each IPU.
      liveness: the same in plain data.
      code: the code of each IPU's operations; see `collect_code_uses`.
      options: the chip, and whether code counts.
    """
    tiles = (len(residencies), options.compute_target.tiles_per_ipu)
    categories = {name: np.zeros(tiles, dtype=np.int64) for name in CATEGORIES}
    always_live = np.zeros(tiles, dtype=np.int64)
    for ipu, code_of_ipu in enumerate(code):
        residency, record = residencies[ipu], residencies[ipu].alive
        bytes_by_category = {name: bytes_[ipu] for name, bytes_ in categories.items()}
        if options.compiles_code:
            code_categories = compute_code_bytes(
                code_of_ipu.uses.values(),
                code_of_ipu.calls,
                tiles[1],
                outlines=options.outlines,
                goal=options.exchange_goal,
            )
            for name, bytes_ in code_categories.items():
                bytes_by_category[name] += bytes_
        _add_tensor_bytes(residency.always, bytes_by_category)
        always_live[ipu] = sum(bytes_by_category.values())
        _add_tensor_bytes(record.tensors_alive_at(record.step_of_peak_memory), bytes_by_category)
        if len(record.bytes):
            used_tiles = record.space_tiles[record.step_of_peak_memory]
            bytes_by_category["temporaries"][:used_tiles] += record.space[
                record.step_of_peak_memory
            ]
    peaks = always_live + np.stack([home.alive.tile_peak_bytes for home in residencies])
    ipu, tile = divmod(int(peaks.argmax()), tiles[1])
    instruction_bytes = sum((categories[name] for name in FETCHED), np.zeros(tiles, dtype=np.int64))
    io_tiles = ((0, 0), (0, options.io_tiles))
    return Memory(
        tile_peak_bytes=np.pad(peaks, io_tiles),
        tile_categories={name: np.pad(bytes_, io_tiles) for name, bytes_ in categories.items()},
        always_live_bytes=always_live.sum(axis=1),
        peak_bytes=always_live.sum(axis=1)
        + np.array([home.alive.peak_bytes_of_all_tiles for home in residencies]),
        limit=options.target.usable_bytes_per_tile,
        most_code_bytes=int(instruction_bytes.max()),
        code_limit=options.target.code_bytes_per_tile,
        biggest=_find_largest_tensors(liveness[ipu], ipu, tile),
        remote_bytes=np.array([home.remote_bytes for home in residencies]),
    )


def _add_tensor_bytes(
    tensors: Iterable[LiveTensor], bytes_by_category: dict[str, np.ndarray]
) -> None:
    """Adds the bytes of tensors to those of each category, tile by tile."""
    for tensor in tensors:
        bytes_by_category[tensor.category] += tensor.laid.mapping.bytes_per_tile()


@dc.dataclass(frozen=True, slots=True, eq=False)
class IpuCode:
    """The code that one IPU's programs need.

    Attributes:
      uses: the operations, every signature once.
      calls: how many calls of them and of repeated sequences of them there are.
    """

    uses: Mapping[object, CodeUse]
    calls: int


_KernelCode: TypeAlias = tuple[Mapping[object, CodeUse], Sequence[object], OperandTiles]
"""The code of a kernel, its calls, and the tiles on which its operands begin."""


def collect_code_uses(
    facts: ProgramFacts, kernels: Mapping[int, KernelCost], options: ModelOptions
) -> list[IpuCode]:
    """Collects the code that each IPU's programs need.

    Args:
      facts: the facts about the program.
      kernels: the cost of each `Execute`, by its identity.
      options: the chip, and whether code is shared.
    """
    program = facts.program
    parts: list[list[_KernelCode]] = [[] for _ in range(program.ipus)]
    code_of_exchange = functools.cache(functools.partial(_code_of_remote_exchange, options=options))
    for node in ir.walk_nodes(program.body):
        match node:
            case ir.Execute():
                cost = kernels[id(node)]
                parts[node.ipu].append((cost.code, cost.calls, cost.operand_tiles))
            case ir.Load() | ir.Store() if (node.value, node.ipu) not in facts.passing:
                full_shape = shape_of_aval(program.avals[node.value])
                buffer = full_shape if options.merges_remote else node
                code = code_of_exchange(
                    (type(node), node.storage, buffer), full_shape, program.num_local_replicas
                )
                parts[node.ipu].append((code, tuple(code), ()))
            case _:
                pass
    return list(map(_merge_code, parts))


def _merge_code(parts: Sequence[_KernelCode]) -> IpuCode:
    """Returns the code of the kernels of an IPU, in the order in which they run."""
    runs = collections.Counter(id(code) for code, _, _ in parts)
    number_of, numbers_of_calls = SignatureNumbers(), dict[int, list[int]]()
    uses: dict[object, CodeUse] = {}
    calls: list[int] = []
    for code, calls_of_code, operand_tiles in parts:
        if id(code) not in numbers_of_calls:  # the first of its runs
            numbers_of_calls[id(code)] = list(map(number_of, calls_of_code))
            for signature, use in code.items():
                use = use.repeat(runs[id(code)])
                uses[signature] = (
                    uses[signature].add_uses(use)
                    if signature in uses
                    else use.for_operands(operand_tiles)
                )
        calls += numbers_of_calls[id(code)]
    return IpuCode(uses, count_calls(calls))


def _code_of_remote_exchange(
    signature: tuple[type[ir.Node], Storage, object],
    full_shape: Shape,
    replicas: int,
    options: ModelOptions,
) -> Mapping[object, CodeUse]:
    """Returns the code of an exchange with streaming memory, shared by merged buffers."""
    _, storage, _ = signature
    if not storage.remote:
        return {}
    stored_bytes = bytes_stored_per_replica(full_shape, storage, replicas)
    bytes_per_tile = -(-stored_bytes // options.compute_target.tiles_per_ipu)
    packets = scattered_pieces(bytes_per_tile, _PACKET_BYTES)
    exchange = Phase("remote", 0.0, bytes_per_tile, pieces=packets)
    return {signature: CodeUse((), 1, (exchange,), from_outside=1)}


def _find_largest_tensors(liveness: Liveness, ipu: int, tile: int) -> tuple[Tensor, ...]:
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
            label=tensor.label,
            scope=tensor.scope,
        )
        for tensor in liveness.alive_at(liveness.worst)[:_BIGGEST]
    )
