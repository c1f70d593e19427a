"""What a kernel's operations cost, added up: supersteps, totals by signature, code, assumptions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from lowering.call_paths import call_path
from lowering.machine.cost import Cost, Operation, Phase
from lowering.machine.kernels.code import CodeUse
from lowering.machine.kernels.items import Block, Choice, Entry, Item, Loop, line_of
from lowering.machine.kernels.iterations import Iterations, Ran, looped
from lowering.machine.kernels.supersteps import Supersteps
from lowering.machine.kernels.totals import KernelCost, Total
from lowering.machine.mapping import VECTOR_BYTES, TileMapping
from lowering.machine.program_tree import ProgramNode
from lowering.machine.target import Target
from lowering.machine.transfers.between_replicas import Collectives
from lowering.machine.transfers.exchanges import Host
from lowering.machine.transfers.links import remote_cycles
from lowering.ops import host_tables
from lowering.ops.user_ops import user_callback_p

_ON_TABLES = frozenset(primitive.name for primitive in host_tables.PRIMITIVES)
_ON_HOST = frozenset({user_callback_p.name, *_ON_TABLES})
"""Operations of the host: their operands and results cross to it and back."""

Share: TypeAlias = tuple[TileMapping, float]
"""How a tensor lies, and the share of it that moves."""


class Ledger:
    """The account of one kernel.

    Args:
      target: the chip.
      collectives: what operations between replicas cost.
      host: what going there costs.
      numbers: gives each signature of an operation a number.
    """

    def __init__(
        self,
        target: Target,
        collectives: Collectives,
        host: Host,
        numbers: Callable[[object], int],
    ) -> None:
        self.steps, self._target = Supersteps(target), target
        self.code: dict[object, CodeUse] = {}
        self._entered: set[Block | None] = set()
        self.totals: dict[int, Total] = {}
        self._numbers = numbers
        self.assumptions: dict[str, None] = {}
        self._collectives, self._host = collectives, host
        self._on_host = _ON_HOST if host.asks_tables else _ON_HOST - _ON_TABLES
        self._remote = _ON_TABLES if host.tables_are_remote else frozenset[str]()

    def run(self, item: Item, costs: Cost, received: float, bytes_: int, tiles: int) -> int:
        """An item runs, after its operands have been brought together.

        Args:
          item: the operations.
          costs: what they cost where they find their operands as they want them.
          received: bytes that the busiest tile receives until they do.
          bytes_: of operands and results.
          tiles: how many take part.

        Returns:
          The number of the operation that it is.
        """
        name, origin, code = item.name, line_of(item), (item.operations, received > 0)
        primitive, dtype = item.operations[0].name, _dtype(item.operations[-1])
        path, direction, label = call_path(item.eqn), item.direction, item.label
        total = Total(
            item.title, label, costs.source, origin, item.scope, path, direction, dtype, 1
        )
        total.flops, total.bytes, total.tiles = costs.flops, bytes_, tiles
        number = self._numbers((*code, item.backward, direction, origin, path, item.scope, label))
        with self.steps.timed(total, number):
            if received:
                self.steps.run(name, origin, (Phase("rearrange", 0.0, received),))
            self.steps.run(name, origin, costs.phases, costs.repeats)
            links = self._collectives.cycles(item.operations[0])
            if links:
                self.steps.step("inter_ipu", name, origin, links)
            if primitive in self._on_host & self._remote:
                rows = _rows_moved(item.operations[0])
                self.steps.step("remote", name, origin, remote_cycles(self._target, rows))
            elif primitive in self._on_host:
                self.steps.step("host", name, origin, self._host_cycles(item.operations[0]))
        self._add_total(number, total)
        connected = sum(read is not None for read in item.reads) + len(item.writes)
        self._add_code(code, self._code_of(item, costs, received, connected))
        if "callback" in primitive:
            self._assume(item, "what the host does in a callback takes no time")
        if primitive in (_ON_TABLES & self._on_host) - self._remote:
            self._assume(item, "what the host does with its table takes no time")
        return number

    def move(self, total: Total, name: str, phase: Phase, steps: Supersteps, times: int = 1) -> int:
        """Data moves that no operation of the listing moves; `times` over in steps of a body.

        What passes through the kernel goes the way of what ran last. Gives the operation's number.
        """
        if total.direction is None and self.totals:
            total.direction = next(reversed(self.totals.values())).direction
        number = self._numbers((total.title, total.origin, total.call_path, total.direction))
        with steps.timed(total, number):
            steps.run(name, total.origin, (phase,))
        self._add_total(number, total, times)
        return number

    def repeat(
        self,
        loop: Loop,
        kinds: Iterations,
        ways: Sequence[Sequence[KernelCost]],
        moved: Sequence[Share],
    ) -> None:
        """A loop runs: its bodies, and in every iteration shares of tensors move.

        Args:
          loop: whatever it is.
          kinds: of its iterations.
          ways: the bodies of one of each kind.
          moved: what is sliced and stacked.
        """
        if loop.trips is None:
            self._assume(loop, "only values tell how often it runs; taken as once")
        name, origin, ran = loop.eqn.primitive.name, line_of(loop), list[Ran]()
        most = sum(mapping.most_bytes * share for mapping, share in moved)
        bytes_ = 2 * sum(mapping.total_bytes * share for mapping, share in moved)
        slices = Phase("slices", most / VECTOR_BYTES, most)
        for costs, (_, times) in zip(ways, kinds.kinds, strict=True):
            body = Supersteps(self._target)
            for inside in costs:
                body.append(inside.trace, inside.cycles, inside.nodes)
            if moved:
                self.move(moved_by(loop, f"{name} slices", bytes_), name, slices, body, times)
            ran.append(Ran(body.trace(), body.clock, tuple(body.nodes)))
            self._include(costs, times)
        kind = "while" if loop.trips is None else "repeat"
        whole = looped(kinds, ran, ProgramNode(kind=kind, name=name, origin=origin, cycles=0))
        self.steps.append(whole.trace, whole.cycles, whole.nodes)

    def choose(self, choice: Choice, costs: Sequence[KernelCost], taken: KernelCost) -> None:
        """One of several branches runs; the others are there all the same."""
        branches = [
            ProgramNode(
                kind="sequence",
                name=f"branch {i}",
                cycles=inside.cycles,
                count=int(inside is taken),
                children=inside.nodes,
            )
            for i, inside in enumerate(costs)
        ]
        node = ProgramNode(
            kind="switch",
            name=choice.eqn.primitive.name,
            origin=line_of(choice),
            cycles=taken.cycles,
            children=tuple(branches),
        )
        self.steps.append(taken.trace, taken.cycles, [node])
        self._include([taken])
        self._hold(inside for inside in costs if inside is not taken)

    def _host_cycles(self, operation: Operation) -> int:
        """Operands go to the host, and results come from there."""
        ways = operation.operands, operation.results
        return sum(self._host.cycles(shape.bytes for shape in shapes) for shapes in ways)

    def _include(self, costs: Iterable[KernelCost], times: int = 1) -> None:
        """Bodies run, `times` over; their code is there once."""
        for inside in costs:
            self._hold([inside])
            for number, total in inside.totals.items():
                self._add_total(number, total, times)
            self.assumptions.update(dict.fromkeys(inside.assumptions))

    def _hold(self, costs: Iterable[KernelCost]) -> None:
        """Bodies are there without running, as branches that are not taken are."""
        for inside in costs:
            for signature, use in inside.code.items():
                self._add_code(signature, use)

    def _assume(self, entry: Entry, what: str) -> None:
        self.assumptions[f"{line_of(entry) or 'an unknown line'}: {what}"] = None

    def _add_total(self, number: int, total: Total, times: float = 1.0) -> None:
        self.totals.setdefault(number, total.none_yet()).add(total, times)

    def _code_of(self, item: Item, costs: Cost, received: float, tensors: int) -> CodeUse:
        blocks = frozenset() if item.block is None else frozenset({(item.block[0], item.backward)})
        enters = item.block is not None and item.block not in self._entered
        self._entered.add(item.block)
        exchanging = [phase for phase in costs.phases if phase.exchange_bytes]
        by_all = (phase for phase in exchanging if phase.receivers is None)
        return CodeUse(
            vertices=costs.vertices,
            phases=sum(phase.copies for phase in costs.phases) + bool(received),
            exchanges=sum(phase.copies for phase in exchanging) + bool(received),
            exchange_bytes=sum(phase.exchange_bytes * phase.copies for phase in by_all) + received,
            received=tuple(
                (phase.receivers * phase.copies, phase.exchange_bytes)
                for phase in exchanging
                if phase.receivers is not None
            ),
            compute_sets=sum(phase.copies for phase in costs.phases if phase.compute),
            tensors=tensors,
            blocks=blocks,
            alone=0 if blocks else 1,
            entered=int(enters),
        )

    def _add_code(self, signature: object, use: CodeUse) -> None:
        known = self.code.get(signature)
        self.code[signature] = known.again(use) if known else use


def _rows_moved(operation: Operation) -> int:
    """Bytes of rows that an operation on a table moves: an update loads and stores them."""
    if operation.name == host_tables.update_p.name:
        return 2 * max(shape.bytes for shape in operation.operands)
    return max(shape.bytes for shape in operation.results)


def moved_by(entry: Item | Loop | None, title: str, bytes_: float) -> Total:
    """One move of data that an entry is behind, if any is."""
    if entry is None:
        return Total(title, runs=1, bytes=bytes_)
    path = call_path(entry.eqn)
    origin, direction = line_of(entry), entry.direction
    return Total(title, origin=origin, call_path=path, direction=direction, runs=1, bytes=bytes_)


def _dtype(operation: Operation) -> str:
    """Of the numbers that it works on: the widest of its operands, or its result if it has none."""
    shapes = operation.operands or operation.results
    return max(shapes, key=lambda shape: shape.element_bytes).dtype if shapes else ""
