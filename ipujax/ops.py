"""The operators' modules under one name: `ops.nn_ops` is `nn_ops` (seed 001, 18.14).

`from ipujax.ops.slicing_ops import sequence_slice` works too, as programs for the original write
it.
"""

from __future__ import annotations

import sys

from ipujax import all_to_all_op as all_to_all_op
from ipujax import cross_replica_ops as cross_replica_ops
from ipujax import custom_ops as custom_ops
from ipujax import embedding_ops as embedding_ops
from ipujax import functional_ops as functional_ops
from ipujax import image_ops as image_ops
from ipujax import internal_ops as internal_ops
from ipujax import math_ops as math_ops
from ipujax import nn_ops as nn_ops
from ipujax import normalization_ops as normalization_ops
from ipujax import pipelining_ops as pipelining_ops
from ipujax import rand_ops as rand_ops
from ipujax import reduce_scatter_op as reduce_scatter_op
from ipujax import replication_ops as replication_ops
from ipujax import rnn_ops as rnn_ops
from ipujax import slicing_ops as slicing_ops
from ipujax import statistics_ops as statistics_ops
from ipujax import summary_ops as summary_ops

_MODULES = [name for name in vars() if name.endswith(("_op", "_ops"))]
__all__ = _MODULES  # pyright: ignore[reportUnsupportedDunderAll]


def __dir__() -> list[str]:
    return __all__


# As `os` does for `os.path`, so that importing `ipujax.ops.nn_ops` makes no second copy.
for _name in _MODULES:
    sys.modules[f"{__name__}.{_name}"] = globals()[_name]
