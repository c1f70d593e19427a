"""Where a forward pass can be cut, and which equations of the backward pass belong to which part.

Forward equations stay in their order, and a cut is a place among them. A backward equation belongs
to the forward equation whose values it reads, but never before one that it depends on.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterable, Sequence

import numpy as np

from lowering.avals import size_in_bytes
from lowering.equations import variables, walk
from lowering.jaxpr import JaxprEqn, Var, sub_jaxprs

_PRODUCTS = ("dot_general", "conv_general_dilated")
_MOST_CUTS = 160  # that are looked at


@dc.dataclass(frozen=True, slots=True)
class Need:
    """What a stage holds, beside what is the same however stages are cut.

    Attributes:
      copies: of each variable, with its gradients and the optimizer's state.
      depths: how many micro-batches wait at each stage.
      recomputes: whether these are the inputs of the stage only.
    """

    copies: float
    depths: Sequence[int]
    recomputes: bool


class Order:
    """The equations of a forward pass in order, and those of its backward pass.

    Args:
      forward: equations of the forward pass.
      backward: equations of the backward pass.
    """

    def __init__(self, forward: Sequence[JaxprEqn], backward: Sequence[JaxprEqn]) -> None:
        self.forward, self.backward = forward, backward
        self.makers = {var: n for n, eqn in enumerate(forward) for var in eqn.outvars}
        self.readers: dict[Var, list[int]] = {}
        for n, eqn in enumerate(forward):
            for var in variables(eqn.invars):
                self.readers.setdefault(var, []).append(n)
        self.places = self._places()

    def _places(self) -> list[int]:
        """For each backward equation, the forward one that it belongs to."""
        last = len(self.forward) - 1
        places: list[int] = []
        of: dict[Var, int] = {}
        free: dict[Var, int] = {}  # what needs nothing goes where it is read first
        for number, eqn in enumerate(self.backward):
            read = variables(eqn.invars)
            bound = min((of[v] for v in read if v in of), default=last)
            near = [n for v in read if v not in of and v not in free for n in self._touches(v)]
            place = max((n for n in near if n <= bound), default=bound)
            for var in read:
                if var in free:
                    places[free.pop(var)] = place
                    of[var] = place
            places.append(place)
            known = of if read else free
            known.update((v, place if read else number) for v in eqn.outvars)
        return places

    def _touches(self, var: Var) -> list[int]:
        made = [self.makers[var]] if var in self.makers else []
        return made + self.readers.get(var, [])

    def products(self, starts: Sequence[int]) -> tuple[int, ...]:
        """How many products and convolutions each stage has, going forward."""
        heavy = self._heavy
        ends = (*starts[1:], len(heavy))
        return tuple(sum(heavy[a:b]) for a, b in zip(starts, ends, strict=True))

    def starts_among(
        self, places: Sequence[int], end: int, parts: int, need: Need
    ) -> list[int] | None:
        """Where so many parts begin, the fullest of which holds least; None if there are too few.

        Args:
          places: where a part may begin, besides 0.
          end: where the last part ends.
          parts: how many.
          need: what each holds.
        """
        crossing = self.crossing_bytes()
        between = self._between_products(places, crossing)
        step = -(-len(between) // _MOST_CUTS) or 1
        cuts = [0, *between[::step], end]
        if len(cuts) <= parts:
            return None
        return list(_partition(cuts, parts, need, self._held(), crossing))

    def _between_products(self, places: Sequence[int], crossing: np.ndarray) -> list[int]:
        """Where least passes, of the places between one product and the next; the last of equals.

        What follows on a product, such as a nonlinearity, belongs to its layer.
        """
        products = np.cumsum([0, *self._heavy])
        best: dict[int, int] = {}
        for place in places:
            count = int(products[place])
            if count not in best or crossing[place] <= crossing[best[count]]:
                best[count] = place
        last = int(products[places[-1] + 1]) if places else 0
        return [place for count, place in best.items() if 0 < count < last]

    @property
    def _heavy(self) -> list[bool]:
        return [has_product(eqn) for eqn in self.forward]

    def crossing_bytes(self) -> np.ndarray:
        """Bytes of forward values that pass from before each equation to it or behind it."""
        change = np.zeros(len(self.forward) + 2, np.int64)
        for var, made in self.makers.items():
            read = self.readers.get(var, [])
            if read:
                change[made + 1] += size_in_bytes(var.aval)
                change[max(read) + 1] -= size_in_bytes(var.aval)
        return np.cumsum(change)[:-1]

    def _held(self) -> tuple[np.ndarray, np.ndarray]:
        """Up to each equation, bytes of variables read, and of what backward ones read."""
        lasting, waiting = (np.zeros(len(self.forward) + 1, np.int64) for _ in range(2))
        for var, read in self.readers.items():
            if var not in self.makers:
                lasting[read[0] + 1] += size_in_bytes(var.aval)
        for var in {v for eqn in self.backward for v in variables(eqn.invars)}:
            if var in self.makers:
                waiting[self.makers[var] + 1] += size_in_bytes(var.aval)
        return np.cumsum(lasting), np.cumsum(waiting)


def has_product(eqn: JaxprEqn) -> bool:
    """Returns whether an equation is a product or convolution, or calls a function with one."""
    if eqn.primitive.name in _PRODUCTS:
        return True
    return any(each.primitive.name in _PRODUCTS for body in sub_jaxprs(eqn) for each in walk(body))


def _partition(
    cuts: Sequence[int],
    stages: int,
    need: Need,
    held: tuple[np.ndarray, np.ndarray],
    crossing: np.ndarray,
) -> Iterable[int]:
    """Of the cuts those that let the fullest stage hold least.

    The best ones for one stage more follow from the best ones for each place where it could begin.
    """
    at = np.array(cuts)
    lasting, waiting = held[0][at], held[1][at]
    comes = crossing[at[:-1]]
    fullest = np.full(len(cuts), np.inf)
    fullest[0] = 0.0
    before: list[np.ndarray] = []
    for number in range(stages):
        depth = need.depths[number]
        again = np.full(len(cuts), np.inf)
        came = np.zeros(len(cuts), int)
        for end in range(number + 1, len(cuts)):
            kept = waiting[end] - waiting[:end]
            activations = depth * comes[:end] + kept if need.recomputes else depth * kept
            loads = need.copies * (lasting[end] - lasting[:end]) + activations
            worst = np.maximum(fullest[:end], loads)
            came[end] = int(worst.argmin())
            again[end] = worst[came[end]]
        before.append(came)
        fullest = again
    starts: list[int] = []
    end = len(cuts) - 1
    for came in reversed(before):
        end = int(came[end])
        starts.append(cuts[end])
    return reversed(starts)
