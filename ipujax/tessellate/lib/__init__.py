"""What the original's compiled library is asked for: descriptions of vertices, as data."""
