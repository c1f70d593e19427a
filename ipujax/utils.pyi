from .host.utilities import export_dataset_to_file as export_dataset_to_file
from .host.utilities import export_inputs_to_file as export_inputs_to_file
from .host.utilities import extract_all_events as extract_all_events
from .host.utilities import (
    extract_all_strings_from_event_trace as extract_all_strings_from_event_trace,
)
from .host.utilities import extract_all_types_from_event_trace as extract_all_types_from_event_trace
from .host.utilities import get_num_of_ipus_in_device as get_num_of_ipus_in_device
from .host.utilities import (
    move_variable_initialization_to_cpu as move_variable_initialization_to_cpu,
)
from .host.utilities import reset_ipu_seed as reset_ipu_seed
from .host.utilities import running_on_ipu_model as running_on_ipu_model
from .host.utilities import use_synthetic_data_for as use_synthetic_data_for
from .system import DeviceConnectionType as DeviceConnectionType
from .system import ExecutionProfileType as ExecutionProfileType
from .system import IPUConfig as IPUConfig
from .system import KeyId as KeyId
from .system import MergeRemoteBuffersBehaviour as MergeRemoteBuffersBehaviour
from .system import SchedulingAlgorithm as SchedulingAlgorithm
from .system import SelectionOrder as SelectionOrder
from .system import SyntheticDataCategory as SyntheticDataCategory
from .system import VerificationOptions as VerificationOptions
from .system import configure_ipu_system as configure_ipu_system
from .system import get_ipu_config as get_ipu_config
from .system import reset_ipu_configuration as reset_ipu_configuration
