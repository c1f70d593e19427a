"""How reports are made, and what they look like: `make` first, then one module per part."""
