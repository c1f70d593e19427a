"""Training and inference: a model, its optimizer and its data become loops on the device.

A `Training` defines a step; it compiles to one program that makes many steps, as a loop or as a
pipeline. `fit` runs that program until enough steps are made, a callback stops it, or the data
ends. An `Inference` does the same without learning.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
