"""The passes of `lowering.compiler`, one per file, each a pure function."""
