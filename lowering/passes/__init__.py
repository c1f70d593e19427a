"""The passes of `lowering.lower`, one per file, each a pure function."""
