"""What memory holds when: a second walk over a program, once it is known how all values lie."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np

from lowering.ir.liveness import Needs, dead_after
from lowering.ir.places import Place, births
from lowering.ir.program import (
    Copy,
    Execute,
    Kernel,
    Load,
    Node,
    Program,
    Repeat,
    Store,
    Switch,
    While,
    children,
    opened,
    walk,
)
from lowering.ir.program import Sequence as Steps
from lowering.jaxpr import JaxprEqn, Literal
from lowering.machine.cost import Shape
from lowering.machine.kernels.alive import Alive, Live, Memory
from lowering.machine.kernels.layouts import Laid
from lowering.machine.kernels.listing import describe, shape
from lowering.machine.kernels.totals import KernelCost
from lowering.machine.mapping import linear
from lowering.storage import Storage
from lowering.units import HOST, IpuId, ValueId


class Lies(Protocol):
    """How a value lies on an IPU."""

    def __call__(self, value: ValueId, ipu: IpuId) -> Laid:
        """Its layout."""
        ...


@dc.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Residency:
    """What one IPU's memory holds beside code.

    Attributes:
      always: tensors that are there at every step.
      alive: the others, at the step that needs most.
      remote_bytes: kept in streaming memory.
    """

    always: tuple[Live, ...]
    alive: Alive
    remote_bytes: int


def reside(
    program: Program, kernels: Mapping[int, KernelCost], lies: Lies, tiles: int
) -> list[Residency]:
    """The memory of each IPU of a replica.

    Arguments and constants are there at every step, as the original's variables were; a result
    takes the place of an argument that nobody needs any more. What is stored remotely is on the
    tiles only while it is worked on.

    Args:
      program: the whole program.
      kernels: the cost of each `Execute`, by its identity.
      lies: how values lie.
      tiles: of one IPU.
    """
    walker = _Walker(program, kernels, lies, tiles)
    walker.body(program.body.steps, set())
    return [
        Residency(
            always=tuple(walker.always[ipu].values()),
            alive=walker.memory[ipu].result(),
            remote_bytes=walker.remote[ipu],
        )
        for ipu in range(program.ipus)
    ]


class _Walker:
    """One walk; `buffers` says whose memory each place has: several names may share one."""

    def __init__(
        self, program: Program, kernels: Mapping[int, KernelCost], lies: Lies, tiles: int
    ) -> None:
        self.program, self.kernels, self.lies, self.tiles = program, kernels, lies, tiles
        self.memory = [Memory(tiles) for _ in range(program.ipus)]
        self.always: list[dict[Place, Live]] = [{} for _ in range(program.ipus)]
        self.remote = [0] * program.ipus
        self.buffers: dict[Place, Place] = {}
        self.needs = Needs()
        self.constants = {value for value, _ in program.constants}
        self.given = {*program.inputs, *self.constants}
        self.passing = _only_passing(program)
        loops = [node for node in walk(program.body) if isinstance(node, Repeat | While)]
        # What goes on to the next iteration has its place already, and so has what waits in FIFOs.
        self.leaving = {carry.leaving for node in loops for carry in node.carry}
        self.leaving.update(
            value
            for node in loops
            if isinstance(node, Repeat) and node.pipeline is not None
            for fifo in node.pipeline.fifos
            for value in (fifo.values if fifo.depth else ())
        )
        self.remotely = _in_streaming_memory(program)

    def body(
        self, steps: Sequence[Node], results: set[Place], entering: frozenset[Place] = frozenset()
    ) -> None:
        """Walks the steps of a body, after which only `results` are needed.

        The memory of loop variables, `entering`, is not given back, but may be taken over.
        """
        flat = Steps(opened(steps))
        dead = dead_after(flat, results, self.needs, entering)
        for node, dying in zip(flat.steps, dead, strict=True):
            self._node(node, set(dying))
            for place in set(dying) - entering:
                self._drop(place)

    def _node(self, node: Node, dying: set[Place]) -> None:
        match node:
            case Execute():
                self._execute(node, dying)
            case Copy() if node.target == HOST:
                pass
            case Copy():
                for value in node.values:
                    self._arrive(value, node)
            case Store():
                self._store(node)
            case Load() if (node.value, node.ipu) in self.passing:
                pass
            case Repeat():
                self._repeat(node, dying)
            case While():
                self._carried(node, dying)
                self.body(node.condition.steps, {(node.predicate, HOST)})
                self._iteration(node.body, node)
            case Switch():
                for branch in node.branches:
                    places = set(zip(branch.results, node.ipus, strict=True))
                    self.body(branch.body.steps, places)
                    for place in places & _born_in(branch.body):
                        self._drop(place)
                self._add(births(node), "cond")
            case _:
                self._add(births(node), type(node).__name__.lower())

    # Buffers

    def _live(
        self,
        place: Place,
        operation: str,
        category: str = "activations",
        made_by: JaxprEqn | None = None,
    ) -> Live:
        value, ipu = place
        name = describe(shape(self.program.avals[value]))
        return Live(name, operation, made_by, self.lies(value, ipu), category, value)

    def _add(self, places: Iterable[Place], operation: str) -> None:
        for place in places:
            if place[1] != HOST:
                self._new(place, self._live(place, operation))

    def _new(self, place: Place, live: Live) -> None:
        self.buffers[place] = place
        self.memory[place[1]].add(place, live)
        self.memory[place[1]].work()

    def _drop(self, place: Place) -> None:
        if place[1] != HOST and self.buffers.pop(place, None) == place:
            self.memory[place[1]].drop(place)

    def _take(self, place: Place, heir: Place) -> None:
        """Gives the memory of a value that nobody needs any more to another."""
        owner = self.buffers.get(place, place)
        if owner == place and owner not in self.always[place[1]]:
            self.memory[place[1]].rename(place, heir)
            owner = heir
        self.buffers[heir] = owner
        self.buffers.pop(place, None)

    # Nodes

    def _arrive(self, value: ValueId, node: Copy) -> None:
        place = (value, node.target)
        if node.source != HOST or value not in self.given:
            self._new(place, self._live(place, "copy"))
        elif place not in self.passing:
            constant = value in self.constants
            kind, category = ("constant", "constants") if constant else ("argument", "variables")
            self.always[node.target][place] = self._live(place, kind, category)
            self.buffers[place] = place

    def _execute(self, node: Execute, dying: set[Place]) -> None:
        cost, memory = self.kernels[id(node)], self.memory[node.ipu]
        reads = [(value, node.ipu) for value in node.reads]
        away = frozenset(i for i, read in enumerate(reads) if read in dying)
        alive, in_place = cost.life.giving(away)
        taking: list[tuple[Place, Place]] = []
        for value, operand in zip(node.writes, in_place, strict=True):
            place = (value, node.ipu)
            if operand is None:
                continue
            if reads[operand] in dying:
                dying.discard(reads[operand])
                taking.append((reads[operand], place))
            else:
                self._new(place, self._live(place, "copy"))
        memory.work(inner=alive)
        for read, place in taking:
            self._take(read, place)
        for value, operand, made_by in zip(
            node.writes, in_place, _makers(node.kernel), strict=True
        ):
            if operand is None:
                operation = made_by.primitive.name if made_by is not None else "copy"
                place = (value, node.ipu)
                self._new(place, self._live(place, operation, made_by=made_by))

    def _store(self, node: Store) -> None:
        place, whole = (node.kept, node.ipu), shape(self.program.avals[node.value])
        bytes_ = kept_bytes(whole, node.storage, self.program.replicas)
        if node.storage.remote:
            if node.kept not in self.leaving:
                self.remote[node.ipu] += bytes_
            return
        elements = -(-whole.elements // self.program.replicas)
        mapping = linear(elements, whole.element_bytes, self.tiles)
        self._new(place, Live(describe(whole), "store", None, Laid(mapping), "variables"))

    # Loops

    def _repeat(self, node: Repeat, dying: set[Place]) -> None:
        self._carried(node, dying)
        waiting = self._fifos(node)
        self._add(((s.stacked, s.ipu) for s in node.stacks), "stack")
        self._add(((s.element, s.ipu) for s in node.slices), "slice")
        self._iteration(node.body, node)
        for sliced in node.slices:
            self._drop((sliced.element, sliced.ipu))
        for place in waiting:
            self._drop(place)

    def _carried(self, node: Repeat | While, dying: set[Place]) -> None:
        """Loop variables take over the memory of what they start with, if they may."""
        bodies = [step for body in children(node) for step in body.steps]
        others = {place for step in bodies for place in self.needs(step)}
        others.update((carry.leaving, carry.ipu) for carry in node.carry)
        if isinstance(node, Repeat):
            others.update((s.element, s.ipu) for s in node.stacks)
            others.update((s.stacked, s.ipu) for s in node.slices)
        for carry in reversed(node.carry):
            initial, entering = (carry.initial, carry.ipu), (carry.entering, carry.ipu)
            if initial in self.remotely:
                continue
            if initial in dying and initial not in others:
                dying.discard(initial)
                self._take(initial, entering)
                self.memory[carry.ipu].relabel(entering, "variables")
            else:
                self._new(entering, self._live(entering, "loop variable", "variables"))
            others.add(initial)

    def _iteration(self, body: Steps, node: Repeat | While) -> None:
        leaving = {(carry.leaving, carry.ipu) for carry in node.carry}
        stacked = {(s.element, s.ipu) for s in node.stacks} if isinstance(node, Repeat) else set()
        entering = frozenset((carry.entering, carry.ipu) for carry in node.carry)
        self.body(body.steps, leaving | stacked, entering)
        own = _born_in(body)
        for carry in node.carry:
            variable, left, final = (
                (value, carry.ipu) for value in (carry.entering, carry.leaving, carry.final)
            )
            if variable in self.remotely:
                continue
            if variable in self.buffers:  # what the iteration leaves is copied there
                self._take(variable, final)
            elif left in self.buffers and left in own | entering:
                self._take(left, final)  # in the variable's own memory already
            else:
                self._new(final, self._live(final, "loop variable", "variables"))
        for place in (leaving | stacked) & own:
            self._drop(place)

    def _fifos(self, node: Repeat) -> list[Place]:
        """Memory of what waits between the tasks of a pipeline; gives what must be dropped."""
        if node.pipeline is None:
            return []
        remote = {s.kept: s for s in walk(node.body) if isinstance(s, Store) and s.storage.remote}
        waiting: list[Place] = []
        for fifo in node.pipeline.fifos:
            for value in fifo.values if fifo.depth else ():
                place = (value, fifo.ipu)
                whole = shape(self.program.avals[value])
                if value in remote:
                    self.remote[fifo.ipu] += fifo.depth * kept_bytes(
                        whole, remote[value].storage, self.program.replicas
                    )
                    continue
                live = self._live(place, f"fifo of {fifo.depth}", "fifos")
                mapping = live.laid.mapping
                deep = dc.replace(mapping, element_bytes=mapping.element_bytes * fifo.depth)
                key = (ValueId(-1 - len(waiting)), fifo.ipu)
                self._new(key, dc.replace(live, laid=Laid(deep, live.laid.view)))
                waiting.append(key)
        return waiting


def _makers(kernel: Kernel) -> list[JaxprEqn | None]:
    """The equation that makes each result of a kernel."""
    jaxpr = kernel.jaxpr.jaxpr
    makers = {var: eqn for eqn in jaxpr.eqns for var in eqn.outvars}
    return [None if isinstance(a, Literal) else makers.get(a) for a in jaxpr.outvars]


def _born_in(body: Steps) -> set[Place]:
    """The places at which the steps of a body leave values."""
    return {place for node in body.steps for place in births(node)}


def _in_streaming_memory(program: Program) -> set[Place]:
    """What is stored remotely, under the names of loop variables too."""
    found: set[Place] = set()
    for node in walk(program.body):
        match node:
            case Store() if node.storage.remote:
                found.add((node.kept, node.ipu))
            case Repeat() | While():
                for carry in node.carry:
                    if (carry.initial, carry.ipu) in found:
                        found.add((carry.entering, carry.ipu))
                        found.add((carry.final, carry.ipu))
            case _:
                pass
    return found


def kept_bytes(whole: Shape, storage: Storage, replicas: int) -> int:
    """What one replica keeps of a stored tensor."""
    return -(-whole.bytes // replicas) if storage.sharded else whole.bytes


def _only_passing(program: Program) -> set[Place]:
    """Places of arguments that go straight to streaming memory, and of results from there."""
    readers: dict[Place, list[Node]] = {}
    loads: set[Place] = set()
    for node in walk(program.body):
        match node:
            case Store():
                readers.setdefault((node.value, node.ipu), []).append(node)
            case Load():
                loads.add((node.value, node.ipu))
            case Copy():
                for value in node.values:
                    readers.setdefault((value, node.source), []).append(node)
            case Execute():
                for value in node.reads:
                    readers.setdefault((value, node.ipu), []).append(node)
            case Repeat() | While():
                for carry in node.carry:
                    readers.setdefault((carry.initial, carry.ipu), []).append(node)
            case _:
                pass
    stored = {
        place
        for place, nodes in readers.items()
        if place[0] in program.inputs and all(isinstance(node, Store) for node in nodes)
    }
    leaving = {
        place
        for place in loads
        if all(isinstance(n, Copy) and n.target == HOST for n in readers.get(place, ()))
    }
    return stored | leaving


def per_tile(tensors: Sequence[Live], tiles: int) -> np.ndarray:
    """int64 [tiles]: bytes of some tensors on each tile."""
    total = np.zeros(tiles, dtype=np.int64)
    for tensor in tensors:
        total += tensor.laid.mapping.bytes_per_tile()
    return total
