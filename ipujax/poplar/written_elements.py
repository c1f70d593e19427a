"""Tracking of written elements through a program, before it runs."""

from __future__ import annotations

import numpy as np

from ipujax.poplar import program as programs
from ipujax.poplar.exceptions import control_program_error
from ipujax.poplar.graph import Graph
from ipujax.poplar.tensors import Tensor


class WrittenElements:
    """The elements that the host, earlier runs or initial values have written.

    Attributes:
      graph: the graph.
      is_written: for each element, whether it is written.
    """

    def __init__(self, graph: Graph):
        self.graph = graph
        self.is_written = np.zeros(graph.size, bool)
        for variable in graph.variables:
            if variable.values is not None:
                self.is_written[variable.start : variable.start + variable.size] = True
        for elements, _ in graph.initial_values:
            self.is_written[elements] = True

    def require(self, elements: np.ndarray, reader: str, source_line: str) -> None:
        """Raises an error if nothing has written one of the elements."""
        missing = elements[~self.is_written[elements]]
        if missing.size:
            raise control_program_error(
                f"{reader} reads {self.graph.name_element(int(missing.flat[0]))}, "
                "which nothing has written",
                where=source_line,
                fix='write it first, or give the engine {"debug.readUnwritten": "zero"}',
            )

    def run(self, program: programs.Program) -> None:
        """Marks the elements that any path of a program writes; checks those that it reads."""
        match program:
            case programs.Execute():
                self._run_compute_set(program)
            case programs.Copy():
                if program.offset is not None:
                    self.require(program.offset.elements, "the index", program.where)
                if isinstance(program.src, Tensor):
                    self.require(program.src.elements, f"copy '{program.name}'", program.where)
                if isinstance(program.dst, Tensor):
                    self.is_written[program.dst.elements] = True
            case programs.Operation():
                for tensor in program.inputs:
                    self.require(tensor.elements, f"'{program.name}'", program.where)
                for tensor in program.outputs:
                    self.is_written[tensor.elements] = True
            case programs.PrintTensor():
                self.require(program.tensor.elements, "PrintTensor", program.where)
            case programs.CycleMark():
                for part in program.parts():
                    self.run(part)
                self.is_written[program.tensor.elements] = True
            case programs.WriteUndef():
                self.is_written[program.tensor.elements] = False
            case programs.RepeatWhile():
                self.run(program.condition)
                self.require(program.predicate.elements, "the predicate", program.where)
                self.run(program.body)
            case programs.If():
                self.require(program.predicate.elements, "the predicate", program.where)
                self._run_branches(program)
            case programs.Switch():
                self.require(program.control.elements, "the control", program.where)
                self._run_branches(program)
            case programs.Repeat() if not program.count:
                pass
            case _:
                for part in program.parts():
                    self.run(part)

    def _run_branches(self, program: programs.Program) -> None:
        written_before, written_after = self.is_written, self.is_written.copy()
        for part in program.parts():
            self.is_written = written_before.copy()
            self.run(part)
            written_after |= self.is_written
        self.is_written = written_after

    def _run_compute_set(self, program: programs.Execute) -> None:
        for vertex in program.compute_set.vertices:
            for name, field in vertex.codelet.fields.items():
                if field.is_read:
                    elements = vertex.connections[name].elements
                    self.require(elements, f"field '{name}' of {vertex}", vertex.where)
        for vertex in program.compute_set.vertices:
            for name, field in vertex.codelet.fields.items():
                if field.is_written:
                    self.is_written[vertex.connections[name].elements] = True
