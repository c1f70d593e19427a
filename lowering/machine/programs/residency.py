"""What memory holds when: a second walk over a program, once it is known how all values lie."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from lowering.ir.liveness import Needs, dead_after
from lowering.ir.program import (
    Copy,
    Execute,
    Kernel,
    Load,
    Node,
    Pipeline,
    Program,
    Repeat,
    Store,
    StreamIn,
    StreamOut,
    Switch,
    While,
)
from lowering.ir.program import Sequence as Steps
from lowering.ir.tree import Place, births, bodies, opened, walk
from lowering.jaxpr import JaxprEqn, Literal, user_line
from lowering.machine.kernels.alive import Alive, Live, Memory
from lowering.machine.kernels.items import describe
from lowering.machine.kernels.layouts import Laid
from lowering.machine.kernels.listing import shape
from lowering.machine.kernels.totals import KernelCost
from lowering.machine.mapping import linear
from lowering.machine.programs.lines import Makers
from lowering.machine.programs.storing import in_streaming_memory, kept_bytes, only_passing
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
      alive: the others, step by step.
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
        self.makers = Makers(program)
        self.passing = only_passing(program)
        loops = [node for node in walk(program.body) if isinstance(node, Repeat | Pipeline | While)]
        # What goes on to the next iteration has its place already, and so has what waits in FIFOs.
        self.leaving = {carry.leaving for node in loops for carry in node.carry}
        self.leaving.update(
            value
            for node in loops
            if isinstance(node, Pipeline)
            for fifo in node.fifos
            for value in (fifo.values if fifo.depth else ())
        )
        self.remotely = in_streaming_memory(program)

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
            case Copy() if HOST in (node.source, node.target):
                self._host_copy(node)
            case Copy():
                name, origin = f"copy {node.source} -> {node.target}", self.makers.line(node.values)
                self.memory[node.source].step(name, origin)
                self._add(((value, node.target) for value in node.values), "copy", name, origin)
            case Store():
                self._store(node)
            case Load() if (node.value, node.ipu) in self.passing:
                pass
            case Load():
                name = "remote load" if node.storage.remote else "all-gather"
                self._add(births(node), "load", name, self.makers.line((node.value, node.kept)))
            case StreamIn():
                self._add(births(node), "stream-in", f"stream-in {node.queue.name}", node.origin)
            case StreamOut():
                self.memory[node.ipu].step(f"stream-out {node.queue.name}", node.origin)
            case Repeat():
                self._repeat(node, dying)
            case Pipeline():
                self._pipeline(node, dying)
            case While():
                self._carried(node, dying)
                self.body(node.condition.steps, {(node.predicate, HOST)})
                self._iteration(node.body, node)
            case Switch():
                self._switch(node)
            case _:
                self._add(births(node), type(node).__name__.lower())

    # Buffers

    def _live(
        self, place: Place, operation: str, category: str = "activations", origin: str = ""
    ) -> Live:
        value, ipu = place
        name = describe(shape(self.program.avals[value]))
        return Live(name, operation, origin, self.lies(value, ipu), category, value)

    def _add(
        self, places: Iterable[Place], operation: str, name: str = "", origin: str = ""
    ) -> None:
        """Values arrive, those of an IPU in one step."""
        held = [place for place in places if place[1] != HOST]
        for place in held:
            self._begin(place, self._live(place, operation, origin=origin))
        for ipu in dict.fromkeys(ipu for _, ipu in held):
            self.memory[ipu].step(name or operation, origin)

    def _new(self, place: Place, live: Live) -> None:
        self._begin(place, live)
        self.memory[place[1]].step(live.operation, live.origin)

    def _begin(self, place: Place, live: Live) -> None:
        self.buffers[place] = place
        self.memory[place[1]].add(place, live)

    def _drop(self, place: Place) -> None:
        if place[1] != HOST and self.buffers.pop(place, None) == place:
            self.memory[place[1]].drop(place)

    def _take(self, place: Place, heir: Place, live: Live) -> None:
        """Gives the memory of a value that nobody needs any more to another."""
        owner = self.buffers.get(place, place)
        if owner == place and owner not in self.always[place[1]]:
            self.memory[place[1]].rename(place, heir, live)
            owner = heir
        self.buffers[heir] = owner
        self.buffers.pop(place, None)

    # Nodes

    def _host_copy(self, node: Copy) -> None:
        if node.target == HOST:
            return
        for value in node.values:
            place = (value, node.target)
            if value not in self.given:
                self._add([place], "copy", "host copy", self.makers.line([value]))
            elif place not in self.passing:
                constant = value in self.constants
                kind = ("constant", "constants") if constant else ("argument", "variables")
                self.always[node.target][place] = self._live(place, *kind)
                self.buffers[place] = place

    def _execute(self, node: Execute, dying: set[Place]) -> None:
        cost, memory = self.kernels[id(node)], self.memory[node.ipu]
        reads = [(value, node.ipu) for value in node.reads]
        away = frozenset(i for i, read in enumerate(reads) if read in dying)
        alive, in_place = cost.life.giving(away)
        taking: list[tuple[Place, Place, Live]] = []
        going_on: dict[int, tuple[Place, Live]] = {}
        moved: list[tuple[Place, Live]] = []
        found = zip(node.writes, cost.results, strict=True)
        made_by = zip(in_place, cost.life.results, _makers(node.kernel), strict=True)
        for (value, left), (operand, owner, eqn) in zip(found, made_by, strict=True):
            place = (value, node.ipu)
            operation = eqn.primitive.name if eqn is not None else "copy"
            live = self._live(place, operation, origin=user_line(eqn) if eqn is not None else "")
            if operand is None:
                made = alive.left.get(owner)
                if made is not None and left.order == live.laid.order:
                    going_on[made] = place, live
                else:
                    moved.append((place, live))
            elif reads[operand] in dying:
                dying.discard(reads[operand])
                taking.append((reads[operand], place, live))
            else:
                self._new(place, dc.replace(live, operation="copy"))
        memory.steps(alive, going_on)
        for read, place, live in taking:
            self._take(read, place, live)
        self.buffers.update((place, place) for place, _ in going_on.values())
        for place, live in moved:
            self._new(place, live)

    def _switch(self, node: Switch) -> None:
        for branch in node.branches:
            places = set(zip(branch.results, node.ipus, strict=True))
            self.body(branch.body.steps, places)
            for place in places & _born_in(branch.body):
                self._drop(place)
        self._add(births(node), "cond", origin=node.origin)

    def _store(self, node: Store) -> None:
        place, whole = (node.kept, node.ipu), shape(self.program.avals[node.value])
        bytes_ = kept_bytes(whole, node.storage, self.program.replicas)
        origin = self.makers.line((node.value, node.kept))
        if node.storage.remote:
            if (node.value, node.ipu) not in self.passing:
                self.memory[node.ipu].step("remote store", origin)
            if node.kept not in self.leaving:
                self.remote[node.ipu] += bytes_
            return
        elements = -(-whole.elements // self.program.replicas)
        mapping = linear(elements, whole.element_bytes, self.tiles)
        self._new(place, Live(describe(whole), "store", origin, Laid(mapping), "variables"))

    # Loops

    def _repeat(self, node: Repeat, dying: set[Place]) -> None:
        self._carried(node, dying)
        self._add(((s.stacked, s.ipu) for s in node.stacks), "stack", origin=node.origin)
        self._add(((s.element, s.ipu) for s in node.slices), "slice", origin=node.origin)
        self._iteration(node.body, node)
        for sliced in node.slices:
            self._drop((sliced.element, sliced.ipu))

    def _pipeline(self, node: Pipeline, dying: set[Place]) -> None:
        self._carried(node, dying)
        waiting = self._fifos(node)
        self._iteration(node.body, node)
        for place in waiting:
            self._drop(place)

    def _carried(self, node: Repeat | Pipeline | While, dying: set[Place]) -> None:
        """Loop variables take over the memory of what they start with, if they may."""
        steps = [step for body in bodies(node) for step in body.sequence.steps]
        others = {place for step in steps for place in self.needs(step)}
        others.update((carry.leaving, carry.ipu) for carry in node.carry)
        if isinstance(node, Repeat):
            others.update((s.element, s.ipu) for s in node.stacks)
            others.update((s.stacked, s.ipu) for s in node.slices)
        for carry in reversed(node.carry):
            initial, entering = (carry.initial, carry.ipu), (carry.entering, carry.ipu)
            if initial in self.remotely:
                continue
            live = self._variable(entering, node)
            if initial in dying and initial not in others:
                dying.discard(initial)
                self._take(initial, entering, live)
            else:
                self._new(entering, live)
            others.add(initial)

    def _variable(self, place: Place, node: Repeat | Pipeline | While) -> Live:
        return self._live(place, "loop variable", "variables", node.origin)

    def _iteration(self, body: Steps, node: Repeat | Pipeline | While) -> None:
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
            live = self._variable(final, node)
            if variable in self.buffers:  # what the iteration leaves is copied there
                self._take(variable, final, live)
            elif left in self.buffers and left in own | entering:
                self._take(left, final, live)  # in the variable's own memory already
            else:
                self._new(final, live)
        for place in (leaving | stacked) & own:
            self._drop(place)

    def _fifos(self, node: Pipeline) -> list[Place]:
        """Memory of what waits between the tasks of a pipeline; gives what must be dropped."""
        remote = {s.kept: s for s in walk(node.body) if isinstance(s, Store) and s.storage.remote}
        waiting: list[Place] = []
        for fifo in node.fifos:
            for value in fifo.values if fifo.depth else ():
                place = (value, fifo.ipu)
                whole = shape(self.program.avals[value])
                if value in remote:
                    self.remote[fifo.ipu] += fifo.depth * kept_bytes(
                        whole, remote[value].storage, self.program.replicas
                    )
                    continue
                live = self._live(place, f"fifo of {fifo.depth}", "fifos", node.origin)
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
