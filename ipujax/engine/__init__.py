"""The engines that run a Program: kernels on JAX devices, queues on the host."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
