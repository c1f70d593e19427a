"""The cost of one kernel on one IPU: its layouts, its supersteps, and its liveness."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from lowering.machine.cost import Cost, Operation, Phase, Shape
from lowering.machine.kernels.alive import LiveTensor
from lowering.machine.kernels.branches import find_returned_operands
from lowering.machine.kernels.item_bytes import count_item_bytes
from lowering.machine.kernels.items import (
    Choice,
    Item,
    Listing,
    Loop,
    user_line_of_entry,
    without_literals,
)
from lowering.machine.kernels.iterations import classify_iterations
from lowering.machine.kernels.kernel_memory import KernelMemory, MemoryEvent, NestedBody
from lowering.machine.kernels.layouts import Layouts, TensorLayout
from lowering.machine.kernels.ledger import Ledger, MovedPart, total_of_move
from lowering.machine.kernels.listing import PLANNED
from lowering.machine.kernels.rearranging import Rearranger
from lowering.machine.kernels.tensor_makers import (
    copies_of_remote_data,
    name_results,
    step_of_item,
    tensor_made_by,
)
from lowering.machine.kernels.totals import KernelCost, SignatureNumbers
from lowering.machine.kernels.views import operand_shown_by
from lowering.machine.mapping import VECTOR_BYTES, map_linearly
from lowering.machine.planner.multi_convolution import MULTI_CONV
from lowering.machine.primitives import (
    VIEWS,
    cost_of_operation,
    elementwise_chain_cost,
)
from lowering.machine.target import Target
from lowering.machine.transfers.between_replicas import Collectives
from lowering.machine.transfers.exchanges import HostLink

_PLANNED = {*PLANNED, MULTI_CONV}
_TAKES_OPERAND_LAYOUT = VIEWS | {"convert_element_type", "ipu_load", "copy"}


@functools.lru_cache(maxsize=1 << 15)
def cost_of_item(operations: tuple[Operation, ...], target: Target) -> Cost:
    """Returns the cost of an item: of one operation, or of a fused chain."""
    is_single = len(operations) == 1
    return (
        cost_of_operation(operations[0], target)
        if is_single
        else elementwise_chain_cost(operations, target)
    )


def model_kernel(
    listing: Listing,
    operand_layouts: Sequence[TensorLayout | None],
    target: Target,
    collectives: Collectives,
    *,
    host: HostLink | None = None,
    iteration: int | None = None,
    numbers: Callable[[object], int] | None = None,
) -> KernelCost:
    """Models one kernel.

    Args:
      listing: its operations, elementwise chains fused.
      operand_layouts: the layouts of its operands; None for those that it may lay out.
      target: the chip, or only what its tiles see of it.
      collectives: the costs of operations between replicas.
      host: the cost of transfers to and from the host.
      iteration: the iteration of the loop whose body it is; None if that does not matter.
      numbers: gives each signature of an operation a number; of this kernel alone by default.
    """
    host, numbers = host or HostLink(target=target), numbers or SignatureNumbers()
    return _Kernel(
        listing, operand_layouts, target, collectives, host, iteration, numbers
    ).model_items()


class _Kernel:
    def __init__(
        self,
        listing: Listing,
        operand_layouts: Sequence[TensorLayout | None],
        target: Target,
        collectives: Collectives,
        host: HostLink,
        iteration: int | None,
        numbers: Callable[[object], int],
    ) -> None:
        self.listing, self.target, self._turn = listing, target, iteration
        self._operands = frozenset(listing.operands)
        self.ledger = Ledger(target, collectives, host, numbers)
        self._model = functools.partial(
            model_kernel,
            target=target,
            collectives=collectives,
            host=host,
            numbers=numbers,
        )
        self.shapes = list(listing.shapes)
        self.layouts = Layouts(self.shapes, listing.operands, operand_layouts, target.tiles_per_ipu)
        self._costs: dict[tuple[Operation, ...], Cost] = {}
        self._rearranger = Rearranger(self.layouts, self.shapes)
        self.events, self.results = list[MemoryEvent](), list[int]()
        self.views: dict[int | None, Item] = {}  # the item that makes each
        self._allocate_operands(operand_layouts)

    def model_items(self) -> KernelCost:
        for item in self.listing.items:
            match item:
                case Item():
                    self._model_item(item)
                case Loop():
                    self._model_loop(item)
                case Choice():
                    self._model_choice(item)
        operands, owners = self.listing.operands, self._give_results_own_memory()
        return KernelCost(
            trace=self.ledger.steps.build_trace(),
            nodes=tuple(self.ledger.steps.nodes),
            cycles=self.ledger.steps.clock,
            operands=tuple(map(self.layouts.layout_of, operands)),
            results=tuple(map(self.layouts.layout_of, self.results)),
            views=frozenset(
                i for i, value in enumerate(self.results) if self._is_view_of_other(value)
            ),
            life=KernelMemory(self.events, operands, owners, self.target.tiles_per_ipu),
            code=self.ledger.collect_code(),
            calls=tuple(self.ledger.calls),
            totals=self.ledger.totals,
            assumptions=tuple(self.ledger.assumptions),
            leaves_ipu=self.ledger.leaves_ipu,
        )

    def _allocate_operands(self, operand_layouts: Sequence[TensorLayout | None]) -> None:
        """Lays out operands without a layout as the first plan that reads them wants them."""
        operands = self.listing.operands
        if None not in operand_layouts:
            return
        planned_layouts = Layouts(self.shapes, operands, operand_layouts, self.target.tiles_per_ipu)
        traced = set(operands)
        for item in self.listing.items:
            if not isinstance(item, Item):
                continue
            operation = item.operations[-1]
            keeps_layout = len(item.operations) == 1 and operation.name in _TAKES_OPERAND_LAYOUT
            source_index = operand_shown_by(operation) if keeps_layout else None
            first = item.reads[source_index] if source_index is not None else None
            if first is not None and first in traced:
                for part, result in enumerate(item.writes):
                    planned_layouts.add_view(result, first, operation, part)
                traced.update(item.writes)
            if operation.name in _PLANNED:
                wanted_layouts = self._cost_of_item(item).operands
                for value, wanted_layout in zip(item.reads, wanted_layouts, strict=False):
                    if wanted_layout is not None and value is not None and value in traced:
                        planned_layouts.request_layout(value, wanted_layout)
        for value in operands:
            if self.layouts.has_no_layout(value) and not planned_layouts.has_no_layout(value):
                self.layouts.set_layout_if_free(value, planned_layouts.layout_of(value))

    def _model_item(self, item: Item) -> None:
        costs = self._cost_of_item(item)
        operation = item.operations[-1]
        if costs.moves_nothing and operation.name in VIEWS:
            if self._make_views_if_possible(item):
                return
            costs = self._cost_of_gathering(item)
        rearranging = self._rearranger.rearrange_operands(item, costs)
        largest_layout = rearranging.largest_layout
        births: dict[int, LiveTensor] = {}
        wanted_layouts = costs.results or (None,) * len(item.writes)
        for value, wanted_layout in zip(item.writes, wanted_layouts, strict=True):
            shape = self.shapes[value]
            if wanted_layout is not None:
                layout = self.layouts.layout_for_plan(shape, wanted_layout)
            elif largest_layout is not None and largest_layout.suits_shape(shape):
                layout = largest_layout.for_element_type(shape)
            else:
                layout = self.layouts.lay_out_linearly(shape)
            self.layouts.set_layout(value, layout)
            births[value] = tensor_made_by(item, shape, layout)
        mappings = [live.laid.mapping for live in births.values()]
        if (step := step_of_item(item)) is not None:
            births = name_results(births, step)
            if (copies := copies_of_remote_data(item, step, self.target.tiles_per_ipu)) is not None:
                births[self._add_value(Shape((), "uint8"), copies.laid)] = copies
        tiles = max((mapping.used for mapping in mappings), default=0)
        reads = self._memory_owners(item.reads)
        number = self.ledger.charge_item(
            item,
            costs,
            rearranging.phase,
            count_item_bytes(item, self.shapes),
            max(tiles, self._count_reading_tiles(item, costs)),
            mappings[0].first_tile if mappings else 0,
            not self._operands.isdisjoint(reads),
        )
        space = costs.temporary_bytes + rearranging.received_bytes
        space_tiles = max(1, tiles, *(vertices.tiles for vertices in costs.vertices))
        in_place = (
            {v: self._find_reusable_operands(item, v) for v in births} if costs.in_place else {}
        )
        report_names = item.exact_title, user_line_of_entry(item), number
        self.events.append(
            MemoryEvent(reads, births, space, space_tiles, (), in_place, False, *report_names)
        )

    def _cost_of_item(self, item: Item) -> Cost:
        """Returns the cost of an item; equal ones do not look into the chip again."""
        cost = self._costs.get(item.operations)
        if cost is None:
            cost = self._costs[item.operations] = cost_of_item(item.operations, self.target)
        return cost

    def _count_reading_tiles(self, item: Item, costs: Cost) -> int:
        """Returns how many tiles hold some of an operand; the first phase of a sum runs there."""
        wanted_tiles = [
            wanted_layout.used for wanted_layout in costs.operands if wanted_layout is not None
        ]
        if wanted_tiles:
            return max(wanted_tiles)
        layouts = map(self.layouts.layout_of, without_literals(item.reads))
        return max((layout.mapping.used for layout in layouts), default=0)

    def _make_views_if_possible(self, item: Item) -> bool:
        """Makes the results views of the one operand that they show, if there is only one."""
        operation = item.operations[0]
        source_index = operand_shown_by(operation)
        if source_index is None:
            return False
        source = item.reads[source_index]
        self.views.update(dict.fromkeys(item.writes, item))
        for part, result in enumerate(item.writes):
            if source is not None:
                self.layouts.add_view(result, source, operation, part)
            else:  # a literal, however often it is repeated
                self.layouts.set_layout(
                    result, self.layouts.lay_out_linearly(Shape((), self.shapes[result].dtype))
                )
        return True

    def _cost_of_gathering(self, item: Item) -> Cost:
        """Returns the cost of copying several owners into one tensor, which cannot be a view."""
        shape = self.shapes[item.writes[0]]
        most_bytes = map_linearly(
            shape.elements, shape.element_bytes, self.target.tiles_per_ipu
        ).most_bytes
        return Cost(
            phases=(Phase("OnTileCopy", most_bytes / VECTOR_BYTES, most_bytes),)
            if most_bytes
            else ()
        )

    def _find_reusable_operands(self, item: Item, result: int) -> tuple[int, ...]:
        """Returns the operands whose memory a result can take: of its size and its layout.

        Of what is laid out by hand, a result takes that of the variable that it changes.
        """
        step = step_of_item(item)
        if step is not None and step.result_places:
            place = dict(zip(item.writes, step.result_places, strict=True)).get(result)
            pairs = zip(item.reads, step.operand_places, strict=True)
            changed = [value for value, given in pairs if place is not None and given == place]
            return self._memory_owners(changed)
        owners = [
            value
            for value in without_literals(item.reads)
            if self.layouts.memory_owner(value) == value
        ]
        room = self.layouts.layout_of(result).memory_key
        return tuple(value for value in owners if self.layouts.layout_of(value).memory_key == room)

    def _memory_owners(self, reads: Sequence[int | None]) -> tuple[int, ...]:
        return tuple(map(self.layouts.memory_owner, without_literals(reads)))

    def _model_loop(self, loop: Loop) -> None:
        choices = [entry for entry in loop.bodies[-1].items if isinstance(entry, Choice)]
        branch_choices = [
            choice.branch_of_iteration
            for choice in choices
            if choice.branch_of_iteration is not None
        ]
        kinds = classify_iterations(branch_choices, loop.trip_count_or_one)
        costs_by_kind = [
            [
                self._model_body(body, loop.reads, operands, iteration)
                for body, operands in zip(loop.bodies, loop.inner, strict=True)
            ]
            for iteration, _ in kinds.kinds
        ]
        costs = costs_by_kind[0]
        last_cost = costs[-1]
        initial_value = {result: loop.reads[operand] for operand, result in loop.carried}
        births, moved_parts, sliced_operands = self._allocate_slices(loop, last_cost)
        changing_operands = {*sliced_operands, *(operand for operand, _ in loop.carried)}
        constant_owners = self._memory_owners(
            [v for i, v in enumerate(loop.reads) if i not in changing_operands]
        )
        in_place: dict[int, tuple[int, ...]] = {}
        name, origin = loop.eqn.primitive.name, user_line_of_entry(loop)
        for i, value in enumerate(loop.writes):
            shape, source = self.shapes[value], initial_value.get(i)
            if i not in initial_value:  # stacked: an iteration writes one slice
                layout = self.layouts.lay_out_linearly(shape)
                moved_parts.append((last_cost.results[i].mapping, 1.0))
            elif source is None or not self.layouts.has_all_elements(source):
                layout = last_cost.results[i]
            else:
                layout = self.layouts.layout_of(source).for_element_type(shape)
                if self.layouts.memory_owner(source) not in constant_owners:
                    in_place[value] = (self.layouts.memory_owner(source),)
                if layout.order_key != last_cost.results[i].order_key:
                    moved_parts.append((layout.mapping, 1.0))
            self.layouts.set_layout(value, layout)
            births[value] = tensor_made_by(loop, shape, layout)
        self.ledger.charge_loop(loop, kinds, costs_by_kind, moved_parts)
        overwritable = frozenset(
            i for i, operand in enumerate(loop.inner[-1]) if operand in changing_operands
        )
        result_of_carried = {operand: result for operand, result in loop.carried}
        successors = frozenset(
            (i, result_of_carried[operand])
            for i, operand in enumerate(loop.inner[-1])
            if operand in result_of_carried
        )
        nested_bodies = [NestedBody(body_cost.life) for body_cost in costs[:-1]]
        nested_bodies.append(NestedBody(last_cost.life, own=overwritable, successors=successors))
        reads = self._memory_owners(loop.reads)
        self.events.append(
            MemoryEvent(reads, births, 0.0, 0, nested_bodies, in_place, False, name, origin)
        )

    def _allocate_slices(
        self, loop: Loop, body_cost: KernelCost
    ) -> tuple[dict[int, LiveTensor], list[MovedPart], set[int]]:
        """Returns the slices that an iteration reads, the moved parts, and the operands."""
        body, births, sliced_operands = loop.bodies[-1], dict[int, LiveTensor](), set[int]()
        moved_parts: list[MovedPart] = []
        for operand, body_value, layout in zip(
            loop.inner[-1], body.operands, body_cost.operands, strict=True
        ):
            value, shape = loop.reads[operand], body.shapes[body_value]
            if value is not None and shape.elements != self.shapes[value].elements:
                sliced_operands.add(operand)
                moved_parts.append(
                    (self.layouts.layout_of(value).mapping, 1 / max(loop.trip_count_or_one, 1))
                )
                slice_value = self._add_value(shape, layout)
                births[slice_value] = tensor_made_by(loop, shape, layout, "slice")
        return births, moved_parts, sliced_operands

    def _model_body(
        self,
        body: Listing,
        reads: Sequence[int | None],
        operands: Sequence[int],
        iteration: int | None = None,
    ) -> KernelCost:
        """Models a body whose i-th operand is the `operands[i]`-th value of `reads`."""
        outside: list[int | None] = []  # None for literals and sliced operands
        layouts: list[TensorLayout | None] = []
        for operand, body_value in zip(operands, body.operands, strict=True):
            value, elements = reads[operand], body.shapes[body_value].elements
            value = None if value is None or self.shapes[value].elements != elements else value
            outside.append(value)
            has_layout = value is not None and self.layouts.has_all_elements(value)
            layouts.append(self.layouts.existing_layout(value) if has_layout else None)
        body_cost = self._model(body, layouts, iteration=iteration)
        for value, layout in zip(outside, body_cost.operands, strict=True):
            if value is not None:
                self.layouts.set_layout_if_free(value, layout)
        return body_cost

    def _model_choice(self, choice: Choice) -> None:
        costs = self._model_branches(choice)
        slowest = max(costs, key=lambda branch_cost: branch_cost.cycles)
        births: dict[int, LiveTensor] = {}
        origin, returned_operands = (
            user_line_of_entry(choice),
            find_returned_operands(choice, self.layouts),
        )
        in_place: dict[int, tuple[int, ...]] = {}
        for i, (value, layout) in enumerate(zip(choice.writes, slowest.results, strict=True)):
            source = choice.reads[returned_operands[i]] if i in returned_operands else None
            if (
                source is not None
                and self.layouts.layout_of(source).memory_key == layout.memory_key
            ):
                in_place[value] = (self.layouts.memory_owner(source),)
            self.layouts.set_layout(value, layout)
            births[value] = tensor_made_by(choice, self.shapes[value], layout)
        branch_taken = choice.branch_taken(self._turn)
        self.ledger.charge_choice(
            choice, costs, slowest if branch_taken is None else costs[branch_taken]
        )
        owners = [
            None if value is None else self.layouts.memory_owner(value) for value in choice.reads
        ]
        successors = frozenset((operand, i) for i, operand in returned_operands.items())
        nested_bodies = [NestedBody(inside.life, owners, successors=successors) for inside in costs]
        reads = self._memory_owners(choice.reads)
        # A branch's memory includes its result, which lives on.
        self.events.append(
            MemoryEvent(reads, births, 0.0, 0, nested_bodies, in_place, True, "cond", origin)
        )

    def _model_branches(self, choice: Choice) -> list[KernelCost]:
        """Models all branches; the longest one decides the layouts of operands without one."""
        operands, branches = range(len(choice.reads)), choice.branches
        order = sorted(range(len(branches)), key=lambda i: -len(branches[i].items))
        costs = {i: self._model_body(branches[i], choice.reads, operands) for i in order}
        return [costs[i] for i in range(len(branches))]

    def _give_results_own_memory(self) -> list[int]:
        """Returns the owners that live on after the kernel, a separate one for each result."""
        owners: list[int] = []
        for value in self.listing.results:
            is_shared = value is None or self.layouts.memory_owner(value) in owners
            if value is None or is_shared or not self.layouts.has_all_elements(value):
                value = self._copy_result(value)
            self.results.append(value)
            owners.append(self.layouts.memory_owner(value))
        return owners

    def _is_view_of_other(self, value: int) -> bool:
        """Returns whether a result is a view of an operand, or a tensor in another order."""
        owner = self.layouts.memory_owner(value)
        is_reordered_view = self.layouts.is_reordered(value) and bool(
            self.layouts.layout_of(value).view
        )
        return is_reordered_view or (value != owner and owner in self.listing.operands)

    def _copy_result(self, value: int | None) -> int:
        """Copies a result that needs memory of its own: a literal, a view, or returned twice."""
        shape = self.shapes[value] if value is not None else Shape((), "float32")
        owner = None if value is None else self.layouts.memory_owner(value)
        keeps_order = value is not None and not self.layouts.is_reordered(value)
        if value is not None and keeps_order and self.layouts.has_all_elements(value):
            layout = self.layouts.layout_of(value)
        else:
            layout = self.layouts.lay_out_linearly(shape)
        most_bytes = layout.mapping.most_bytes
        received = 0.0 if keeps_order or owner in (None, value) else most_bytes
        phase = Phase("OnTileCopy", most_bytes / VECTOR_BYTES, received)
        copy, item = self._add_value(shape, layout), self.views.get(value)
        total = total_of_move(item, "copy OnTileCopy", 2 * layout.mapping.total_bytes)
        number = self.ledger.charge_move(total, "copy", phase, self.ledger.steps)
        births = {copy: tensor_made_by(item, shape, layout, "copy")}
        reads = () if owner is None else (owner,)
        report_names = total.title, total.origin, number
        self.events.append(MemoryEvent(reads, births, 0.0, 0, (), {}, False, *report_names))
        return copy

    def _add_value(self, shape: Shape, layout: TensorLayout) -> int:
        """Adds a value that the listing does not have, and returns its number."""
        self.shapes.append(shape)
        self.layouts.set_layout(len(self.shapes) - 1, layout)
        return len(self.shapes) - 1
