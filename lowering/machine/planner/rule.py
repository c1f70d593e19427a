"""The cost rule of matrix products and convolutions: a plan as supersteps."""

from __future__ import annotations

from lowering.machine.cost import Cost, Operation, Phase, Vertices, Wanted
from lowering.machine.planner.amp import weights_per_unit
from lowering.machine.planner.constants import DEFAULT_PROPORTION, SUPERSTEP_CYCLES
from lowering.machine.planner.operation import from_operation
from lowering.machine.planner.product import Product
from lowering.machine.planner.reduction import stage_factors
from lowering.machine.planner.search import Plan, plan
from lowering.machine.planner.tiles import ceil_div
from lowering.machine.target import Target

_C = {"float16": "half", "float32": "float"}


def product_cost(op: Operation, target: Target) -> Cost:
    """What a `dot_general` or `conv_general_dilated` costs on one IPU.

    Args:
      op: the operation; `partials` and `memory_proportion` are its own or the defaults.
      target: the chip.
    """
    product = from_operation(op)
    if not op.result.elements:
        return Cost()
    if product.macs == 0:
        return _zeros(op, target)
    proportion = op.memory_proportion
    chosen = plan(product, target, DEFAULT_PROPORTION if proportion is None else proportion)
    return Cost(
        phases=phases_of(chosen, target),
        repeats=chosen.repeats,
        temporary_bytes=chosen.temporary_bytes,
        vertices=_vertices(product, chosen, target),
        flops=2.0 * product.macs,
        operands=(_wanted(product, chosen, "input"), _wanted(product, chosen, "weights")),
        results=(_wanted(product, chosen, "output"),),
    )


def _zeros(op: Operation, target: Target) -> Cost:
    """A sum over nothing is 0, which is filled in (docs/hardware.md, Planner)."""
    held = ceil_div(op.result.bytes, target.tiles_per_ipu)
    cycles = target.workers * (23 + ceil_div(ceil_div(held, target.workers), 8))
    kind = f"popops::Fill<{_C.get(op.result.dtype, op.result.dtype)}>"
    tiles = min(target.tiles_per_ipu, ceil_div(op.result.bytes, 128))
    return Cost(phases=(Phase("Fill", cycles),), vertices=(Vertices(kind, 1, tiles),))


def phases_of(chosen: Plan, target: Target) -> tuple[Phase, ...]:
    """The supersteps of one serial part.

    What is done once, before or after the loop over serial parts, is spread over them. An exchange
    of data that pairs of tiles receive together counts with the bytes of its cycles.

    Args:
      chosen: the plan.
      target: the chip.
    """
    terms = {name: cycles / chosen.repeats for name, cycles in chosen.cycles_by_term}

    def step(name: str, compute: str, *exchanged: str) -> list[Phase]:
        """The superstep of a term, if it takes time; what receives data waits for it."""
        received = sum(terms[term] for term in exchanged) * target.exchange_bytes
        fixed = SUPERSTEP_CYCLES if exchanged else 0
        return [Phase(name, terms[compute] + fixed, received)] if terms[compute] else []

    return (
        *step("PreArrange", "arrange", "arrange_exchange"),
        *step("DynamicSlice", "slice"),
        *step("Convolve", "compute", "inputs_exchange", "weights_exchange", "padding"),
        *_reductions(chosen, terms, target.exchange_bytes),
        *step("Cast", "cast"),
        *step("AddInPlace", "add_in_place"),
        *step("DynamicUpdate", "update"),
        *step("PostArrange", "restore", "restore_exchange"),
    )


def _reductions(chosen: Plan, terms: dict[str, float], per_cycle: int) -> list[Phase]:
    """A superstep per stage; the first ones have most to do and take most of the time."""
    left, weights = 1.0, list[float]()
    for factor in stage_factors(chosen.depth):
        weights.append(left)
        left /= factor
    total = sum(weights)
    return [
        Phase(
            "Reduce",
            terms["reduce"] * weight / total + SUPERSTEP_CYCLES,
            terms["reduce_exchange"] * per_cycle * weight / total,
        )
        for weight in weights
    ]


def _vertex_name(product: Product, chosen: Plan) -> str:
    types = f"{_C[product.dtype]},{_C[product.partials]}"
    kind, grains = chosen.kind, chosen.vertex.grains
    if kind == "amp":
        whole = grains.in_channels == weights_per_unit(product.dtype)
        one_tap = chosen.variant.product.kernel == chosen.partition.kernel
        name = "ConvPartial1x1Out" if whole and one_tap else "ConvPartialnx1"
        return f"poplin::{name}<{types},true,false,{grains.out_channels},4>"
    if kind == "slic":
        return f"poplin::ConvPartial1x4SLIC<{types},{product.stride[-1]},false,4,{grains.groups}>"
    if kind == "vmac":
        return f"poplin::ConvPartialVerticalMac<{types},true,{grains.groups}>"
    if kind == "outer_product":
        return f"poplin::OuterProduct<{_C[product.dtype]}>"
    return f"poplin::ConvPartialHorizontalMac<{types},true>"


def _vertices(product: Product, chosen: Plan, target: Target) -> tuple[Vertices, ...]:
    """The kinds of vertices, one of each per worker or supervisor and tile."""
    terms = dict(chosen.cycles_by_term)
    per_tile = target.workers if chosen.kind == "outer_product" else 1
    dtype, partials, result = _C[product.dtype], _C[product.partials], _C[product.result]
    kinds = {_vertex_name(product, chosen): per_tile}
    if terms["reduce"]:
        stages = len(stage_factors(chosen.depth))
        kinds[f"poplin::ReduceAdd<{result},{partials},true,false>"] = stages
    if terms["cast"]:
        kinds[f"popops::Cast1D<{partials},{result}>"] = 1
    if terms["arrange"] or terms["restore"]:
        kinds[f"popops::TransposeMultiVertex<{dtype}>"] = 1
    if terms["slice"] or terms["update"]:
        kinds[f"popops::DynamicSlice1d<{dtype}>"] = 1
    if terms["add_in_place"]:
        kinds[f"popops::BinaryOp1DInPlaceSupervisor<ADD,{partials}>"] = 1
    return tuple(Vertices(kind, number, chosen.tiles) for kind, number in kinds.items())


def _wanted(product: Product, chosen: Plan, role: str) -> Wanted:
    """Evenly over the plan's tiles, in an order that only the same plan shares.

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
    return Wanted(chosen.tiles, f"{product.kind}-{chosen.variant.name}:{role}:{order}")
