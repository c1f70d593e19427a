"""PopTorch's options for instances, under the original's name."""

from __future__ import annotations

from typing import NoReturn

from ipujax import popdist
from ipujax.poptorch import Options as _Options
from ipujax.poptorch import _DistributedOptions, check  # pyright: ignore[reportPrivateUsage]


class _Distributed(_DistributedOptions):
    """The `Options.Distributed` of an instance, which cannot be changed."""

    def disable(self) -> NoReturn:
        """Raises, as `ipurun` sets this."""
        raise _option_error("Distributed.disable")

    def setEnvVarNames(self, *_: object, **__: object) -> NoReturn:
        """Raises, as `ipurun` sets this."""
        raise _option_error("Distributed.setEnvVarNames")

    def configureProcessId(self, *_: object, **__: object) -> NoReturn:
        """Raises, as `ipurun` sets this."""
        raise _option_error("Distributed.configureProcessId")


@check.guard
class Options(_Options):
    """The `poptorch.Options` of an instance: values that `ipurun` sets cannot be changed.

    `poptorch.Options()` has the same values, which may be changed.

    Args:
      ipus_per_replica: by default, the number in `ipurun --ipus-per-replica`, or 1.

    Raises:
      Error: (a `ValueError` and `RuntimeError`) `ipurun` says another number; or, of the methods
        that are about replicas, processes and devices, always.
    """

    def __init__(self, ipus_per_replica: int | None = None):
        super().__init__()
        launched_ipus_per_replica = popdist.getNumIpusPerReplica()
        if ipus_per_replica is not None:
            check.require_integer(ipus_per_replica, "ipus_per_replica", at_least=1)
            if popdist.isPopdistEnvSet() and ipus_per_replica != launched_ipus_per_replica:
                raise check.value_error(
                    f"ipus_per_replica is {ipus_per_replica}, but ipurun says "
                    f"{launched_ipus_per_replica}",
                    f"start it by ipurun --ipus-per-replica {ipus_per_replica}",
                )
        self._distributed = _Distributed()

    def replicationFactor(self, *_: object, **__: object) -> NoReturn:
        """Raises, as `ipurun` sets this."""
        raise _option_error("replicationFactor")

    def useIpuId(self, *_: object, **__: object) -> NoReturn:
        """Raises, as `ipurun` sets this."""
        raise _option_error("useIpuId")


def _option_error(name: str) -> Exception:
    return check.value_error(
        f"Cannot call `{name}` with popdist.poptorch.Options",
        "ipurun says that; or use poptorch.Options",
    )
