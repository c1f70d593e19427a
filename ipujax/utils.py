"""General utilities: device queries, seeds, synthetic data, event traces and data export.

The configuration functions and enumerations of `ipujax.config` can be had from here, too. The
deprecated functions that took and returned options are gone; asking for one says what to use.
"""

from __future__ import annotations

from ipujax.host import utilities as _utilities

__all__ = [
    "DeviceConnectionType",
    "ExecutionProfileType",
    "IPUConfig",
    "KeyId",
    "MergeRemoteBuffersBehaviour",
    "SchedulingAlgorithm",
    "SelectionOrder",
    "SyntheticDataCategory",
    "VerificationOptions",
    "configure_ipu_system",
    "export_dataset_to_file",
    "export_inputs_to_file",
    "extract_all_events",
    "extract_all_strings_from_event_trace",
    "extract_all_types_from_event_trace",
    "get_ipu_config",
    "get_num_of_ipus_in_device",
    "move_variable_initialization_to_cpu",
    "reset_ipu_configuration",
    "reset_ipu_seed",
    "running_on_ipu_model",
    "use_synthetic_data_for",
]


def __dir__() -> list[str]:
    return __all__


__getattr__ = _utilities.__getattr__
DeviceConnectionType = _utilities.DeviceConnectionType
ExecutionProfileType = _utilities.ExecutionProfileType
IPUConfig = _utilities.IPUConfig
KeyId = _utilities.KeyId
MergeRemoteBuffersBehaviour = _utilities.MergeRemoteBuffersBehaviour
SchedulingAlgorithm = _utilities.SchedulingAlgorithm
SelectionOrder = _utilities.SelectionOrder
SyntheticDataCategory = _utilities.SyntheticDataCategory
VerificationOptions = _utilities.VerificationOptions
configure_ipu_system = _utilities.configure_ipu_system
export_dataset_to_file = _utilities.export_dataset_to_file
export_inputs_to_file = _utilities.export_inputs_to_file
extract_all_events = _utilities.extract_all_events
extract_all_strings_from_event_trace = _utilities.extract_all_strings_from_event_trace
extract_all_types_from_event_trace = _utilities.extract_all_types_from_event_trace
get_ipu_config = _utilities.get_ipu_config
get_num_of_ipus_in_device = _utilities.get_num_of_ipus_in_device
move_variable_initialization_to_cpu = _utilities.move_variable_initialization_to_cpu
reset_ipu_configuration = _utilities.reset_ipu_configuration
reset_ipu_seed = _utilities.reset_ipu_seed
running_on_ipu_model = _utilities.running_on_ipu_model
use_synthetic_data_for = _utilities.use_synthetic_data_for
