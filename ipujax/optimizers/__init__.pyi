"""Optimizers that wrap an optax transformation and are one themselves.

A training step has two parts. `compute_gradients` maps the gradients of each mini-batch,
`apply_gradients` turns the mapped gradients into an update of the variables. `update`, the one
function that optax calls, does both. Optax's explicit state holds the values that the original's
optimizers kept in variables; outside compiled code there is one replica.
"""

from . import cross_replica_optimizer as cross_replica_optimizer
from . import gradient_accumulation_optimizer as gradient_accumulation_optimizer
from . import map_gradient_optimizer as map_gradient_optimizer
from . import reduction_method as reduction_method
from . import sharded_optimizer as sharded_optimizer
from . import worker_summation as worker_summation
from .accumulation import Storage as Storage
from .accumulation import add_to_accumulator as add_to_accumulator
from .accumulation import choose_state_storage as choose_state_storage
from .accumulation import make_dtype_chooser as make_dtype_chooser
from .accumulation import refuse_changed_leaves as refuse_changed_leaves
from .accumulation import store_state_between_updates as store_state_between_updates
from .cross_replica_optimizer import CrossReplicaOptimizer as CrossReplicaOptimizer
from .gradient_accumulation_optimizer import (
    CrossReplicaGradientAccumulationOptimizer as CrossReplicaGradientAccumulationOptimizer,
)
from .gradient_accumulation_optimizer import (
    CrossReplicaGradientAccumulationOptimizerV2 as CrossReplicaGradientAccumulationOptimizerV2,
)
from .gradient_accumulation_optimizer import (
    GradientAccumulationOptimizer as GradientAccumulationOptimizer,
)
from .gradient_accumulation_optimizer import (
    GradientAccumulationOptimizerV2 as GradientAccumulationOptimizerV2,
)
from .gradient_accumulation_optimizer import GradientAccumulationState as GradientAccumulationState
from .ipu_optimizer import IpuOptimizer as IpuOptimizer
from .ipu_optimizer import apply_gradients as apply_gradients
from .ipu_optimizer import compute_gradients as compute_gradients
from .ipu_optimizer import maps_gradients as maps_gradients
from .map_gradient_optimizer import MapGradientOptimizer as MapGradientOptimizer
from .reduction_method import (
    GradientAccumulationReductionMethod as GradientAccumulationReductionMethod,
)
from .reduction_method import parse_reduction_method as parse_reduction_method
from .sharded_optimizer import ShardedOptimizer as ShardedOptimizer
from .summing_optimizer import SummingOptimizer as SummingOptimizer
from .trained_leaves import apply_updates as apply_updates
from .trained_leaves import drop_untrained_gradients as drop_untrained_gradients
from .trained_leaves import has_gradient as has_gradient
from .trained_leaves import init_optimizer_state as init_optimizer_state
from .worker_summation import Summation as Summation
from .worker_summation import broadcast_from_chief as broadcast_from_chief
from .worker_summation import broadcast_from_first_replica as broadcast_from_first_replica
from .worker_summation import get_current_summation as get_current_summation
