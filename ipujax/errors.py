"""Every error that ipujax raises on purpose.

All of them derive from `IPUError`; where Python has a built-in that says the same (the original
raised `ValueError` or `TypeError`), they derive from that too, so existing handlers keep working.
Each message says what is wrong, where (the user's own line when there is one) and how to mend it.
"""

from ipujax.ground import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
