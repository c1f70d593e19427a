"""The virtual machine and its configuration: devices, options, flags, logs, attachments."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
