from .optimizers.reduction_method import (
    GradientAccumulationReductionMethod as GradientAccumulationReductionMethod,
)
