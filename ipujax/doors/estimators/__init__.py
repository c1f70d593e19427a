"""The parts of estimators: model functions, modes, hooks, and the files of a training."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
