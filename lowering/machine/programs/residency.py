"""What memory holds when: a second walk over a program, once it is known how all values lie."""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from lowering import ir
from lowering.jaxpr import user_line
from lowering.machine.kernels.alive import Alive, Live, Memory
from lowering.machine.kernels.items import describe
from lowering.machine.kernels.layouts import Laid
from lowering.machine.kernels.listing import shape
from lowering.machine.kernels.totals import KernelCost
from lowering.machine.mapping import linear
from lowering.machine.programs.lines import Makers, makers_of
from lowering.machine.programs.storing import (
    born_in,
    kept_bytes,
    kept_places,
    only_passing,
    overwriting,
)
from lowering.machine.programs.updates import Updates, in_loops
from lowering.units import HOST, IpuId, ValueId

_Loop: TypeAlias = ir.Repeat | ir.Pipeline | ir.While

Lies: TypeAlias = Callable[[ValueId, IpuId], Laid]
"""How a value lies on an IPU."""


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
    program: ir.Program,
    kernels: Mapping[int, KernelCost],
    lies: Lies,
    tiles: int,
    names: Mapping[ValueId, str],
    updates: Updates,
) -> list[Residency]:
    """The memory of each IPU of a replica.

    Arguments and constants are there at every step, as the original's variables were; a result
    takes the place of an argument that nobody needs any more. One that is the update of an
    argument, or of a loop variable, goes to its place as soon as nobody needs the old value: the
    memory that it has had until then is free again. What is stored remotely is on the tiles only
    while it is worked on.

    Args:
      program: the whole program.
      kernels: the cost of each `Execute`, by its identity.
      lies: how values lie.
      tiles: of one IPU.
      names: what the user calls values.
      updates: which results go to the places of which arguments.
    """
    walker = _Walker(program, kernels, lies, tiles, names, updates)
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
        self,
        program: ir.Program,
        kernels: Mapping[int, KernelCost],
        lies: Lies,
        tiles: int,
        names: Mapping[ValueId, str],
        updates: Updates,
    ) -> None:
        self.names = names
        self.new = {**updates, **in_loops(program)}
        self.old = {new: old for old, new in self.new.items()}
        self.out_of_date: set[ir.Place] = set()
        self.program, self.kernels, self.lies, self.tiles = program, kernels, lies, tiles
        self.memory = [Memory(tiles) for _ in range(program.ipus)]
        self.always: list[dict[ir.Place, Live]] = [{} for _ in range(program.ipus)]
        self.remote = [0] * program.ipus
        self.buffers: dict[ir.Place, ir.Place] = {}
        self.needs = ir.Needs()
        self.constants = {value for value, _ in program.constants}
        self.given = {*program.inputs, *self.constants}
        self.makers = Makers(program)
        self.passing = only_passing(program)
        loops = [node for node in ir.walk(program.body) if isinstance(node, _Loop)]
        # What goes on to the next iteration has its place already, and so has what waits in FIFOs.
        self.leaving = overwriting(program)
        for node in (node for node in loops if isinstance(node, ir.Pipeline)):
            self.leaving.update((value, fifo.ipu) for fifo, value in _waiting(node))
        self.kept = kept_places(program)
        self.remotely = {place for place, way in self.kept.items() if way.remote}

    def body(
        self,
        steps: Sequence[ir.Node],
        results: set[ir.Place],
        entering: frozenset[ir.Place] = frozenset(),
    ) -> None:
        """Walks the steps of a body, after which only `results` are needed.

        The memory of loop variables, `entering`, is not given back, but may be taken over.
        """
        flat = ir.Sequence(ir.opened(steps))
        dead = ir.dead_after(flat, results, self.needs, entering)
        for node, dying in zip(flat.steps, dead, strict=True):
            self._node(node, set(dying))
            for place in set(dying) - entering:
                self._drop(place)
            self.out_of_date.update(place for place in dying if place in self.new)
            made = (self.old[place] for place in ir.births(node) if place in self.old)
            for place in (*dying, *made):
                self._replace(place)

    def _node(self, node: ir.Node, dying: set[ir.Place]) -> None:
        match node:
            case ir.Execute():
                self._execute(node, dying)
            case ir.Copy() if HOST in (node.source, node.target):
                self._host_copy(node)
            case ir.Copy():
                name, origin = f"copy {node.source} -> {node.target}", self.makers.line(node.values)
                self.memory[node.source].step(name, origin)
                self._add(((value, node.target) for value in node.values), "copy", name, origin)
            case ir.Store():
                self._store(node)
            case ir.Load() if (node.value, node.ipu) in self.passing:
                pass
            case ir.Load():
                name = "remote load" if node.storage.remote else "all-gather"
                self._add(ir.births(node), "load", name, self.makers.line((node.value, node.kept)))
            case ir.StreamIn():
                self._add(ir.births(node), "stream-in", f"stream-in {node.queue.name}", node.origin)
            case ir.StreamOut():
                self.memory[node.ipu].step(f"stream-out {node.queue.name}", node.origin)
            case ir.Repeat():
                self._repeat(node, dying)
            case ir.Pipeline():
                self._pipeline(node, dying)
            case ir.While():
                self._carried(node, dying)
                self.body(node.condition.steps, {(node.predicate, HOST)})
                self._iteration(node)
            case ir.Switch():
                self._switch(node, dying)
            case _:
                self._add(ir.births(node), type(node).__name__.lower())

    # Buffers

    def _live(
        self, place: ir.Place, operation: str, category: str = "activations", origin: str = ""
    ) -> Live:
        value, ipu = place
        name = describe(shape(self.program.avals[value]))
        path = self.names.get(value, "")
        laid = self._slice(place) if place in self.kept else self.lies(value, ipu)
        return Live(name, operation, origin, laid, category, value, path)

    def _slice(self, place: ir.Place) -> Laid:
        """How what a replica keeps of a stored value lies on its tiles."""
        whole, parts = shape(self.program.avals[place[0]]), self.program.local_replicas
        elements = -(-whole.elements // parts) if self.kept[place].sharded else whole.elements
        return Laid(linear(elements, whole.element_bytes, self.tiles))

    def _add(
        self, places: Iterable[ir.Place], operation: str, name: str = "", origin: str = ""
    ) -> None:
        """Values arrive, those of an IPU in one step."""
        held = [place for place in places if place[1] != HOST]
        for place in held:
            self._begin(place, self._live(place, operation, origin=origin))
        for ipu in dict.fromkeys(ipu for _, ipu in held):
            self.memory[ipu].step(name or operation, origin)

    def _new(self, place: ir.Place, live: Live) -> None:
        self._begin(place, live)
        self.memory[place[1]].step(live.operation, live.origin)

    def _begin(self, place: ir.Place, live: Live) -> None:
        self.buffers[place] = place
        self.memory[place[1]].add(place, live)

    def _drop(self, place: ir.Place) -> None:
        if place[1] != HOST and self.buffers.pop(place, None) == place:
            self.memory[place[1]].drop(place)

    def _take(self, place: ir.Place, heir: ir.Place, live: Live) -> None:
        """Gives the memory of a value that nobody needs any more to another."""
        owner = self.buffers.get(place, place)
        if owner == place and owner not in self.always[place[1]]:
            self.memory[place[1]].rename(place, heir, live)
            owner = heir
        self.buffers[heir] = owner
        self.buffers.pop(place, None)

    def _replace(self, old: ir.Place) -> None:
        """An update goes to the place of the old value, if that is free and it is not there yet."""
        new, always = self.new.get(old), self.always[old[1]]
        if new is None or old not in self.out_of_date or self.buffers.get(new) != new:
            return
        live = self.memory[old[1]].drop(new)
        if live is not None and old in self.buffers:
            self._take(old, new, live)
        elif live is not None and old in always and old not in self.buffers.values():
            self.buffers[new] = old
        elif live is not None:
            self.memory[old[1]].add(new, live)

    # Nodes

    def _host_copy(self, node: ir.Copy) -> None:
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

    def _execute(self, node: ir.Execute, dying: set[ir.Place]) -> None:
        cost, memory = self.kernels[id(node)], self.memory[node.ipu]
        reads = [(value, node.ipu) for value in node.reads]
        away = frozenset(i for i, read in enumerate(reads) if read in dying)
        places = [(value, node.ipu) for value in node.writes]
        written = {place: i for i, place in enumerate(places)}
        pairs = ((i, written.get(self.new.get(reads[i], reads[i]))) for i in away)
        successors = frozenset((old, new) for old, new in pairs if new is not None)
        alive, in_place = cost.life.giving(away, successors)
        taking: list[tuple[ir.Place, ir.Place, Live]] = []
        going_on: dict[int, tuple[ir.Place, Live]] = {}
        moved: list[tuple[ir.Place, Live]] = []
        owners = zip(in_place, cost.life.results, strict=True)
        results = zip(places, cost.results, owners, makers_of(node.kernel), strict=True)
        for place, laid, (operand, owner), eqn in results:
            made_by = ("copy", "") if eqn is None else (eqn.primitive.name, user_line(eqn))
            live = self._live(place, made_by[0], origin=made_by[1])
            if operand is None:
                made = alive.left.get(owner)
                if made is not None and laid.order == live.laid.order:
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

    def _switch(self, node: ir.Switch, dying: set[ir.Place]) -> None:
        for branch in ir.bodies(node):
            results = set(branch.results)
            self.body(branch.sequence.steps, results)
            for place in results & born_in(branch):
                self._drop(place)
        new: list[ir.Place] = []
        ends = (branch.results for branch in ir.bodies(node))
        for place, *handed in zip(ir.births(node), *ends, strict=True):
            old = next((way for way in handed if way in dying and way in self.buffers), None)
            if old is None and place not in self.remotely:
                new.append(place)
            elif old is not None:
                self._take(old, place, self._live(place, "cond", origin=node.origin))
        self._add(new, "cond", origin=node.origin)

    def _store(self, node: ir.Store) -> None:
        place = (node.kept, node.ipu)
        origin = self.makers.line((node.value, node.kept))
        if not node.storage.remote:
            live = self._live(place, "store", "variables", origin)
            self._new(place, dc.replace(live, value=None))
            return
        if (node.value, node.ipu) not in self.passing:
            self.memory[node.ipu].step("remote store", origin)
        if place not in self.leaving:
            self._fill(place)

    def _fill(self, place: ir.Place) -> None:
        """Takes room in streaming memory for what is kept there."""
        whole = shape(self.program.avals[place[0]])
        bytes_ = kept_bytes(whole, self.kept[place], self.program.local_replicas)
        self.remote[place[1]] += bytes_

    # Loops

    def _repeat(self, node: ir.Repeat, dying: set[ir.Place]) -> None:
        self._carried(node, dying)
        self._add(((s.stacked, s.ipu) for s in node.stacks), "stack", origin=node.origin)
        self._add(((s.element, s.ipu) for s in node.slices), "slice", origin=node.origin)
        self._iteration(node)
        for sliced in node.slices:
            self._drop((sliced.element, sliced.ipu))

    def _pipeline(self, node: ir.Pipeline, dying: set[ir.Place]) -> None:
        self._carried(node, dying)
        waiting = self._fifos(node)
        self._iteration(node)
        for place in waiting:
            self._drop(place)

    def _carried(self, node: _Loop, dying: set[ir.Place]) -> None:
        """Loop variables take over the memory of what they start with, if they may."""
        others = set(ir.needs(dc.replace(node, carry=()), self.needs))
        others.update((carry.leaving, carry.ipu) for carry in node.carry)
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

    def _variable(self, place: ir.Place, node: _Loop) -> Live:
        return self._live(place, "loop variable", "variables", node.origin)

    def _iteration(self, node: _Loop) -> None:
        body = ir.bodies(node)[-1]
        results, born = set(body.results), born_in(body)
        entering = frozenset((carry.entering, carry.ipu) for carry in node.carry)
        self.body(body.sequence.steps, results, entering)
        for carry in node.carry:
            variable, left, final = (
                (value, carry.ipu) for value in (carry.entering, carry.leaving, carry.final)
            )
            if variable in self.remotely:
                continue
            live = self._variable(final, node)
            if variable in self.buffers:  # what the iteration leaves is copied there
                self._take(variable, final, live)
            elif left in self.buffers and left in born | entering:
                self._take(left, final, live)  # in the variable's own memory already
            else:
                self._new(final, live)
        for place in results & born:
            self._drop(place)

    def _fifos(self, node: ir.Pipeline) -> list[ir.Place]:
        """Memory of what waits between the tasks of a pipeline; gives what must be dropped."""
        stores = (step for step in ir.walk(node.body) if isinstance(step, ir.Store))
        remote = {store.kept: store.storage for store in stores if store.storage.remote}
        waiting: list[ir.Place] = []
        for fifo, value in _waiting(node):
            if value in remote:
                whole = shape(self.program.avals[value])
                kept = kept_bytes(whole, remote[value], self.program.local_replicas)
                self.remote[fifo.ipu] += fifo.depth * kept
                continue
            origin = self.makers.line([value]) or node.origin
            live = self._live((value, fifo.ipu), f"fifo of {fifo.depth}", "fifos", origin)
            mapping = live.laid.mapping
            deep = dc.replace(mapping, element_bytes=mapping.element_bytes * fifo.depth)
            key = (ValueId(-1 - len(waiting)), fifo.ipu)
            self._new(key, dc.replace(live, laid=Laid(deep, live.laid.view)))
            waiting.append(key)
        return waiting


def _waiting(pipeline: ir.Pipeline) -> list[tuple[ir.Fifo, ValueId]]:
    """The FIFOs that hold anything, with each of their values."""
    return [(fifo, value) for fifo in pipeline.fifos if fifo.depth for value in fifo.values]
