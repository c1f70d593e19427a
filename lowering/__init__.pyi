"""All that ipujax may use of the compiler, once: `__init__.py` reads this list.

Ten namespaces, where a family of names is used together and its prefix says what they belong to:
`ir` the Program's nodes, `jaxpr` what JAX has of functions, `marks` the texts of named scopes,
`ops` the primitives of ours, `pipelines` tasks and derivatives of stages, `schedules`, `serialized`
products, `variants` of traced functions, and of the machine model `machine` and `trace`. All else
is functions and types of their own.
"""

from . import ir as ir
from . import machine as machine
from . import marks as marks
from . import ops as ops
from . import pipelines as pipelines
from . import schedules as schedules
from .compiler import count_ipus_and_replicas as count_ipus_and_replicas
from .compiler import count_unconfigured_ipus as count_unconfigured_ipus
from .compiler import emulate_machine as emulate_machine
from .compiler import lower as lower
from .compiler import lower_for_machine as lower_for_machine
from .fusion import fuse as fuse
from .fusion import is_merging_iterations_faster as is_merging_iterations_faster
from .fusion import is_one_kernel as is_one_kernel
from .ground import HOST as HOST
from .ground import CollectiveError as CollectiveError
from .ground import DeviceMeshError as DeviceMeshError
from .ground import EnqueueError as EnqueueError
from .ground import InternalError as InternalError
from .ground import IPUError as IPUError
from .ground import LoweringError as LoweringError
from .ground import Options as Options
from .ground import OutsideCompilationError as OutsideCompilationError
from .ground import ShardError as ShardError
from .ground import TargetError as TargetError
from .ground import file_of_cell as file_of_cell
from .ground import is_in_installed_package as is_in_installed_package
from .ground import limit_dir_to as limit_dir_to
from .ground import name_source_line as name_source_line
from .ground import parse_source_line as parse_source_line
from .ground import svg as svg
from .ground import word_of_primitive as word_of_primitive
from .ir import Part as Part
from .ir import part_of_process as part_of_process
from .jaxprs import Ref as Ref
from .jaxprs import add_caller_frames as add_caller_frames
from .jaxprs import call_path as call_path
from .jaxprs import contains_callbacks as contains_callbacks
from .jaxprs import count_equations as count_equations
from .jaxprs import count_operations as count_operations
from .jaxprs import count_single_core_operations as count_single_core_operations
from .jaxprs import dtype_name as dtype_name
from .jaxprs import has_sub_byte_elements as has_sub_byte_elements
from .jaxprs import has_wide_avals as has_wide_avals
from .jaxprs import has_wide_values as has_wide_values
from .jaxprs import is_float0 as is_float0
from .jaxprs import is_numeric_dtype as is_numeric_dtype
from .jaxprs import is_ref as is_ref
from .jaxprs import jaxpr as jaxpr
from .jaxprs import keep_wide_values as keep_wide_values
from .jaxprs import lift_closed_over_refs as lift_closed_over_refs
from .jaxprs import replace_callbacks as replace_callbacks
from .jaxprs import replace_float0_by_booleans as replace_float0_by_booleans
from .jaxprs import run_branch as run_branch
from .jaxprs import set_weak_type as set_weak_type
from .jaxprs import shape_of as shape_of
from .jaxprs import signature_of as signature_of
from .jaxprs import size_in_bytes as size_in_bytes
from .jaxprs import size_of as size_of
from .jaxprs import structure_key as structure_key
from .jaxprs import text_of_equation_contexts as text_of_equation_contexts
from .machine import trace as trace
from .ops import depends_on_replica_count as depends_on_replica_count
from .ops import find_actions_outside_compiled_code as find_actions_outside_compiled_code
from .ops import find_divergent_conditions as find_divergent_conditions
from .ops import list_called_targets as list_called_targets
from .passes import RowSplit as RowSplit
from .passes import add_fifos as add_fifos
from .passes import align_replicas_at_collectives as align_replicas_at_collectives
from .passes import asks_to_offload_state as asks_to_offload_state
from .passes import equations_needed_by as equations_needed_by
from .passes import exchange_sums_of_two_replicas as exchange_sums_of_two_replicas
from .passes import (
    infer_shard_from_twin_or_operands as infer_shard_from_twin_or_operands,
)
from .passes import list_lines_with_shardings as list_lines_with_shardings
from .passes import move_channels_last as move_channels_last
from .passes import producer_of_each_variable as producer_of_each_variable
from .passes import propagate_shard_marks as propagate_shard_marks
from .passes import read_shard_mark as read_shard_mark
from .passes import (
    rewrite_convolutions_as_products as rewrite_convolutions_as_products,
)
from .passes import rewrite_window_maxima as rewrite_window_maxima
from .passes import serialized as serialized
from .passes import split_stacked_arguments as split_stacked_arguments
from .passes import variants as variants
