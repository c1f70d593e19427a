"""The cost of one kernel: its operations are listed, laid out on tiles, timed and added up."""

from .alive import LivenessRecord as LivenessRecord
from .alive import LiveTensor as LiveTensor
from .alive import MemoryTracker as MemoryTracker
from .code import CodeUse as CodeUse
from .code import compute_code_bytes as compute_code_bytes
from .fusing import fuse_elementwise_chains as fuse_elementwise_chains
from .items import Item as Item
from .items import Listing as Listing
from .items import Loop as Loop
from .kernel_cost import cost_of_item as cost_of_item
from .kernel_cost import model_kernel as model_kernel
from .kernel_memory import KernelMemory as KernelMemory
from .kernel_memory import MemoryEvent as MemoryEvent
from .kernel_memory import compute_kernel_liveness as compute_kernel_liveness
from .layouts import Layouts as Layouts
from .layouts import TensorLayout as TensorLayout
from .listing import list_operations as list_operations
from .scheduling import schedule_items as schedule_items
from .supersteps import Supersteps as Supersteps
from .totals import KernelCost as KernelCost
from .uses import count_reads as count_reads
from .views import View as View
from .views import Walk as Walk
from .views import apply_to_view as apply_to_view
from .views import invert_view as invert_view
from .views import operand_shown_by as operand_shown_by
