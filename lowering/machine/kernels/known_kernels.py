"""Kernels that were modelled, each once for all programs and options under which it costs as much.

Equal layers make equal kernels, and most options change few of them: the model of a program under
another option finds nearly all of its kernels here.
"""

from __future__ import annotations

import dataclasses as dc
from collections.abc import Hashable, Mapping, Sequence
from weakref import WeakKeyDictionary

from lowering import marks
from lowering.ir import Kernel
from lowering.jaxprs import (
    JaxprEqn,
    call_path,
    name_stack,
    structure_key,
    user_line,
    walk_equations,
)
from lowering.machine.kernels.directions import Directions
from lowering.machine.kernels.fusing import fuse_elementwise_chains
from lowering.machine.kernels.items import Listing
from lowering.machine.kernels.iterations import BranchPerIteration
from lowering.machine.kernels.kernel_cost import model_kernel
from lowering.machine.kernels.layouts import TensorLayout
from lowering.machine.kernels.listing import PLANNED, PlanOptions, list_operations
from lowering.machine.kernels.proportions import find_proportions, set_proportions
from lowering.machine.kernels.relocation import replace_stand_ins, use_stand_ins
from lowering.machine.kernels.scheduling import schedule_items
from lowering.machine.kernels.side_by_side import group_convolutions
from lowering.machine.kernels.totals import KernelCost, SignatureNumbers
from lowering.machine.primitives import ELEMENTWISE, VIEWS
from lowering.machine.target import Target
from lowering.machine.transfers.between_replicas import Collectives
from lowering.machine.transfers.exchanges import HostLink


@dc.dataclass(frozen=True, slots=True)
class KernelSettings:
    """What a kernel's cost depends on beside its equations, operands and place in loops.

    Attributes:
      target: what the tiles that compute see of the chip.
      host: the cost of transfers to and from the host.
      reorders: whether operations come in an order that has less alive at a time.
    """

    target: Target
    host: HostLink
    reorders: bool


@dc.dataclass(frozen=True, slots=True)
class KernelRun:
    """One run of a kernel in a program.

    Attributes:
      kernel: the kernel.
      operands: the layouts of its operands; None for those that it may lay out.
      plans: the options of the planner.
      collectives: the costs of operations between replicas.
      directions: the directions of its equations.
      branches: the branches that iterations of loops take, by the identity of the equation.
      iteration: the iteration of the innermost loop around it; None outside of loops.
    """

    kernel: Kernel
    operands: Sequence[TensorLayout | None]
    plans: PlanOptions
    collectives: Collectives
    directions: Directions
    branches: Mapping[int, BranchPerIteration]
    iteration: int | None


