"""The operators of a domain, as methods that add nodes to a builder's graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

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
      version: of the domain.
      operations: all that there are.
    """

    def __init__(self, builder: Builder, version: int, operations: Mapping[str, Operation]):
        self._builder, self.version, self._operations = builder, version, operations

    def __getattr__(self, name: str) -> Callable[..., Any]:
        operation = self._operations.get(name)
        if operation is None:
            raise AttributeError(
                f"there is no operator {name!r} in version {self.version} of this domain"
            )

        def method(*args: Any, **kwargs: Any) -> Any:
            try:
                bound = operation.signature.bind(*args, **kwargs)
            except TypeError as error:
                raise check.refuse_type(
                    f"{name}(): incompatible function arguments: {error}",
                    f"call {name}{operation.signature}",
                ) from None
            bound.apply_defaults()
            return self._builder.add_node(operation, bound.arguments, self.version)

        method.__name__ = name
        method.__signature__ = operation.signature  # pyright: ignore[reportFunctionMemberAccess]
        return method

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._operations})


def onnx_opset(builder: Builder, version: int) -> Opset:
    """ONNX's own operators in a version."""
    return Opset(builder, version, onnx_operations(version))
