"""Configures the IPU system: which IPUs a program gets, and how it is compiled and run.

    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = 4
    cfg.configure_ipu_system()

A wrong name or type is an error on assignment; values that contradict one another are an error
when the system is configured. Source: "Targeting the IPU from TensorFlow", Configuration utilities.
"""

from __future__ import annotations

from ipujax.system import ipu_config as _ipu_config

__all__ = [
    "AttributeMetadata",
    "DeviceConnectionType",
    "ExecutionProfileType",
    "IPUConfig",
    "KeyId",
    "MergeRemoteBuffersBehaviour",
    "SchedulingAlgorithm",
    "SelectionOrder",
    "VerificationOptions",
    "configure_ipu_system",
    "get_ipu_config",
    "reset_ipu_configuration",
]


def __dir__() -> list[str]:
    return __all__


AttributeMetadata = _ipu_config.AttributeMetadata
DeviceConnectionType = _ipu_config.DeviceConnectionType
ExecutionProfileType = _ipu_config.ExecutionProfileType
IPUConfig = _ipu_config.IPUConfig
KeyId = _ipu_config.KeyId
MergeRemoteBuffersBehaviour = _ipu_config.MergeRemoteBuffersBehaviour
SchedulingAlgorithm = _ipu_config.SchedulingAlgorithm
SelectionOrder = _ipu_config.SelectionOrder
VerificationOptions = _ipu_config.VerificationOptions
configure_ipu_system = _ipu_config.configure_ipu_system
get_ipu_config = _ipu_config.get_ipu_config
reset_ipu_configuration = _ipu_config.reset_ipu_configuration
