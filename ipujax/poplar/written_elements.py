"""The elements that something has written, followed along a program before it runs."""

from __future__ import annotations

import numpy as np

from ipujax.poplar import program as programs
from ipujax.poplar.exceptions import control_program_error
from ipujax.poplar.graph import Graph
from ipujax.poplar.tensors import Tensor


class WrittenElements:
    """The elements that hosts, earlier runs or initial values have written."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.known = np.zeros(graph.size, bool)
        for variable in graph.variables:
            if variable.values is not None:
                self.known[variable.start : variable.start + variable.size] = True
        for elements, _ in graph.initial_values:
            self.known[elements] = True

    def require(self, elements: np.ndarray, what: str, where: str) -> None:
        """Raises an error if nothing has written one of the elements."""
        missing = elements[~self.known[elements]]
        if missing.size:
            raise control_program_error(
                f"{what} reads {self.graph.name_element(int(missing.flat[0]))}, "
                "which nothing has written",
                where=where,
                fix='write it first, or give the engine {"debug.readUnwritten": "zero"}',
            )

    def run(self, program: programs.Program) -> None:
        """Follows a program: what any of its paths writes counts as written after it."""
        match program:
            case programs.Execute():
                self._run_compute_set(program)
            case programs.Copy():
                if program.offset is not None:
                    self.require(program.offset.elements, "the index", program.where)
                if isinstance(program.src, Tensor):
                    self.require(program.src.elements, f"copy '{program.name}'", program.where)
                if isinstance(program.dst, Tensor):
                    self.known[program.dst.elements] = True
            case programs.Operation():
                for tensor in program.inputs:
                    self.require(tensor.elements, f"'{program.name}'", program.where)
                for tensor in program.outputs:
                    self.known[tensor.elements] = True
            case programs.PrintTensor():
                self.require(program.tensor.elements, "PrintTensor", program.where)
            case programs.CycleMark():
                for part in program.parts():
                    self.run(part)
                self.known[program.tensor.elements] = True
            case programs.WriteUndef():
                self.known[program.tensor.elements] = False
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
        before, after = self.known, self.known.copy()
        for part in program.parts():
            self.known = before.copy()
            self.run(part)
            after |= self.known
        self.known = after

    def _run_compute_set(self, program: programs.Execute) -> None:
        for vertex in program.compute_set.vertices:
            for name, field in vertex.codelet.fields.items():
                if field.is_read:
                    elements = vertex.connections[name].elements
                    self.require(elements, f"field '{name}' of {vertex}", vertex.where)
        for vertex in program.compute_set.vertices:
            for name, field in vertex.codelet.fields.items():
                if field.is_written:
                    self.known[vertex.connections[name].elements] = True
