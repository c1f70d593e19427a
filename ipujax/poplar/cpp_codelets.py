"""Codelets in C++: compiled for the host, and run as one call of XLA for all vertices of a type."""

from __future__ import annotations

import ctypes
import dataclasses as dc
import enum
import functools
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ipujax.driver import native_code
from ipujax.poplar import element_types
from ipujax.poplar.codelets import Codelet, Field
from ipujax.poplar.cpp_compiler import (
    check_host_can_compile,
    compile_library,
    has_wide_accesses,
    preprocess,
    split_words,
)
from ipujax.poplar.cpp_glue import write_glue
from ipujax.poplar.cpp_source import (
    VertexClass,
    canonical_name,
    drop_declared_constructors,
    find_vertex_classes,
    read_tokens,
)
from ipujax.poplar.cpp_threads import needs_one_thread
from ipujax.poplar.exceptions import (
    check,
    graph_object_creation_error,
    graph_program_compilation_error,
    poplar_error,
    type_error,
)
from ipujax.poplar.user_lines import user_line

if TYPE_CHECKING:
    from ipujax.poplar.vertex_groups import VertexGroup

PLAIN_FIELDS = "plain fields"
"""The hidden field with the bytes of the plain fields, which vertices keep from run to run."""

WORD_BYTES = 4
# The fields of which a call says whether they begin at a word, in the bits of one integer.
_MAX_ALIGNMENT_BITS = 63

# The values of poplar::Access that read a field, and those that write it.
_READS, _WRITES = (0, 2), (1, 2)
_WIDE_DTYPES = {"DOUBLE": np.float64, "LONGLONG": np.int64, "UNSIGNED_LONGLONG": np.uint64}
_FAILURE = re.compile(
    r" (?P<problem>writes outside of|accesses by vectors, and not aligned,) "
    r"field '(?P<field>.*?)' \(vertex (?P<vertex>\d+) of group (?P<group>\d+)\)"
)


class CodeletFileType(enum.Enum):
    """The kinds of files that codelets may come in."""

    PreprocessedAsmSource = 0
    AsmSource = 1
    CppSource = 2
    CSource = 3
    IrSource = 4
    Object = 5
    Auto = 6


_CHIP_ONLY_SUFFIXES = {".s", ".S", ".gp", ".o", ".a", ".ll", ".bc"}
_SOURCES = (CodeletFileType.Auto, CodeletFileType.CppSource, CodeletFileType.CSource)


@dc.dataclass(frozen=True, slots=True)
class PlainField:
    """A plain field, and the location of its bytes among those of a vertex's plain fields.

    Attributes:
      dtype: the type of an element; bytes for a structure.
      shape: () or (n,).
      offset: the first byte.
      default: the initial value that the class declares.
    """

    dtype: np.dtype
    shape: tuple[int, ...]
    offset: int
    default: np.ndarray

    def encode(self, value: Any, name: str) -> bytes:
        """Returns the bytes of a value: a number, or as many as the field has.

        Raises:
          type_error: the value cannot be converted.
        """
        try:
            array = np.asarray(value).astype(self.dtype)
            flat = array.reshape(self.shape) if array.size > 1 else array
            return np.broadcast_to(flat, self.shape).tobytes()
        except (TypeError, ValueError) as error:
            raise type_error(
                f"field '{name}' takes {self.dtype}{[*self.shape]}, and not {value!r}: {error}",
                where=user_line(),
            ) from error


