"""The errors of the compiler, and small tools that all its rooms use."""

from lowering.ground import svg as svg
from lowering.ground.dir_listing import limit_dir_to as limit_dir_to
from lowering.ground.errors import CollectiveError as CollectiveError
from lowering.ground.errors import DeviceMeshError as DeviceMeshError
from lowering.ground.errors import EnqueueError as EnqueueError
from lowering.ground.errors import InternalError as InternalError
from lowering.ground.errors import IPUError as IPUError
from lowering.ground.errors import LoweringError as LoweringError
from lowering.ground.errors import OutsideCompilationError as OutsideCompilationError
from lowering.ground.errors import ShardError as ShardError
from lowering.ground.errors import TargetError as TargetError
from lowering.ground.operation_words import word_of_function as word_of_function
from lowering.ground.operation_words import word_of_primitive as word_of_primitive
from lowering.ground.options import Options as Options
from lowering.ground.registries import import_modules_beside as import_modules_beside
from lowering.ground.source_lines import file_of_cell as file_of_cell
from lowering.ground.source_lines import is_in_installed_package as is_in_installed_package
from lowering.ground.source_lines import name_source_line as name_source_line
from lowering.ground.source_lines import parse_source_line as parse_source_line
from lowering.ground.supersteps import BetweenIpus as BetweenIpus
from lowering.ground.supersteps import Superstep as Superstep
from lowering.ground.supersteps import TileNumbers as TileNumbers
from lowering.ground.topological_order import sort_by_needs as sort_by_needs
from lowering.ground.units import HOST as HOST
from lowering.ground.units import IpuId as IpuId
from lowering.ground.units import ValueId as ValueId
