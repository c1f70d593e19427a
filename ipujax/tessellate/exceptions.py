"""The errors of `ipujax.tessellate`, derived from the classes that TessellateIPU raises."""

from __future__ import annotations

from ipujax.ground import Checks, IPUError


class TileError(IPUError, AssertionError, ValueError):
    """Operands, tiles or parameters that do not fit."""


class TileTypeError(IPUError, TypeError):
    """Operands of a wrong type, or elements of incompatible sizes."""


class UnsupportedOnTiles(IPUError, NotImplementedError):
    """A primitive without an implementation, or parameters that no vertex takes."""


class UnknownTilePrimitive(IPUError, KeyError):
    """A primitive that is not registered, or that is registered already."""

    __str__ = IPUError.__str__


check = Checks(TileTypeError, TileError)


def require(holds: bool, message: str) -> None:
    """Raises an error with a message unless a condition holds."""
    if not holds:
        raise check.value_error(message)


unsupported = Checks(TileTypeError, UnsupportedOnTiles).value_error
unknown_primitive = Checks(TileTypeError, UnknownTilePrimitive).value_error
