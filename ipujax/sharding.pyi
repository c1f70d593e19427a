from .operators.sharding import dependencies as dependencies
from .operators.sharding import get_shard_from_colocation as get_shard_from_colocation
from .operators.sharding import has_attr as has_attr
from .operators.sharding import propagate_sharding as propagate_sharding
