"""Errors, argument checks, events, files, text and the identity of the process."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
