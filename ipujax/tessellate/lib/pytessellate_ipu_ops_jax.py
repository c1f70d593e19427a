"""A number of the original's compiled library."""

TileMapMaxInOutAliasingArgs = 4
"""The most fields of a vertex that are read and written."""
