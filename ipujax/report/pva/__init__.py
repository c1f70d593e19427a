"""Views of a report under the names of Graphcore's `pva`, for `ipujax.pva`."""
