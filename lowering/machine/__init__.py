"""The IPU Model: what a chip would do with a Program, in cycles and bytes per tile.

Data flows one way: a kernel's equations are listed (`listing`), costed (`primitives`, `planner`)
and laid out (`kernel`); one walk over the program finds when everything happens (`timing`), another
what memory holds meanwhile (`residency`); `model` puts the two together.
"""

from lowering.machine.mapping import TileMapping as TileMapping
from lowering.machine.mapping import linear as linear
from lowering.machine.model import model as model
from lowering.machine.options import ModelOptions as ModelOptions
from lowering.machine.options import plan_options as plan_options
from lowering.machine.profile import Memory as Memory
from lowering.machine.profile import OperationTotal as OperationTotal
from lowering.machine.profile import PipelineProfile as PipelineProfile
from lowering.machine.profile import Profile as Profile
from lowering.machine.profile import Tensor as Tensor
from lowering.machine.target import IPU1 as IPU1
from lowering.machine.target import IPU2 as IPU2
from lowering.machine.target import IPU21 as IPU21
from lowering.machine.target import TARGETS as TARGETS
from lowering.machine.target import Links as Links
from lowering.machine.target import Target as Target
from lowering.machine.trace import Step as Step
from lowering.machine.trace import Steps as Steps
