"""The folder of `tessellate_ipu`."""
