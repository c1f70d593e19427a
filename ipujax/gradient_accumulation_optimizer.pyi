from .optimizers import (
    CrossReplicaGradientAccumulationOptimizer as CrossReplicaGradientAccumulationOptimizer,
)
from .optimizers import (
    CrossReplicaGradientAccumulationOptimizerV2 as CrossReplicaGradientAccumulationOptimizerV2,
)
from .optimizers import GradientAccumulationOptimizer as GradientAccumulationOptimizer
from .optimizers import GradientAccumulationOptimizerV2 as GradientAccumulationOptimizerV2
from .optimizers import GradientAccumulationState as GradientAccumulationState
