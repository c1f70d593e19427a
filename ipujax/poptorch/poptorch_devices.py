"""The virtual IPUs of PopTorch's programs, configured as options ask."""

from __future__ import annotations

from ipujax.driver import executable_cache
from ipujax.ground import Keywords, PopTorchError
from ipujax.poptorch.options import Options
from ipujax.poptorch.options.config_file import (
    VERSION_OF_CHIP,
    build_ipu_config,
    get_cache_folder,
)
from ipujax.poptorch.options.system import is_ipu_model_used
from ipujax.poptorch.poptorch_checks import check
from ipujax.system import SYSTEM, ConfigNode, IPUConfig, SystemOptions, most_ipus, walk_options

_DEVICE = "/device:IPU:0"

_last_generation: list[object] = []  # the configuration that was made here last


def configure_ipus_for_model(replicas: int, ipus: int, options: Options, is_training: bool) -> None:
    """Configures the system's IPUs for a program, or checks the user's own configuration.

    A system that nobody has configured gets as many IPUs as are needed, and keeps them; programs
    that are compiled already go on as they are. Compiled programs are kept where the options say.

    Args:
      replicas: the number of replicas.
      ipus: the IPUs of each replica; rounded up to a power of two, as a device's are.
      options: the model's options.
      is_training: whether the model trains.

    Raises:
      PopTorchError: (a `ValueError`) the user's own configuration has fewer IPUs, or the options
        ask for what it leaves out.
    """
    ipus_per_replica = 1 << (ipus - 1).bit_length()
    needed = 1 << (replicas * ipus_per_replica - 1).bit_length()
    config = build_ipu_config(options, "training" if is_training else "inference")
    if SYSTEM.is_configured and SYSTEM.generation not in _last_generation:
        _check_user_configuration(f"{replicas} replicas of {ipus_per_replica} IPUs", needed, config)
    else:
        _configure_system(config, needed, options)
    executable_cache.set_cache_folder(get_cache_folder(options))


def _configure_system(config: IPUConfig, needed: int, options: Options) -> None:
    num_ipus = SYSTEM.device(_DEVICE).num_ipus
    if options.exists("ipu_id"):
        config.select_ipus = [options.ipu_id]
    else:
        config.auto_select_ipus = max(needed, num_ipus)
    SYSTEM.configure(config)
    _last_generation[:] = [SYSTEM.generation]
    num_ipus = SYSTEM.device(_DEVICE).num_ipus
    if num_ipus < needed:
        raise PopTorchError(
            f"options.useIpuId({options.ipu_id}) names a device of {num_ipus} IPUs, but the model "
            f"needs {needed}",
            fix="name one that `gc-info -l` shows with as many, or leave useIpuId away",
        )


def _check_user_configuration(users: str, needed: int, config: IPUConfig) -> None:
    """Checks that the user's own configuration has enough IPUs and the settings of the options."""
    device = SYSTEM.device(_DEVICE)
    if device.num_ipus < needed:
        raise PopTorchError(
            f"{users} need {needed} IPUs, and {_DEVICE} has {device.num_ipus}",
            fix=f"set IPUConfig.auto_select_ipus = {needed}, or leave the system unconfigured",
        )
    defaults, configured = _flatten_config(IPUConfig()), _flatten_config(device.config)
    for name, value in _flatten_config(config).items():
        if value not in (defaults[name], configured[name]):
            raise PopTorchError(
                f"the model's options ask for {name} = {value!r}, but the system was configured "
                f"with {configured[name]!r}",
                fix=f"set IPUConfig.{name} so, or leave the system unconfigured",
            )


def _flatten_config(config: SystemOptions) -> Keywords:
    return {
        name: value for name, _, value in walk_options(config) if not isinstance(value, ConfigNode)
    }


@check.guard
def ipuHardwareIsAvailable(num_ipus: int = 1) -> bool:
    """Returns whether there is hardware: True, which virtual IPUs stand for, as many as are asked.

    False where they stand for the IPU Model (`useIpuModel(True)`, `POPTORCH_IPU_MODEL=1`).

    Args:
      num_ipus: the least number of IPUs asked for.
    """
    count = check.require_integer(num_ipus, "num_ipus", at_least=1)
    return not is_ipu_model_used() and count <= most_ipus()


def ipuHardwareVersion() -> int:
    """Returns the chip that virtual IPUs stand for: 1, 2, or 21 for Bow.

    Raises:
      PopTorchError: (a `ValueError`) they stand for the IPU Model.
    """
    if is_ipu_model_used():
        raise PopTorchError(
            "No IPU hardware available on this system: the IPU Model is used",
            fix="ask only where ipuHardwareIsAvailable(), or leave useIpuModel and "
            "POPTORCH_IPU_MODEL away",
        )
    config = SYSTEM.device(_DEVICE).config
    return VERSION_OF_CHIP[config.device_connection.version or config.ipu_model.version]


def count_configured_ipus() -> int | None:
    """Returns the number of IPUs of a system that the user configured; None if nobody did."""
    if not SYSTEM.is_configured or SYSTEM.generation in _last_generation:
        return None
    return SYSTEM.device(_DEVICE).num_ipus