class KnownKernels:
    """The costs of kernels that were modelled so far.

    Attributes:
      numbers: gives signatures of operations their numbers, the same in all models.
    """

    def __init__(self) -> None:
        self.numbers = SignatureNumbers()
        self._structures = WeakKeyDictionary[Kernel, "_Structure"]()
        self._numbers_of_keys: dict[Hashable, int] = {}
        # Each with its key, so that no other one gets its identity.
        self._numbers_of_objects: dict[int, tuple[Hashable, int]] = {}
        self._listings_without_proportions: dict[Hashable, Listing] = {}
        self._listings: dict[int, Listing] = {}
        self._numbers_of_listings: dict[Hashable, int] = {}
        self._costs: dict[Hashable, KernelCost] = {}
        self._costs_on_tiles: dict[Hashable, KernelCost] = {}

    def cost_of_run(self, run: KernelRun, settings: KernelSettings) -> KernelCost:
        """Returns the cost of a kernel; equal kernels, lines included, are modelled once."""
        branches = tuple(
            (position, run.branches[id(eqn)].tobytes())
            for position, eqn in enumerate(walk_equations(run.kernel.jaxpr) if run.branches else ())
            if id(eqn) in run.branches
        )
        listing = self._number_of_listing(run, branches, settings)
        iteration = run.iteration if branches else None
        stand_ins = use_stand_ins(run.operands)
        key = listing, self._number_of_object(settings.target), iteration, stand_ins
        links = self._number_of_object(settings.host), self._number_of_object(run.collectives)
        key_of_leaving = key, links
        cost = self._costs.get(key) or self._costs.get(key_of_leaving)
        if cost is None:
            cost = model_kernel(
                self._listings[listing],
                stand_ins,
                settings.target,
                run.collectives,
                host=settings.host,
                iteration=iteration,
                numbers=self.numbers,
            )
            self._costs[key_of_leaving if cost.leaves_ipu else key] = cost
        tiles = tuple(layout.mapping.first_tile if layout else None for layout in run.operands)
        tiles_key = id(cost), tiles
        if tiles_key not in self._costs_on_tiles:
            self._costs_on_tiles[tiles_key] = replace_stand_ins(cost, run.operands)
        return self._costs_on_tiles[tiles_key]

    def _number_of_listing(
        self, run: KernelRun, branches: tuple[tuple[int, bytes], ...], settings: KernelSettings
    ) -> int:
        """Returns the number of a kernel's listing, in which its products have their plans."""
        structure = self._structure_of(run.kernel)
        target = self._number_of_object(settings.target)
        options = (run.plans, target) if structure.is_planned else None
        rest = structure.number, run.directions, branches, settings.reorders
        if (options, rest) not in self._numbers_of_listings:
            key = rest if options is None else (*rest, run.plans.without_proportions)
            listing = self._listings_without_proportions.get(key)
            if listing is None:
                listing = _list_kernel(run, reorders=settings.reorders)
                self._listings_without_proportions[key] = listing
            proportions = find_proportions(listing, run.plans, settings.target)
            number = self._number_of((key, *proportions.values()))
            if number not in self._listings:
                self._listings[number] = set_proportions(listing, proportions)
            self._numbers_of_listings[options, rest] = number
        return self._numbers_of_listings[options, rest]

    def _structure_of(self, kernel: Kernel) -> _Structure:
        structure = self._structures.get(kernel)
        if structure is None:
            equations = list(walk_equations(kernel.jaxpr))
            key = structure_key(kernel.jaxpr), tuple(map(_origin_of_equation, equations))
            is_planned = any(PlanOptions.act_on(eqn.primitive.name) for eqn in equations)
            structure = self._structures[kernel] = _Structure(self._number_of(key), is_planned)
        return structure

    def _number_of(self, key: Hashable) -> int:
        """Returns a short key that stands for a long one."""
        return self._numbers_of_keys.setdefault(key, len(self._numbers_of_keys))

    def _number_of_object(self, key: Hashable) -> int:
        """Returns the same for a key that all runs of a model share, which is hashed once."""
        if id(key) not in self._numbers_of_objects:
            self._numbers_of_objects[id(key)] = key, self._number_of(key)
        return self._numbers_of_objects[id(key)][1]


@dc.dataclass(frozen=True, slots=True)
class _Structure:
    """What a kernel computes, by lines.

    Attributes:
      number: the same for kernels of equal equations from equal lines.
      is_planned: whether options of the planner change it.
    """

    number: int
    is_planned: bool


def _origin_of_equation(eqn: JaxprEqn) -> tuple[object, ...]:
    """Returns the user's lines and scopes of an equation, and the marks that a plan follows."""
    stack = name_stack(eqn)
    mark = marks.read_marks(stack)
    is_planned = eqn.primitive.name in PLANNED
    return (
        user_line(eqn),
        call_path(eqn),
        marks.user_scopes(stack),
        mark.fuses_lines,
        (mark.block, mark.backward) if is_planned or mark.block is not None else (),
        mark.partials_type,
        mark.multi_conv if is_planned else (),
    )


def _list_kernel(run: KernelRun, *, reorders: bool) -> Listing:
    listing = list_operations(
        run.kernel.jaxpr, run.plans, branches=run.branches, directions=run.directions
    )
    listing = group_convolutions(fuse_elementwise_chains(listing, ELEMENTWISE.__contains__))
    return schedule_items(listing, VIEWS.__contains__) if reorders else listing