@dc.dataclass(frozen=True, slots=True, eq=False)
class CppVertex:
    """The part of a compiled library that belongs to one vertex type.

    Attributes:
      target: the name of its handler in XLA.
      estimate: sizes of rows, the bytes of plain fields, whether loops are marked -> cycles or -1.
      plain: the plain fields, but for vectors.
      vectors: the element type of each plain vector.
      state_bytes: bytes of the plain fields of a vertex.
      has_loops: whether the text marks loops.
    """

    target: str
    estimate: Any
    plain: Mapping[str, PlainField]
    vectors: Mapping[str, element_types.Type]
    state_bytes: int
    has_loops: bool

    def check_value(self, name: str, value: Any, size: int | None) -> None:
        """Raises a type_error for a value that a plain field cannot hold.

        Args:
          name: the field.
          value: the value.
          size: the size that a vector has been given, if any.
        """
        if name in self.vectors:
            self.elements_of(name, value, size)
        else:
            self.plain[name].encode(value, name)

    def elements_of(self, name: str, value: Any, size: int | None) -> np.ndarray:
        """Returns the elements of a plain vector, 1-d: one value for all, or one for each."""
        try:
            array = np.asarray(value).astype(self.vectors[name].dtype).reshape(-1)
            return array if size is None else np.broadcast_to(array, size)
        except (TypeError, ValueError) as error:
            raise type_error(
                f"field '{name}' takes {size or 'some'} elements of {self.vectors[name]}, and not "
                f"{value!r}: {error}",
                where=user_line(),
            ) from error

    def state_of(self, values: Mapping[str, Any]) -> np.ndarray:
        """Returns the bytes of the plain fields, uint8, with values for some of them."""
        state = np.zeros(self.state_bytes, np.uint8)
        for name, field in self.plain.items():
            raw = field.encode(values.get(name, field.default), name)
            state[field.offset : field.offset + len(raw)] = np.frombuffer(raw, np.uint8)
        return state


class CppSource:
    """The text of codelets in C++, and the compiler of its vertex types.

    Args:
      text: the text.
      name: the text's name in messages.
      folder: the folder of the user's headers.
      flags: flags for the compiler.
    """

    def __init__(self, text: str, name: str, folder: Path, flags: Sequence[str]):
        self.name, self._flags = name, tuple(flags)
        self._preprocessed = preprocess(text, name, folder, flags)
        tokens = read_tokens(self._preprocessed)
        check_host_can_compile(tokens)
        self._has_vectors = has_wide_accesses(tokens)
        self._has_loops = any(token.text == "loop" for token in tokens)
        self._runs_alone = needs_one_thread([token.text for token in tokens])
        self.classes = {
            vertex_class.name: vertex_class for vertex_class in find_vertex_classes(tokens)
        }
        self._preprocessed = drop_declared_constructors(self._preprocessed, self.classes.values())

    def make_codelets(self) -> list[Codelet]:
        """Returns the codelets of all classes, and of all template instances in the text."""
        classes_by_name: dict[str, VertexClass] = {}
        for vertex_class in self.classes.values():
            for arguments in vertex_class.instances if vertex_class.is_template else ("",):
                classes_by_name[f"{vertex_class.name}{arguments}"] = vertex_class
        return self._compile(classes_by_name)

    def make_instance(self, name: str) -> Codelet | None:
        """Returns the codelet of a template instance, as `Name<float>`; None for other names."""
        vertex_class = self.classes.get(name.partition("<")[0])
        if vertex_class is None or not vertex_class.is_template or "<" not in name:
            return None
        return self._compile({name: vertex_class})[0]

    def _compile(self, classes_by_name: Mapping[str, VertexClass]) -> list[Codelet]:
        glue = "\n".join(
            write_glue(n, name, vertex_class, runs_alone=self._runs_alone)
            for n, (name, vertex_class) in enumerate(classes_by_name.items())
        )
        path = compile_library(
            self._preprocessed, glue, self.name, self._flags, checks_alignment=self._has_vectors
        )
        try:
            native_code.load_library(path)
        except OSError as error:
            raise graph_program_compilation_error(
                f"codelet '{self.name}' cannot be loaded: {error}",
                where=user_line(),
                fix="define every function that it calls",
            ) from error
        return [
            _make_codelet(path, number, name, vertex_class, self._has_loops)
            for number, (name, vertex_class) in enumerate(classes_by_name.items())
        ]


