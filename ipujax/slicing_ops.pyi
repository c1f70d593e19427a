from .operators.slicing import sequence_slice as sequence_slice
from .operators.slicing import sequence_slice_pack as sequence_slice_pack
from .operators.slicing import sequence_slice_unpack as sequence_slice_unpack
