"""Descriptions of vertices on tiles: element types, fields, constants, whole equations."""

from __future__ import annotations

import base64
import dataclasses as dc
import enum
import math
from collections.abc import Sequence
from typing import Any, Self

from ipujax.tessellate.lib.json_data import JsonData


class IpuType(enum.Enum):
    """An element type, with TessellateIPU's number."""

    BOOL = 1
    CHAR = 2
    UNSIGNED_CHAR = 3
    SHORT = 4
    UNSIGNED_SHORT = 5
    INT = 6
    UNSIGNED_INT = 7
    LONG = 8
    UNSIGNED_LONG = 9
    QUARTER = 10
    HALF = 11
    FLOAT = 12

    @property
    def bytesize(self) -> int:
        """The bytes of an element."""
        return _SIZES[self]


_SIZES = dict(zip(IpuType, (1, 1, 1, 2, 2, 4, 4, 8, 8, 1, 2, 4), strict=True))


class IpuVertexIOType(enum.Enum):
    """The access of a vertex to a field: it reads it, writes it, or both."""

    In = 0
    Out = 1
    InOut = 2


@dc.dataclass
class Base64Data(JsonData):
    """Bytes in base 64; empty ones are null in JSON."""

    encoded_data: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.encoded_data, bytes):
            self.encoded_data = self.encoded_data.decode()

    @classmethod
    def from_decoded_data(cls, data: str | bytes) -> Self:
        """Returns the object for a text, or bytes."""
        raw = data.encode() if isinstance(data, str) else data
        return cls(base64.b64encode(raw).decode())

    @property
    def decoded_data(self) -> str:
        """The bytes as a text."""
        return self.to_bytes().decode()

    def to_bytes(self) -> bytes:
        """Returns the bytes."""
        return base64.b64decode(self.encoded_data)

    @property
    def is_empty(self) -> bool:
        """True if there are no bytes."""
        return not self.encoded_data

    def to_json(self) -> Any:
        """Returns the fields, or None."""
        return None if self.is_empty else {"encoded_data": self.encoded_data}

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Returns the object that the result of `to_json` describes."""
        return cls(**(data or {}))


@dc.dataclass
class IpuTensorSlice(JsonData):
    """The elements from `begin` to before `end`."""

    begin: int
    end: int


@dc.dataclass
class IpuShapedArray(JsonData):
    """A shape and an element type."""

    shape: list[int] = dc.field(default_factory=list)
    dtype: IpuType = IpuType.UNSIGNED_CHAR

    def __post_init__(self) -> None:
        self.shape, self.dtype = [int(n) for n in self.shape], IpuType(self.dtype)

    @property
    def size(self) -> int:
        """The elements."""
        return math.prod(self.shape)


@dc.dataclass
class IpuVertexAttributeI32(JsonData):
    """A plain field that is an integer."""

    name: str
    value: int


@dc.dataclass
class IpuVertexAttributeF32(JsonData):
    """A plain field that is a number."""

    name: str
    value: float


@dc.dataclass(init=False)
class IpuVertexIOInfo(JsonData):
    """A connected field: rows of its second dimension, if there are any, are `slices2d`."""

    name: str
    iotype: IpuVertexIOType
    aval: IpuShapedArray
    constant_data: Base64Data
    slices2d: list[IpuTensorSlice]
    is_scalar: bool

    def __init__(
        self,
        name: str,
        iotype: IpuVertexIOType,
        shape: Sequence[int],
        dtype: IpuType,
        vertex_dim2: int = 0,
        constant_data: Base64Data | None = None,
    ):
        """Describes a field.

        Args:
          name: its name in the class.
          iotype: how it is used.
          shape: the extents.
          dtype: the element type.
          vertex_dim2: elements of a row of a vector of vectors; 0 for a vector, -1 for a scalar.
          constant_data: of a constant, its elements.
        """
        self.name, self.iotype = name, IpuVertexIOType(iotype)
        self.aval = IpuShapedArray(list(shape), dtype)
        self.constant_data = constant_data or Base64Data()
        self.is_scalar = vertex_dim2 < 0
        starts = range(0, self.aval.size, vertex_dim2) if vertex_dim2 > 0 else ()
        self.slices2d = [IpuTensorSlice(start, start + vertex_dim2) for start in starts]

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Returns the object that the result of `to_json` describes."""
        aval = IpuShapedArray.from_json(data["aval"])
        constant = Base64Data.from_json(data["constant_data"])
        info = cls(data["name"], data["iotype"], aval.shape, aval.dtype, 0, constant)
        info.slices2d = [IpuTensorSlice.from_json(row) for row in data["slices2d"]]
        info.is_scalar = data["is_scalar"]
        return info

    @property
    def shape(self) -> list[int]:
        """The extents."""
        return self.aval.shape

    @property
    def dtype(self) -> IpuType:
        """The element type."""
        return self.aval.dtype

    @property
    def is_constant_input(self) -> bool:
        """True if the field's elements are constant."""
        return not self.constant_data.is_empty


