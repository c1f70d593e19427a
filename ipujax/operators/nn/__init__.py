"""The operators of `ipu.nn_ops`, one family per module."""
