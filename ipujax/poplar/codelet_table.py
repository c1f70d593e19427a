"""The vertex types that a graph knows, by name."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipujax.poplar.codelets import Codelet, make_codelet
from ipujax.poplar.cpp_codelets import PLAIN_FIELDS, CppSource, read_source
from ipujax.poplar.cpp_source import canonical_name
from ipujax.poplar.exceptions import unknown_vertex_type
from ipujax.poplar.user_lines import user_line


class CodeletTable:
    """A graph's codelets by name, and the C++ sources whose templates give further ones."""

    def __init__(self) -> None:
        self._codelets: dict[str, Codelet] = {}
        self._sources: list[CppSource] = []

    def names(self) -> list[str]:
        """Returns the names of all vertex types, and those of templates as `Name<...>`."""
        classes = [
            vertex_class for source in self._sources for vertex_class in source.classes.values()
        ]
        return [
            *self._codelets,
            *(f"{vertex_class.name}<...>" for vertex_class in classes if vertex_class.is_template),
        ]

    def descriptions(self) -> list[str]:
        """Returns the names of all vertex types, each with its kind and, below it, its fields."""
        lines: list[str] = []
        for name, codelet in self._codelets.items():
            lines.append(f"{codelet.kind} {name}")
            fields = [(n, str(f)) for n, f in codelet.fields.items() if n != PLAIN_FIELDS]
            plain = [(n, f"{np.asarray(v).dtype}, {v}") for n, v in codelet.plain.items()]
            lines += [f"  {field}: {kind_text}" for field, kind_text in (*fields, *plain)]
        return lines + [name for name in self.names() if name.endswith("<...>")]

    def add(self, src: Any, *arguments: Any, compileFlags: str = "") -> None:
        """Adds codelets from any source that `Graph.addCodelets` takes."""
        if isinstance(src, (list, tuple)):
            for member in src:
                self.add(member, *arguments, compileFlags=compileFlags)
        elif isinstance(src, Codelet):
            self._codelets[src.name] = src
        elif callable(src):
            for function in (src, *arguments):
                codelet = make_codelet(function)
                self._codelets[codelet.name] = codelet
        else:
            source = read_source(src, *arguments, compileFlags=compileFlags)
            self._codelets |= {codelet.name: codelet for codelet in source.make_codelets()}
            self._sources.append(source)

    def find(self, name: str) -> Codelet:
        """Returns a codelet by name; instances of C++ templates are compiled when first asked for.

        Raises:
          unknown_vertex_type: there is none of that name.
        """
        name = canonical_name(name)
        for source in self._sources:
            if name not in self._codelets and (instance := source.make_instance(name)):
                self._codelets[name] = instance
        if name not in self._codelets:
            raise unknown_vertex_type(
                f"the graph has no vertex type '{name}'",
                where=user_line(),
                fix=f"call addCodelets before; known are: {', '.join(self.names()) or 'none'}",
            )
        return self._codelets[name]
