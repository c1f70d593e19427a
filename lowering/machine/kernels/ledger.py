"""The costs of a kernel's operations, added up: supersteps, totals, code, assumptions."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from lowering.jaxprs import call_path
from lowering.machine.cost import Cost, Operation, Phase, name_units
from lowering.machine.kernels.code import CodeUse
from lowering.machine.kernels.items import Block, Choice, Entry, Item, Loop, user_line_of_entry
from lowering.machine.kernels.iterations import IterationCost, Iterations, repeat_iterations
from lowering.machine.kernels.supersteps import Stretch, Supersteps
from lowering.machine.kernels.totals import KernelCost, Total, add_runs_of
from lowering.machine.mapping import VECTOR_BYTES, TileMapping
from lowering.machine.program_tree import ProgramNode
from lowering.machine.target import Target
from lowering.machine.transfers.between_replicas import COLLECTIVES, Collectives
from lowering.machine.transfers.exchanges import HostLink
from lowering.machine.transfers.links import (
    external_sync_cycles,
    inter_ipu_cycles,
    remote_memory_cycles,
)
from lowering.ops import host_tables, user_callback_p

_ON_TABLES = frozenset(primitive.name for primitive in host_tables.PRIMITIVES)
_ON_HOST = frozenset({user_callback_p.name, *_ON_TABLES})
"""Operations of the host: their operands and results cross to it and back."""

MovedPart: TypeAlias = tuple[TileMapping, float]
"""The mapping of a tensor, and the part of it that moves."""


class Ledger:
    """The account of one kernel's costs.

    Args:
      target: the chip, or only what its tiles see of it.
      collectives: the costs of operations between replicas.
      host: the cost of transfers to and from the host.
      numbers: gives each signature of an operation a number.

    Attributes:
      leaves_ipu: whether an operation goes to other IPUs, the host or streaming memory.
    """

    def __init__(
        self,
        target: Target,
        collectives: Collectives,
        host: HostLink,
        numbers: Callable[[object], int],
    ) -> None:
        self.steps, self._target = Supersteps(target), target
        self._code: dict[object, CodeUse] = {}
        self._further_calls = collections.Counter[tuple[object, bool]]()
        # Equal items, as those of equal layers, run the same steps.
        self._charges: dict[object, tuple[int, Total, Stretch]] = {}
        self.calls: list[object] = []
        self._entered: set[Block | None] = set()
        self.totals: dict[int, Total] = {}
        self._numbers = numbers
        self.assumptions: dict[str, None] = {}
        self._collectives, self._host = collectives, host
        self._on_host = _ON_HOST if host.asks_tables else _ON_HOST - _ON_TABLES
        self._remote = _ON_TABLES if host.tables_are_remote else frozenset[str]()
        self.leaves_ipu = False

    def charge_item(
        self,
        item: Item,
        costs: Cost,
        rearranging: Phase | None,
        bytes_: int,
        tiles: int,
        first_tile: int,
        reads_outside: bool,
    ) -> int:
        """Charges an item, after its operands have been brought together, and returns its number.

        Args:
          item: the operations.
          costs: the cost of the operations, with all operands in the layouts that they need.
          rearranging: the exchange that brings the operands there; None if they are there.
          bytes_: bytes of operands and results.
          tiles: how many take part.
          first_tile: where its results begin.
          reads_outside: whether it reads what lies outside of the kernel.

        Returns:
          The number of the operation.
        """
        key = item.signature, item.name, rearranging, bytes_, tiles
        code = item.operations, rearranging is not None
        if (charge := self._charges.get(key)) is not None:
            number, total, stretch = charge
            self.steps.run_again(stretch)
        else:
            mark = self.steps.mark_start()
            number, total = self._charge_for_first_time(
                item, costs, rearranging, bytes_, tiles, first_tile
            )
            if (stretch := self.steps.find_stretch(mark)) is not None:
                self._charges[key] = number, total, stretch
        self._add_total(number, total)
        if item.block is None and code in self._code:
            self._further_calls[code, reads_outside] += 1
        else:
            use = self._code_use_of_item(item, costs, rearranging, first_tile, reads_outside)
            self._add_code(code, use)
        self.calls.append(code)
        return number

    def _charge_for_first_time(
        self,
        item: Item,
        costs: Cost,
        rearranging: Phase | None,
        bytes_: int,
        tiles: int,
        first_tile: int,
    ) -> tuple[int, Total]:
        """Runs the steps of an item, see `charge_item`; returns its number and one run's total."""
        name, origin = item.name, item.origin
        if costs.step is not None and costs.step.where:
            origin = costs.step.where
        primitive, dtype = item.operations[0].name, _widest_dtype(item.operations[-1])
        path, direction, label = call_path(item.eqn), item.direction, item.label
        units = name_units(costs.units, dtype) if costs.flops else ""
        total = Total(
            item.exact_title,
            label,
            costs.source,
            origin,
            item.scope,
            path,
            direction,
            dtype,
            units=units,
            runs=1,
        )
        total.flops, total.bytes, total.tiles = costs.flops, bytes_, tiles
        total.first_tile, total.vertices, total.step = first_tile, costs.vertices, costs.step
        code = item.operations, rearranging is not None
        number = self._numbers((*code, item.backward, direction, origin, path, item.scope, label))
        with self.steps.count_for_total(total, number):
            if rearranging is not None:
                self.steps.run_phases(name, origin, (rearranging,))
            self.steps.run_phases(name, origin, costs.phases, costs.repeats)
            self._run_links(total, name, origin, costs)
            self.leaves_ipu |= primitive in COLLECTIVES | _ON_HOST
            link_cycles = self._collectives.collective_cycles(item.operations[0])
            if link_cycles:
                self.steps.append_step("inter_ipu", name, origin, link_cycles)
            if primitive in self._on_host & self._remote:
                total.remote_bytes = rows = _count_row_bytes(item.operations[0])
                self.steps.append_step(
                    "remote", name, origin, remote_memory_cycles(self._host.target, rows)
                )
            elif primitive in self._on_host:
                self.steps.append_step(
                    "host", name, origin, self._count_host_cycles(item.operations[0])
                )
        if "callback" in primitive:
            self._note_assumption(item, "what the host does in a callback takes no time")
        if primitive in (_ON_TABLES & self._on_host) - self._remote:
            self._note_assumption(item, "what the host does with its table takes no time")
        return number, total

    def collect_code(self) -> Mapping[object, CodeUse]:
        """Returns the code that must be on the tiles, by signature of the operation."""
        return {
            signature: use.add_calls(
                self._further_calls[signature, False], self._further_calls[signature, True]
            )
            for signature, use in self._code.items()
        }

    def _run_links(self, total: Total, name: str, origin: str, costs: Cost) -> None:
        """Runs what an operation moves to or from other places than tiles, as it says."""
        name = f"{name}/{costs.step.name}" if costs.step is not None else name
        if costs.step is not None and (moved := costs.step.between_ipus) is not None:
            chip, self.leaves_ipu = self._collectives.target, True
            syncs = external_sync_cycles(chip, moved.ipus)
            self.steps.append_step("sync", name, origin, syncs)
            cycles = inter_ipu_cycles(chip, moved.flows, moved.ipus)
            self.steps.append_step("inter_ipu", name, origin, cycles)
        self.leaves_ipu |= bool(costs.host_bytes or costs.remote_bytes)
        if costs.host_bytes:
            cycles = self._host.host_transfer_cycles([costs.host_bytes])
            self.steps.append_step("host", name, origin, cycles)
        if costs.remote_bytes:
            total.remote_bytes = costs.remote_bytes
            cycles = remote_memory_cycles(self._host.target, costs.remote_bytes)
            self.steps.append_step("remote", name, origin, cycles)

    def charge_move(
        self, total: Total, name: str, phase: Phase, steps: Supersteps, times: int = 1
    ) -> int:
        """Charges a move of data that no operation of the listing makes, and returns its number.

        A move through the kernel takes the direction of the operation that ran last.
        """
        if total.direction is None and self.totals:
            total.direction = next(reversed(self.totals.values())).direction
        number = self._numbers((total.title, total.origin, total.call_path, total.direction))
        with steps.count_for_total(total, number):
            steps.run_phases(name, total.origin, (phase,))
        self._add_total(number, total, times)
        return number

    def charge_loop(
        self,
        loop: Loop,
        kinds: Iterations,
        costs_by_kind: Sequence[Sequence[KernelCost]],
        moved: Sequence[MovedPart],
    ) -> None:
        """Charges a loop: its bodies, and the parts of tensors that move in every iteration.

        Args:
          loop: the loop.
          kinds: the kinds of its iterations.
          costs_by_kind: the costs of the bodies in one iteration of each kind.
          moved: the parts of tensors that are sliced and stacked.
        """
        if loop.trips is None:
            self._note_assumption(loop, "only values tell how often it runs; taken as once")
        name, origin, iteration_costs = (
            loop.eqn.primitive.name,
            user_line_of_entry(loop),
            list[IterationCost](),
        )
        most_bytes = sum(mapping.most_bytes * part for mapping, part in moved)
        bytes_ = 2 * sum(mapping.total_bytes * share for mapping, share in moved)
        slices = Phase("slices", most_bytes / VECTOR_BYTES, most_bytes)
        for costs, (_, times) in zip(costs_by_kind, kinds.kinds, strict=True):
            body = Supersteps(self._target)
            for body_cost in costs:
                body.append_part(body_cost.trace, body_cost.cycles, body_cost.nodes)
            if moved:
                self.charge_move(
                    total_of_move(loop, f"{name} slices", bytes_), name, slices, body, times
                )
            iteration_costs.append(IterationCost(body.build_trace(), body.clock, tuple(body.nodes)))
            self._include_bodies(costs, times)
        kind = "while" if loop.trips is None else "repeat"
        loop_cost = repeat_iterations(
            kinds, iteration_costs, ProgramNode(kind=kind, name=name, origin=origin, cycles=0)
        )
        self.steps.append_part(loop_cost.trace, loop_cost.cycles, loop_cost.nodes)

    def charge_choice(
        self, choice: Choice, costs: Sequence[KernelCost], taken_cost: KernelCost
    ) -> None:
        """Charges the branch that runs; the code of the others is on the tiles all the same."""
        branches = [
            ProgramNode(
                kind="sequence",
                name=f"branch {i}",
                cycles=branch_cost.cycles,
                count=int(branch_cost is taken_cost),
                children=branch_cost.nodes,
            )
            for i, branch_cost in enumerate(costs)
        ]
        node = ProgramNode(
            kind="switch",
            name=choice.eqn.primitive.name,
            origin=user_line_of_entry(choice),
            cycles=taken_cost.cycles,
            children=tuple(branches),
        )
        self.steps.append_part(taken_cost.trace, taken_cost.cycles, [node])
        self._include_bodies([taken_cost])
        self._include_code(inside for inside in costs if inside is not taken_cost)

    def _count_host_cycles(self, operation: Operation) -> int:
        """Counts the cycles to send operands to the host and to receive results from it."""
        ways = operation.operands, operation.results
        return sum(
            self._host.host_transfer_cycles(shape.bytes for shape in shapes) for shapes in ways
        )

    def _include_bodies(self, costs: Iterable[KernelCost], times: int = 1) -> None:
        """Adds bodies that run `times` over; their code is on the tiles once."""
        for body_cost in costs:
            self._include_code([body_cost])
            for number, total in body_cost.totals.items():
                self._add_total(number, total, times)
            self.assumptions.update(dict.fromkeys(body_cost.assumptions))

    def _include_code(self, costs: Iterable[KernelCost]) -> None:
        """Adds the code of bodies, such as branches that are not taken, without running them."""
        for body_cost in costs:
            self.leaves_ipu |= body_cost.leaves_ipu
            for signature, use in body_cost.code.items():
                self._add_code(signature, use)
            self.calls += body_cost.calls

    def _note_assumption(self, entry: Entry, assumption: str) -> None:
        self.assumptions[f"{user_line_of_entry(entry) or 'an unknown line'}: {assumption}"] = None

    def _add_total(self, number: int, total: Total, times: float = 1.0) -> None:
        add_runs_of(total, self.totals, number, times)

    def _code_use_of_item(
        self,
        item: Item,
        costs: Cost,
        rearranging: Phase | None,
        first_tile: int,
        reads_outside: bool,
    ) -> CodeUse:
        blocks: frozenset[tuple[str, bool]] = frozenset()
        if item.block is not None:
            blocks = frozenset({(item.block[0], item.backward)})
        enters = item.block is not None and item.block not in self._entered
        self._entered.add(item.block)
        phases = costs.phases if rearranging is None else (rearranging, *costs.phases)
        return CodeUse(
            vertices=costs.vertices,
            phases=sum(phase.code_copies for phase in phases),
            exchanges=tuple(phase for phase in phases if phase.exchange_bytes),
            compute_sets=sum(phase.code_copies for phase in costs.phases if phase.compute),
            tensors=sum(read is not None for read in item.reads) + len(item.writes),
            blocks=blocks,
            alone=0 if blocks else 1,
            entered=int(enters),
            first_tile=first_tile,
            from_outside=int(reads_outside and not blocks),
        )

    def _add_code(self, signature: object, use: CodeUse) -> None:
        earlier_use = self._code.get(signature)
        self._code[signature] = earlier_use.add_uses(use) if earlier_use else use


def _count_row_bytes(operation: Operation) -> int:
    """Returns the bytes of rows that an operation on a table moves."""
    if operation.name == host_tables.update_p.name:
        return 2 * max(shape.bytes for shape in operation.operands)
    return max(shape.bytes for shape in operation.results)


def total_of_move(entry: Item | Loop | None, title: str, bytes_: float) -> Total:
    """Returns the total of one move of data, with the line of the entry that causes it, if any."""
    if entry is None:
        return Total(title, runs=1, bytes=bytes_)
    path = call_path(entry.eqn)
    origin, direction = user_line_of_entry(entry), entry.direction
    return Total(title, origin=origin, call_path=path, direction=direction, runs=1, bytes=bytes_)


def _widest_dtype(operation: Operation) -> str:
    """Returns the widest element type of an operation's operands, or of its results."""
    shapes = operation.operands or operation.results
    return max(shapes, key=lambda shape: shape.element_bytes).dtype if shapes else ""
