"""What every IPU does when: a tree of arrays that reads like a list of steps.

Bodies of loops and tasks of pipelines are stored once, however often they run, so a trace is as
large as the program and not as its run. `block` makes the leaves, `group`, `on`, `loop`, `at`
and `tasks` put traces together, `Steps` reads the result, `busy` adds it up, and `first_steps`
cuts it.
"""

from lowering.machine.trace.busy import busy as busy
from lowering.machine.trace.early import early as early
from lowering.machine.trace.early import first_steps as first_steps
from lowering.machine.trace.steps import Step as Step
from lowering.machine.trace.steps import Steps as Steps
from lowering.machine.trace.tree import KINDS as KINDS
from lowering.machine.trace.tree import NONE as NONE
from lowering.machine.trace.tree import PHASES as PHASES
from lowering.machine.trace.tree import Block as Block
from lowering.machine.trace.tree import Group as Group
from lowering.machine.trace.tree import Loop as Loop
from lowering.machine.trace.tree import On as On
from lowering.machine.trace.tree import Row as Row
from lowering.machine.trace.tree import Tasks as Tasks
from lowering.machine.trace.tree import Trace as Trace
from lowering.machine.trace.tree import at as at
from lowering.machine.trace.tree import block as block
from lowering.machine.trace.tree import group as group
from lowering.machine.trace.tree import loop as loop
from lowering.machine.trace.tree import on as on
from lowering.machine.trace.tree import parts as parts
from lowering.machine.trace.tree import tasks as tasks
