"""What a kernel's operations cost, added up: supersteps, totals by signature, code, assumptions."""

from __future__ import annotations

from collections.abc import Iterable

from lowering.jaxpr import user_line
from lowering.machine.cost import Cost, Phase
from lowering.machine.kernels.code import CodeUse
from lowering.machine.kernels.listing import Item, Loop
from lowering.machine.kernels.supersteps import Supersteps
from lowering.machine.kernels.totals import KernelCost, Total
from lowering.machine.target import Target
from lowering.machine.transfers.between_replicas import Collectives


class Ledger:
    """The account of one kernel.

    Args:
      target: the chip.
      collectives: what operations between replicas cost.
    """

    def __init__(self, target: Target, collectives: Collectives) -> None:
        self.steps = Supersteps(target)
        self.code: dict[object, CodeUse] = {}
        self.totals: dict[object, Total] = {}
        self.assumptions: dict[str, None] = {}
        self._collectives = collectives

    def run(self, item: Item, costs: Cost, received: float, tiles: int) -> None:
        """An item runs, after its operands have been brought together.

        Args:
          item: the operations.
          costs: what they cost where they find their operands as they want them.
          received: bytes that the busiest tile receives until they do.
          tiles: how many take part.
        """
        name, code = item.name, (item.operations, received > 0)
        total = Total(item.title, costs.source, item.eqn, runs=1, flops=costs.flops, tiles=tiles)
        with self.steps.timed(total):
            if received:
                self.steps.run(name, (Phase("rearrange", 0.0, received),), 1)
            self.steps.run(name, costs.phases, costs.repeats)
            links = self._collectives.cycles(item.operations[0])
            if links:
                self.steps.between_replicas(name, links)
        self._add_total((*code, item.backward), total)
        self._add_code(code, _code_of(costs, received))
        if "callback" in name:
            self._assume(item, "what the host does in a callback takes no time")

    def move(self, name: str, steps: Supersteps, phase: Phase, times: int = 1) -> None:
        """Data moves that no operation of the listing moves; in the body of a loop `times` over."""
        title = f"{name} {phase.name}"
        total = Total(title, runs=1)
        with steps.timed(total):
            steps.run(name, (phase,), 1)
        self._add_total(title, total, times)

    def include(self, costs: Iterable[KernelCost], times: int = 1) -> None:
        """Bodies run, `times` over; their code is there once."""
        for inside in costs:
            self.hold([inside])
            for signature, total in inside.totals.items():
                self._add_total(signature, total, times)
            self.assumptions.update(dict.fromkeys(inside.assumptions))

    def hold(self, costs: Iterable[KernelCost]) -> None:
        """Bodies are there without running, as branches that are not taken are."""
        for inside in costs:
            for signature, use in inside.code.items():
                self._add_code(signature, use)

    def assume_once(self, loop: Loop) -> None:
        """A loop is taken to run once."""
        self._assume(loop, "only values tell how often it runs; taken as once")

    def _assume(self, item: Item | Loop, what: str) -> None:
        line = user_line(item.eqn) if item.eqn is not None else ""
        self.assumptions[f"{line or 'an unknown line'}: {what}"] = None

    def _add_total(self, signature: object, total: Total, times: float = 1.0) -> None:
        self.totals.setdefault(signature, total.none_yet()).add(total, times)

    def _add_code(self, signature: object, use: CodeUse) -> None:
        known = self.code.get(signature)
        self.code[signature] = known.again(use.runs) if known else use


def _code_of(costs: Cost, received: float) -> CodeUse:
    exchanged = [phase.exchange_bytes for phase in costs.phases if phase.exchange_bytes]
    exchanged += [received] if received else []
    phases = len(costs.phases) + bool(received)
    return CodeUse(costs.vertices, phases, len(exchanged), sum(exchanged))
