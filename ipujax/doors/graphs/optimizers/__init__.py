"""The formulas of optimizers, and what applies them to the variables of a program."""

from __future__ import annotations

from ipujax.doors.graphs.optimizers.adam import ADAM as ADAM
from ipujax.doors.graphs.optimizers.adam import ADAMAX as ADAMAX
from ipujax.doors.graphs.optimizers.adam import LAMB as LAMB
from ipujax.doors.graphs.optimizers.adam import NADAM as NADAM
from ipujax.doors.graphs.optimizers.adam import RADAM as RADAM
from ipujax.doors.graphs.optimizers.adaptive import ADADELTA as ADADELTA
from ipujax.doors.graphs.optimizers.adaptive import ADAGRAD as ADAGRAD
from ipujax.doors.graphs.optimizers.adaptive import RMSPROP as RMSPROP
from ipujax.doors.graphs.optimizers.formula import NAMES_ON_IPU as NAMES_ON_IPU
from ipujax.doors.graphs.optimizers.formula import Formula as Formula
from ipujax.doors.graphs.optimizers.formula import Numbers as Numbers
from ipujax.doors.graphs.optimizers.formula import Settings as Settings
from ipujax.doors.graphs.optimizers.formula import Slot as Slot
from ipujax.doors.graphs.optimizers.formula import Slots as Slots
from ipujax.doors.graphs.optimizers.optimizer_variables import COMPLEX as COMPLEX
from ipujax.doors.graphs.optimizers.optimizer_variables import joint_norm as joint_norm
from ipujax.doors.graphs.optimizers.optimizer_variables import (
    make_initial_slot as make_initial_slot,
)
from ipujax.doors.graphs.optimizers.optimizer_variables import to_float32_parts as to_float32_parts
from ipujax.doors.graphs.optimizers.optimizer_variables import update_variable as update_variable
from ipujax.doors.graphs.optimizers.sgd import ASGD as ASGD
from ipujax.doors.graphs.optimizers.sgd import RPROP as RPROP
from ipujax.doors.graphs.optimizers.sgd import SGD as SGD
from ipujax.doors.graphs.optimizers.sgd import decay_velocity as decay_velocity
