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
from .system.older_options import auto_select_ipus as auto_select_ipus
from .system.older_options import create_ipu_config as create_ipu_config
from .system.older_options import extract_compile_reports as extract_compile_reports
from .system.older_options import extract_execute_reports as extract_execute_reports
from .system.older_options import (
    extract_poplar_serialized_graphs as extract_poplar_serialized_graphs,
)
from .system.older_options import select_ipus as select_ipus
from .system.older_options import set_compilation_options as set_compilation_options
from .system.older_options import set_convolution_options as set_convolution_options
from .system.older_options import (
    set_experimental_multi_replica_distribution_options as set_experimental_multi_replica_distribution_options,  # noqa: E501
)
from .system.older_options import (
    set_floating_point_behaviour_options as set_floating_point_behaviour_options,
)
from .system.older_options import set_gcl_options as set_gcl_options
from .system.older_options import set_io_tile_options as set_io_tile_options
from .system.older_options import set_ipu_connection_type as set_ipu_connection_type
from .system.older_options import set_ipu_model_options as set_ipu_model_options
from .system.older_options import set_matmul_options as set_matmul_options
from .system.older_options import set_norm_options as set_norm_options
from .system.older_options import set_optimization_options as set_optimization_options
from .system.older_options import set_pooling_options as set_pooling_options
from .system.older_options import set_recomputation_options as set_recomputation_options
from .system.older_options import set_report_options as set_report_options
from .system.older_options import set_serialization_options as set_serialization_options
from .system.older_options import set_transfer_options as set_transfer_options
from .system.older_options import set_verification_options as set_verification_options
