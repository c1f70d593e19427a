"""The operators of a domain, as methods that add nodes to a builder's graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ipujax.ground import MissingAttributeError, suggest_closest_name
from ipujax.popart.builder.graphcore_ops import graphcore_operations
from ipujax.popart.builder.operator_signatures import Operation, onnx_operations
from ipujax.popart.popart_checks import check

if TYPE_CHECKING:
    from ipujax.popart.builder.builder import Builder


class Opset:
    """A namespace of operators: `opset.relu([x])` adds a node and returns its result's name.

    A method takes the names of the inputs as a list, the number of outputs if it varies, the
    attributes, and `debugContext`, which names the result.

    Args:
      builder: the builder whose graph gets the nodes.
      name: the domain, as in the original's class names.
      version: the version of the domain.
      operations: the operators by name.
    """

    def __init__(
        self, builder: Builder, name: str, version: int, operations: Mapping[str, Operation]
    ):
        self._builder, self._name = builder, name
        self.version, self._operations = version, operations

    def __getattr__(self, name: str) -> Callable[..., Any]:
        operation = self._operations.get(name)
        if operation is None:
            raise MissingAttributeError(
                f"there is no operator {name!r} in version {self.version} of this domain"
                f"{suggest_closest_name(name, self._operations)}"
            )

        def add_operator_node(*args: object, **kwargs: object) -> Any:
            try:
                arguments = operation.bind_operator_arguments(args, kwargs)
            except TypeError as error:
                raise check.type_error(
                    f"{name}(): incompatible function arguments. The following argument types are "
                    f"supported:\n    {name}{operation.signature}\nbut: {error}"
                ) from None
            return self._builder.add_node(operation, arguments, self.version)

        add_operator_node.__name__ = name
        add_operator_node.__signature__ = operation.signature  # pyright: ignore[reportFunctionMemberAccess]
        return check.guard(add_operator_node)

    def __str__(self) -> str:
        return f"{self._name}{self.version}"

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._operations})


def onnx_opset(builder: Builder, version: int) -> Opset:
    """Returns ONNX's own operators of a version."""
    return Opset(builder, "AiOnnx", version, onnx_operations(version))


def graphcore_opset(builder: Builder, version: int) -> Opset:
    """Returns Graphcore's own operators."""
    return Opset(builder, "AiGraphcore", version, graphcore_operations())
