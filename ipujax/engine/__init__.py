"""The readers of a Program that run it: kernels on JAX devices, queues on the host."""
