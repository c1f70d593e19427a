"""Embeddings: lookups in tables on the device, and in tables that stay on the host."""

from __future__ import annotations

from ipujax.operators import host_embedding as _host_embedding

__all__ = [
    "STRATEGIES",
    "HostEmbedding",
    "HostEmbeddingOptimizerSpec",
    "HostEmbeddingSGDGAOptimizerSpec",
    "create_host_embedding",
    "embedding_lookup",
]


def __dir__() -> list[str]:
    return __all__


STRATEGIES = _host_embedding.STRATEGIES
HostEmbedding = _host_embedding.HostEmbedding
HostEmbeddingOptimizerSpec = _host_embedding.HostEmbeddingOptimizerSpec
HostEmbeddingSGDGAOptimizerSpec = _host_embedding.HostEmbeddingSGDGAOptimizerSpec
create_host_embedding = _host_embedding.create_host_embedding
embedding_lookup = _host_embedding.embedding_lookup
