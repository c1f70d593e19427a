"""How `pipelining_ops.pipeline` turns stage functions into the tasks of one loop."""
