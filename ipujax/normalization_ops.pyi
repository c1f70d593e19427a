from .operators.normalization import batch_norm as batch_norm
from .operators.normalization import group_norm as group_norm
from .operators.normalization import instance_norm as instance_norm
from .operators.normalization import layer_norm as layer_norm
