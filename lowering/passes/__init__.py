"""The passes of `lowering.compiler`, one per file, each a pure function."""

from lowering.passes import serialized as serialized
from lowering.passes import variants as variants
from lowering.passes.add_missing_batching_rules import (
    add_missing_batching_rules as add_missing_batching_rules,
)
from lowering.passes.align_replicas_at_collectives import (
    align_replicas_at_collectives as align_replicas_at_collectives,
)
from lowering.passes.as_products import (
    rewrite_convolutions_as_products as rewrite_convolutions_as_products,
)
from lowering.passes.channels_last import move_channels_last as move_channels_last
from lowering.passes.combine_lookups import combine_lookups as combine_lookups
from lowering.passes.combine_products import combine_products as combine_products
from lowering.passes.combine_updates import combine_updates as combine_updates
from lowering.passes.discharge_refs import discharge_refs as discharge_refs
from lowering.passes.drop_dead import drop_dead as drop_dead
from lowering.passes.drop_idle_loops import drop_idle_loops as drop_idle_loops
from lowering.passes.drop_recomputed_enqueues import (
    drop_recomputed_enqueues as drop_recomputed_enqueues,
)
from lowering.passes.drop_shardings import drop_shardings as drop_shardings
from lowering.passes.drop_shardings import list_lines_with_shardings as list_lines_with_shardings
from lowering.passes.equation_placement import equations_needed_by as equations_needed_by
from lowering.passes.equation_placement import (
    infer_shard_from_twin_or_operands as infer_shard_from_twin_or_operands,
)
from lowering.passes.equation_placement import (
    producer_of_each_variable as producer_of_each_variable,
)
from lowering.passes.equation_placement import propagate_shard_marks as propagate_shard_marks
from lowering.passes.equation_placement import read_shard_mark as read_shard_mark
from lowering.passes.exchanged_sums import (
    exchange_sums_of_two_replicas as exchange_sums_of_two_replicas,
)
from lowering.passes.find_row_splits import RowSplit as RowSplit
from lowering.passes.inline_calls import inline_calls as inline_calls
from lowering.passes.inline_single_device_shard_maps import (
    inline_single_device_shard_maps as inline_single_device_shard_maps,
)
from lowering.passes.insert_checks import insert_checks as insert_checks
from lowering.passes.insert_copies import insert_copies as insert_copies
from lowering.passes.keep_loop_variables_stored import (
    keep_loop_variables_stored as keep_loop_variables_stored,
)
from lowering.passes.keep_small_values_on_tiles import (
    asks_to_offload_state as asks_to_offload_state,
)
from lowering.passes.keep_small_values_on_tiles import (
    keep_small_values_on_tiles as keep_small_values_on_tiles,
)
from lowering.passes.load_late import load_late as load_late
from lowering.passes.make_callbacks_on_first_replica import (
    make_callbacks_on_first_replica as make_callbacks_on_first_replica,
)
from lowering.passes.make_loop_conditions_scalar import (
    make_loop_conditions_scalar as make_loop_conditions_scalar,
)
from lowering.passes.merge_copies import merge_copies as merge_copies
from lowering.passes.number_formats import emulate_partial_sums as emulate_partial_sums
from lowering.passes.number_formats import number_formats as number_formats
from lowering.passes.offload_activations import offload_activations as offload_activations
from lowering.passes.partition import partition as partition
from lowering.passes.place import brings_ipus as brings_ipus
from lowering.passes.place import find_used_shards as find_used_shards
from lowering.passes.place import line_of_shard as line_of_shard
from lowering.passes.place import place as place
from lowering.passes.plan_pipelines import plan_pipelines as plan_pipelines
from lowering.passes.recompute import recompute as recompute
from lowering.passes.recompute_cheap import recompute_cheap as recompute_cheap
from lowering.passes.resolve_collectives import resolve_collectives as resolve_collectives
from lowering.passes.resolve_cycle_stamps import resolve_cycle_stamps as resolve_cycle_stamps
from lowering.passes.resolve_draws import resolve_draws as resolve_draws
from lowering.passes.resolve_norms import resolve_norms as resolve_norms
from lowering.passes.select_cheap_branches import (
    select_cheap_branches as select_cheap_branches,
)
from lowering.passes.simplify_gathers import simplify_gathers as simplify_gathers
from lowering.passes.size_fifos import add_fifos as add_fifos
from lowering.passes.size_fifos import size_fifos as size_fifos
from lowering.passes.split_backward import split_backward as split_backward
from lowering.passes.split_stacked_arguments import (
    split_stacked_arguments as split_stacked_arguments,
)
from lowering.passes.window_maxima import rewrite_window_maxima as rewrite_window_maxima