def read_source(source: Any, *arguments: Any, compileFlags: str = "") -> CppSource:
    """Reads codelets in C++.

    Args:
      source: a path, or a file object with the text.
      *arguments: flags for the compiler, a `CodeletFileType`, in any order.
      compileFlags: flags for the compiler.

    Raises:
      NotImplementedError: files of assembly or objects.
      graph_program_compilation_error: a file that cannot be read or compiled.
    """
    is_path = isinstance(source, (str, os.PathLike))
    name = str(source) if is_path else str(getattr(source, "name", "codelet"))
    kinds = [argument for argument in arguments if isinstance(argument, CodeletFileType)]
    if Path(name).suffix in _CHIP_ONLY_SUFFIXES or any(kind not in _SOURCES for kind in kinds):
        raise NotImplementedError(
            f"'{name}' holds codelets for the chip alone; give their text in C++ to addCodelets"
        )
    flag_texts = [
        *(argument for argument in arguments if not isinstance(argument, CodeletFileType)),
        compileFlags,
    ]
    for flag_text in flag_texts:
        check.require_instance(flag_text, str, "compileFlags")
    try:
        text = Path(source).read_text() if is_path else source.read()
    except (OSError, UnicodeError) as error:
        raise graph_program_compilation_error(
            f"codelet '{name}' cannot be read: {error}", where=user_line(), fix="name a file"
        ) from error
    text = text.decode() if isinstance(text, bytes) else text
    flags = [flag for flag_text in flag_texts for flag in split_words(flag_text, "the flags")]
    return CppSource(text, name, Path(name).parent, flags)


def _make_codelet(
    path: Path, number: int, name: str, vertex_class: VertexClass, has_loops: bool
) -> Codelet:
    library = native_code.load_library(path)
    describe, estimate = library[f"ipujax_describe_{number}"], library[f"ipujax_estimate_{number}"]
    describe.restype, estimate.restype = ctypes.c_char_p, ctypes.c_int64
    fields: dict[str, Field] = {}
    plain: dict[str, PlainField] = {}
    vectors: dict[str, element_types.Type] = {}
    for description in json.loads(describe()):
        if "rank" in description:
            field = _make_connected_field(description, name, vertex_class)
            fields[description["name"]] = field
            if field.is_plain:
                vectors[description["name"]] = field.type
        else:
            plain[description["name"]] = _make_plain_field(description)
    if plain:
        fields[PLAIN_FIELDS] = Field(element_types.UNSIGNED_CHAR, 1, True, True)
    if not any(field.is_written for field in fields.values()):
        raise graph_object_creation_error(
            f"codelet '{name}' writes nothing",
            where=vertex_class.source_line,
            fix="give it an Output or InOut",
        )
    state_bytes = max((f.offset + f.default.nbytes for f in plain.values()), default=0)
    vertex = CppVertex(
        native_code.register_target(path, number),
        estimate,
        MappingProxyType(plain),
        MappingProxyType(vectors),
        state_bytes,
        has_loops,
    )
    return Codelet(
        name=canonical_name(name),
        function=functools.partial(_run_batch, vertex),
        kind=vertex_class.kind,
        fields=fields,
        plain={field: description.default for field, description in plain.items()},
        cycles=None,
        parameters={field: field for field in (*fields, *plain)},
        native=vertex,
    )


def _make_connected_field(
    description: Mapping[str, Any], name: str, vertex_class: VertexClass
) -> Field:
    type = getattr(element_types, description["type"] or "none", None)
    if type is None:
        raise graph_program_compilation_error(
            f"field '{description['name']}' of codelet '{name}' has elements of no type of tensors",
            where=vertex_class.source_line,
            fix="tensors have float, half, bool, and integers of at most 32 bits",
        )
    is_read, is_written = description["access"] in _READS, description["access"] in _WRITES
    return Field(
        type,
        description["rank"],
        is_read,
        is_written,
        keeps_unwritten=not is_read,
        has_scalar_rows=description["has_scalar_rows"],
        is_plain=description["is_plain"],
    )


def _make_plain_field(description: Mapping[str, Any]) -> PlainField:
    type = getattr(element_types, description["type"], None)
    dtype = np.dtype(_WIDE_DTYPES.get(description["type"], type.dtype if type else np.uint8))
    count = description["bytes"] // dtype.itemsize
    shape = (count,) if description["is_array"] or count > 1 else ()
    default = np.frombuffer(bytes.fromhex(description["default"]), dtype).reshape(shape)
    return PlainField(dtype, shape, description["offset"], default)


