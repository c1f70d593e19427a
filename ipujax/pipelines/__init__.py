"""The implementation of `pipelining_ops.pipeline`: turns stages into the tasks of a loop."""
