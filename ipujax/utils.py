"""General utilities: device queries, seeds, synthetic data, event traces and data export.

The configuration functions and enumerations of `ipujax.config` can be had from here, too, and the
original's older functions that took and returned options, which were deprecated there.
"""

from ipujax.ground import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
