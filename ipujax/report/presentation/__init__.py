"""Presentations of a report: text, an HTML page, trace events, and a file that is read again."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
