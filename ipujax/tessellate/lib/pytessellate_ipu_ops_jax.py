"""The constant of TessellateIPU's compiled library that scripts read."""

TileMapMaxInOutAliasingArgs = 4
"""The most fields of a vertex that are read and written."""
