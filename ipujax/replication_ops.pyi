from .operators.replication import replication_index as replication_index
from .operators.replication import replication_normalise as replication_normalise
