"""Jaxprs: the one place that reads JAX's types, and tools to walk, build and rewrite equations."""

from lowering.jaxprs import jaxpr as jaxpr
from lowering.jaxprs import typed_jax as typed_jax
from lowering.jaxprs.avals import Aval as Aval
from lowering.jaxprs.avals import dtype_name as dtype_name
from lowering.jaxprs.avals import has_sub_byte_elements as has_sub_byte_elements
from lowering.jaxprs.avals import is_numeric_dtype as is_numeric_dtype
from lowering.jaxprs.avals import shape_of as shape_of
from lowering.jaxprs.avals import signature_of as signature_of
from lowering.jaxprs.avals import size_in_bytes as size_in_bytes
from lowering.jaxprs.avals import size_of as size_of
from lowering.jaxprs.branches import run_branch as run_branch
from lowering.jaxprs.call_paths import CallPath as CallPath
from lowering.jaxprs.call_paths import call_path as call_path
from lowering.jaxprs.call_paths import names_of_calling_functions as names_of_calling_functions
from lowering.jaxprs.call_paths import user_frames_key as user_frames_key
from lowering.jaxprs.callbacks import contains_callbacks as contains_callbacks
from lowering.jaxprs.callbacks import is_callback as is_callback
from lowering.jaxprs.callbacks import replace_callbacks as replace_callbacks
from lowering.jaxprs.caller_frames import add_caller_frames as add_caller_frames
from lowering.jaxprs.elementwise import ELEMENTWISE as ELEMENTWISE
from lowering.jaxprs.equation_sources import has_numbers_in_bodies as has_numbers_in_bodies
from lowering.jaxprs.equation_sources import insert_sources as insert_sources
from lowering.jaxprs.equation_sources import number_equations as number_equations
from lowering.jaxprs.equations import broadcasts_zero as broadcasts_zero
from lowering.jaxprs.equations import evaluate_equations_with as evaluate_equations_with
from lowering.jaxprs.equations import function_of_jaxpr as function_of_jaxpr
from lowering.jaxprs.equations import is_open_result as is_open_result
from lowering.jaxprs.equations import jaxpr_of_equations as jaxpr_of_equations
from lowering.jaxprs.equations import (
    jaxpr_of_equations_with_constants as jaxpr_of_equations_with_constants,
)
from lowering.jaxprs.equations import look_up_values as look_up_values
from lowering.jaxprs.equations import rename_atoms as rename_atoms
from lowering.jaxprs.equations import unique_variables as unique_variables
from lowering.jaxprs.equations import walk_equations as walk_equations
from lowering.jaxprs.equations import (
    with_constants_in_order_of_reading as with_constants_in_order_of_reading,
)
from lowering.jaxprs.float0 import is_float0 as is_float0
from lowering.jaxprs.float0 import replace_float0_by_booleans as replace_float0_by_booleans
from lowering.jaxprs.float16_variant import replace_float32_by_float16 as replace_float32_by_float16
from lowering.jaxprs.jaxpr import CALL_EFFECT as CALL_EFFECT
from lowering.jaxprs.jaxpr import FIRST_REPLICA_EFFECT as FIRST_REPLICA_EFFECT
from lowering.jaxprs.jaxpr import ORDERED_FIRST_REPLICA_EFFECT as ORDERED_FIRST_REPLICA_EFFECT
from lowering.jaxprs.jaxpr import STREAM_EFFECT as STREAM_EFFECT
from lowering.jaxprs.jaxpr import TABLE_EFFECT as TABLE_EFFECT
from lowering.jaxprs.jaxpr import AbstractRef as AbstractRef
from lowering.jaxprs.jaxpr import Atom as Atom
from lowering.jaxprs.jaxpr import ClosedJaxpr as ClosedJaxpr
from lowering.jaxprs.jaxpr import Effect as Effect
from lowering.jaxprs.jaxpr import Jaxpr as Jaxpr
from lowering.jaxprs.jaxpr import JaxprEqn as JaxprEqn
from lowering.jaxprs.jaxpr import Literal as Literal
from lowering.jaxprs.jaxpr import Primitive as Primitive
from lowering.jaxprs.jaxpr import ShapedArray as ShapedArray
from lowering.jaxprs.jaxpr import Var as Var
from lowering.jaxprs.jaxpr import ad as ad
from lowering.jaxprs.jaxpr import add_discharge_rule as add_discharge_rule
from lowering.jaxprs.jaxpr import add_innermost_scope as add_innermost_scope
from lowering.jaxprs.jaxpr import bind_equation as bind_equation
from lowering.jaxprs.jaxpr import body_of_call as body_of_call
from lowering.jaxprs.jaxpr import constants_to_arguments as constants_to_arguments
from lowering.jaxprs.jaxpr import (
    count_scan_constants_and_variables as count_scan_constants_and_variables,
)
from lowering.jaxprs.jaxpr import current_user_line as current_user_line
from lowering.jaxprs.jaxpr import discharge_state as discharge_state
from lowering.jaxprs.jaxpr import equations_with_bodies as equations_with_bodies
from lowering.jaxprs.jaxpr import fresh_var as fresh_var
from lowering.jaxprs.jaxpr import is_dropped as is_dropped
from lowering.jaxprs.jaxpr import is_jaxpr as is_jaxpr
from lowering.jaxprs.jaxpr import is_ordered as is_ordered
from lowering.jaxprs.jaxpr import is_tracer as is_tracer
from lowering.jaxprs.jaxpr import map_sub_jaxprs as map_sub_jaxprs
from lowering.jaxprs.jaxpr import mlir as mlir
from lowering.jaxprs.jaxpr import name_stack as name_stack
from lowering.jaxprs.jaxpr import prune_equation as prune_equation
from lowering.jaxprs.jaxpr import prune_unused as prune_unused
from lowering.jaxprs.jaxpr import replace_equations as replace_equations
from lowering.jaxprs.jaxpr import sub_jaxprs as sub_jaxprs
from lowering.jaxprs.jaxpr import threefry_2x32 as threefry_2x32
from lowering.jaxprs.jaxpr import touches_refs as touches_refs
from lowering.jaxprs.jaxpr import trace_flat as trace_flat
from lowering.jaxprs.jaxpr import trace_once as trace_once
from lowering.jaxprs.jaxpr import use_configuration_of as use_configuration_of
from lowering.jaxprs.jaxpr import use_source_of as use_source_of
from lowering.jaxprs.jaxpr import user_line as user_line
from lowering.jaxprs.refs import Ref as Ref
from lowering.jaxprs.refs import effects_of as effects_of
from lowering.jaxprs.refs import is_ref as is_ref
from lowering.jaxprs.refs import lift_closed_over_refs as lift_closed_over_refs
from lowering.jaxprs.rewrite import JITTED as JITTED
from lowering.jaxprs.rewrite import BodyRewriter as BodyRewriter
from lowering.jaxprs.rewrite import EquationFinder as EquationFinder
from lowering.jaxprs.rewrite import EquationRewriter as EquationRewriter
from lowering.jaxprs.rewrite import inline_jitted_calls as inline_jitted_calls
from lowering.jaxprs.rewrite import rewrite_equations as rewrite_equations
from lowering.jaxprs.structure import derivative_key as derivative_key
from lowering.jaxprs.structure import parameters_key as parameters_key
from lowering.jaxprs.structure import structure_key as structure_key
from lowering.jaxprs.structure import text_of_equation_contexts as text_of_equation_contexts
from lowering.jaxprs.verify_jaxpr import JaxprVerifier as JaxprVerifier
from lowering.jaxprs.wide_values import has_wide_avals as has_wide_avals
from lowering.jaxprs.wide_values import has_wide_values as has_wide_values
from lowering.jaxprs.wide_values import keep_wide_values as keep_wide_values
from lowering.jaxprs.workload import count_equations as count_equations
from lowering.jaxprs.workload import count_operations as count_operations
from lowering.jaxprs.workload import (
    count_single_core_operations as count_single_core_operations,
)
from lowering.jaxprs.zeros import set_weak_type as set_weak_type
from lowering.jaxprs.zeros import zeros_of_aval as zeros_of_aval
