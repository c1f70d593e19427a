"""Configures the IPU system: which IPUs a program gets, and how it is compiled and run.

    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = 4
    cfg.configure_ipu_system()

A wrong name or type is an error on assignment; values that contradict one another are an error
when the system is configured. Source: "Targeting the IPU from TensorFlow", Configuration utilities.
"""

from ipujax.ground import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
