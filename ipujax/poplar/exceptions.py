"""The exceptions of Poplar: `poplar_error` and the classes that C++ derives from it."""

from __future__ import annotations

from ipujax.ground import Checks, IPUError


class poplar_error(IPUError, RuntimeError):
    """A graph, program or run that Poplar would refuse; the base class of Poplar's errors."""


class type_error(poplar_error, TypeError):
    """An element type, or an argument, of the wrong type."""


class index_error(poplar_error, IndexError):
    """An index or a slice outside a tensor, or shapes that do not match."""


class invalid_tile_mapping(poplar_error, ValueError):
    """A tile that does not exist, or elements and vertices without a tile."""


class unknown_field(poplar_error, AttributeError):
    """A field that the codelet does not have."""


class unknown_vertex_type(poplar_error, LookupError):
    """A vertex whose codelet the graph does not have."""


class graph_connection_error(poplar_error, ValueError):
    """A field that is not connected, or connected with something that cannot be."""


class graph_object_creation_error(poplar_error, ValueError):
    """A vertex, codelet or other object that the graph cannot add."""


class graph_recursion_error(poplar_error, RecursionError):
    """A program that calls itself."""


class graph_program_compilation_error(poplar_error, ValueError):
    """A compute set whose vertices touch the same elements, or a codelet that fails."""


class graph_memory_allocation_error(poplar_error, MemoryError):
    """A tile whose data exceeds its memory."""


class profiling_disabled(poplar_error):
    """A report of an engine whose options keep none."""


class stream_connection_error(poplar_error, ValueError):
    """A stream or handle that is not connected, not there, or has a wrong buffer."""


class control_program_error(poplar_error, ValueError):
    """A program that reads what nothing has written, or that the engine does not have."""


check = Checks(type_error, poplar_error)
