"""The folder of `popart`."""
