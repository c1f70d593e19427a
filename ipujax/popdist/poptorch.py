"""PopTorch's options for instances, under the name that the original had for them."""

from __future__ import annotations

from typing import Any, NoReturn

from ipujax import popdist
from ipujax.poptorch.checks import check
from ipujax.poptorch.options import Options as _Options
from ipujax.poptorch.options import _DistributedOptions


class _Distributed(_DistributedOptions):
    """`Options.Distributed` of an instance, which nobody can change."""

    def disable(self) -> NoReturn:
        """Refused."""
        raise _blocked("Distributed.disable")

    def setEnvVarNames(self, *_: Any, **__: Any) -> NoReturn:
        """Refused."""
        raise _blocked("Distributed.setEnvVarNames")

    def configureProcessId(self, *_: Any, **__: Any) -> NoReturn:
        """Refused."""
        raise _blocked("Distributed.configureProcessId")


@check.guard
class Options(_Options):
    """`poptorch.Options` of an instance: what `ipurun` says can not be said again.

    `poptorch.Options()` has the same values, and lets them be changed.

    Args:
      ipus_per_replica: of the model; those that `ipurun --ipus-per-replica` says, or 1.

    Raises:
      Error: (a `ValueError` and `RuntimeError`) `ipurun` says another number; or, of the methods
        that are about replicas, processes and devices, always.
    """

    def __init__(self, ipus_per_replica: int | None = None):
        super().__init__()
        told = popdist.getNumIpusPerReplica()
        if ipus_per_replica is not None:
            check.integer(ipus_per_replica, "ipus_per_replica", at_least=1)
            if popdist.isPopdistEnvSet() and ipus_per_replica != told:
                raise check.refuse(
                    f"ipus_per_replica is {ipus_per_replica}, but ipurun says {told}",
                    f"start it by ipurun --ipus-per-replica {ipus_per_replica}",
                )
        self._distributed = _Distributed()

    def replicationFactor(self, *_: Any, **__: Any) -> NoReturn:
        """Refused."""
        raise _blocked("replicationFactor")

    def useIpuId(self, *_: Any, **__: Any) -> NoReturn:
        """Refused."""
        raise _blocked("useIpuId")


def _blocked(name: str) -> Exception:
    return check.refuse(
        f"Cannot call `{name}` with popdist.poptorch.Options",
        "ipurun says that; or use poptorch.Options",
    )
