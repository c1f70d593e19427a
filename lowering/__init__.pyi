"""All that ipujax may use of the compiler, once: `__init__.py` reads this list, too.

Ten namespaces, where a family of names is used together and its prefix says what they belong to:
`ir` the Program's nodes, `jaxpr` what JAX has of functions, `marks` the texts of named scopes,
`ops` the primitives of ours, `pipelines` tasks and derivatives of stages, `schedules`, `serialized`
products, `variants` of traced functions, and of the machine model `machine` and `trace`. All else
is functions and types of their own.
"""

from lowering import ir as ir
from lowering import jaxpr as jaxpr
from lowering import machine as machine
from lowering import marks as marks
from lowering import ops as ops
from lowering import pipelines as pipelines
from lowering import schedules as schedules
from lowering import serialized as serialized
from lowering import svg as svg
from lowering import variants as variants
from lowering.alike import replicas_may_differ as replicas_may_differ
from lowering.avals import dtype_name as dtype_name
from lowering.avals import has_sub_byte_elements as has_sub_byte_elements
from lowering.avals import is_numeric_dtype as is_numeric_dtype
from lowering.avals import shape_of as shape_of
from lowering.avals import signature_of as signature_of
from lowering.avals import size_in_bytes as size_in_bytes
from lowering.avals import size_of as size_of
from lowering.callbacks import calls_back as calls_back
from lowering.callbacks import exchange_callbacks as exchange_callbacks
from lowering.compiler import lower as lower
from lowering.errors import CollectiveError as CollectiveError
from lowering.errors import DeviceMeshError as DeviceMeshError
from lowering.errors import EnqueueError as EnqueueError
from lowering.errors import InternalError as InternalError
from lowering.errors import IPUError as IPUError
from lowering.errors import LoweringError as LoweringError
from lowering.errors import OutsideCompilationError as OutsideCompilationError
from lowering.errors import ShardError as ShardError
from lowering.errors import TargetError as TargetError
from lowering.float0 import is_float0 as is_float0
from lowering.float0 import replace_float0_by_booleans as replace_float0_by_booleans
from lowering.foreign import find_foreign_code as find_foreign_code
from lowering.fusion.fuse import fuse as fuse
from lowering.fusion.fuse import is_one_kernel as is_one_kernel
from lowering.fusion.merge_iterations import is_merging_faster as is_merging_faster
from lowering.machine import trace as trace
from lowering.options import Options as Options
from lowering.parts import Part as Part
from lowering.parts import part_of_process as part_of_process
from lowering.passes.as_products import (
    rewrite_convolutions_as_products as rewrite_convolutions_as_products,
)
from lowering.passes.channels_last import move_channels_last as move_channels_last
from lowering.passes.meet_at_collectives import meet_at_collectives as meet_at_collectives
from lowering.placement import ancestors as ancestors
from lowering.placement import (
    infer_shard_from_twin_or_operands as infer_shard_from_twin_or_operands,
)
from lowering.placement import producer_of_each_variable as producer_of_each_variable
from lowering.placement import propagate_shard_marks as propagate_shard_marks
from lowering.placement import read_shard_mark as read_shard_mark
from lowering.places import file_of_cell as file_of_cell
from lowering.places import is_installed as is_installed
from lowering.places import line_of_file as line_of_file
from lowering.places import parse_source_line as parse_source_line
from lowering.public import list_in_dir as list_in_dir
from lowering.refs import Ref as Ref
from lowering.refs import is_ref as is_ref
from lowering.refs import lift_closed_over_refs as lift_closed_over_refs
from lowering.structure import structure_key as structure_key
from lowering.structure import text_of_contexts as text_of_contexts
from lowering.units import HOST as HOST
from lowering.wide import has_wide_avals as has_wide_avals
from lowering.wide import has_wide_values as has_wide_values
from lowering.wide import keep_wide_values as keep_wide_values
from lowering.workload import count_operations as count_operations
