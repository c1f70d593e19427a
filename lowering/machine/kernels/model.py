"""What one kernel costs on one IPU: how its tensors lie, its supersteps, and what is alive when."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

from lowering.machine.cost import Cost, Operation, Phase, Shape
from lowering.machine.kernels.alive import Live
from lowering.machine.kernels.branches import handed_on
from lowering.machine.kernels.items import Choice, Item, Listing, Loop, describe, line_of, values
from lowering.machine.kernels.iterations import iterations
from lowering.machine.kernels.layouts import Laid, Layouts
from lowering.machine.kernels.ledger import Ledger, Share, moved_by
from lowering.machine.kernels.life import Event, Inside, Life
from lowering.machine.kernels.listing import CONSTANT, PLANNED
from lowering.machine.kernels.totals import KernelCost, Numbers
from lowering.machine.kernels.views import shown_of
from lowering.machine.mapping import VECTOR_BYTES, linear
from lowering.machine.planner.side_by_side import MULTI_CONV
from lowering.machine.primitives import ELEMENTWISE, VIEWS, cost, fuse_elementwise
from lowering.machine.target import Target
from lowering.machine.transfers.between_replicas import Collectives
from lowering.machine.transfers.exchanges import Host

_CATEGORIES = {CONSTANT: "constants"}  # of what all others make: "activations"
_LAID_AS_OPERAND = VIEWS | {"convert_element_type", "ipu_load", "copy"}


@functools.lru_cache(maxsize=1 << 15)
def cost_of(operations: tuple[Operation, ...], target: Target) -> Cost:
    """The cost of an item: of one operation, or of a fused chain."""
    alone = len(operations) == 1
    return cost(operations[0], target) if alone else fuse_elementwise(operations, target)


def model_kernel(
    listing: Listing,
    given: Sequence[Laid | None],
    target: Target,
    collectives: Collectives,
    *,
    host: Host | None = None,
    turn: int | None = None,
    numbers: Callable[[object], int] | None = None,
) -> KernelCost:
    """Models one kernel.

    Args:
      listing: its operations, elementwise chains fused.
      given: how its operands lie; None for those that it may lay out.
      target: the chip.
      collectives: what operations between replicas cost.
      host: what going there costs.
      turn: the iteration of the loop whose body it is; None if that does not matter.
      numbers: gives each signature of an operation a number; of this kernel alone by default.
    """
    host, numbers = host or Host(target=target), numbers or Numbers()
    return _Kernel(listing, given, target, collectives, host, turn, numbers).run()


class _Kernel:
    def __init__(
        self,
        listing: Listing,
        given: Sequence[Laid | None],
        target: Target,
        collectives: Collectives,
        host: Host,
        turn: int | None,
        numbers: Callable[[object], int],
    ) -> None:
        self.listing, self.target, self._turn = listing, target, turn
        self.ledger = Ledger(target, collectives, host, numbers)
        self._model = functools.partial(
            model_kernel, target=target, collectives=collectives, host=host, numbers=numbers
        )
        self.shapes = list(listing.shapes)
        self.layouts = Layouts(self.shapes, listing.operands, given, target.tiles_per_ipu)
        self.events, self.results = list[Event](), list[int]()
        self.views: dict[int | None, Item] = {}  # what makes them
        self._allocate(given)

    def run(self) -> KernelCost:
        for item in self.listing.items:
            match item:
                case Item():
                    self._item(item)
                case Loop():
                    self._loop(item)
                case Choice():
                    self._choice(item)
        operands, owners = self.listing.operands, self._results()
        return KernelCost(
            trace=self.ledger.steps.trace(),
            nodes=tuple(self.ledger.steps.nodes),
            cycles=self.ledger.steps.clock,
            operands=tuple(map(self.layouts.laid, operands)),
            results=tuple(map(self.layouts.laid, self.results)),
            views=frozenset(i for i, value in enumerate(self.results) if self._is_seen(value)),
            life=Life(self.events, operands, owners, self.target.tiles_per_ipu),
            code=self.ledger.code,
            totals=self.ledger.totals,
            assumptions=tuple(self.ledger.assumptions),
        )

    def _allocate(self, given: Sequence[Laid | None]) -> None:
        """Lays out operands that nobody has laid out as the first plan behind them wants them."""
        operands = self.listing.operands
        behind = Layouts(self.shapes, operands, given, self.target.tiles_per_ipu)
        known = set(operands)
        for item in self.listing.items:
            if not isinstance(item, Item):
                continue
            operation = item.operations[-1]
            alone = len(item.operations) == 1 and operation.name in _LAID_AS_OPERAND
            shown = shown_of(operation) if alone else None
            first = item.reads[shown] if shown is not None else None
            if first is not None and first in known:
                for part, result in enumerate(item.writes):
                    behind.see(result, first, operation, part)
                known.update(item.writes)
            if operation.name in (*PLANNED, MULTI_CONV):
                wanted = cost_of(item.operations, self.target).operands
                for value, want in zip(item.reads, wanted, strict=False):
                    if want is not None and value is not None and value in known:
                        behind.ask(value, want)
        for value in operands:
            if self.layouts.is_free(value) and not behind.is_free(value):
                self.layouts.settle(value, behind.laid(value))

    def _item(self, item: Item) -> None:
        costs = cost_of(item.operations, self.target)
        operation = item.operations[-1]
        if costs.moves_nothing and operation.name in VIEWS:
            if self._is_view(item):
                return
            costs = self._gathered(item)
        received, reference = self._bring(item, costs)
        births: dict[int, Live] = {}
        origin, category = line_of(item), _CATEGORIES.get(operation.name, "activations")
        wishes = costs.results or (None,) * len(item.writes)
        for value, want in zip(item.writes, wishes, strict=True):
            shape = self.shapes[value]
            if want is not None:
                laid = self.layouts.wanted(shape, want)
            elif reference is not None and reference.suits(shape):
                laid = reference.holding(shape)
            else:
                laid = self.layouts.linear(shape)
            self.layouts.put(value, laid)
            births[value] = Live(describe(shape), operation.name, origin, laid, category)
        tiles = max((live.laid.mapping.used for live in births.values()), default=0)
        at_work = max(tiles, self._reading(item, costs))
        number = self.ledger.run(item, costs, received, self._bytes(item), at_work)
        reads, space = self._owners(item.reads), costs.temporary_bytes + received
        in_place = {v: self._may_take(item, v) for v in births} if costs.in_place else {}
        called = item.title, origin, number
        self.events.append(Event(reads, births, space, max(tiles, 1), (), in_place, False, *called))

    def _reading(self, item: Item, costs: Cost) -> int:
        """Tiles that have some of an operand: a sum's first phase runs where the numbers are."""
        wanted = [want.used for want in costs.operands if want is not None]
        if wanted:
            return max(wanted)
        laids = map(self.layouts.laid, values(item.reads))
        return max((laid.mapping.used for laid in laids), default=0)

    def _bytes(self, item: Item) -> int:
        """Read and written: a value that is read twice counts once."""
        return sum(self.shapes[value].bytes for value in {*values(item.reads), *item.writes})

    def _is_view(self, item: Item) -> bool:
        """Makes the results views of the one value that they show, if there is just one."""
        operation = item.operations[0]
        shown = shown_of(operation)
        if shown is None:
            return False
        source = item.reads[shown]
        self.views.update(dict.fromkeys(item.writes, item))
        for part, result in enumerate(item.writes):
            if source is not None:
                self.layouts.see(result, source, operation, part)
            else:  # a literal, however often it is repeated
                self.layouts.put(result, self.layouts.linear(Shape((), self.shapes[result].dtype)))
        return True

    def _gathered(self, item: Item) -> Cost:
        """What would be a view of several owners is a tensor of its own here, which is copied."""
        shape = self.shapes[item.writes[0]]
        most = linear(shape.elements, shape.element_bytes, self.target.tiles_per_ipu).most_bytes
        return Cost(phases=(Phase("OnTileCopy", most / VECTOR_BYTES, most),) if most else ())

    def _bring(self, item: Item, costs: Cost) -> tuple[float, Laid | None]:
        """Bytes that the busiest tile receives so that all operands lie as they must.

        Returns:
          The bytes, and how the largest operand lies, which results without a plan follow.
        """
        received = 0.0
        for value, want in zip(item.reads, costs.operands, strict=False):
            if value is None or want is None:
                continue
            self.layouts.ask(value, want)
            laid = self.layouts.laid(value)
            if laid.order != (want.layout, ()):
                received += math.ceil(self.shapes[value].bytes / max(1, want.used))
        read = list(dict.fromkeys(values(item.reads)))
        if any(costs.operands) or not read:
            return received, None
        together = item.operations[-1].name in ELEMENTWISE
        if together:
            self._lay_alike(read)
        laids = {value: self.layouts.laid(value) for value in read}
        largest = max(read, key=lambda v: (self.shapes[v].elements, laids[v].mapping.elements))
        reference = laids[largest]
        for laid in laids.values() if together else ():
            if laid.order != reference.order:
                needed = min(laid.mapping.elements, reference.mapping.most_elements)
                received += needed * laid.mapping.element_bytes
        return received, reference

    def _lay_alike(self, read: Sequence[int]) -> None:
        """Lays out what nobody has laid out yet as the others lie that it is worked on with.

        So optimizers' state lies as the gradients that it meets (docs/hardware.md, Passes: forward
        allocation).
        """
        laids = [laid for laid in map(self.layouts.known, read) if laid is not None]
        for value in filter(self.layouts.is_free, read):
            shape = self.shapes[value]
            alike = next((laid for laid in laids if laid.suits(shape)), None)
            if alike is not None:
                self.layouts.settle(value, alike.holding(shape))

    def _may_take(self, item: Item, result: int) -> tuple[int, ...]:
        """Owners whose memory a result can take: as large, and lying the same way."""
        owners = [value for value in values(item.reads) if self.layouts.owner(value) == value]
        room = self.layouts.laid(result).room
        return tuple(value for value in owners if self.layouts.laid(value).room == room)

    def _owners(self, reads: Sequence[int | None]) -> tuple[int, ...]:
        return tuple(map(self.layouts.owner, values(reads)))

    def _loop(self, loop: Loop) -> None:
        choices = [entry for entry in loop.bodies[-1].items if isinstance(entry, Choice)]
        known = [choice.turns for choice in choices if choice.turns is not None]
        kinds = iterations(known, loop.turns)
        ways = [
            [
                self._inside(body, loop.reads, operands, turn)
                for body, operands in zip(loop.bodies, loop.inner, strict=True)
            ]
            for turn, _ in kinds.kinds
        ]
        costs = ways[0]
        last = costs[-1]
        entering = {result: loop.reads[operand] for operand, result in loop.carried}
        births, moved, sliced = self._slices(loop, last)
        changing = {*sliced, *(operand for operand, _ in loop.carried)}
        constant = self._owners([v for i, v in enumerate(loop.reads) if i not in changing])
        in_place: dict[int, tuple[int, ...]] = {}
        name, origin = loop.eqn.primitive.name, line_of(loop)
        for i, value in enumerate(loop.writes):
            shape, source = self.shapes[value], entering.get(i)
            if i not in entering:  # stacked: an iteration writes one slice
                laid = self.layouts.linear(shape)
                moved.append((last.results[i].mapping, 1.0))
            elif source is None or not self.layouts.is_whole(source):
                laid = last.results[i]
            else:
                laid = self.layouts.laid(source).holding(shape)
                if self.layouts.owner(source) not in constant:
                    in_place[value] = (self.layouts.owner(source),)
                if laid.order != last.results[i].order:
                    moved.append((laid.mapping, 1.0))
            self.layouts.put(value, laid)
            births[value] = Live(describe(shape), name, origin, laid)
        self.ledger.repeat(loop, kinds, ways, moved)
        away = frozenset(i for i, operand in enumerate(loop.inner[-1]) if operand in changing)
        variables = {operand: result for operand, result in loop.carried}
        successors = frozenset(
            (i, variables[operand])
            for i, operand in enumerate(loop.inner[-1])
            if operand in variables
        )
        inner = [Inside(inside.life) for inside in costs[:-1]]
        inner.append(Inside(last.life, own=away, successors=successors))
        reads = self._owners(loop.reads)
        self.events.append(Event(reads, births, 0.0, 0, inner, in_place, False, name, origin))

    def _slices(
        self, loop: Loop, last: KernelCost
    ) -> tuple[dict[int, Live], list[Share], set[int]]:
        """Memory of the slices that an iteration reads, what it moves of what, their operands."""
        body, births, sliced = loop.bodies[-1], dict[int, Live](), set[int]()
        moved: list[Share] = []
        for operand, inner, laid in zip(loop.inner[-1], body.operands, last.operands, strict=True):
            value, shape = loop.reads[operand], body.shapes[inner]
            if value is not None and shape.elements != self.shapes[value].elements:
                sliced.add(operand)
                moved.append((self.layouts.laid(value).mapping, 1 / max(loop.turns, 1)))
                new = self._another(shape, laid)
                births[new] = Live(describe(shape), "slice", line_of(loop), laid)
        return births, moved, sliced

    def _inside(
        self,
        body: Listing,
        reads: Sequence[int | None],
        operands: Sequence[int],
        turn: int | None = None,
    ) -> KernelCost:
        """Models a body, whose i-th operand is the `operands[i]`-th that is read here."""
        outside: list[int | None] = []  # None for literals, and for those of which it gets slices
        laids: list[Laid | None] = []
        for operand, inner in zip(operands, body.operands, strict=True):
            value, elements = reads[operand], body.shapes[inner].elements
            value = None if value is None or self.shapes[value].elements != elements else value
            outside.append(value)
            whole = value is not None and self.layouts.is_whole(value)
            laids.append(self.layouts.known(value) if whole else None)
        inside = self._model(body, laids, turn=turn)
        for value, laid in zip(outside, inside.operands, strict=True):
            if value is not None:
                self.layouts.settle(value, laid)
        return inside

    def _choice(self, choice: Choice) -> None:
        costs = self._branches(choice)
        slowest = max(costs, key=lambda inside: inside.cycles)
        births: dict[int, Live] = {}
        origin, old = line_of(choice), handed_on(choice, self.layouts)
        in_place: dict[int, tuple[int, ...]] = {}
        for i, (value, laid) in enumerate(zip(choice.writes, slowest.results, strict=True)):
            source = choice.reads[old[i]] if i in old else None
            if source is not None and self.layouts.laid(source).room == laid.room:
                in_place[value] = (self.layouts.owner(source),)
            self.layouts.put(value, laid)
            births[value] = Live(describe(self.shapes[value]), "cond", origin, laid)
        taken = choice.taken(self._turn)
        self.ledger.choose(choice, costs, slowest if taken is None else costs[taken])
        owners = [None if value is None else self.layouts.owner(value) for value in choice.reads]
        successors = frozenset((operand, i) for i, operand in old.items())
        inner = [Inside(inside.life, owners, successors=successors) for inside in costs]
        reads = self._owners(choice.reads)
        # What a branch holds has its result among it, which then goes on.
        self.events.append(Event(reads, births, 0.0, 0, inner, in_place, True, "cond", origin))

    def _branches(self, choice: Choice) -> list[KernelCost]:
        """The branch that does most says how operands lie that nobody has laid out yet."""
        operands, branches = range(len(choice.reads)), choice.branches
        order = sorted(range(len(branches)), key=lambda i: -len(branches[i].items))
        costs = {i: self._inside(branches[i], choice.reads, operands) for i in order}
        return [costs[i] for i in range(len(branches))]

    def _results(self) -> list[int]:
        """The owners that live on after the kernel, one of its own for each result."""
        owners: list[int] = []
        for value in self.listing.results:
            taken = value is None or self.layouts.owner(value) in owners
            if value is None or taken or not self.layouts.is_whole(value):
                value = self._copied(value)
            self.results.append(value)
            owners.append(self.layouts.owner(value))
        return owners

    def _is_seen(self, value: int) -> bool:
        """Whether a result is another tensor seen otherwise, an operand or in another order."""
        owner = self.layouts.owner(value)
        turned = self.layouts.is_moved(value) and bool(self.layouts.laid(value).view)
        return turned or (value != owner and owner in self.listing.operands)

    def _copied(self, value: int | None) -> int:
        """A result that needs memory of its own: of a literal, a view, or given away twice."""
        shape = self.shapes[value] if value is not None else Shape((), "float32")
        owner = None if value is None else self.layouts.owner(value)
        stays = value is not None and not self.layouts.is_moved(value)
        if value is not None and stays and self.layouts.is_whole(value):
            laid = self.layouts.laid(value)
        else:
            laid = self.layouts.linear(shape)
        most = laid.mapping.most_bytes
        received = 0.0 if stays or owner in (None, value) else most
        phase = Phase("OnTileCopy", most / VECTOR_BYTES, received)
        copy, item = self._another(shape, laid), self.views.get(value)
        total = moved_by(item, "copy OnTileCopy", 2 * laid.mapping.total_bytes)
        number = self.ledger.move(total, "copy", phase, self.ledger.steps)
        births = {copy: Live(describe(shape), "copy", total.origin, laid)}
        reads = () if owner is None else (owner,)
        called = total.title, total.origin, number
        self.events.append(Event(reads, births, 0.0, 0, (), {}, False, *called))
        return copy

    def _another(self, shape: Shape, laid: Laid) -> int:
        """A value that the listing does not have."""
        self.shapes.append(shape)
        self.layouts.put(len(self.shapes) - 1, laid)
        return len(self.shapes) - 1
