"""Other cuts between the stages of a pipeline, for models of what they would bring.

Forward equations stay in their order, and a cut is a place among them. A backward equation belongs
to the forward equation whose values it reads, but never before one that it depends on.
"""

from __future__ import annotations

import bisect
import dataclasses as dc
from collections.abc import Iterable, Sequence

import numpy as np

from lowering import marks
from lowering.avals import size_in_bytes
from lowering.equations import renamed, sliced, variables
from lowering.jaxpr import (
    Atom,
    ClosedJaxpr,
    JaxprEqn,
    Literal,
    Var,
    fresh_var,
    is_dropped,
    with_eqns,
    with_scope,
)
from lowering.ops.tasks import Kind, TaskSpec
from lowering.pipelines.edit import without_constants
from lowering.pipelines.slices import read_from_outside

_Step = tuple[JaxprEqn, JaxprEqn]
"""An equation, and the task that it is from."""

_PRODUCTS = ("dot_general", "conv_general_dilated")
_MOST_CUTS = 160  # that are looked at
_WIDER = 1.5  # times what passes between the user's own stages may pass between others


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


class Flat:
    """The equations of a pipeline's tasks, out of their tasks.

    Args:
      body: of the loop over micro-batches, with a forward and a backward task for each stage.

    Attributes:
      forward: equations in order, with the task that each is from.
      backward: the same of the backward pass.
    """

    def __init__(self, body: ClosedJaxpr):
        self.body = without_constants(body)
        self.buffers: list[tuple[Atom, Atom]] = []
        self.names: dict[Var, Atom] = {}
        self.forward: list[_Step] = []
        self.backward: list[_Step] = []
        for task in self.body.jaxpr.eqns:
            self._open(task)
        self.makers = {v: n for n, (eqn, _) in enumerate(self.forward) for v in eqn.outvars}
        self.readers: dict[Var, list[int]] = {}
        for n, (eqn, _) in enumerate(self.forward):
            for var in variables(eqn.invars):
                self.readers.setdefault(var, []).append(n)
        self.places = self._places()

    def _open(self, task: JaxprEqn) -> None:
        spec: TaskSpec = task.params["spec"]
        inner = task.params["body"].jaxpr
        operands = renamed(task.invars, self.names)
        names: dict[Var, Atom] = dict(zip(inner.invars, operands, strict=True))
        steps = self.forward if spec.kind is Kind.FORWARD else self.backward
        for eqn in inner.eqns:
            outvars = [v if is_dropped(v) else fresh_var(v.aval) for v in eqn.outvars]
            opened = eqn.replace(invars=renamed(eqn.invars, names), outvars=outvars)
            names.update(zip(eqn.outvars, outvars, strict=True))
            steps.append((opened, task))
        results = renamed(inner.outvars, names)
        self.names.update(zip(task.outvars, results, strict=True))
        self.buffers += [(operands[i], results[o]) for i, o in spec.accumulated]

    def _places(self) -> list[int]:
        """For each backward equation, the forward one that it belongs to."""
        last = len(self.forward) - 1
        places: list[int] = []
        of: dict[Var, int] = {}
        for eqn, _ in self.backward:
            read = variables(eqn.invars)
            bound = min((of[v] for v in read if v in of), default=last)
            near = [n for v in read if v not in of for n in self._touches(v)]
            place = max((n for n in near if n <= bound), default=bound)
            places.append(place)
            of.update((v, place) for v in eqn.outvars)
        return places

    def _touches(self, var: Var) -> list[int]:
        made = [self.makers[var]] if var in self.makers else []
        return made + self.readers.get(var, [])

    def starts(self) -> list[int]:
        """Where the user's own stages begin."""
        stages = [task.params["spec"].stage for _, task in self.forward]
        return [n for n, stage in enumerate(stages) if not n or stage != stages[n - 1]]

    def products(self, starts: Sequence[int]) -> tuple[int, ...]:
        """How many products and convolutions each stage has, going forward."""
        heavy = self._heavy
        ends = (*starts[1:], len(heavy))
        return tuple(sum(heavy[a:b]) for a, b in zip(starts, ends, strict=True))

    # --- where to cut -----------------------------------------------------------------------------

    def best(self, stages: int, need: Need, kept: int) -> list[int] | None:
        """Where to begin so many stages that the fullest holds least; None if that cannot be.

        Args:
          stages: how many, those that are kept not counted.
          need: what each holds.
          kept: so many of the user's own last stages stay as they are.
        """
        own = self.starts()
        tail = own[len(own) - kept :]
        end = tail[0] if tail else len(self.forward)
        crossing = self._crossing()
        most = _WIDER * max((crossing[n] for n in own[1:]), default=0)
        places = self._between_products([n for n in range(1, end) if crossing[n] <= most], crossing)
        step = -(-len(places) // _MOST_CUTS) or 1
        cuts = [0, *places[::step], end]
        if len(cuts) <= stages:
            return None
        return [*_partition(cuts, stages, need, self._held(), crossing), *tail]

    def _between_products(self, places: Sequence[int], crossing: np.ndarray) -> list[int]:
        """Where least passes, of the places between one product and the next."""
        products = np.cumsum([0, *self._heavy])
        best: dict[int, int] = {}
        for place in places:
            count = int(products[place])
            if count not in best or crossing[place] < crossing[best[count]]:
                best[count] = place
        last = int(products[places[-1] + 1]) if places else 0
        return [place for count, place in best.items() if 0 < count < last]

    @property
    def _heavy(self) -> list[bool]:
        return [eqn.primitive.name in _PRODUCTS for eqn, _ in self.forward]

    def _crossing(self) -> np.ndarray:
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
        for var in {v for eqn, _ in self.backward for v in variables(eqn.invars)}:
            if var in self.makers:
                waiting[self.makers[var] + 1] += size_in_bytes(var.aval)
        return np.cumsum(lasting), np.cumsum(waiting)

    # --- tasks again ------------------------------------------------------------------------------

    def cut(self, starts: Sequence[int], ipus: Sequence[int]) -> ClosedJaxpr:
        """The body with tasks of stages that begin elsewhere, and are on these IPUs."""
        numbers = range(len(starts))
        groups: dict[tuple[Kind, int], list[_Step]] = {(Kind.FORWARD, n): [] for n in numbers}
        groups |= {(Kind.BACKWARD, n): [] for n in reversed(numbers)}
        placed = [(Kind.FORWARD, n, step) for n, step in enumerate(self.forward)]
        pairs = zip(self.places, self.backward, strict=True)
        placed += [(Kind.BACKWARD, n, step) for n, step in pairs]
        for kind, place, (eqn, task) in placed:
            stage = bisect.bisect_right(starts, place) - 1
            on = marks.write(marks.SHARD, str(ipus[stage]))
            groups[kind, stage].append((with_scope(eqn, on), task))
        return self._tasks({key: steps for key, steps in groups.items() if steps})

    def _tasks(self, groups: dict[tuple[Kind, int], list[_Step]]) -> ClosedJaxpr:
        jaxpr = self.body.jaxpr
        last = renamed(jaxpr.outvars, self.names)
        outside = {v: fresh_var(v.aval) for v in (*jaxpr.constvars, *jaxpr.invars)}
        inner = {key: [eqn for eqn, _ in steps] for key, steps in groups.items()}
        reads = {key: read_from_outside(eqns, []) for key, eqns in inner.items()}
        wanted = {*variables(last), *(v for read in reads.values() for v in read)}
        tasks: list[JaxprEqn] = []
        for key, eqns in inner.items():
            results = [v for eqn in eqns for v in eqn.outvars if v in wanted]
            outside |= {v: fresh_var(v.aval) for v in results}
            closed = sliced(groups[key][0][1].params["body"].jaxpr, reads[key], results, eqns)
            spec = self._spec(*key, groups[key][0][1].params["spec"], reads[key], results)
            tasks.append(
                groups[key][0][1].replace(
                    invars=[outside[v] for v in reads[key]],
                    outvars=[outside[v] for v in results],
                    params={"body": closed, "spec": spec},
                    effects=closed.effects,
                )
            )
        outvars = [a if isinstance(a, Literal) else outside[a] for a in last]
        made = with_eqns(jaxpr, tasks, outvars).replace(
            invars=[outside[v] for v in jaxpr.invars],
            constvars=[outside[v] for v in jaxpr.constvars],
        )
        return ClosedJaxpr(made, self.body.consts)

    def _spec(
        self, kind: Kind, stage: int, like: TaskSpec, reads: list[Var], results: list[Var]
    ) -> TaskSpec:
        pairs = [
            (reads.index(buffer), results.index(result))
            for buffer, result in self.buffers
            if buffer in reads and result in results
        ]
        return dc.replace(like, kind=kind, stage=stage, accumulated=tuple(pairs))


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
