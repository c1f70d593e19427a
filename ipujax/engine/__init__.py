"""The engines that run a Program: kernels on JAX devices, queues on the host."""
