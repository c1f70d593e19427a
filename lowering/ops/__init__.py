"""The primitives of ours, for operations that JAX has no words for, one family per module.

This module exports what tracing code uses of them; `lowering.ops.tasks` is exported by
`lowering.pipelines`.
"""

from lowering.ops.collectives import REPLICAS as REPLICAS
from lowering.ops.collectives import all_gather as all_gather
from lowering.ops.collectives import all_to_all as all_to_all
from lowering.ops.collectives import cross_replica_sum as cross_replica_sum
from lowering.ops.collectives import has_sums_in_loops as has_sums_in_loops
from lowering.ops.collectives import reduce_scatter as reduce_scatter
from lowering.ops.collectives import replica_count as replica_count
from lowering.ops.collectives import replication_index as replication_index
from lowering.ops.draws import draw_words as draw_words
from lowering.ops.draws import random_uint16 as random_uint16
from lowering.ops.draws import wrap_words_as_key as wrap_words_as_key
from lowering.ops.exported import Exported as Exported
from lowering.ops.exported import call_exported as call_exported
from lowering.ops.host_tables import look_up_rows as look_up_rows
from lowering.ops.host_tables import tables_of as tables_of
from lowering.ops.norms import norm_correction as norm_correction
from lowering.ops.norms import norm_group_mean as norm_group_mean
from lowering.ops.norms import update_mean_square as update_mean_square
from lowering.ops.storage import ON_TILES as ON_TILES
from lowering.ops.storage import Storage as Storage
from lowering.ops.storage import bring_from_storage as bring_from_storage
from lowering.ops.storage import move_to_storage as move_to_storage
from lowering.ops.streams import Infeed as Infeed
from lowering.ops.streams import Outfeed as Outfeed
from lowering.ops.streams import Stream as Stream
from lowering.ops.streams import dequeue as dequeue
from lowering.ops.streams import dequeue_p as dequeue_p
from lowering.ops.streams import enqueue as enqueue
from lowering.ops.streams import enqueue_p as enqueue_p
from lowering.ops.streams import queues_of as queues_of
from lowering.ops.streams import repeat_with_queues as repeat_with_queues
from lowering.ops.streams import uses_streams as uses_streams
from lowering.ops.user_ops import UserOp as UserOp
from lowering.ops.user_ops import call_for_each_example as call_for_each_example
from lowering.ops.user_ops import user_callback_p as user_callback_p
from lowering.ops.user_ops import user_op_p as user_op_p
from lowering.ops.user_ops import user_ops_of as user_ops_of
