"""`ipu.compare`: one model on several chips and under several schedules, side by side.

    print(ipu.compare(train, [params], schedules=["grouped", "gpipe", "one_f_one_b"]))

Nothing runs, and nothing is compiled by XLA.
"""

from ipujax.ground import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
