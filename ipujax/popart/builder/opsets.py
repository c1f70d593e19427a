"""The operators of a domain, as methods that add nodes to a builder's graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ipujax.errors import MissingAttributeError
from ipujax.popart.builder.graphcore import graphcore_operations
from ipujax.popart.builder.signatures import Operation, onnx_operations
from ipujax.popart.checks import check

if TYPE_CHECKING:
    from ipujax.popart.builder.builder import Builder


class Opset:
    """Operators by name: `opset.relu([x])` adds a node and gives the name of its result.

    A method takes the names of the inputs as a list, how many outputs there are where that varies,
    the attributes, and `debugContext`, which names the result.

    Args:
      builder: whose graph gets the nodes.
      name: of the domain, as the original had it in names of classes.
      version: of the domain.
      operations: all that there are.
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
            )

        def method(*args: Any, **kwargs: Any) -> Any:
            try:
                given = operation.bind(args, kwargs)
            except TypeError as error:
                raise check.refuse_type(
                    f"{name}(): incompatible function arguments. The following argument types are "
                    f"supported:\n    {name}{operation.signature}\nbut: {error}"
                ) from None
            return self._builder.add_node(operation, given, self.version)

        method.__name__ = name
        method.__signature__ = operation.signature  # pyright: ignore[reportFunctionMemberAccess]
        return check.guard(method)

    def __str__(self) -> str:
        return f"{self._name}{self.version}"

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._operations})


def onnx_opset(builder: Builder, version: int) -> Opset:
    """ONNX's own operators in a version."""
    return Opset(builder, "AiOnnx", version, onnx_operations(version))


def graphcore_opset(builder: Builder, version: int) -> Opset:
    """Graphcore's own operators."""
    return Opset(builder, "AiGraphcore", version, graphcore_operations())
