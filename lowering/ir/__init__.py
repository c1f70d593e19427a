"""The Program: its nodes, where its values live, its text and its verifier."""

from lowering.ground import IpuId as IpuId
from lowering.ground import ValueId as ValueId
from lowering.ir.process_parts import Part as Part
from lowering.ir.process_parts import part_of_process as part_of_process
from lowering.ir.program import Branch as Branch
from lowering.ir.program import Carry as Carry
from lowering.ir.program import Copy as Copy
from lowering.ir.program import Execute as Execute
from lowering.ir.program import Fault as Fault
from lowering.ir.program import Fifo as Fifo
from lowering.ir.program import HostCall as HostCall
from lowering.ir.program import Kernel as Kernel
from lowering.ir.program import Load as Load
from lowering.ir.program import Node as Node
from lowering.ir.program import Pipeline as Pipeline
from lowering.ir.program import Program as Program
from lowering.ir.program import Receive as Receive
from lowering.ir.program import Repeat as Repeat
from lowering.ir.program import Send as Send
from lowering.ir.program import Sequence as Sequence
from lowering.ir.program import Slice as Slice
from lowering.ir.program import Stack as Stack
from lowering.ir.program import Store as Store
from lowering.ir.program import StreamIn as StreamIn
from lowering.ir.program import StreamOut as StreamOut
from lowering.ir.program import Switch as Switch
from lowering.ir.program import Task as Task
from lowering.ir.program import While as While
from lowering.ir.program_liveness import PlacesOfReads as PlacesOfReads
from lowering.ir.program_liveness import (
    find_dead_values_after_steps as find_dead_values_after_steps,
)
from lowering.ir.program_liveness import (
    find_overwritable_loop_variables as find_overwritable_loop_variables,
)
from lowering.ir.program_liveness import find_overwritable_operands as find_overwritable_operands
from lowering.ir.program_liveness import (
    find_values_carried_by_one_loop as find_values_carried_by_one_loop,
)
from lowering.ir.program_liveness import ipu_of_each_value as ipu_of_each_value
from lowering.ir.program_liveness import queues_of_program as queues_of_program
from lowering.ir.program_nodes import Body as Body
from lowering.ir.program_nodes import Place as Place
from lowering.ir.program_nodes import bodies_of_node as bodies_of_node
from lowering.ir.program_nodes import inline_tasks as inline_tasks
from lowering.ir.program_nodes import needs_host as needs_host
from lowering.ir.program_nodes import places_of_reads as places_of_reads
from lowering.ir.program_nodes import places_of_writes as places_of_writes
from lowering.ir.program_nodes import rewrite_bodies as rewrite_bodies
from lowering.ir.program_nodes import rewrite_nodes as rewrite_nodes
from lowering.ir.program_nodes import values_read as values_read
from lowering.ir.program_nodes import values_written as values_written
from lowering.ir.program_nodes import walk_nodes as walk_nodes
from lowering.ir.program_text import to_text as to_text
from lowering.ir.verify import verify as verify
from lowering.ir.verify import verify_after_pass as verify_after_pass
