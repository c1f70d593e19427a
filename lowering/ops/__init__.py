"""The primitives of ours: what a jaxpr says that JAX has no words for, one family per module."""

from lowering.ops import collectives as collectives
from lowering.ops import draws as draws
from lowering.ops import host_tables as host_tables
from lowering.ops import norms as norms
from lowering.ops import storage as storage
from lowering.ops import streams as streams
from lowering.ops import tasks as tasks
from lowering.ops import user_ops as user_ops
