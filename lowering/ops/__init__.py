"""The primitives of ours, for operations that JAX has no words for, one family per module.

This module exports what tracing code uses of them; `lowering.ops.tasks` is exported by
`lowering.pipelines`.
"""

from lowering.ops import host_tables as host_tables
from lowering.ops import user_ops as user_ops
from lowering.ops.collective_primitives import COLLECTIVE_PRIMITIVES as COLLECTIVE_PRIMITIVES
from lowering.ops.collective_primitives import REPLICAS as REPLICAS
from lowering.ops.collective_primitives import all_gather as all_gather
from lowering.ops.collective_primitives import all_to_all as all_to_all
from lowering.ops.collective_primitives import assume_equal as assume_equal
from lowering.ops.collective_primitives import axis_of_replicas as axis_of_replicas
from lowering.ops.collective_primitives import cross_replica_sum as cross_replica_sum
from lowering.ops.collective_primitives import has_sums_in_loops as has_sums_in_loops
from lowering.ops.collective_primitives import reduce_scatter as reduce_scatter
from lowering.ops.collective_primitives import replica_count as replica_count
from lowering.ops.collective_primitives import replication_index as replication_index
from lowering.ops.collective_primitives import resolve_collective as resolve_collective
from lowering.ops.control_flow_primitives import ControlFlow as ControlFlow
from lowering.ops.control_flow_primitives import is_control_flow as is_control_flow
from lowering.ops.cycle_stamps import read_modelled_clock as read_modelled_clock
from lowering.ops.cycle_stamps import stamp_p as stamp_p
from lowering.ops.divergent_conditions import (
    find_divergent_conditions as find_divergent_conditions,
)
from lowering.ops.draws import SEED_WORDS as SEED_WORDS
from lowering.ops.draws import WORDS as WORDS
from lowering.ops.draws import derive_key_words as derive_key_words
from lowering.ops.draws import derive_keys_of_examples as derive_keys_of_examples
from lowering.ops.draws import draw_key_words as draw_key_words
from lowering.ops.draws import draw_p as draw_p
from lowering.ops.draws import first_key_of_run as first_key_of_run
from lowering.ops.draws import is_draw as is_draw
from lowering.ops.draws import random_uint16 as random_uint16
from lowering.ops.draws import wrap_words_as_key as wrap_words_as_key
from lowering.ops.equation_words import function_of_call as function_of_call
from lowering.ops.equation_words import word_of_equation as word_of_equation
from lowering.ops.equation_words import word_of_user_op as word_of_user_op
from lowering.ops.exported import Exported as Exported
from lowering.ops.exported import call_exported as call_exported
from lowering.ops.first_callback import call_for_first_replica as call_for_first_replica
from lowering.ops.first_callback import is_shared_callback as is_shared_callback
from lowering.ops.float16_rounding import POLES as POLES
from lowering.ops.float16_rounding import Float16Format as Float16Format
from lowering.ops.float16_rounding import round_to_float16 as round_to_float16
from lowering.ops.foreign_code import (
    find_actions_outside_compiled_code as find_actions_outside_compiled_code,
)
from lowering.ops.foreign_code import list_called_targets as list_called_targets
from lowering.ops.host_tables import look_up_rows as look_up_rows
from lowering.ops.host_tables import tables_of as tables_of
from lowering.ops.linear_maps import linear_map_p as linear_map_p
from lowering.ops.norm_primitives import NORM_PRIMITIVES as NORM_PRIMITIVES
from lowering.ops.norm_primitives import (
    bessel_correction_over_group as bessel_correction_over_group,
)
from lowering.ops.norm_primitives import mean_square_deviation as mean_square_deviation
from lowering.ops.norm_primitives import norm_group_mean as norm_group_mean
from lowering.ops.norm_primitives import resolve_norm_primitive as resolve_norm_primitive
from lowering.ops.norm_primitives import square_p as square_p
from lowering.ops.partial_sums import accumulate_in_float16 as accumulate_in_float16
from lowering.ops.partial_sums import accumulate_in_float32 as accumulate_in_float32
from lowering.ops.replica_differences import depends_on_replica_count as depends_on_replica_count
from lowering.ops.storage_primitives import ON_TILES as ON_TILES
from lowering.ops.storage_primitives import Storage as Storage
from lowering.ops.storage_primitives import bring_from_storage as bring_from_storage
from lowering.ops.storage_primitives import load_p as load_p
from lowering.ops.storage_primitives import move_to_storage as move_to_storage
from lowering.ops.storage_primitives import store_p as store_p
from lowering.ops.streams import Infeed as Infeed
from lowering.ops.streams import Outfeed as Outfeed
from lowering.ops.streams import Stream as Stream
from lowering.ops.streams import Variables as Variables
from lowering.ops.streams import dequeue as dequeue
from lowering.ops.streams import dequeue_p as dequeue_p
from lowering.ops.streams import enqueue as enqueue
from lowering.ops.streams import enqueue_p as enqueue_p
from lowering.ops.streams import queues_of as queues_of
from lowering.ops.streams import repeat_p as repeat_p
from lowering.ops.streams import repeat_with_queues as repeat_with_queues
from lowering.ops.streams import split_repeat_operands as split_repeat_operands
from lowering.ops.streams import uses_streams as uses_streams
from lowering.ops.supersteps import BetweenIpus as BetweenIpus
from lowering.ops.supersteps import Placement as Placement
from lowering.ops.supersteps import Superstep as Superstep
from lowering.ops.supersteps import TileNumbers as TileNumbers
from lowering.ops.supersteps import TileRuns as TileRuns
from lowering.ops.supersteps import needs_room_on_tiles as needs_room_on_tiles
from lowering.ops.supersteps import superstep_p as superstep_p
from lowering.ops.tasks import Combination as Combination
from lowering.ops.tasks import LoopVariable as LoopVariable
from lowering.ops.tasks import Options as Options
from lowering.ops.tasks import PipelineSpec as PipelineSpec
from lowering.ops.tasks import PlannedPipeline as PlannedPipeline
from lowering.ops.tasks import Recomputation as Recomputation
from lowering.ops.tasks import TaskRole as TaskRole
from lowering.ops.tasks import TaskSpec as TaskSpec
from lowering.ops.tasks import call_without_tracing as call_without_tracing
from lowering.ops.tasks import checkpoint_p as checkpoint_p
from lowering.ops.tasks import evaluate_without_tracing as evaluate_without_tracing
from lowering.ops.tasks import is_task as is_task
from lowering.ops.tasks import mark_recomputation_checkpoint as mark_recomputation_checkpoint
from lowering.ops.tasks import run_as_task as run_as_task
from lowering.ops.tasks import task_p as task_p
from lowering.ops.tasks import trace_with_untraced_calls as trace_with_untraced_calls
from lowering.ops.types import Array as Array
from lowering.ops.user_ops import UserOp as UserOp
from lowering.ops.user_ops import call_for_each_example as call_for_each_example
from lowering.ops.user_ops import name_of_host_operation as name_of_host_operation
from lowering.ops.user_ops import user_callback_p as user_callback_p
from lowering.ops.user_ops import user_op_p as user_op_p
from lowering.ops.user_ops import user_ops_of as user_ops_of
