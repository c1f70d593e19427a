"""The folder of `popart_core`."""
