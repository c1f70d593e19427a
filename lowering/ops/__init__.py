"""The primitives of ours: what a jaxpr says that JAX has no words for, one family per module.

Here is what those who trace functions use of them; `lowering.ops.tasks` is a part of
`lowering.pipelines` for them.
"""

from lowering.ops.collectives import REPLICAS as REPLICAS
from lowering.ops.collectives import all_gather as all_gather
from lowering.ops.collectives import all_to_all as all_to_all
from lowering.ops.collectives import cross_replica_sum as cross_replica_sum
from lowering.ops.collectives import reduce_scatter as reduce_scatter
from lowering.ops.collectives import replica_count as replica_count
from lowering.ops.collectives import replication_index as replication_index
from lowering.ops.collectives import sums_in_loops as sums_in_loops
from lowering.ops.draws import as_key as as_key
from lowering.ops.draws import draw as draw
from lowering.ops.draws import random_halves as random_halves
from lowering.ops.exported import Exported as Exported
from lowering.ops.exported import call_exported as call_exported
from lowering.ops.host_tables import lookup as lookup
from lowering.ops.host_tables import tables_of as tables_of
from lowering.ops.norms import mean_square as mean_square
from lowering.ops.norms import norm_correction as norm_correction
from lowering.ops.norms import norm_group_mean as norm_group_mean
from lowering.ops.storage import HERE as HERE
from lowering.ops.storage import Storage as Storage
from lowering.ops.storage import load as load
from lowering.ops.storage import store as store
from lowering.ops.streams import Infeed as Infeed
from lowering.ops.streams import Outfeed as Outfeed
from lowering.ops.streams import Stream as Stream
from lowering.ops.streams import dequeue as dequeue
from lowering.ops.streams import dequeue_p as dequeue_p
from lowering.ops.streams import enqueue as enqueue
from lowering.ops.streams import enqueue_p as enqueue_p
from lowering.ops.streams import queues_of as queues_of
from lowering.ops.streams import repeat as repeat
from lowering.ops.streams import uses_streams as uses_streams
from lowering.ops.user_ops import UserOp as UserOp
from lowering.ops.user_ops import one_by_one as one_by_one
from lowering.ops.user_ops import user_callback_p as user_callback_p
from lowering.ops.user_ops import user_op_p as user_op_p
from lowering.ops.user_ops import user_ops_of as user_ops_of
