"""Poplar: graphs of variables and vertices that are put on tiles by hand.

The names are those of Poplar's C++ API. docs/poplar.md says what there is, and how it works.
"""

from __future__ import annotations

from typing import Any

from ipujax.poplar import poplin as poplin
from ipujax.poplar import popnn as popnn
from ipujax.poplar import popops as popops
from ipujax.poplar import poprand as poprand
from ipujax.poplar import poputil as poputil
from ipujax.poplar import program as program
from ipujax.poplar.calls import call as call
from ipujax.poplar.codelets import Codelet as Codelet
from ipujax.poplar.codelets import InOut as InOut
from ipujax.poplar.codelets import Input as Input
from ipujax.poplar.codelets import Output as Output
from ipujax.poplar.codelets import Vector as Vector
from ipujax.poplar.codelets import codelet as codelet
from ipujax.poplar.cpp_codelets import CodeletFileType as CodeletFileType
from ipujax.poplar.cycles import cycleCount as cycleCount
from ipujax.poplar.cycles import cycleStamp as cycleStamp
from ipujax.poplar.devices import Device as Device
from ipujax.poplar.devices import DeviceManager as DeviceManager
from ipujax.poplar.devices import IPUModel as IPUModel
from ipujax.poplar.devices import Target as Target
from ipujax.poplar.devices import TargetType as TargetType
from ipujax.poplar.element_types import BOOL as BOOL
from ipujax.poplar.element_types import CHAR as CHAR
from ipujax.poplar.element_types import FLOAT as FLOAT
from ipujax.poplar.element_types import HALF as HALF
from ipujax.poplar.element_types import INT as INT
from ipujax.poplar.element_types import SHORT as SHORT
from ipujax.poplar.element_types import SIGNED_CHAR as SIGNED_CHAR
from ipujax.poplar.element_types import UNSIGNED_CHAR as UNSIGNED_CHAR
from ipujax.poplar.element_types import UNSIGNED_INT as UNSIGNED_INT
from ipujax.poplar.element_types import UNSIGNED_SHORT as UNSIGNED_SHORT
from ipujax.poplar.element_types import Type as Type
from ipujax.poplar.element_types import type_of_dtype as type_of_dtype
from ipujax.poplar.engine import Engine as Engine
from ipujax.poplar.exceptions import control_program_error as control_program_error
from ipujax.poplar.exceptions import graph_connection_error as graph_connection_error
from ipujax.poplar.exceptions import (
    graph_memory_allocation_error as graph_memory_allocation_error,
)
from ipujax.poplar.exceptions import graph_object_creation_error as graph_object_creation_error
from ipujax.poplar.exceptions import (
    graph_program_compilation_error as graph_program_compilation_error,
)
from ipujax.poplar.exceptions import graph_recursion_error as graph_recursion_error
from ipujax.poplar.exceptions import index_error as index_error
from ipujax.poplar.exceptions import invalid_tile_mapping as invalid_tile_mapping
from ipujax.poplar.exceptions import poplar_error as poplar_error
from ipujax.poplar.exceptions import profiling_disabled as profiling_disabled
from ipujax.poplar.exceptions import stream_connection_error as stream_connection_error
from ipujax.poplar.exceptions import type_error as type_error
from ipujax.poplar.exceptions import unknown_field as unknown_field
from ipujax.poplar.exceptions import unknown_vertex_type as unknown_vertex_type
from ipujax.poplar.graph import Graph as Graph
from ipujax.poplar.graph_choices import ReplicatedStreamMode as ReplicatedStreamMode
from ipujax.poplar.graph_choices import TensorCloneMethod as TensorCloneMethod
from ipujax.poplar.graph_choices import VariableMappingMethod as VariableMappingMethod
from ipujax.poplar.graph_parts import ComputeSet as ComputeSet
from ipujax.poplar.graph_parts import DataStream as DataStream
from ipujax.poplar.graph_parts import Function as Function
from ipujax.poplar.graph_parts import RemoteBuffer as RemoteBuffer
from ipujax.poplar.popops_scaled import scaled_add_cycles as scaled_add_cycles
from ipujax.poplar.program import SyncType as SyncType
from ipujax.poplar.stream_connections import StreamCallback as StreamCallback
from ipujax.poplar.tensors import Interval as Interval
from ipujax.poplar.tensors import Tensor as Tensor
from ipujax.poplar.tensors import concat as concat
from ipujax.poplar.virtual_graph import VirtualGraph as _VirtualGraph

__all__ = [
    "BOOL",
    "CHAR",
    "FLOAT",
    "HALF",
    "INT",
    "SHORT",
    "SIGNED_CHAR",
    "UNSIGNED_CHAR",
    "UNSIGNED_INT",
    "UNSIGNED_SHORT",
    "Codelet",
    "CodeletFileType",
    "ComputeSet",
    "DataStream",
    "Device",
    "DeviceManager",
    "Engine",
    "Function",
    "Graph",
    "IPUModel",
    "InOut",
    "Input",
    "Interval",
    "Output",
    "RemoteBuffer",
    "ReplicatedStreamMode",
    "StreamCallback",
    "SyncType",
    "Target",
    "TargetType",
    "Tensor",
    "TensorCloneMethod",
    "Type",
    "VariableMappingMethod",
    "Vector",
    "call",
    "codelet",
    "concat",
    "control_program_error",
    "cycleCount",
    "cycleStamp",
    "graph_connection_error",
    "graph_memory_allocation_error",
    "graph_object_creation_error",
    "graph_program_compilation_error",
    "graph_recursion_error",
    "index_error",
    "invalid_tile_mapping",
    "poplar_error",
    "poplin",
    "popnn",
    "popops",
    "poprand",
    "poputil",
    "profiling_disabled",
    "program",
    "stream_connection_error",
    "type_error",
    "unknown_field",
    "unknown_vertex_type",
]


Graph.of_some_tiles = _VirtualGraph

_LEFT_OUT = {
    "Executable": "an Engine compiles its programs; ipu.compile of poplar.call saves one",
    "compileGraph": "an Engine compiles its programs; ipu.compile of poplar.call saves one",
    "HostFunction": "the host takes part by streams and their callbacks",
    "PerfEstimatorTable": "PopLibs' operations have the planner's cycles",
    "VertexPerfEstimator": "PopLibs' operations have the planner's cycles",
    "gcl": "collectives are those of ipu.cross_replica_ops",
    "popfloat": "float8 is that of JAX",
    "popsparse": "there are no sparse products",
}


def __getattr__(name: str) -> Any:
    if name in _LEFT_OUT:
        raise NotImplementedError(f"poplar.{name} is left out: {_LEFT_OUT[name]}")
    raise AttributeError(f"module 'ipujax.poplar' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
