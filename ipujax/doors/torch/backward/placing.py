"""Moves the hooks of tensors in front of everything that reads the tensors."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram

from ipujax.doors.torch.backward import markers
from ipujax.doors.torch.torch_errors import is_user_code
from ipujax.ground import FrontendError, InternalError

_FRAME = re.compile(r'File "(.+?)", line (\d+), in ')


def place_hooks(program: ExportedProgram) -> None:
    """Makes all readers of a hooked tensor read the result of its hook.

    Before: hooks are where they were registered, and nothing reads the results of `hooked`.
    After: each hook is a function between `enter` and `leave`, like the others.

    Raises:
      FrontendError: (a `ValueError`) a hook needs a value that is computed after the first reader.
    """
    module = program.graph_module
    for part in [m for m in module.modules() if isinstance(m, torch.fx.GraphModule)]:
        for node in list(part.graph.nodes):
            if node.target is not markers.HOOKED:
                continue
            if part is not module and any(t.op == "placeholder" for t in node.args[0]):
                raise _hook_placement_error(node, "is registered where no gradients are computed")
            names = _HookMover(part.graph, node).move_hook()
            if part is module:
                _rename_outputs(program, names)
        part.recompile()


def _rename_outputs(program: ExportedProgram, names: Mapping[str, str]) -> None:
    for spec in program.graph_signature.output_specs:
        name = str(getattr(spec.arg, "name", ""))
        if name in names:
            spec.arg.name = names[name]


def _hook_placement_error(hooked: Any, problem: str) -> FrontendError:
    frames = _FRAME.findall(hooked.meta.get("stack_trace") or "")
    lines = [f"{file}:{line}" for file, line in frames if is_user_code(file)]
    return FrontendError(
        f"the hook of a tensor's gradient {problem}",
        where=lines[-1] if lines else None,
        fix="write a torch.autograd.Function whose backward does the same",
    )


class _HookMover:
    """Moves one hook in front of the first reader of its tensors.

    Args:
      graph: the graph that contains the hook.
      hooked: the `hooked` node that ends the hook.
    """

    def __init__(self, graph: torch.fx.Graph, hooked: Any) -> None:
        self._graph, self._hooked = graph, hooked
        self._tensors, self._gradients, self._positions, self._number = hooked.args
        self._region = _nodes_of_hook(graph, hooked)
        self._users = {
            u for t in self._tensors for u in t.users if self._reads_from_outside_hook(u)
        }
        self._first = min([*self._users, self._region[0]])
        self._copies: dict[object, torch.fx.Node] = {}

    def _reads_from_outside_hook(self, user: Any) -> bool:
        # Hooks are called in the order of registration: later ones go in front of this one.
        return user not in self._region and user.target not in (markers.HOOKED, markers.GRADIENTS)

    def move_hook(self) -> dict[str, str]:
        """Moves the hook and returns the new names of the tensors."""
        with self._graph.inserting_before(self._first):
            tensors = [self._copy_if_late(tensor) for tensor in self._tensors]
            enter_node = self._insert_call(markers.ENTER, tensors, self._number)
            marked_tensors = self._insert_getitems(enter_node)
            self._copies[self._region[0]] = self._insert_call(
                markers.GRADIENTS, marked_tensors, self._number
            )
            gradients = [self._copy_if_late(gradient) for gradient in self._gradients]
            leave_node = self._insert_call(
                markers.LEAVE,
                marked_tensors,
                marked_tensors,
                gradients,
                self._positions,
                False,
                self._number,
            )
            hooked_tensors = self._insert_getitems(leave_node)
        for tensor, result in zip(self._tensors, hooked_tensors, strict=True):
            tensor.replace_all_uses_with(result, lambda user: user in self._users)
        for item in list(self._hooked.users):
            item.replace_all_uses_with(hooked_tensors[item.args[1]])
            self._graph.erase_node(item)
        for node in reversed(self._region):
            if not node.users:
                self._graph.erase_node(node)
        return {t.name: r.name for t, r in zip(self._tensors, hooked_tensors, strict=True)}

    def _insert_call(self, target: Any, *args: Any) -> torch.fx.Node:
        node = self._graph.call_function(target, args)
        node.meta = dict(self._hooked.meta)
        return node

    def _insert_getitems(self, list_node: object) -> list[torch.fx.Node]:
        items: list[Any] = []
        for index, tensor in enumerate(self._tensors):
            item = self._insert_call(operator.getitem, list_node, index)
            item.meta["val"] = tensor.meta["val"]
            items.append(item)
        return items

    def _copy_if_late(self, node: torch.fx.Node) -> torch.fx.Node:
        """Returns a node, or a copy of it where the node comes after the first reader."""
        if node in self._copies:
            return self._copies[node]
        if node < self._first and node not in self._region:
            return node
        self._check_copyable(node)
        operands = [self._copy_if_late(operand) for operand in node.all_input_nodes]
        copy_of_operand = dict(zip(node.all_input_nodes, operands, strict=True))
        self._copies[node] = self._graph.node_copy(node, copy_of_operand.__getitem__)
        return self._copies[node]

    def _check_copyable(self, node: torch.fx.Node) -> None:
        tags: Sequence[object] = getattr(node.target, "tags", ())
        schema = getattr(node.target, "_schema", None)
        is_random = torch.Tag.nondeterministic_seeded in tags
        if node not in self._region and (is_random or (schema and schema.is_mutable)):
            raise _hook_placement_error(
                self._hooked, "needs random numbers drawn after the tensor is used"
            )


def _nodes_of_hook(graph: torch.fx.Graph, hooked: Any) -> list[torch.fx.Node]:
    """Returns the nodes of a hook, from the gradients it takes to its end."""
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
