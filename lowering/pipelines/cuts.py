"""The positions where a forward pass can be cut, and the backward equations of each part.

Forward equations stay in their order, and a cut is a position among them. A backward equation
belongs to the forward equation whose values it reads, but never before one that it depends on.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterable, Sequence

import numpy as np

from lowering.jaxprs import (
    JaxprEqn,
    Var,
    size_in_bytes,
    sub_jaxprs,
    unique_variables,
    walk_equations,
)

_PRODUCTS = ("dot_general", "conv_general_dilated")
_MOST_CUTS = 160  # the most positions that are tried


@dc.dataclass(frozen=True, slots=True)
class StageMemory:
    """The memory that a stage holds, besides what is the same for all cuts.

    Attributes:
      copies: the number of arrays per variable, with its gradients and the optimizer's state.
      depths: the number of micro-batches that wait at each stage.
      recomputes: whether only the inputs of the stage wait, not its activations.
    """

    copies: float
    depths: Sequence[int]
    recomputes: bool


class ForwardAndBackward:
    """The equations of a forward pass, in order, and those of its backward pass.

    Args:
      forward: equations of the forward pass.
      backward: equations of the backward pass.
    """

    def __init__(self, forward: Sequence[JaxprEqn], backward: Sequence[JaxprEqn]) -> None:
        self.forward, self.backward = forward, backward
        self.makers = {var: n for n, eqn in enumerate(forward) for var in eqn.outvars}
        self.readers: dict[Var, list[int]] = {}
        for n, eqn in enumerate(forward):
            for var in unique_variables(eqn.invars):
                self.readers.setdefault(var, []).append(n)
        self.places = self._match_backward_to_forward()

    def _match_backward_to_forward(self) -> list[int]:
        """Returns, for each backward equation, the forward one that it belongs to."""
        last = len(self.forward) - 1
        forward_positions: list[int] = []
        position_of_variable: dict[Var, int] = {}
        unbound_index: dict[Var, int] = {}  # a value without operands belongs to its first reader
        for number, eqn in enumerate(self.backward):
            operands = unique_variables(eqn.invars)
            bound = min(
                (position_of_variable[v] for v in operands if v in position_of_variable),
                default=last,
            )
            candidates = [
                n
                for v in operands
                if v not in position_of_variable and v not in unbound_index
                for n in self._producer_and_readers(v)
            ]
            forward_position = max((n for n in candidates if n <= bound), default=bound)
            for var in operands:
                if var in unbound_index:
                    forward_positions[unbound_index.pop(var)] = forward_position
                    position_of_variable[var] = forward_position
            forward_positions.append(forward_position)
            position_of_results = position_of_variable if operands else unbound_index
            position_of_results.update(
                (v, forward_position if operands else number) for v in eqn.outvars
            )
        return forward_positions

    def _producer_and_readers(self, var: Var) -> list[int]:
        producer = [self.makers[var]] if var in self.makers else []
        return producer + self.readers.get(var, [])

    def count_products(self, starts: Sequence[int]) -> tuple[int, ...]:
        """Returns how many products and convolutions each stage has, going forward."""
        are_products = self._are_products
        ends = (*starts[1:], len(are_products))
        return tuple(sum(are_products[a:b]) for a, b in zip(starts, ends, strict=True))

    def choose_starts(
        self, possible_starts: Sequence[int], end: int, num_parts: int, stage_memory: StageMemory
    ) -> list[int] | None:
        """Returns where to begin parts so that the fullest holds least; None if there are too few.

        Args:
          possible_starts: the positions at which a part may begin, besides 0.
          end: the position at which the last part ends.
          num_parts: the number of parts.
          stage_memory: the memory that each part holds.
        """
        crossing = self.crossing_bytes()
        starts_between_products = self._cheapest_starts_between_products(possible_starts, crossing)
        step = -(-len(starts_between_products) // _MOST_CUTS) or 1
        cuts = [0, *starts_between_products[::step], end]
        if len(cuts) <= num_parts:
            return None
        return list(
            _choose_balanced_cuts(
                cuts, num_parts, stage_memory, self._cumulate_held_bytes(), crossing
            )
        )

    def _cheapest_starts_between_products(
        self, possible_starts: Sequence[int], crossing: np.ndarray
    ) -> list[int]:
        """Returns, between each product and the next, the start where the fewest bytes pass.

        Of equal starts it is the last: equations that follow on a product, such as a nonlinearity,
        belong to its layer.
        """
        products = np.cumsum([0, *self._are_products])
        best_of_gap: dict[int, int] = {}
        for position in possible_starts:
            count = int(products[position])
            if count not in best_of_gap or crossing[position] <= crossing[best_of_gap[count]]:
                best_of_gap[count] = position
        last = int(products[possible_starts[-1] + 1]) if possible_starts else 0
        return [place for count, place in best_of_gap.items() if 0 < count < last]

    def starts_of_products(self) -> list[int]:
        """Returns where parts with one product each begin, where the fewest bytes pass; 0 first."""
        crossing = self.crossing_bytes()
        return [0, *self._cheapest_starts_between_products(range(1, len(self.forward)), crossing)]

    @property
    def _are_products(self) -> list[bool]:
        return [has_product(eqn) for eqn in self.forward]

    def crossing_bytes(self) -> np.ndarray:
        """Returns the bytes of forward values that pass each position of the forward pass."""
        change = np.zeros(len(self.forward) + 2, np.int64)
        for var, producer in self.makers.items():
            reader_positions = self.readers.get(var, [])
            if reader_positions:
                change[producer + 1] += size_in_bytes(var.aval)
                change[max(reader_positions) + 1] -= size_in_bytes(var.aval)
        return np.cumsum(change)[:-1]

    def _cumulate_held_bytes(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns, up to each equation, the bytes of variables, and of values kept for backward."""
        lasting, waiting = (np.zeros(len(self.forward) + 1, np.int64) for _ in range(2))
        for var, read in self.readers.items():
            if var not in self.makers:
                lasting[read[0] + 1] += size_in_bytes(var.aval)
        for var in {v for eqn in self.backward for v in unique_variables(eqn.invars)}:
            if var in self.makers:
                waiting[self.makers[var] + 1] += size_in_bytes(var.aval)
        return np.cumsum(lasting), np.cumsum(waiting)


