"""The optimizers of PopART."""

from ipujax.popart.optimizers.clipping import ClipNormSettings as ClipNormSettings
from ipujax.popart.optimizers.hyperparameter_values import OptimizerValue as OptimizerValue
from ipujax.popart.optimizers.hyperparameter_values import OptimizerValueMap as OptimizerValueMap
from ipujax.popart.optimizers.optimizer import Optimizer as Optimizer
from ipujax.popart.optimizers.optimizer_kinds import AdamMode as AdamMode
from ipujax.popart.optimizers.optimizer_kinds import AdaptiveMode as AdaptiveMode
from ipujax.popart.optimizers.optimizer_kinds import (
    SGDAccumulatorAndMomentum as SGDAccumulatorAndMomentum,
)
from ipujax.popart.optimizers.optimizer_kinds import WeightDecayMode as WeightDecayMode
from ipujax.popart.optimizers.popart_adam import Adam as Adam
from ipujax.popart.optimizers.popart_adaptive import Adaptive as Adaptive
from ipujax.popart.optimizers.popart_sgd import SGD as SGD
from ipujax.popart.optimizers.popart_sgd import ConstSGD as ConstSGD
