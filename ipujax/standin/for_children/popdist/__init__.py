"""The folder of `popdist`."""
