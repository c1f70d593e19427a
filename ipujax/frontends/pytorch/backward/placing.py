"""Puts hooks where their tensors are, before all that read these."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram

from ipujax.errors import FrontendError, InternalError
from ipujax.frontends.pytorch.backward import markers
from ipujax.frontends.pytorch.errors import is_users

_FRAME = re.compile(r'File "(.+?)", line (\d+), in ')


def place_hooks(program: ExportedProgram) -> None:
    """Has all that reads a tensor which has a hook read what the hook gives.

    Before: hooks are where they were registered, and nothing reads what `hooked` gives.
    After: each is a function like the others, between `enter` and `leave`.

    Raises:
      FrontendError: (a `ValueError`) a hook needs what cannot be computed that early.
    """
    module = program.graph_module
    for part in [m for m in module.modules() if isinstance(m, torch.fx.GraphModule)]:
        for node in list(part.graph.nodes):
            if node.target is not markers.HOOKED:
                continue
            if part is not module and any(t.op == "placeholder" for t in node.args[0]):
                raise _misplaced(node, "is registered where no gradients are computed")
            names = _Placing(part.graph, node).place()
            if part is module:
                _rename_outputs(program, names)
        part.recompile()


def _rename_outputs(program: ExportedProgram, names: Mapping[str, str]) -> None:
    for spec in program.graph_signature.output_specs:
        name = str(getattr(spec.arg, "name", ""))
        if name in names:
            spec.arg.name = names[name]


def _misplaced(hooked: Any, what: str) -> FrontendError:
    frames = _FRAME.findall(hooked.meta.get("stack_trace") or "")
    lines = [f"{file}:{line}" for file, line in frames if is_users(file)]
    return FrontendError(
        f"the hook of a tensor's gradient {what}",
        where=lines[-1] if lines else None,
        fix="write a torch.autograd.Function whose backward does the same",
    )


class _Placing:
    """Moves a hook in front of what first reads its tensors.

    Args:
      graph: that the hook is in.
      hooked: the node that it ends with.
    """

    def __init__(self, graph: torch.fx.Graph, hooked: Any) -> None:
        self._graph, self._hooked = graph, hooked
        self._tensors, self._gradients, self._positions, self._number = hooked.args
        self._region = _region_of(graph, hooked)
        self._users = {u for t in self._tensors for u in t.users if self._is_outside(u)}
        self._first = min([*self._users, self._region[0]])
        self._copies: dict[Any, Any] = {}

    def _is_outside(self, user: Any) -> bool:
        # Hooks are called in the order of registration: later ones go in front of this one.
        return user not in self._region and user.target not in (markers.HOOKED, markers.GRADIENTS)

    def place(self) -> dict[str, str]:
        """Gives the new names of the tensors."""
        with self._graph.inserting_before(self._first):
            tensors = [self._copy(tensor) for tensor in self._tensors]
            entered = self._call(markers.ENTER, tensors, self._number)
            inner = self._items(entered)
            self._copies[self._region[0]] = self._call(markers.GRADIENTS, inner, self._number)
            gradients = [self._copy(gradient) for gradient in self._gradients]
            left = self._call(
                markers.LEAVE, inner, inner, gradients, self._positions, False, self._number
            )
            results = self._items(left)
        for tensor, result in zip(self._tensors, results, strict=True):
            tensor.replace_all_uses_with(result, lambda user: user in self._users)
        for item in list(self._hooked.users):
            item.replace_all_uses_with(results[item.args[1]])
            self._graph.erase_node(item)
        for node in reversed(self._region):
            if not node.users:
                self._graph.erase_node(node)
        return {t.name: r.name for t, r in zip(self._tensors, results, strict=True)}

    def _call(self, target: Any, *args: Any) -> Any:
        node = self._graph.call_function(target, args)
        node.meta = dict(self._hooked.meta)
        return node

    def _items(self, listed: Any) -> list[Any]:
        items: list[Any] = []
        for index, tensor in enumerate(self._tensors):
            item = self._call(operator.getitem, listed, index)
            item.meta["val"] = tensor.meta["val"]
            items.append(item)
        return items

    def _copy(self, node: Any) -> Any:
        """A node, or a copy of it that is early enough."""
        if node in self._copies:
            return self._copies[node]
        if node < self._first and node not in self._region:
            return node
        self._check_copy(node)
        before = [self._copy(operand) for operand in node.all_input_nodes]
        known = dict(zip(node.all_input_nodes, before, strict=True))
        self._copies[node] = self._graph.node_copy(node, known.__getitem__)
        return self._copies[node]

    def _check_copy(self, node: Any) -> None:
        tags: Sequence[Any] = getattr(node.target, "tags", ())
        schema = getattr(node.target, "_schema", None)
        is_random = torch.Tag.nondeterministic_seeded in tags
        if node not in self._region and (is_random or (schema and schema.is_mutable)):
            raise _misplaced(self._hooked, "needs random numbers drawn after the tensor is used")


def _region_of(graph: torch.fx.Graph, hooked: Any) -> list[Any]:
    """The nodes from the gradients that a hook is given to its end."""
    number = hooked.args[3]
    region: list[Any] = []
    for node in graph.nodes:
        if region or (node.target is markers.GRADIENTS and node.args[1] == number):
            region.append(node)
        if node is hooked:
            break
    if not region:
        raise InternalError("the hook of a tensor has an end and no beginning")
    return region
