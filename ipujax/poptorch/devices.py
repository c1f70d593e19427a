"""The virtual IPUs of PopTorch's programs, configured as options say."""

from __future__ import annotations

from typing import Any

from ipujax.config import IPUConfig
from ipujax.driver import executable_cache
from ipujax.errors import PopTorchError
from ipujax.poptorch.checks import check
from ipujax.poptorch.options import Options
from ipujax.poptorch.options.config import cache_of, config_of
from ipujax.system.config_options import SystemOptions
from ipujax.system.config_schema import ConfigNode, walk
from ipujax.system.devices import SYSTEM

_DEVICE = "/device:IPU:0"

_own: list[object] = []  # the configuration that was made here last


def provide(replicas: int, ipus: int, options: Options, is_training: bool) -> None:
    """Has the system be as a program is to be compiled for it.

    A system that nobody has configured gets as many IPUs as are needed, and keeps them; programs
    that are compiled already go on as they are. Compiled programs are kept where the options say.

    Args:
      replicas: how many there are.
      ipus: of each one; rounded up to a power of two, as a device's are.
      options: the model's.
      is_training: whether it trains.

    Raises:
      PopTorchError: (a `ValueError`) the user's own configuration has fewer IPUs, or the options
        ask for what it leaves out.
    """
    each = 1 << (ipus - 1).bit_length()
    needed = 1 << (replicas * each - 1).bit_length()
    config = config_of(options, "training" if is_training else "inference")
    if SYSTEM.configured and SYSTEM.generation not in _own:
        _check_users(f"{replicas} replicas of {each} IPUs", needed, config)
    else:
        _configure(config, needed, options)
    executable_cache.keep_in(cache_of(options))


def _configure(config: IPUConfig, needed: int, options: Options) -> None:
    there = SYSTEM.device(_DEVICE).num_ipus
    if options.exists("ipu_id"):
        config.select_ipus = [options.ipu_id]
    else:
        config.auto_select_ipus = max(needed, there)
    SYSTEM.configure(config)
    _own[:] = [SYSTEM.generation]
    there = SYSTEM.device(_DEVICE).num_ipus
    if there < needed:
        raise PopTorchError(
            f"options.useIpuId({options.ipu_id}) names a device of {there} IPUs, but the model "
            f"needs {needed}",
            fix="name one that `gc-info -l` shows with as many, or leave useIpuId away",
        )


def _check_users(what: str, needed: int, config: IPUConfig) -> None:
    """Refuses what a configuration of the user's own does not give."""
    device = SYSTEM.device(_DEVICE)
    if device.num_ipus < needed:
        raise PopTorchError(
            f"{what} need {needed} IPUs, and {_DEVICE} has {device.num_ipus}",
            fix=f"set IPUConfig.auto_select_ipus = {needed}, or leave the system unconfigured",
        )
    usual, there = _options_of(IPUConfig()), _options_of(device.config)
    for name, value in _options_of(config).items():
        if value not in (usual[name], there[name]):
            raise PopTorchError(
                f"the model's options ask for {name} = {value!r}, but the system was configured "
                f"with {there[name]!r}",
                fix=f"set IPUConfig.{name} so, or leave the system unconfigured",
            )


def _options_of(config: SystemOptions) -> dict[str, Any]:
    return {name: value for name, _, value in walk(config) if not isinstance(value, ConfigNode)}


@check.guard
def ipuHardwareIsAvailable(num_ipus: int = 1) -> bool:
    """Whether there are physical IPUs: no, all are virtual.

    Args:
      num_ipus: at least how many.
    """
    check.integer(num_ipus, "num_ipus", at_least=1)
    return False


def ipuHardwareVersion() -> int:
    """The version of the physical IPUs.

    Raises:
      PopTorchError: (a `ValueError`) always, as there are none.
    """
    raise PopTorchError(
        "No IPU hardware available on this system: all IPUs are virtual",
        fix="ask only where ipuHardwareIsAvailable()",
    )
