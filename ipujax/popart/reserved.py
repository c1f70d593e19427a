"""What the names of tensors begin with that belong to another tensor, such as its gradient."""

from ipujax.popart.forward import GRADIENT


def reservedGradientPrefix() -> str:
    """Of gradients, which can be anchored."""
    return GRADIENT


def reservedAcclPrefix() -> str:
    """Of the velocity of an `SGD` that keeps it Combined."""
    return "Accl___"


def reservedAccl1Prefix() -> str:
    """Of an optimizer's first moment, and of the velocity of an `SGD` that keeps it Separate."""
    return "Accl1___"


def reservedAccl2Prefix() -> str:
    """Of an optimizer's second moment."""
    return "Accl2___"


def reservedAccl3Prefix() -> str:
    """Of what `Adaptive` keeps for momentum."""
    return "Accl3___"


def reservedStepPrefix() -> str:
    """Of the number of steps that `Adam` has made."""
    return "Step___"


def reservedAccumPrefix() -> str:
    """Of the sum of gradients over micro-batches, which is inside the program: no anchor."""
    return "Accum___"
