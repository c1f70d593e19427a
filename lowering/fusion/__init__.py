"""A reader of Programs: the same program for one device, with few, large kernels."""