def bytes_between_equations(eqns: Sequence[JaxprEqn]) -> np.ndarray:
    """Returns the bytes of what equations compute that pass each position among them.

    Args:
      eqns: some equations in order; entry n is in front of equation n, the last behind them all.
    """
    return ForwardAndBackward(eqns, []).crossing_bytes()


def has_product(eqn: JaxprEqn) -> bool:
    """Returns whether an equation is a product or convolution, or calls a function with one."""
    if eqn.primitive.name in _PRODUCTS:
        return True
    return any(
        nested_eqn.primitive.name in _PRODUCTS
        for body in sub_jaxprs(eqn)
        for nested_eqn in walk_equations(body)
    )


def _choose_balanced_cuts(
    cuts: Sequence[int],
    stages: int,
    stage_memory: StageMemory,
    held_bytes: tuple[np.ndarray, np.ndarray],
    crossing: np.ndarray,
) -> Iterable[int]:
    """Returns the cuts with which the fullest stage holds least.

    The best cuts for one stage more follow from the best ones up to each possible start of it.
    """
    positions = np.array(cuts)
    lasting, waiting = held_bytes[0][positions], held_bytes[1][positions]
    entering_bytes = crossing[positions[:-1]]
    fullest = np.full(len(cuts), np.inf)
    fullest[0] = 0.0
    best_cuts: list[np.ndarray] = []
    for number in range(stages):
        depth = stage_memory.depths[number]
        next_fullest = np.full(len(cuts), np.inf)
        best_cut = np.zeros(len(cuts), int)
        for end in range(number + 1, len(cuts)):
            waiting_bytes = waiting[end] - waiting[:end]
            activations = (
                depth * entering_bytes[:end] + waiting_bytes
                if stage_memory.recomputes
                else depth * waiting_bytes
            )
            loads = stage_memory.copies * (lasting[end] - lasting[:end]) + activations
            worst = np.maximum(fullest[:end], loads)
            best_cut[end] = int(worst.argmin())
            next_fullest[end] = worst[best_cut[end]]
        best_cuts.append(best_cut)
        fullest = next_fullest
    starts: list[int] = []
    end = len(cuts) - 1
    for best_cut in reversed(best_cuts):
        end = int(best_cut[end])
        starts.append(cuts[end])
    return reversed(starts)
