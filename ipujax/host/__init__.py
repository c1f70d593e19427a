"""The host's side of programs: queues, their elements, synthetic data and data export."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
