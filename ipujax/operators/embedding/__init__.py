"""Host embeddings: tables, and what updates them."""
