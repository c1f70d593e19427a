"""`horovod` under the name that it has in later releases."""

from __future__ import annotations

from ipujax.distributed import ipu_horovod_strategy as ipu_horovod_strategy
from ipujax.distributed import popdist_strategy as popdist_strategy
from ipujax.horovod import Adasum as Adasum
from ipujax.horovod import Average as Average
from ipujax.horovod import Sum as Sum
from ipujax.horovod import allgather as allgather
from ipujax.horovod import allreduce as allreduce
from ipujax.horovod import broadcast as broadcast
from ipujax.horovod import init as init
from ipujax.horovod import is_homogeneous as is_homogeneous
from ipujax.horovod import local_rank as local_rank
from ipujax.horovod import local_size as local_size
from ipujax.horovod import rank as rank
from ipujax.horovod import shutdown as shutdown
from ipujax.horovod import size as size

__all__ = [
    "Adasum",
    "Average",
    "Sum",
    "allgather",
    "allreduce",
    "broadcast",
    "init",
    "ipu_horovod_strategy",
    "is_homogeneous",
    "local_rank",
    "local_size",
    "popdist_strategy",
    "rank",
    "shutdown",
    "size",
]


def __dir__() -> list[str]:
    return __all__
