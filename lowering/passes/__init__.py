"""The passes of `lowering.compiler`, one per file, each a pure function."""

from lowering.passes import serialized as serialized
from lowering.passes import variants as variants
from lowering.passes.as_products import (
    rewrite_convolutions_as_products as rewrite_convolutions_as_products,
)
from lowering.passes.call_once import call_once as call_once
from lowering.passes.channels_last import move_channels_last as move_channels_last
from lowering.passes.check_queues import check_queues as check_queues
from lowering.passes.combine_lookups import combine_lookups as combine_lookups
from lowering.passes.combine_products import combine_products as combine_products
from lowering.passes.combine_updates import combine_updates as combine_updates
from lowering.passes.discharge_refs import discharge_refs as discharge_refs
from lowering.passes.drop_dead import drop_dead as drop_dead
from lowering.passes.drop_idle_loops import drop_idle_loops as drop_idle_loops
from lowering.passes.drop_shardings import drop_shardings as drop_shardings
from lowering.passes.equation_placement import ancestors as ancestors
from lowering.passes.equation_placement import (
    infer_shard_from_twin_or_operands as infer_shard_from_twin_or_operands,
)
from lowering.passes.equation_placement import (
    producer_of_each_variable as producer_of_each_variable,
)
from lowering.passes.equation_placement import propagate_shard_marks as propagate_shard_marks
from lowering.passes.equation_placement import read_shard_mark as read_shard_mark
from lowering.passes.inline_calls import inline_calls as inline_calls
from lowering.passes.insert_checks import insert_checks as insert_checks
from lowering.passes.insert_copies import insert_copies as insert_copies
from lowering.passes.keep_small import keep_small as keep_small
from lowering.passes.keep_stored import keep_stored as keep_stored
from lowering.passes.load_late import load_late as load_late
from lowering.passes.meet_at_collectives import meet_at_collectives as meet_at_collectives
from lowering.passes.merge_copies import merge_copies as merge_copies
from lowering.passes.number_formats import number_formats as number_formats
from lowering.passes.offload_activations import offload_activations as offload_activations
from lowering.passes.open_single_meshes import open_single_meshes as open_single_meshes
from lowering.passes.partition import partition as partition
from lowering.passes.place import find_used_shards as find_used_shards
from lowering.passes.place import line_of_shard as line_of_shard
from lowering.passes.place import place as place
from lowering.passes.plan_pipelines import plan_pipelines as plan_pipelines
from lowering.passes.recompute import recompute as recompute
from lowering.passes.recompute_cheap import recompute_cheap as recompute_cheap
from lowering.passes.resolve_draws import resolve_draws as resolve_draws
from lowering.passes.resolve_norms import resolve_norms as resolve_norms
from lowering.passes.resolve_replicas import resolve_replicas as resolve_replicas
from lowering.passes.scalar_predicates import scalar_predicates as scalar_predicates
from lowering.passes.simplify_gathers import simplify_gathers as simplify_gathers
from lowering.passes.size_fifos import size_fifos as size_fifos
from lowering.passes.split_backward import split_backward as split_backward
from lowering.passes.take_turns import take_turns as take_turns
