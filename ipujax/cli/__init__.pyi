"""The command line tools: `ipujax`, gc-info and the others of their kind.

None of them loads JAX, and only those that show reports or ask the machine model load NumPy, so
that they start quickly.
"""

from .command import main as main
