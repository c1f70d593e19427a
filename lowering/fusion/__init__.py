"""A transformation of Programs for one device: the same results from few, large kernels."""
