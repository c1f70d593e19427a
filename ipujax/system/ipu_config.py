"""Configures the IPU system: which IPUs a program gets, and how it is compiled and run."""

# Callers need not be type-checked: what the signatures say is checked again.
# pyright: reportUnnecessaryIsInstance=false
from __future__ import annotations

import collections
import dataclasses
from typing import cast

from ipujax.ground import Checks, ConfigError, ConfigTypeError, check_attributes
from ipujax.system.config_schema import AttributeMetadata
from ipujax.system.devices import SYSTEM
from ipujax.system.option_checks import SystemOptions, config_key

_check = Checks(ConfigTypeError, ConfigError)
_check.guard(AttributeMetadata)


@_check.guard
@dataclasses.dataclass
class KeyId:
    """A key, and the id of the first of the data that it verifies.

    Attributes:
      key: the key; 0 is none.
      start_id: the first id; -1 lets ids follow on from what came before.
    """

    key: int = 0
    start_id: int = -1


def _make_empty_key_table() -> collections.defaultdict[str, KeyId]:
    return collections.defaultdict(KeyId)


@_check.guard
@check_attributes(_check)
@dataclasses.dataclass
class VerificationOptions:
    """The key and first id for each kind of data of a program, for verified transfers.

    Virtual IPUs have no untrusted link to verify: this is kept so that programs port unchanged,
    and does nothing.

    Attributes:
      inputs: the arguments of programs.
      input_parameters: the parameters that they read.
      outputs: their results.
      output_parameters: the parameters that they write.
      infeeds: infeeds by name; one that is not there yet is made when it is first asked for.
      outfeeds: outfeeds by name, likewise.
      checkpoint_in: the place in the infeeds at which to go on.
      checkpoint_out: the place in the outfeeds at which to go on.
    """

    inputs: KeyId = dataclasses.field(default_factory=KeyId)
    input_parameters: KeyId = dataclasses.field(default_factory=KeyId)
    outputs: KeyId = dataclasses.field(default_factory=KeyId)
    output_parameters: KeyId = dataclasses.field(default_factory=KeyId)
    infeeds: collections.defaultdict[str, KeyId] = dataclasses.field(
        default_factory=_make_empty_key_table
    )
    outfeeds: collections.defaultdict[str, KeyId] = dataclasses.field(
        default_factory=_make_empty_key_table
    )
    checkpoint_in: KeyId = dataclasses.field(default_factory=lambda: KeyId(0, 0))
    checkpoint_out: KeyId = dataclasses.field(default_factory=lambda: KeyId(0, 0))


@_check.guard
class IPUConfig(SystemOptions):
    """All that can be set about an IPU system; `print(config)` shows every option.

    Options are attributes, in categories: `config.ipu_model.version = "ipu21"`. Use
    `get_attribute_metadata` to ask for the type, default and meaning of one.
    """

    def configure_ipu_system(self, device: str = "cpu") -> None:
        """Configures the system with this; see the function of the same name."""
        configure_ipu_system(self, device)


@_check.guard
def configure_ipu_system(
    config: IPUConfig, device: str = "cpu", reset_configuration: bool = True
) -> None:
    """Configures the system; devices that connect `ALWAYS` attach now.

    The configuration is copied: changing `config` later changes nothing until it is configured
    again. Configuring again what is in force keeps devices and compiled programs; random numbers
    start anew. (In force, too, are the `TF_POPLAR_FLAGS` and `POPLAR_ENGINE_OPTIONS` of then.)

    Args:
      config: what to configure.
      device: the host's device; there is but one, and nothing depends on it.
      reset_configuration: drop the configuration in force first. Without it, configuring anew is
        an error unless nothing differs.

    Raises:
      ConfigTypeError: if `config` is no `IPUConfig`.
      ConfigError: if options contradict one another, or something else is configured already.
      DeviceError: if the system has no such IPUs.
    """
    if not isinstance(config, IPUConfig):
        raise ConfigTypeError(
            f"configure_ipu_system() takes an IPUConfig, not {type(config).__name__}; options of "
            "the older create_ipu_config() are attributes of IPUConfig now"
        )
    if SYSTEM.is_configured and not reset_configuration:
        if config_key(SYSTEM.copy_device_configs()[0]) == config_key(config):
            return
        raise ConfigError(
            "the system is configured already, in another way; call reset_ipu_configuration() "
            "first, or leave out reset_configuration=False"
        )
    SYSTEM.configure(config)


@_check.guard
def get_ipu_config(session: object = None) -> list[IPUConfig]:
    """Returns the configuration in force, once for each logical device.

    Args:
      session: not used: JAX has no sessions.

    Returns:
      Copies of the whole configuration, equal to one another, to read or to change and configure.

    Raises:
      NotConfiguredError: (a `RuntimeError`) if nothing is configured.
    """
    return cast(list[IPUConfig], SYSTEM.copy_device_configs())  # only such ones can be configured


def reset_ipu_configuration() -> None:
    """Drops the configuration in force, if any; a system without one has one IPU.

    Programs that are running keep the IPUs they have until they end.
    """
    SYSTEM.reset_system()