@dc.dataclass
class IpuTileMapEquation(JsonData):
    """A vertex type, its fields, and the tiles that it runs on.

    Attributes:
      vname: the class.
      pname: the primitive.
      tiles: the tiles.
      inputs_info: the fields of the primitive's operands, and then of constants.
      outputs_info: the fields of its results; an InOut field is in both.
      attributes_i32: plain fields.
      attributes_f32: plain fields.
      tmp_space_name: a field that `compute` writes for itself.
      tmp_space_aval: its shape.
      gp_filename: the file in C++, or "".
      perf_estimate: the cycles of a vertex; 0 if nobody says.
      sync: whether tiles wait for each other before; they always do here.
    """

    vname: str
    pname: str
    tiles: Sequence[int]
    inputs_info: list[IpuVertexIOInfo] = dc.field(default_factory=list)
    outputs_info: list[IpuVertexIOInfo] = dc.field(default_factory=list)
    attributes_i32: list[IpuVertexAttributeI32] = dc.field(default_factory=list)
    attributes_f32: list[IpuVertexAttributeF32] = dc.field(default_factory=list)
    tmp_space_name: str = ""
    tmp_space_aval: IpuShapedArray = dc.field(default_factory=lambda: IpuShapedArray([0]))
    gp_filename: str | None = ""
    perf_estimate: int = 0
    sync: bool = False

    def __post_init__(self) -> None:
        self.tiles = [int(tile) for tile in self.tiles]

    @property
    def num_inputs(self) -> int:
        """The number of operands, with constants."""
        return len(self.inputs_info)

    @property
    def num_outputs(self) -> int:
        """The number of results."""
        return len(self.outputs_info)

    @property
    def num_inouts(self) -> int:
        """The number of fields that are operands and results."""
        return sum(info.iotype is IpuVertexIOType.InOut for info in self.inputs_info)

    @property
    def use_tmp_space(self) -> bool:
        """True if the vertex has a temporary field, for itself alone."""
        return bool(self.tmp_space_name)

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Returns the object that the result of `to_json` describes."""
        kinds: dict[str, type[JsonData]] = {
            "inputs_info": IpuVertexIOInfo,
            "outputs_info": IpuVertexIOInfo,
            "attributes_i32": IpuVertexAttributeI32,
            "attributes_f32": IpuVertexAttributeF32,
        }
        read: dict[str, Any] = {
            name: [kind.from_json(item) for item in data[name]] for name, kind in kinds.items()
        }
        read["tmp_space_aval"] = IpuShapedArray.from_json(data["tmp_space_aval"])
        return cls(**{**data, **read})


@dc.dataclass
class TileDataBarrierParams(JsonData):
    """A barrier: its vertex, the tiles of its operands, and the last tile."""

    vname: str
    inputs_tiles: list[list[int]]
    max_tile: int
