from .operators import HostEmbeddingOptimizerSpec as HostEmbeddingOptimizerSpec
from .operators import (
    HostEmbeddingSGDGAOptimizerSpec as HostEmbeddingSGDGAOptimizerSpec,
)
from .operators.host_embedding import STRATEGIES as STRATEGIES
from .operators.host_embedding import HostEmbedding as HostEmbedding
from .operators.host_embedding import create_host_embedding as create_host_embedding
from .operators.host_embedding import embedding_lookup as embedding_lookup
