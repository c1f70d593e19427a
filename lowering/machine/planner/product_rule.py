"""The cost rule of matrix products and convolutions: a plan as supersteps."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lowering.machine.cost import Cost, Operation, Phase, Vertices, WantedLayout
from lowering.machine.planner.amp import weights_per_unit
from lowering.machine.planner.operation import count_product_flops, product_of_operation
from lowering.machine.planner.planner_constants import DEFAULT_PROPORTION
from lowering.machine.planner.product import Product
from lowering.machine.planner.reduction import find_stage_factors
from lowering.machine.planner.search import Plan, find_least_proportion, plan_product
from lowering.machine.planner.tiles import ceil_div
from lowering.machine.target import Target
from lowering.machine.transfers.exchange_code import (
    Pieces,
    partial_pieces,
    scattered_pieces,
    shared_pieces,
)

_C = {"float16": "half", "float32": "float"}


def product_cost(op: Operation, target: Target) -> Cost:
    """Returns the cost of a `dot_general` or `conv_general_dilated` on one IPU.

    Args:
      op: the operation; `partials` and `memory_proportion` are its own or the defaults.
      target: the chip.
    """
    product = product_of_operation(op)
    if not op.first_result.elements:
        return Cost()
    if product.macs == 0:
        return _cost_of_zero_fill(op, target)
    proportion = op.memory_proportion
    chosen = plan_product(product, target, DEFAULT_PROPORTION if proportion is None else proportion)
    return Cost(
        phases=phases_of_plan(chosen, target),
        repeats=chosen.serial_parts,
        temporary_bytes=chosen.space_bytes,
        vertices=_vertices_of_plan(product, chosen, target),
        flops=count_product_flops(op, product),
        units=None if product.scalar else (product.dtype, product.partials),
        operands=(
            _layout_for_role(product, chosen, "input"),
            _layout_for_role(product, chosen, "weights"),
        ),
        results=(_layout_for_role(product, chosen, "output"),),
    )


def least_equal_proportion(op: Operation, target: Target, proportion: float | None) -> float | None:
    """Returns the least memory proportion with the plan of another one; None without a plan.

    Args:
      op: a `dot_general` or `conv_general_dilated`.
      target: the chip.
      proportion: the other one; None for the default.
    """
    product = product_of_operation(op)
    if product.macs == 0:
        return None
    other = DEFAULT_PROPORTION if proportion is None else proportion
    return find_least_proportion(product, target, other)


def _cost_of_zero_fill(op: Operation, target: Target) -> Cost:
    """Returns the cost of filling in zeros: a sum over nothing is 0 (docs/hardware.md, Planner)."""
    bytes_per_tile = ceil_div(op.first_result.bytes, target.tiles_per_ipu)
    cycles = target.workers * (23 + ceil_div(ceil_div(bytes_per_tile, target.workers), 8))
    kind = f"popops::Fill<{_C.get(op.first_result.dtype, op.first_result.dtype)}>"
    tiles = min(target.tiles_per_ipu, ceil_div(op.first_result.bytes, 128))
    return Cost(phases=(Phase("Fill", cycles),), vertices=(Vertices(kind, 1, tiles),))


def phases_of_plan(chosen: Plan, target: Target) -> tuple[Phase, ...]:
    """Returns the supersteps of one serial part of a plan.

    Work before or after the loop over serial parts is divided among them. An exchange
    of data that pairs of tiles receive together counts with the bytes of its cycles.

    Args:
      chosen: the plan.
      target: the chip.
    """
    terms = {name: cycles / chosen.serial_parts for name, cycles in chosen.cycles_by_term}
    pieces_of_term = _pieces_by_term(chosen, target)

    def phase_of_term(name: str, compute: str, *exchanged: str) -> list[Phase]:
        """Returns the superstep of a term, if it takes time."""
        received = sum(terms[term] for term in exchanged) * target.exchange_bytes
        pieces = sum((pieces_of_term[term] for term in exchanged), Pieces())
        receivers = chosen.tiles_taking_part
        phase = Phase(name, terms[compute], received, receivers=receivers, pieces=pieces)
        return [phase] if terms[compute] else []

    return (
        *phase_of_term("PreArrange", "arrange", "arrange_exchange"),
        *phase_of_term("DynamicSlice", "slice"),
        *phase_of_term("Convolve", "compute", "inputs_exchange", "weights_exchange", "padding"),
        *_phases_of_reduction(chosen, terms, target.exchange_bytes),
        *phase_of_term("Cast", "cast"),
        *phase_of_term("AddInPlace", "add_in_place"),
        *phase_of_term("DynamicUpdate", "update"),
        *phase_of_term("PostArrange", "restore", "restore_exchange"),
    )


def _pieces_by_term(chosen: Plan, target: Target) -> dict[str, Pieces]:
    """Returns the pieces of each exchange of operands, in one serial part.

    Every tile holds an even share of inputs and weights, of the parts that it works on, and sends
    it to all tiles that work on the same part. What is rearranged comes in blocks of the plan's
    order. Zeros of padding come from the tile itself.
    """
    product, tiles = chosen.variant.product, chosen.tiles_taking_part
    received = {
        name: cycles * target.exchange_bytes / chosen.serial_parts
        for name, cycles in chosen.cycles_by_term
    }
    inputs, weights, block = (
        product.input_elements * product.element_bytes / tiles / chosen.serial_in,
        product.weight_elements * product.element_bytes / tiles / chosen.serial_parts,
        math.prod(_block_of_role(chosen, "input")) * product.element_bytes,
    )
    return {
        "inputs_exchange": shared_pieces(received["inputs_exchange"], inputs),
        "weights_exchange": shared_pieces(received["weights_exchange"], weights),
        "padding": Pieces(),
        "arrange_exchange": scattered_pieces(received["arrange_exchange"], block, tiles),
        "restore_exchange": scattered_pieces(received["restore_exchange"], block, tiles),
    }


def _block_of_role(chosen: Plan, role: str) -> tuple[int, int]:
    """Returns the channels and positions that follow each other in an operand or result.

    Channels of a grain are innermost, then come positions of the field, and then other grains
    (poplibs: ConvUtil.cpp splitActivationChanGroups); of weights, pairs of channels, then taps.
    """
    product, cut, grains = chosen.variant.product, chosen.partition, chosen.vertex.grains
    if role == "weights":
        return grains.in_channels * grains.out_channels * grains.groups, math.prod(product.kernel)
    if role == "input":
        return grains.in_channels * grains.groups, _adjoining(product.input_field, cut.field)
    return grains.out_channels * grains.groups, _adjoining(product.field, cut.field)


def _adjoining(extents: Sequence[int], cuts: Sequence[int]) -> int:
    """Returns how many positions of a part follow each other in the order of all."""
    count = 1
    for extent, cut in zip(reversed(extents), reversed(cuts), strict=True):
        count *= ceil_div(extent, cut)
        if cut > 1:
            break
    return count


def _phases_of_reduction(chosen: Plan, terms: dict[str, float], per_cycle: int) -> list[Phase]:
    """Returns a superstep per reduction stage; the first ones take most of the time."""
    weight_of_stage, weights = 1.0, list[float]()
    factors = find_stage_factors(chosen.depth)
    for factor in factors:
        weights.append(weight_of_stage)
        weight_of_stage /= factor
    total = sum(weights)
    return [
        Phase(
            "Reduce",
            terms["reduce"] * weight / total,
            terms["reduce_exchange"] * per_cycle * weight / total,
            receivers=chosen.tiles_taking_part,
            pieces=partial_pieces(factor - 1),
        )
        for weight, factor in zip(weights, factors, strict=True)
    ]


def _vertex_name(product: Product, chosen: Plan) -> str:
    types = f"{_C[product.dtype]},{_C[product.partials]}"
    kind, grains = chosen.vertex_kind, chosen.vertex.grains
    if kind == "amp":
        takes_whole_units = grains.in_channels == weights_per_unit(product.dtype)
        one_tap = chosen.variant.product.kernel == chosen.partition.kernel
        name = "ConvPartial1x1Out" if takes_whole_units and one_tap else "ConvPartialnx1"
        return f"poplin::{name}<{types},true,false,{grains.out_channels},4>"
    if kind == "slic":
        return f"poplin::ConvPartial1x4SLIC<{types},{product.stride[-1]},false,4,{grains.groups}>"
    if kind == "vmac":
        return f"poplin::ConvPartialVerticalMac<{types},true,{grains.groups}>"
    if kind == "outer_product":
        return f"poplin::OuterProduct<{_C[product.dtype]}>"
    return f"poplin::ConvPartialHorizontalMac<{types},true>"


def _vertices_of_plan(product: Product, chosen: Plan, target: Target) -> tuple[Vertices, ...]:
    """Returns the kinds of vertices of a plan, one of each per worker or supervisor and tile."""
    terms = dict(chosen.cycles_by_term)
    per_tile = target.workers if chosen.vertex_kind == "outer_product" else 1
    dtype, partials, result = _C[product.dtype], _C[product.partials], _C[product.result]
    kinds = {_vertex_name(product, chosen): per_tile}
    if terms["reduce"]:
        stages = len(find_stage_factors(chosen.depth))
        kinds[f"poplin::ReduceAdd<{result},{partials},true,false>"] = stages
    if terms["cast"]:
        kinds[f"popops::Cast1D<{partials},{result}>"] = 1
    if terms["arrange"] or terms["restore"]:
        kinds[f"popops::TransposeMultiVertex<{dtype}>"] = 1
    if terms["slice"] or terms["update"]:
        kinds[f"popops::DynamicSlice1d<{dtype}>"] = 1
    if terms["add_in_place"]:
        kinds[f"popops::BinaryOp1DInPlaceSupervisor<ADD,{partials}>"] = 1
    return tuple(Vertices(kind, number, chosen.tiles_taking_part) for kind, number in kinds.items())


def _layout_for_role(product: Product, chosen: Plan, role: str) -> WantedLayout:
    """Returns the layout of an operand or result: over the plan's tiles, in the plan's order.

    The order names the product's extents, its cuts and its grains. The forward pass's weights
    therefore differ from those that the gradient of its input wants, transposed or not.
    """
    shape, cut, grains = chosen.variant.product, chosen.partition, chosen.vertex.grains
    order = ".".join(
        "x".join(str(part) for part in parts)
        for parts in (
            (shape.groups, shape.batch, *shape.field),
            (*shape.kernel, shape.in_channels, shape.out_channels),
            (cut.groups, cut.batch, *cut.field, *cut.kernel, cut.in_channels, cut.out_channels),
            (chosen.serial_in, chosen.serial_out),
            (grains.groups, grains.in_channels, grains.out_channels),
        )
    )
    return WantedLayout(
        chosen.tiles_taking_part,
        f"{product.kind}-{chosen.variant.name}:{role}:{order}",
        _block_of_role(chosen, role),
    )
