"""The command line tools: `ipujax`, gc-info, gc-inventory and gc-monitor.

None of them loads JAX, and only those that show reports load NumPy, so that they start quickly.
"""

from .command import main as main
