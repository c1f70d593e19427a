"""Plans of pipelines: from the costs of a model's segments to the fastest cut and schedule."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
