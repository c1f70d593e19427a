"""Graphs: variables on tiles, compute sets and their vertices, streams and virtual graphs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NoReturn

import numpy as np

from ipujax.operators import TileRuns, linear_tile_bounds
from ipujax.poplar.codelet_table import CodeletTable
from ipujax.poplar.codelets import make_codelet
from ipujax.poplar.devices import Device, Target
from ipujax.poplar.element_types import Type, require_type
from ipujax.poplar.exceptions import (
    check,
    graph_connection_error,
    graph_object_creation_error,
    index_error,
    invalid_tile_mapping,
)
from ipujax.poplar.graph_choices import TensorCloneMethod, VariableMappingMethod, read_clone
from ipujax.poplar.graph_parts import (
    NO_TILE,
    ComputeSet,
    FieldRef,
    Function,
    OperationComputeSet,
    Variable,
    Vertex,
)
from ipujax.poplar.graph_streams import StreamsOfGraph
from ipujax.poplar.program import require_program
from ipujax.poplar.regions import sort_into_contiguous_regions
from ipujax.poplar.tensors import Interval, Tensor, as_interval
from ipujax.poplar.user_lines import user_line
from ipujax.poplar.vertex_connections import connect_field, set_field_size, set_field_value


@check.guard
class Graph(StreamsOfGraph):
    """A graph of variables, vertices and compute sets for one target.

    Args:
      target: the target, or a device of it.
    """

    # The class of virtual graphs, which derives from this one; the face sets it.
    of_some_tiles: ClassVar[Callable[[Graph, np.ndarray, int], Graph]]

    def __init__(self, target: Target | Device):
        super().__init__()
        if isinstance(target, Device):
            target = target.getTarget()
        self._target = check.require_instance(target, Target, "target")
        self.variables: list[Variable] = []
        self.starts: list[int] = []
        self.tile_of = np.full(1024, NO_TILE, np.int32)
        self.size = 0
        self.codelets = CodeletTable()
        self.initial_values: list[tuple[np.ndarray, np.ndarray]] = []
        self.host_writes: dict[str, Tensor] = {}
        self.host_reads: dict[str, Tensor] = {}
        self.estimators: dict[str, Callable[..., float]] = {}

    @property
    def root(self) -> Graph:
        """The graph that holds everything: this one, unless it is a virtual graph."""
        return self

    def getTarget(self) -> Target:
        """Returns the target."""
        return self._target

    # --- variables --------------------------------------------------------------------------------

    def addVariable(
        self,
        type: Type,
        shape: Sequence[int],
        mappingMethod: VariableMappingMethod | str = VariableMappingMethod.NONE,
        debugContext: str = "",
    ) -> Tensor:
        """Adds a variable; without a mapping method it is on no tile yet.

        Args:
          type: the element type.
          shape: the extents.
          mappingMethod: its mapping; may be left out, so that the name comes third.
          debugContext: its name.
        """
        if isinstance(mappingMethod, str):
            mappingMethod, debugContext = VariableMappingMethod.NONE, mappingMethod
        check.require_instance(mappingMethod, VariableMappingMethod, "mappingMethod")
        variable = self._add_variable(type, shape, debugContext, None)
        if mappingMethod is VariableMappingMethod.LINEAR:
            self.map_linearly(variable)
        return variable

    def addConstant(
        self, type: Type, shape: Sequence[int], values: Any, debugContext: str = ""
    ) -> Tensor:
        """Adds a constant, on no tile yet.

        Args:
          type: the element type.
          shape: the extents.
          values: one number for all elements, or one for each.
          debugContext: its name.
        """
        dtype = require_type(type, "type").dtype
        flat = np.array(values, dtype).reshape(-1)  # a copy: the user's array may change
        size = math.prod(shape)
        if flat.size not in (1, size):
            raise index_error(
                f"constant of shape {list(shape)} with {flat.size} values",
                where=user_line(),
                fix=f"give one value, or {size}",
            )
        return self._add_variable(
            type, shape, debugContext, np.broadcast_to(flat, size), "constants"
        )

    def clone(
        self,
        *tensor: Any,
        debugContext: str = "",
        method: TensorCloneMethod = TensorCloneMethod.PRESERVE_ORDER_UNLESS_ALIASES,
    ) -> Tensor:
        """Adds a variable with a tensor's shape and mapping.

        Args:
          *tensor: the tensor, or another type and the tensor; after it a name and a method.
          debugContext: the variable's name.
          method: the treatment of elements that the tensor repeats.
        """
        type, like, debugContext, method = read_clone(tensor, debugContext, method)
        elements = self.require_tensor(like).elements
        indices = np.arange(elements.size).reshape(elements.shape)
        if method.keeps_aliases:
            elements, indices = np.unique(elements, return_inverse=True)
        name = debugContext or f"{like.name}_clone"
        new = self.addVariable(type, [elements.size], name)
        self.tile_of[new.elements] = self.tile_of[elements.reshape(-1)]
        return Tensor(self.root, new.elements[indices.reshape(like.shape())], type, name)

    def add_vertex_state(self, type: Type, shape: Sequence[int], name: str) -> Tensor:
        """Adds a variable that holds the plain fields of vertices."""
        return self._add_variable(type, shape, name, None, "vertex_state")

    def _add_variable(
        self,
        type: Type,
        shape: Sequence[int],
        name: str,
        values: np.ndarray | None,
        category: str = "variables",
    ) -> Tensor:
        type = require_type(type, "type")
        extents = tuple(check.require_integer(n, "an extent", at_least=0) for n in shape)
        size, number = math.prod(extents), len(self.variables)
        name = check.require_instance(name, str, "debugContext") or f"variable{number}"
        start, self.size = self.size, self.size + size
        if self.size > self.tile_of.size:
            added_size = max(self.size - self.tile_of.size, self.tile_of.size)
            added_tiles = np.full(added_size, NO_TILE, np.int32)
            self.tile_of = np.concatenate([self.tile_of, added_tiles])
        self.variables.append(Variable(name, number, start, size, type, values, category))
        self.starts.append(start)
        return Tensor(self.root, np.arange(start, self.size).reshape(extents), type, name)

    def variable_of(self, element: int) -> Variable:
        """Returns the variable that an element number belongs to."""
        return self.variables[int(np.searchsorted(self.starts, element, side="right")) - 1]

    def name_element(self, element: int) -> str:
        """Returns an element's name for messages, such as `element 3 of 'x'`."""
        variable = self.variable_of(element)
        return f"element {element - variable.start} of '{variable.name}'"

    def setInitialValue(self, what: Tensor | FieldRef, value: Any) -> None:
        """Sets the values of a tensor at the start of an engine, or that of a plain field.

        Args:
          what: the tensor, or the field.
          value: one number for all elements, or one for each.
        """
        if isinstance(what, FieldRef):
            set_field_value(what, value)
            return
        elements = self.require_tensor(what).elements
        values = np.array(value, what.type.dtype)  # a copy: the user's array may change
        if values.size not in (1, elements.size):
            raise index_error(f"{values.size} initial values for {what}", where=user_line())
        flat = np.broadcast_to(values.reshape(-1), elements.size)
        self.initial_values.append((elements.reshape(-1), flat))

    # --- tiles ------------------------------------------------------------------------------------

    def setTileMapping(self, what: Tensor | Vertex, tile: Any) -> None:
        """Maps a tensor, a slice of one, or a vertex to tiles.

        Args:
          what: the tensor or vertex.
          tile: the tile; for a tensor also a list with the intervals of its flattened elements for
            each tile, an `Interval` or a pair each.
        """
        if isinstance(what, Vertex):
            what.set_tile(int(self.tiles_of_root(self._require_tile(tile, str(what)))))
            return
        elements = self.require_tensor(what).elements
        if not isinstance(tile, (list, tuple)):
            self.map_elements(elements, self._require_tile(tile, str(what)))
            return
        flat = elements.reshape(-1)
        for number, intervals in enumerate(tile):
            for interval in map(as_interval, intervals):
                if interval.last > flat.size:
                    raise invalid_tile_mapping(f"{interval} of {what}", where=user_line())
                part = flat[interval.first : interval.last]
                self.map_elements(part, self._require_tile(number, str(what)))

    def map_elements(self, elements: np.ndarray, tiles: int | np.ndarray) -> None:
        """Maps elements, by their numbers, to one tile, or each to its own."""
        self.tile_of[elements] = self.tiles_of_root(tiles)

    def map_linearly(self, tensor: Tensor, **settings: int) -> None:
        """Maps a tensor's elements to the tiles in order, as PopLibs' `mapTensorLinearly` does.

        Args:
          tensor: the tensor.
          **settings: `minimum_bytes` of a tile and elements of a `grain`, if not PopLibs' defaults.
        """
        tiles = self.getTarget().getNumTiles()
        bounds = linear_tile_bounds(tensor.numElements(), tensor.type.size, tiles, **settings)
        owners = np.repeat(np.arange(bounds.size - 1), np.diff(bounds))
        self.map_elements(tensor.elements.reshape(-1), owners)

    def tiles_of_root(self, tiles: int | np.ndarray) -> int | np.ndarray:
        """Returns the numbers of this graph's tiles in the graph that holds everything."""
        return tiles

    def getTileMapping(
        self, tensor: Tensor, requireComplete: bool = True, allowExternal: bool = False
    ) -> list[list[Interval]]:
        """Returns, for each tile, the intervals of the tensor's flattened elements.

        Args:
          tensor: the tensor.
          requireComplete: whether each element must be on a tile.
          allowExternal: whether elements may be on tiles that a virtual graph has not.

        Raises:
          invalid_tile_mapping: an element on no tile, or on one of another graph.
        """
        tiles = self.tile_of[self.require_tensor(tensor).elements.reshape(-1)]
        if check.require_flag(requireComplete, "requireComplete") and (tiles == NO_TILE).any():
            number = int(np.argmax(tiles == NO_TILE))
            raise invalid_tile_mapping(
                f"element {number} of {tensor} is on no tile",
                where=user_line(),
                fix="call setTileMapping, or getTileMapping(tensor, requireComplete=False)",
            )
        check.require_flag(allowExternal, "allowExternal")
        mapping: list[list[Interval]] = [[] for _ in range(self._target.getNumTiles())]
        start = 0
        for tile, end in TileRuns.from_tiles(tiles).array.T.tolist():
            if tile != NO_TILE:
                mapping[tile].append(Interval(start, end))
            start = end
        return mapping

    def getSortedContiguousRegions(
        self, t: Tensor, regions: Sequence[Interval], removeAliasedIntervals: bool = False
    ) -> list[list[Interval]]:
        """Returns intervals in the order of memory, in one list those that adjoin there.

        Args:
          t: the tensor.
          regions: intervals of its flattened elements, such as `getTileMapping` gives for a tile.
          removeAliasedIntervals: whether repeated elements are kept only once.
        """
        drops_aliases = check.require_flag(removeAliasedIntervals, "removeAliasedIntervals")
        tensor = self.require_tensor(t)
        return sort_into_contiguous_regions(tensor, regions, drops_aliases=drops_aliases)

    def _require_tile(self, tile: Any, description: str) -> int:
        tile = check.require_integer(tile, "the tile")
        if not 0 <= tile < self.getTarget().getNumTiles():
            raise invalid_tile_mapping(
                f"{description} on tile {tile}",
                where=user_line(),
                fix=f"the target has tiles 0 to {self.getTarget().getNumTiles() - 1}",
            )
        return tile

    def require_tensor(self, tensor: Any) -> Tensor:
        """Returns a tensor of this graph; raises an error for anything else."""
        check.require_instance(tensor, Tensor, "the tensor")
        if tensor.graph is not self.root:
            raise graph_connection_error(f"{tensor} is of another graph", where=user_line())
        return tensor

    # --- vertices ---------------------------------------------------------------------------------

    def addCodelets(self, src: Any, *arguments: Any, compileFlags: str = "") -> None:
        """Adds codelets in JAX or in C++ to the graph.

        Args:
          src: a function in JAX, the path of a file in C++, a file object with its text, or a list
            of these.
          *arguments: for C++ the compiler's flags, and a `CodeletFileType`; else more functions.
          compileFlags: the compiler's flags.

        Raises:
          graph_program_compilation_error: no compiler, or one that refuses the text.
          NotImplementedError: for files of assembly or of the chip's code.
        """
        self.codelets.add(src, *arguments, compileFlags=compileFlags)

    def addComputeSet(self, debugContext: str = "") -> ComputeSet:
        """Adds a compute set without vertices."""
        return ComputeSet(debugContext or "compute_set", self.root)

    def addVertex(
        self,
        cs: ComputeSet,
        vertexType: str | Callable[..., Any],
        connections: Mapping[str, Any] | None = None,
    ) -> Vertex:
        """Adds a vertex to a compute set, on no tile yet.

        Args:
          cs: the compute set.
          vertexType: the name of a codelet, or a function in JAX.
          connections: tensors by field; values for plain fields, and for an `Input` of one element.
        """
        if check.require_instance(cs, ComputeSet, "cs").graph is not self.root:
            raise graph_object_creation_error(
                f"compute set '{cs.name}' is of another graph", where=user_line()
            )
        if isinstance(cs, OperationComputeSet):
            raise graph_object_creation_error(
                f"compute set '{cs.name}' is one of PopLibs', which takes no other vertices",
                where=user_line(),
                fix="add a compute set of your own",
            )
        if callable(vertexType):
            self.addCodelets(vertexType)
            codelet = make_codelet(vertexType)
        else:
            codelet = self.codelets.find(check.require_instance(vertexType, str, "vertexType"))
        vertex = Vertex(cs, codelet, len(cs.vertices), user_line())
        for field, tensor in (connections or {}).items():
            self.connect(vertex[field], tensor)
        cs.vertices.append(vertex)
        return vertex

    def connect(self, field: FieldRef, tensor: Any) -> None:
        """Connects a field of a vertex with a tensor, or sets a plain field's value.

        Args:
          field: `vertex["field"]`, or one of a vector of fields: `vertex["field"][i]`.
          tensor: the tensor, for a vector of fields a list of them; or the value.
        """
        connect_field(self.root, check.require_instance(field, FieldRef, "field"), tensor)

    def setFieldSize(self, field: FieldRef, size: int) -> None:
        """Sets the number of elements of a plain vector in C++, or of fields of a vector of fields.

        Args:
          field: `vertex["field"]`.
          size: the number.
        """
        set_field_size(check.require_instance(field, FieldRef, "field"), size)

    def setPerfEstimate(self, vertex: Vertex, cycles: float, flops: int = 0) -> None:
        """Sets the cycles of a vertex: a worker's for a `Vertex`, else the tile's.

        Args:
          vertex: the vertex.
          cycles: its cycles, on every chip.
          flops: its floating-point operations, for reports.
        """
        flops = check.require_integer(flops, "flops", at_least=0)
        vertex.cycles = check.require_integer(cycles, "cycles", at_least=0)
        vertex.flops = flops

    def registerPerfEstimator(self, vertexTypeName: str, estimator: Callable[..., float]) -> None:
        """Sets the function that estimates the cycles of vertices of a type.

        Args:
          vertexTypeName: the name of the codelet.
          estimator: as `cycles` of `poplar.codelet`.
        """
        self.estimators[vertexTypeName] = check.require_function(estimator, "estimator")

    # --- the host ---------------------------------------------------------------------------------

    def createHostWrite(self, handle: str, tensor: Tensor) -> None:
        """Gives a tensor the handle by which `Engine.writeTensor` writes it."""
        self.host_writes[handle] = self.require_tensor(tensor)

    def createHostRead(self, handle: str, tensor: Tensor) -> None:
        """Gives a tensor the handle by which `Engine.readTensor` reads it."""
        self.host_reads[handle] = self.require_tensor(tensor)

    def addFunction(self, program: Any) -> Function:
        """Adds a program that `program.Call` calls."""
        return Function(require_program(program))

    def createVirtualGraph(self, lowerTile: Any, upperTile: int | None = None) -> Graph:
        """Returns a virtual graph of some of this graph's tiles, numbered from 0 on.

        Variables and vertices that are added to it belong to this graph.

        Args:
          lowerTile: the first tile; without `upperTile` the number of tiles of each IPU, its first
            ones, or a list of tiles, the same ones of each IPU.
          upperTile: the tile after the last.

        Raises:
          invalid_tile_mapping: tiles that do not exist, or none.
        """
        target, ipus = self.getTarget(), 1
        if upperTile is not None:
            lowerTile = check.require_integer(lowerTile, "lowerTile", at_least=0)
            tiles = [*range(lowerTile, upperTile)]
        else:
            ipus = target.ipus
            tiles = [*(lowerTile if isinstance(lowerTile, (list, tuple)) else range(lowerTile))]
            if any(tile >= target.tiles for tile in tiles):
                raise invalid_tile_mapping(
                    f"a virtual graph with tile {max(tiles)} of each IPU",
                    where=user_line(),
                    fix=f"an IPU has tiles 0 to {target.tiles - 1}",
                )
            tiles = [ipu * target.tiles + tile for ipu in range(ipus) for tile in tiles]
        if not tiles or len({*tiles}) != len(tiles):
            raise invalid_tile_mapping(
                f"a virtual graph of {len(tiles)} tiles",
                where=user_line(),
                fix="give some tiles, each once",
            )
        chosen = np.array([self._require_tile(tile, "the virtual graph") for tile in tiles])
        return Graph.of_some_tiles(self.root, np.asarray(self.tiles_of_root(chosen)), ipus)

    def serialize(self, *_: Any) -> NoReturn:
        """Raises a `NotImplementedError`: graphs are not written to files."""
        raise NotImplementedError("poplar.Graph.serialize is left out")

    def createReplicatedGraph(self, *_: Any) -> NoReturn:
        """Raises a `NotImplementedError`: replicas are those of `ipu.compile`."""
        raise NotImplementedError("poplar.Graph.createReplicatedGraph is left out")

    def addHostFunction(self, *_: Any) -> NoReturn:
        """Raises a `NotImplementedError`: the host takes part by streams and their callbacks."""
        raise NotImplementedError("poplar.Graph.addHostFunction is left out, as is hostFunction")

    hostFunction = addHostFunction
