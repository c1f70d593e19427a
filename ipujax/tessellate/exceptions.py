"""The errors of this package: they are also of the classes that the original raises."""

from __future__ import annotations

from ipujax.ground import Checks, IPUError


class TileError(IPUError, AssertionError, ValueError):
    """Operands, tiles or parameters that do not fit; the original asserts, or has a ValueError."""


class TileTypeError(IPUError, TypeError):
    """Operands of another type, or elements of sizes that do not go together."""


class UnsupportedOnTiles(IPUError, NotImplementedError):
    """Parameters of a primitive that no vertex takes, or a primitive that computes nothing."""


class UnknownTilePrimitive(IPUError, KeyError):
    """A primitive that is not registered, or that is registered already."""

    __str__ = IPUError.__str__


check = Checks(TileTypeError, TileError)


def require(holds: bool, message: str) -> None:
    """Raises an error that says what is wrong, unless a condition holds."""
    if not holds:
        raise check.value_error(message)


unsupported = Checks(TileTypeError, UnsupportedOnTiles).value_error
unknown_primitive = Checks(TileTypeError, UnknownTilePrimitive).value_error