def _run_batch(
    vertex: CppVertex, group: VertexGroup, operands: Mapping[str, jax.Array]
) -> dict[str, jax.Array]:
    """Returns the written fields of all vertices of a group, [vertices, *the field's shape].

    Args:
      vertex: the type.
      group: the vertices.
      operands: the array of each field: [vertices or 1, *the field's shape].
    """
    fields, count = group.codelet.fields, len(group.vertices)
    call_operands: list[jax.Array | np.ndarray] = []
    results: dict[str, jax.ShapeDtypeStruct] = {}
    for name, field in fields.items():
        call_operands.append(operands[name])
        if field.rank == 2:
            call_operands.append(np.array(group.rows[name], np.int32))
        if field.is_written:
            shape = group.shape_of(name)
            results[name] = jax.ShapeDtypeStruct((count, *shape.shape), shape.dtype)
    call = jax.ffi.ffi_call(vertex.target, [*results.values()], vmap_method="sequential")
    connected = [name for name in fields if name != PLAIN_FIELDS][:_MAX_ALIGNMENT_BITS]
    words = [_begins_at_word(group, name) for name in connected]
    label = f"codelet '{group.codelet.name}' in '{group.vertices[0].compute_set.name}'"
    written = call(
        *call_operands,
        group=np.int64(group.number),
        label=label,
        words=np.int64(sum(begins_at_word << bit for bit, begins_at_word in enumerate(words))),
    )
    return dict(zip(results, written, strict=True))


def _begins_at_word(group: VertexGroup, name: str) -> bool:
    """Returns whether all rows of a field begin at a whole word of their tiles' memory.

    The part of a variable that a tile holds begins at a word, and has the elements in order.
    """
    element_bytes = group.codelet.fields[name].type.size
    if element_bytes % WORD_BYTES == 0:
        return True
    row_begins = np.cumsum((0, *group.rows[name]))[:-1]
    elements = group.elements[name].reshape(len(group.vertices), -1)
    row_starts = elements[:, row_begins[row_begins < elements.shape[1]]].reshape(-1)
    graph = group.vertices[0].compute_set.graph
    numbers = np.searchsorted(graph.starts, row_starts, side="right") - 1
    for number in np.unique(numbers):
        variable = graph.variables[number]
        tiles = graph.tile_of[variable.start : variable.start + variable.size]
        order = np.argsort(tiles, kind="stable")
        begins = np.searchsorted(tiles[order], tiles[order])
        offsets = np.empty(variable.size, np.int64)
        offsets[order] = np.arange(variable.size) - begins
        row_offsets = offsets[row_starts[numbers == number] - variable.start]
        if (row_offsets * element_bytes % WORD_BYTES).any():
            return False
    return True


def explain_failure(error: Exception, groups: Iterable[VertexGroup]) -> poplar_error | None:
    """Returns the codelet's error that a failed run stands for; None for other failures."""
    if (match := _FAILURE.search(str(error))) is None:
        return None
    group = next(candidate for candidate in groups if candidate.number == int(match["group"]))
    vertex = group.vertices[int(match["vertex"])]
    tensor = vertex.connections.get(match["field"], "a value of its own")
    if "aligned" in match["problem"]:
        return graph_program_compilation_error(
            f"{vertex} on tile {vertex.tile} reads or writes field '{match['field']}', {tensor}, "
            "with vectors that are wider than it is aligned to",
            where=vertex.where,
            fix="ask for it, as with Vector<float, VectorLayout::SPAN, 8> for a float2",
        )
    return graph_program_compilation_error(
        f"{vertex} on tile {vertex.tile} writes outside of field '{match['field']}', {tensor}",
        where=vertex.where,
        fix="keep indices in its compute below the field's size",
    )


def estimate_cycles(group: VertexGroup, values: Mapping[str, Any]) -> float | None:
    """Returns the cycles that a codelet's own C++ code estimates for a vertex; None if it does not.

    Args:
      group: vertices of its shape.
      values: the initial values of its plain fields.
    """
    vertex = group.codelet.native
    if vertex is None:
        return None
    sizes: list[int] = []
    for name, field in group.codelet.fields.items():
        if name != PLAIN_FIELDS:
            rows = group.rows[name] if field.rank == 2 else group.shape_of(name).shape or (1,)
            sizes += [len(rows), *rows]
    row_sizes, state = np.array(sizes, np.int64), vertex.state_of(values)
    cycles = vertex.estimate(
        ctypes.c_void_p(row_sizes.ctypes.data), ctypes.c_void_p(state.ctypes.data), vertex.has_loops
    )
    return None if cycles < 0 else float(cycles)
