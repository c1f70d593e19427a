"""The formulas of torch's optimizers, for one parameter at one step."""

from __future__ import annotations

from ipujax.poptorch.optim.methods.adam import ADAM as ADAM
from ipujax.poptorch.optim.methods.adam import ADAMAX as ADAMAX
from ipujax.poptorch.optim.methods.adam import LAMB as LAMB
from ipujax.poptorch.optim.methods.adam import NADAM as NADAM
from ipujax.poptorch.optim.methods.adam import RADAM as RADAM
from ipujax.poptorch.optim.methods.adaptive import ADADELTA as ADADELTA
from ipujax.poptorch.optim.methods.adaptive import ADAGRAD as ADAGRAD
from ipujax.poptorch.optim.methods.adaptive import RMSPROP as RMSPROP
from ipujax.poptorch.optim.methods.method import Kept as Kept
from ipujax.poptorch.optim.methods.method import Method as Method
from ipujax.poptorch.optim.methods.method import Parameter as Parameter
from ipujax.poptorch.optim.methods.method import Settings as Settings
from ipujax.poptorch.optim.methods.method import Slot as Slot
from ipujax.poptorch.optim.methods.sgd import ASGD as ASGD
from ipujax.poptorch.optim.methods.sgd import RPROP as RPROP
from ipujax.poptorch.optim.methods.sgd import SGD as SGD
