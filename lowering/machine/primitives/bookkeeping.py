"""Primitives that mark, name, place or move data, and the local part of collectives.

Transfers between IPUs and to the host are charged by `lowering.machine.transfers`; here is only the
work of the tiles. Control flow is walked by the model and comes here, if at all, by mistake; it is
then free.
"""

from __future__ import annotations

import dataclasses as dc

from lowering.machine.cost import Cost, Operation, Shape
from lowering.machine.primitives.composite import sum_costs
from lowering.machine.primitives.elementwise_cost import elementwise_cost
from lowering.machine.primitives.rule_helpers import FREE, Rule, rules_for_names, zero_cost_rule
from lowering.machine.primitives.view_rules import copy_cost
from lowering.machine.target import Target

_IDENTITIES = """
after_all axis_index box_get box_set constant create_linear create_token dce_sink device_put
dim_as_value dimension_size empty_ref free_ref freeze inspect_sharding layout_constraint log_extend
log_read name new_box new_log new_ref optimization_barrier pin platform_index preduced pvary
reduced_vary_cast reduced_vary_cast_p reshard shape_assertion sharding_constraint stop_gradient tie
unpin unreachable vary_unreduced_cast vary_unreduced_cast_p with_memory_space_constraint
"""

_OUTSIDE = """
check debug_callback debug_print io_callback ipu_dequeue ipu_enqueue ipu_first_callback
ipu_host_lookup ipu_host_update ipu_load ipu_recomputation_checkpoint ipu_repeat ipu_replica_count
ipu_replication_index ipu_store ipu_task ipu_user_callback pure_callback
"""

_CONTROL = """
call call_exported call_hi_primitive call_hi_primitive_linearized closed_call composite cond
core_map custom_jvp_call custom_jvp_call_jaxpr custom_lin custom_linear_solve custom_partitioning
custom_vjp_call custom_vmap_call eval_jaxpr jit linear_call remat2 remat_opt run_state scan
shard_map stage while
"""

_MOVES = """
all_gather all_gather_invariant all_gather_reduced all_to_all ipu_all_gather pbroadcast ppermute
precv psend ragged_all_to_all
"""

_SUMS = """
ipu_cross_replica_sum pmax pmin psum psum_invariant reduce_scatter unreduced_psum
unreduced_reduce_scatter
"""


def cost_of_replica_sum(op: Operation, target: Target) -> Cost:
    """Returns the cost of a sum over replicas: one addition for each element of a replica."""
    cost = sum_costs((1, _cost_of_addition(shape, target)) for shape in op.operands)
    phases = tuple(dc.replace(phase, name="CrossReplicaSum") for phase in cost.phases)
    return dc.replace(cost, phases=phases, in_place=True)


def cost_of_in_place_addition(op: Operation, target: Target) -> Cost:
    """Returns the cost of adding an array to that of a reference."""
    return _cost_of_addition(op.operands[-1], target)


def _cost_of_addition(shape: Shape, target: Target) -> Cost:
    return elementwise_cost(Operation("add", (shape, shape), (shape,)), target)


def cost_of_reference_access(op: Operation, target: Target) -> Cost:
    """Returns the cost of copying what a reference gives."""
    return copy_cost(op, target) if op.results else FREE


RULES: dict[str, Rule] = {
    **rules_for_names(zero_cost_rule, _IDENTITIES + _OUTSIDE + _CONTROL),
    **{name + end: zero_cost_rule for name in _MOVES.split() for end in ("", "_start", "_done")},
    **{name + end: cost_of_replica_sum for name in _SUMS.split() for end in ("", "_start")},
    **{name + "_done": zero_cost_rule for name in _SUMS.split()},
    **rules_for_names(cost_of_in_place_addition, "accum_grad_in_ref addupdate"),
    **rules_for_names(cost_of_reference_access, "get swap"),
}
