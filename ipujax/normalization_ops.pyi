from .operators.normalization_ops import batch_norm as batch_norm
from .operators.normalization_ops import group_norm as group_norm
from .operators.normalization_ops import instance_norm as instance_norm
from .operators.normalization_ops import layer_norm as layer_norm
