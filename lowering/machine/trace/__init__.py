"""The steps of every IPU over time: a tree of arrays that reads like a list of steps.

Bodies of loops and tasks of pipelines are stored once, however often they run, so a trace is as
large as the program and not as its run. `build_block` makes the leaves, `group_traces`,
`assign_to_ipu`, `repeat_trace`, `repeat_trace_at_cycles` and `build_tasks` combine traces, `Steps`
reads the result, `count_busy_cycles` adds it up, and `first_steps` cuts it.
"""

from lowering.machine.trace.busy import count_busy_cycles as count_busy_cycles
from lowering.machine.trace.early import first_steps as first_steps
from lowering.machine.trace.early import steps_before as steps_before
from lowering.machine.trace.trace_steps import Step as Step
from lowering.machine.trace.trace_steps import Steps as Steps
from lowering.machine.trace.trace_tree import KINDS as KINDS
from lowering.machine.trace.trace_tree import NONE as NONE
from lowering.machine.trace.trace_tree import PHASES as PHASES
from lowering.machine.trace.trace_tree import Block as Block
from lowering.machine.trace.trace_tree import Group as Group
from lowering.machine.trace.trace_tree import Loop as Loop
from lowering.machine.trace.trace_tree import On as On
from lowering.machine.trace.trace_tree import Row as Row
from lowering.machine.trace.trace_tree import Tasks as Tasks
from lowering.machine.trace.trace_tree import Trace as Trace
from lowering.machine.trace.trace_tree import assign_to_ipu as assign_to_ipu
from lowering.machine.trace.trace_tree import build_block as build_block
from lowering.machine.trace.trace_tree import build_tasks as build_tasks
from lowering.machine.trace.trace_tree import distinct_children as distinct_children
from lowering.machine.trace.trace_tree import group_traces as group_traces
from lowering.machine.trace.trace_tree import repeat_trace as repeat_trace
from lowering.machine.trace.trace_tree import repeat_trace_at_cycles as repeat_trace_at_cycles
