"""Schedules of pipelines as data: the stage, micro-batch and IPU of every task, tick by tick.

A `Schedule` is built by a function of the numbers of stages and micro-batches, or from each IPU's
list of tasks; `simulate` checks that a pipeline can follow it and computes its cost.
"""

from lowering.schedules.build import Spec as Spec
from lowering.schedules.build import build as build
from lowering.schedules.build import register as register
from lowering.schedules.chimera import chimera as chimera
from lowering.schedules.dualpipe import dualpipe as dualpipe
from lowering.schedules.dualpipe_v import dualpipe_v as dualpipe_v
from lowering.schedules.eager_one_f_one_b import eager_one_f_one_b as eager_one_f_one_b
from lowering.schedules.formulas import ClosedForm as ClosedForm
from lowering.schedules.formulas import formulas as formulas
from lowering.schedules.gpipe import gpipe as gpipe
from lowering.schedules.grid import grid as grid
from lowering.schedules.grouped import grouped as grouped
from lowering.schedules.interleaved import interleaved as interleaved
from lowering.schedules.interleaved_one_f_one_b import (
    interleaved_one_f_one_b as interleaved_one_f_one_b,
)
from lowering.schedules.interleaved_zero_bubble import (
    interleaved_zero_bubble as interleaved_zero_bubble,
)
from lowering.schedules.looped_bfs import looped_bfs as looped_bfs
from lowering.schedules.needs_table import inputs_of_task as inputs_of_task
from lowering.schedules.needs_table import needs_from_text as needs_from_text
from lowering.schedules.needs_table import needs_to_text as needs_to_text
from lowering.schedules.one_f_one_b import one_f_one_b as one_f_one_b
from lowering.schedules.orders import from_orders as from_orders
from lowering.schedules.orders import schedule_orders as schedule_orders
from lowering.schedules.rotations import distinct_rotations as distinct_rotations
from lowering.schedules.rotations import overlap as overlap
from lowering.schedules.schedule import Schedule as Schedule
from lowering.schedules.schedule import check_pipeline_sizes as check_pipeline_sizes
from lowering.schedules.schedule_errors import ScheduleError as ScheduleError
from lowering.schedules.schedule_registry import RegisteredSchedule as RegisteredSchedule
from lowering.schedules.schedule_registry import (
    find_registered_schedule as find_registered_schedule,
)
from lowering.schedules.schedule_registry import list_schedules as list_schedules
from lowering.schedules.schedule_registry import register_schedule as register_schedule
from lowering.schedules.schedule_registry import spell_schedule_name as spell_schedule_name
from lowering.schedules.schedule_text import from_text as from_text
from lowering.schedules.schedule_text import to_text as to_text
from lowering.schedules.seq_one_f_one_b import seq_one_f_one_b as seq_one_f_one_b
from lowering.schedules.sequential import sequential as sequential
from lowering.schedules.simulate import Seconds as Seconds
from lowering.schedules.simulate import Simulation as Simulation
from lowering.schedules.simulate import bubble_fraction_of as bubble_fraction_of
from lowering.schedules.simulate import simulate as simulate
from lowering.schedules.spread_copies import count_micro_batches as count_micro_batches
from lowering.schedules.spread_copies import count_waiting as count_waiting
from lowering.schedules.spread_copies import fifo_depths as fifo_depths
from lowering.schedules.spread_copies import runs_forward_in_order as runs_forward_in_order
from lowering.schedules.spread_copies import spread_copies as spread_copies
from lowering.schedules.task import Phase as Phase
from lowering.schedules.task import Task as Task
from lowering.schedules.task_times import times_of_tasks as times_of_tasks
from lowering.schedules.ticks import Run as Run
from lowering.schedules.ticks import Ticks as Ticks
from lowering.schedules.ticks import one_task_per_tick as one_task_per_tick
from lowering.schedules.ticks import representative_ticks as representative_ticks
from lowering.schedules.ticks import runs_of_ticks as runs_of_ticks
from lowering.schedules.v_half import v_half as v_half
from lowering.schedules.v_min import v_min as v_min
from lowering.schedules.zbv import zbv as zbv
from lowering.schedules.zero_bubble import zero_bubble as zero_bubble
from lowering.schedules.zero_bubble_h1 import zero_bubble_h1 as zero_bubble_h1
from lowering.schedules.zero_bubble_h2 import zero_bubble_h2 as zero_bubble_h2
