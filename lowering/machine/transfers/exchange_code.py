"""What a tile's part of an exchange takes: instruction words, from the pieces that it moves.

An exchange is timed when it is compiled, and every tile runs a program of its own: it sends from an
address, and for what it receives it turns its input to another tile (the mux) and sets the pointer
to where words go, which then counts on by itself. Each is an instruction of one word (ipu-stack:
docs/EXCHANGE_INSTRUCTION_REFERENCE.md, of programs that Poplar made; docs/hardware.md, Memory).
"""

from __future__ import annotations

import dataclasses as dc
import math
from typing import Literal, TypeAlias

ExchangeGoal: TypeAlias = Literal["cycles", "balanced", "memory"]
"""What the code of exchanges is compiled for (Poplar: opt.internalExchangeOptimisationTarget)."""

WORD_BYTES = 4
SOURCE_WORDS = 1  # delayxpic: receive from another tile
REGION_WORDS = 1  # delaypic: receive at another address
SEND_WORDS = 1  # send: words from an address on, whoever receives them
EXCHANGE_WORDS = 3  # a delay until its first event, its first address, and the return

# Linear mappings have at least so many bytes on a tile that holds any (poplibs: poputil).
LEAST_PIECE_BYTES = 128

_PART_OF_GOAL = {"cycles": 0.0, "balanced": 0.5, "memory": 1.0}


@dc.dataclass(frozen=True, slots=True)
class Pieces:
    """The pieces that the busiest tile moves in an exchange: each contiguous on both tiles.

    Attributes:
      received: how many it receives, one after the other from different tiles or addresses.
      regions: how many of them do not lie behind the one before.
      sent: how many it sends; what several tiles receive at once counts once.
    """

    received: float = 0.0
    regions: float = 0.0
    sent: float = 0.0

    def __add__(self, other: Pieces) -> Pieces:
        """Returns the pieces of both, in one exchange."""
        return Pieces(
            self.received + other.received, self.regions + other.regions, self.sent + other.sent
        )

    def code_bytes(self, goal: ExchangeGoal = "cycles") -> int:
        """Returns the bytes of the tile's instructions.

        For memory, a tile receives in the order of addresses: the pointer counts through.

        Args:
          goal: what the code is compiled for.
        """
        first = min(self.regions, 1.0)
        regions = self.regions - (self.regions - first) * _PART_OF_GOAL[goal]
        words = self.received * SOURCE_WORDS + regions * REGION_WORDS + self.sent * SEND_WORDS
        return WORD_BYTES * (EXCHANGE_WORDS + math.ceil(words))


def scattered_pieces(
    bytes_: float, piece_bytes: float = LEAST_PIECE_BYTES, tiles: int | None = None
) -> Pieces:
    """Returns the pieces of data that tiles send to each other, each to another address.

    Args:
      bytes_: what the busiest tile receives, and about as much as it sends.
      piece_bytes: bytes of a piece.
      tiles: how many tiles send; they pack what would be more than a piece from each. None: any
        number of pieces go.
    """
    count = float(math.ceil(bytes_ / piece_bytes))
    count = count if tiles is None else min(count, float(tiles))
    return Pieces(count, count, count)


def shared_pieces(bytes_: float, piece_bytes: float) -> Pieces:
    """Returns the pieces of a part of a tensor that tiles share, each holding some of it.

    They come in the tensor's order, and each tile sends what it holds to all others at once.

    Args:
      bytes_: what the busiest tile receives.
      piece_bytes: what a tile holds of the tensor, if no linear mapping says that it holds more.
    """
    count = float(math.ceil(bytes_ / max(piece_bytes, LEAST_PIECE_BYTES)))
    return Pieces(count, min(count, 1.0), min(count, 1.0))


def partial_pieces(count: int) -> Pieces:
    """Returns the pieces of a stage of a reduction, in which a tile receives so many partials.

    They come one behind the other, and what it sends to others lies so.
    """
    return Pieces(float(count), min(count, 1.0), min(count, 1.0))
